"""`PerformanceBenchmark`: times functions, and says whether two of them differ."""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wengert.debug.benchmark_html import results_html
from wengert.debug.benchmark_result import BenchmarkResult, RegressionReport, read_results, write_results
from wengert.debug.significance import Comparison
from wengert.errors import ArgumentError
from wengert.memory.statistics import memory_stats, reset_peak

_SHORTEST_SAMPLE = 1e-4  # seconds: a shorter one says more of the clock than of the function


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkConfig:
    """How a benchmark is measured.

    `num_warmup` calls go before; then `num_iterations` samples are taken, of so many calls each that one takes at least
    0.1 ms (`calls_per_sample` sets their number). `measure_memory` takes one more call, apart from the timing.

    >>> BenchmarkConfig(num_iterations=20).num_warmup
    10
    """

    num_warmup: int = 10
    num_iterations: int = 100
    measure_throughput: bool = True
    measure_memory: bool = True
    statistical_analysis: bool = True
    calls_per_sample: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("num_warmup", 0), ("num_iterations", 1), ("calls_per_sample", 1)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise ArgumentError(f"BenchmarkConfig: {name} must be an integer of at least {least}, got {value!r}")


class PerformanceBenchmark:
    """Times functions, compares them, and holds them to a baseline.

    >>> import wengert as wg
    >>> b = PerformanceBenchmark(BenchmarkConfig(num_warmup=2, num_iterations=10))
    >>> x = wg.ones((64, 64))
    >>> r = b.run("product", lambda: x @ x)
    >>> r.median <= r.p95, r.throughput_ops_per_sec > 0, r.peak_bytes >= 64 * 64 * 4
    (True, True, True)

    What is not a function is measured between `start_benchmark` and `end_benchmark`, once per pair:

    >>> for _ in range(5):
    ...     b.start_benchmark("sum")
    ...     y = x.sum()
    ...     r = b.end_benchmark("sum")
    >>> len(r.samples)
    5
    """

    def __init__(self, config: BenchmarkConfig | None = None) -> None:
        self.config = BenchmarkConfig() if config is None else config
        self.results: dict[str, BenchmarkResult] = {}
        self._started: dict[str, tuple[float, int]] = {}

    # --------------------------------------------------------------------------------------- measuring

    def run(self, name: str, f: Callable[[], Any]) -> BenchmarkResult:
        """Time a function of no arguments."""
        return self.run_in_turns({name: f})[name]

    def run_in_turns(self, functions: Mapping[str, Callable[[], Any]]) -> dict[str, BenchmarkResult]:
        """Time functions in turns, one sample of each after the other, so that all of them see the same machine.

        This is how two functions should be compared: what else the computer does changes from second to second.
        """
        if not functions:
            raise ArgumentError("run_in_turns: there is nothing to measure")
        for name, f in functions.items():
            if not callable(f):
                raise ArgumentError(f"benchmark {name}: takes a function, got {type(f).__name__}")
        counts = {name: self._warm_up(f) for name, f in functions.items()}
        samples: dict[str, list[float]] = {name: [] for name in functions}
        orders = itertools.cycle([list(functions), list(functions)[::-1]])
        with _no_collections():
            for _ in range(self.config.num_iterations):
                for name in next(orders):
                    samples[name].append(_seconds(functions[name], counts[name]) / counts[name] * 1e3)
        pair = list(functions) if len(functions) == 2 else []
        for name, f in functions.items():
            partner = next((p for p in pair if p != name), None)
            peak = _peak_bytes(f) if self.config.measure_memory else None
            self.results[name] = BenchmarkResult(name, samples[name], counts[name], peak, self._measured(), partner)
        return {name: self.results[name] for name in functions}

    def _warm_up(self, f: Callable[[], Any]) -> int:
        """How many calls make up a sample."""
        for _ in range(self.config.num_warmup):
            f()
        if self.config.calls_per_sample is not None:
            return self.config.calls_per_sample
        count = 1
        while count < 1 << 20 and (took := _seconds(f, count)) < _SHORTEST_SAMPLE:
            count = max(2 * count, min(int(1.2 * count * _SHORTEST_SAMPLE / max(took, 1e-9)), 8 * count))
        return count

    def _measured(self) -> frozenset[str]:
        flags = {"throughput": self.config.measure_throughput, "statistics": self.config.statistical_analysis}
        return frozenset(name for name, on in flags.items() if on)

    def start_benchmark(self, name: str) -> None:
        """Begin a sample."""
        if name in self._started:
            raise ArgumentError(f"start_benchmark: {name} has been started already; end_benchmark({name!r}) ends it")
        live = 0
        if self.config.measure_memory:
            reset_peak()
            live = memory_stats().live_bytes
        self._started[name] = (time.perf_counter(), live)

    def end_benchmark(self, name: str) -> BenchmarkResult:
        """End a sample; the result has all samples of this name so far."""
        now = time.perf_counter()
        if name not in self._started:
            raise ArgumentError(f"end_benchmark: {name} was not started; start_benchmark({name!r}) begins a sample")
        start, live = self._started.pop(name)
        result = self.results.setdefault(name, BenchmarkResult(name, [], 1, None, self._measured()))
        result.samples.append((now - start) * 1e3)
        if self.config.measure_memory:
            result.peak_bytes = max(result.peak_bytes or 0, memory_stats().peak_bytes - live)
        return result

    # --------------------------------------------------------------------------------------- comparing

    def compare(self, first: str, second: str, *, smallest: float = 0.01) -> Comparison:
        """How the second of two benchmarks compares with the first; effects up to `smallest` do not count."""
        for name in (first, second):
            if name not in self.results:
                known = ", ".join(self.results) or "none"
                raise ArgumentError(f"compare: there is no benchmark {name!r}; there are {known}")
        return self.results[first].compare(self.results[second], smallest=smallest)

    def check_regression(self, baseline: str | Path, *, tolerance: float = 0.1) -> RegressionReport:
        """Compare with results that `save` has written: what is slower by more than the tolerance, and not by chance.

        Other machines are as fast as they are: a baseline is for the machine that it was measured on.
        """
        known = read_results(baseline)
        report = RegressionReport(missing=[name for name in known if name not in self.results])
        for name, result in self.results.items():
            if name in known:
                found = known[name].compare(result, smallest=tolerance)
                report.comparisons.append(found)
                if found.different and found.ratio > 1:
                    report.regressions.append(found)
        return report

    def save(self, path: str | Path) -> None:
        """All results as JSON: a baseline for `check_regression`."""
        write_results(list(self.results.values()), path)

    def __str__(self) -> str:
        return "\n".join(map(str, self.results.values())) or "nothing has been measured yet"

    def _repr_html_(self) -> str:
        return results_html(list(self.results.values())) if self.results else str(self)


def _seconds(f: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in itertools.repeat(None, count):
        f()
    return time.perf_counter() - start


def _peak_bytes(f: Callable[[], Any]) -> int:
    """The most that one call adds to what is live."""
    reset_peak()
    live = memory_stats().live_bytes
    f()
    return max(0, memory_stats().peak_bytes - live)


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


__all__ = ["BenchmarkConfig", "BenchmarkResult", "PerformanceBenchmark"]
