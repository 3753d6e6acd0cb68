"""`wengert bench`."""

from __future__ import annotations

import json
import random

import pytest

import wengert as wg
from wengert.cli import main
from wengert.debug import benchmark
from wengert.debug.benchmark_result import BenchmarkResult

MODULE = """
from wengert.debug import benchmark

def short():
    benchmark.time.pass_by(0.0005)

def long():
    benchmark.time.pass_by(0.003)

def fails():
    raise KeyError("here")

step = short
"""
FEW = ["--iterations", "20", "--warmup", "1"]


class Clock:
    """Time that passes only where a function says so, plus a little noise: a busy machine changes nothing."""

    def __init__(self):
        self._now, self._noise = 0.0, random.Random(0)

    def pass_by(self, seconds):
        self._now += seconds * self._noise.uniform(0.9, 1.1)

    def perf_counter(self):
        return self._now


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "time", Clock())
    path = tmp_path / "timed.py"
    path.write_text(MODULE)
    return path


def test_one_function(module, capsys):
    assert main(["bench", f"{module}:short", *FEW]) == 0
    out = capsys.readouterr().out
    assert "short: " in out and "p95" in out and "calls/s" in out


def test_two_functions_are_compared(module, capsys):
    assert main(["bench", f"{module}:short", f"{module}:long", *FEW]) == 0
    assert "slower than" in capsys.readouterr().out
    assert main(["bench", f"{module}:short", f"{module}:long", *FEW, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["comparison"]["different"]
    assert len(content["results"]) == 2


def test_a_baseline(module, tmp_path, capsys):
    baseline = str(tmp_path / "base.json")
    target = f"{module}:step"
    assert main(["bench", target, *FEW, "--save", baseline]) == 0
    module.write_text(MODULE.replace("step = short", "step = long"))
    assert main(["bench", target, *FEW, "--baseline", baseline]) == 1
    assert "slower: " in capsys.readouterr().out
    assert main(["bench", target, *FEW, "--baseline", baseline, "--tolerance", "100"]) == 0


def _baseline_of_others(folder):
    path = folder / "others.json"
    b = wg.PerformanceBenchmark()
    b.results["another"] = BenchmarkResult("another", [1.0] * 20)
    b.save(path)
    return str(path)


def test_what_cannot_be_measured(module, tmp_path, capsys):
    for arguments, text in (
        ([f"{module}:fails"], "raised KeyError"),
        ([f"{module}:absent"], "has no 'absent'"),
        ([f"{module}:short", "--iterations", "0"], "num_iterations must be an integer of at least 1"),
        ([f"{module}:short", *FEW, "--save", str(tmp_path / "no" / "x.json")], "cannot write"),
        ([f"{module}:short", *FEW, "--baseline", str(tmp_path / "none.json")], "cannot read the baseline"),
        ([f"{module}:short", *FEW, "--baseline", _baseline_of_others(tmp_path)], "nothing to compare"),
    ):
        assert main(["bench", *arguments]) == 2
        assert text in capsys.readouterr().err


def test_the_librarys_own(capsys):
    assert main(["bench", "--iterations", "2", "--warmup", "0"]) == 0
    assert "training step" in capsys.readouterr().out
