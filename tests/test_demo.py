"""The demonstration trains, reaches its accuracy, and gives the same numbers each time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("rich")

EXAMPLE = Path(__file__).parents[1] / "examples" / "digits_mlp.py"


def _run(*options: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, str(EXAMPLE), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"test accuracy ([\d.]+), ([\d.]+) seconds per epoch", done.stdout)
    assert found, done.stdout
    return float(found.group(1)), float(found.group(2))


def test_digits_at_reduced_size() -> None:
    options = ("--epochs", "12", "--width", "32")
    first, seconds = _run(*options)
    assert first >= 0.9
    assert seconds > 0
    assert _run(*options)[0] == first


def test_digits_reach_the_promised_accuracy() -> None:
    assert _run()[0] >= 0.95
