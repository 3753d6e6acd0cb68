"""`wengert profile`: scripts run as they would alone, and their profile is written whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import wengert as wg
print("arguments", sys.argv, __name__, sys.path[0] == {folder!r})
x = wg.ones((8, 8), requires_grad=True)
y = (x @ x).tanh().sum()
y.backward()
if "fail" in sys.argv:
    def broken():
        raise ValueError("it failed")
    broken()
if "exit" in sys.argv:
    sys.exit(int(sys.argv[2]))
if "words" in sys.argv:
    sys.exit("no data")
if "interrupt" in sys.argv:
    raise KeyboardInterrupt
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(folder=str(tmp_path)), encoding="utf-8")
    return path


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wengert", "profile", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_script_runs_as_alone_and_is_profiled(script: Path, tmp_path: Path) -> None:
    done = _run(tmp_path, "--trace", "t.json", "--json", "p.json", "script.py", "a", "--report", "b")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "arguments ['script.py', 'a', '--report', 'b'] __main__ True\n"
    assert "by op" in done.stderr and "matmul" in done.stderr and "script.py:6" in done.stderr
    assert "report written to profile.html" in done.stderr
    assert "Profile of script.py" in (tmp_path / "profile.html").read_text(encoding="utf-8")
    names = {e["name"] for e in json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]}
    assert {"matmul", "tanh", "sum"} <= names
    assert json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))["totals"]["ops"] >= 7


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["fail"], 1, "ValueError: it failed"),
        (["exit", "7"], 7, ""),
        (["exit", "0"], 0, ""),
        (["words"], 1, "no data"),
        (["interrupt"], 130, "KeyboardInterrupt"),
    ],
)
def test_the_exit_status_is_the_scripts_and_the_profile_is_written(
    script: Path, tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    done = _run(tmp_path, "--quiet", "--report", "out.html", "script.py", *arguments)
    assert done.returncode == status and message in done.stderr
    assert "by op" not in done.stderr
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "matmul" in page and "tanh" in page


def test_a_traceback_begins_with_the_script(script: Path, tmp_path: Path) -> None:
    lines = _run(tmp_path, "--quiet", "script.py", "fail").stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and 'File "script.py", line 11' in lines[1]
    assert not any("runpy" in line or "cli/profile" in line for line in lines)


def test_modules_run_with_m(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "package" / "work.py").write_text(
        "import wengert as wg\nwg.ones((3,)).exp()\nprint(__name__)\n", "utf-8"
    )
    done = _run(tmp_path, "-m", "package.work")
    assert done.returncode == 0 and done.stdout == "__main__\n" and "exp" in done.stderr


def test_what_cannot_be_written_is_said_before_the_script_runs(script: Path, tmp_path: Path) -> None:
    for option in ("--report", "--trace", "--json"):
        done = _run(tmp_path, option, "no/folder/file", "script.py")
        assert done.returncode == 2 and done.stdout == ""
        assert f"cannot write the {option[2:]} to no/folder/file: No such file or directory" in done.stderr
    done = _run(tmp_path, "--report", ".", "script.py")
    assert done.returncode == 2 and "Is a directory" in done.stderr


def test_bad_arguments(script: Path, tmp_path: Path) -> None:
    done = _run(tmp_path, "missing.py")
    assert done.returncode == 2 and "there is no script missing.py" in done.stderr
    assert not (tmp_path / "profile.html").exists()
    done = _run(tmp_path, "--max-events", "0", "script.py")
    assert done.returncode == 2 and "--max-events must be positive, got 0" in done.stderr
    assert _run(tmp_path).returncode == 2
