"""The demonstration trains, reaches its accuracy, draws its report, and gives the same numbers each time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="the demonstration learns from scikit-learn's digits")
pytest.importorskip("rich", reason="the demonstration shows its progress")
pytest.importorskip("matplotlib", reason="the demonstration draws")

EXAMPLE = Path(__file__).parents[1] / "examples" / "digits_cnn.py"


def _run(folder: Path, *options: str) -> float:
    command = [sys.executable, str(EXAMPLE), "--out", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"test accuracy ([\d.]+), [\d.]+ seconds per epoch", done.stdout)
    assert found, done.stdout
    return float(found.group(1))


def test_the_same_numbers_each_time(tmp_path: Path) -> None:
    assert _run(tmp_path, "--epochs", "2") == _run(tmp_path, "--epochs", "2")


def test_the_promised_accuracy_and_report(tmp_path: Path) -> None:
    assert _run(tmp_path / "demo") >= 0.97
    page = (tmp_path / "demo" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert {p.name for p in (tmp_path / "demo").iterdir()} == {"report.html", "curves.png", "confusion.png"}
