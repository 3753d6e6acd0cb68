"""What a benchmark found: times with their spread, throughput, memory; as text and as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wengert.debug.benchmark_html import results_html
from wengert.debug.significance import Comparison, compare_samples, interval_of_median
from wengert.errors import ArgumentError, LoadError
from wengert.interop.files import written_atomically

_VERSION = 1


@dataclass(slots=True)
class BenchmarkResult:
    """Times of one benchmark in milliseconds per call, in the order in which they were taken."""

    name: str
    samples: list[float]
    calls_per_sample: int = 1
    peak_bytes: int | None = None  # beyond what was there before, in one call
    measured: frozenset[str] = frozenset(("throughput", "statistics"))
    partner: str | None = None  # the benchmark that was measured in turns with it

    @property
    def mean_time_ms(self) -> float:
        """The mean."""
        return statistics.fmean(self.samples)

    @property
    def median(self) -> float:
        """The median: half of the samples took longer."""
        return statistics.median(self.samples)

    @property
    def std(self) -> float:
        """The standard deviation; 0 for one sample."""
        return statistics.stdev(self.samples) if len(self.samples) > 1 else 0.0

    @property
    def best(self) -> float:
        """The shortest."""
        return min(self.samples)

    @property
    def p95(self) -> float:
        """The time that 95 % of the samples did not exceed."""
        return self.percentile(95)

    def percentile(self, q: float) -> float:
        """The time that q % of the samples did not exceed, interpolated."""
        if not 0 <= q <= 100:
            raise ArgumentError(f"percentile: must be between 0 and 100, got {q}")
        ordered = sorted(self.samples)
        at = (len(ordered) - 1) * q / 100
        k = min(int(at), len(ordered) - 2) if len(ordered) > 1 else 0
        after = ordered[min(k + 1, len(ordered) - 1)]
        return ordered[k] + (after - ordered[k]) * (at - k)

    @property
    def interval(self) -> tuple[float, float] | None:
        """An interval of 95 % around the median; None if it was not asked for."""
        return interval_of_median(self.samples) if "statistics" in self.measured else None

    @property
    def throughput_ops_per_sec(self) -> float | None:
        """Calls per second; None if it was not asked for."""
        return 1e3 / self.median if "throughput" in self.measured and self.median > 0 else None

    def compare(self, other: BenchmarkResult, *, smallest: float = 0.01) -> Comparison:
        """How the other benchmark compares with this one; effects up to `smallest` do not count."""
        in_turns = self.partner == other.name and other.partner == self.name
        names = (self.name, other.name if other.name != self.name else f"{other.name} (now)")
        return compare_samples(self.samples, other.samples, names, in_turns=in_turns, smallest=smallest)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the samples, and what is computed from them."""
        return {
            "name": self.name,
            "unit": "ms",
            "samples": self.samples,
            "calls_per_sample": self.calls_per_sample,
            "median": self.median,
            "mean": self.mean_time_ms,
            "std": self.std,
            "best": self.best,
            "p95": self.p95,
            "p99": self.percentile(99),
            "interval": self.interval,
            "throughput_ops_per_sec": self.throughput_ops_per_sec,
            "peak_bytes": self.peak_bytes,
            "partner": self.partner,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BenchmarkResult:
        """What `as_dict` gave."""
        return cls(
            values["name"],
            [float(x) for x in values["samples"]],
            int(values["calls_per_sample"]),
            values["peak_bytes"],
            partner=values.get("partner"),
        )

    def __str__(self) -> str:
        text = f"{self.name}: {self.median:.4g} ms"
        if self.interval is not None and len(self.samples) > 1:
            text += f" ({self.interval[0]:.4g} to {self.interval[1]:.4g})"
        text += f", p95 {self.p95:.4g} ms, best {self.best:.4g} ms, {len(self.samples)} samples"
        if self.throughput_ops_per_sec is not None:
            text += f", {self.throughput_ops_per_sec:,.4g} calls/s"
        if self.peak_bytes is not None:
            text += f", peak {self.peak_bytes / 2**20:.3g} MB"
        return text

    def _repr_html_(self) -> str:
        return results_html([self])


@dataclass(slots=True)
class RegressionReport:
    """Benchmarks beside a stored baseline. `bool(report)`: nothing has become slower."""

    comparisons: list[Comparison] = field(default_factory=list)
    regressions: list[Comparison] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # in the baseline, but not measured now

    def __bool__(self) -> bool:
        return not self.regressions

    def __str__(self) -> str:
        lines = [("slower: " if c in self.regressions else "") + str(c) for c in self.comparisons]
        lines += [f"not measured: {name}" for name in self.missing]
        return "\n".join(lines) or "the baseline and these results have no benchmark in common"


def write_results(results: Sequence[BenchmarkResult], path: str | Path) -> None:
    """Results as a JSON file, which is replaced as a whole."""
    content = {"version": _VERSION, "results": [r.as_dict() for r in results]}
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    try:
        with written_atomically(Path(path)) as file:
            file.write(text.encode())
    except OSError as e:
        raise ArgumentError(f"benchmark: cannot write {path}: {e.strerror or e}") from e


def read_results(path: str | Path) -> dict[str, BenchmarkResult]:
    """Results of a file, by name."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return {r["name"]: BenchmarkResult.from_dict(r) for r in content["results"]}
    except OSError as e:
        raise LoadError(f"benchmark: cannot read the baseline {path}: {e.strerror or e}") from e
    except (ValueError, KeyError, TypeError) as e:
        raise LoadError(f"benchmark: {path} holds no results of benchmarks ({e!r})") from e
