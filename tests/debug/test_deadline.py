"""Limits on the time that a function may take."""

from __future__ import annotations

import subprocess
import sys

import pytest

from wengert.debug.deadline import DeadlineError, deadline


def test_a_block_that_takes_too_long_is_stopped():
    with pytest.raises(DeadlineError, match=r"the loop was stopped after 0\.05 s"), deadline(0.05, "the loop"):
        while True:
            pass


def test_what_the_block_raises_goes_on():
    with pytest.raises(KeyError), deadline(10.0, "nothing"):
        raise KeyError("own")


def test_nothing_is_left_behind_for_profilers():
    """CPython 3.11 starts no function under a profiler while it looks for an exception that was taken back."""
    program = """
import sys
from wengert.debug.deadline import DeadlineError, deadline

def swallowing():
    try:
        while True:
            pass
    except BaseException:
        raise KeyError("other") from None

for block in (lambda: [None for _ in iter(int, 1)], swallowing):
    try:
        with deadline(0.05, "the loop"):
            block()
    except (DeadlineError, KeyError):
        pass
    sys.setprofile(lambda *_: None)
    (lambda: None)()
    sys.setprofile(None)
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert done.stdout == "done\n", done.stderr
