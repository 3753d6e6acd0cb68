"""Files that are the old or the new one: what a program that died leaves behind is removed by the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import wengert as wg
from wengert.interop.files import TEMPORARY, remove_left_over, written_atomically

KILLED = """
import os, signal, sys
from pathlib import Path
from wengert.interop.files import written_atomically
with written_atomically(Path(sys.argv[1])) as f:
    f.write(b"half")
    f.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_save_leaves_nothing_after_the_next(tmp_path: Path) -> None:
    path = tmp_path / "net [1].safetensors"
    wg.save(path, {"x": wg.ones((2,))})
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", KILLED, path]).returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) > 1 and wg.load(path)["x"].tolist() == [1.0, 1.0]
    wg.save(path, {"x": wg.zeros((2,))})
    assert os.listdir(tmp_path) == [path.name] and wg.load(path)["x"].tolist() == [0.0, 0.0]


def test_files_that_are_being_written_stay(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with written_atomically(path) as first:
        first.write(b"first")
        with written_atomically(path) as second:  # as another process would
            second.write(b"second")
        remove_left_over(tmp_path, "a.")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first" and os.listdir(tmp_path) == ["a"]


def test_files_of_other_names_stay(tmp_path: Path) -> None:
    others = [f".ab.0{TEMPORARY}", f"a.0{TEMPORARY}", ".a.0", f".A.0{TEMPORARY}"]
    for name in others:
        (tmp_path / name).touch()
    wg.save(tmp_path / "a", {})
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "a"])


def test_many_writers_of_one_file(tmp_path: Path) -> None:
    path, errors = tmp_path / "a", []

    def write(k: int) -> None:
        try:
            for _ in range(20):
                wg.save(path, {"x": wg.full((100,), k)})
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=write, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and os.listdir(tmp_path) == ["a"]
    assert len(set(wg.load(path)["x"].tolist())) == 1


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="stop"), written_atomically(path) as f:
        f.write(b"new")
        raise RuntimeError("stop")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]
