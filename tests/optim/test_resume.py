"""A run that is killed at random moments ends with the same bits as one that was not.

8 kills by default; `WENGERT_KILLS=50 pytest tests/optim/test_resume.py` for more.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import wengert as wg

KILLS = int(os.environ.get("WENGERT_KILLS", "8"))
STEPS = 40 * KILLS  # a run takes about five before it is killed; on a busy machine it may get far ahead of that
SCRIPT = Path(__file__).with_name("resumable_run.py")


def _run(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), str(folder), str(STEPS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _end(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    return output.split()[-1]


@pytest.mark.timeout(60 + 15 * KILLS)
def test_killed_runs_end_with_the_same_bits(tmp_path: Path) -> None:
    expected = _end(_run(tmp_path / "whole"))
    folder, chance, kills, started = tmp_path / "killed", random.Random(0), 0, []
    while kills < KILLS:
        process = _run(folder)
        assert process.stdout is not None
        started.append(int(process.stdout.readline().split()[1]))
        steps, begin = 1 + chance.randrange(6), time.perf_counter()
        for _ in range(steps):
            process.stdout.readline()
        step_s = (time.perf_counter() - begin) / steps
        time.sleep(chance.uniform(0.0, 2 * step_s))  # at any moment of the next ones
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "the run ended before it was killed: more steps are needed"
        kills += 1
        wg.Checkpointer(folder).load()  # never a damaged one: that would warn, and warnings are errors
    assert started == sorted(started) and started[-1] > 0
    assert _end(_run(folder)) == expected
