"""Every program of the repository explains itself with --help, and does nothing else then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "examples").glob("*.py"))]
BENCHMARKS = [
    f"benchmarks.{path.stem}"
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if 'if __name__ == "__main__"' in path.read_text(encoding="utf-8")
]
WITHOUT_PEERS = """
import runpy, sys
sys.modules.update(torch=None, jax=None)  # as if they were not installed
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def _files() -> dict[Path, int]:
    folders = (ROOT, ROOT / "docs" / "images", ROOT / "benchmarks" / "results", ROOT / "examples")
    return {p: p.stat().st_mtime_ns for folder in folders for p in folder.iterdir() if p.is_file()}


def _help(*command: str) -> None:
    before = _files()
    done = subprocess.run(
        [sys.executable, *command, "--help"], cwd=ROOT, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:"), done.stdout
    assert _files() == before


@pytest.mark.parametrize("path", EXAMPLES)
def test_examples(path: str) -> None:
    _help(path)


@pytest.mark.parametrize("module", BENCHMARKS)
def test_benchmarks(module: str) -> None:
    _help("-c", WITHOUT_PEERS, module)
