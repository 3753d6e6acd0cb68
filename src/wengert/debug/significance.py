"""Whether two sets of timings differ: by trimmed means of blocks.

Blocks, because neighbouring timings depend on each other; trimmed (Yuen's test), because a computer that does something else
now and then makes a few of them many times longer, and such outliers would hide any difference.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from wengert.dtypes import float64
from wengert.errors import ArgumentError
from wengert.functional import betainc
from wengert.tensors.conversion import tensor

BLOCKS = 20  # of consecutive samples: few enough to be long, many enough for a test
LEVEL = 0.01  # the chance of calling two equal things different
_FEWEST = 5  # blocks
_TRIMMED = 0.2  # of the blocks at each end


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two benchmarks compare. `ratio`: time of the second over that of the first, with an interval of 99 % around it;
    `different`: whether that is more than chance and than the smallest effect that counts."""

    first: str
    second: str
    ratio: float
    low: float
    high: float
    p: float
    smallest: float
    different: bool
    in_turns: bool  # the samples were taken in turns, so that both have seen the same machine

    def __str__(self) -> str:
        change = f"{abs(self.ratio - 1):.1%}"
        interval = (
            f"ratio {self.ratio:.3f}, {1 - LEVEL:.0%} interval {self.low:.3f} to {self.high:.3f}, p = {self.p:.2g}"
        )
        how = "in turns" if self.in_turns else "one after the other"
        if math.isnan(self.p):
            return f"{self.second} and {self.first}: too few samples to tell ({interval})"
        if not self.different and self.p < LEVEL:
            return (
                f"{self.second} and {self.first} differ by {change}, too little to count (up to {self.smallest:.0%} does "
                f"not) ({interval}; measured {how})"
            )
        if not self.different:
            return f"{self.second} and {self.first} do not differ beyond chance ({interval}; measured {how})"
        word = "slower" if self.ratio > 1 else "faster"
        return f"{self.second} is {change} {word} than {self.first} ({interval}; measured {how})"


def compare_samples(
    first: Sequence[float], second: Sequence[float], names: tuple[str, str], *, in_turns: bool, smallest: float = 0.01
) -> Comparison:
    """Compare timings. `in_turns`: sample k of both was taken at nearly the same time, so that differences are tested.

    >>> a = [1.0, 1.1, 0.9, 1.05] * 20
    >>> compare_samples(a, [2 * x for x in a], ("a", "b"), in_turns=False).different
    True
    >>> compare_samples(a, a, ("a", "b"), in_turns=True).different
    False
    """
    if not 0 <= smallest < math.inf:
        raise ArgumentError(f"compare: the smallest effect that counts must be at least 0, got {smallest!r}")
    x, y = _blocks(first), _blocks(second)
    ratio = statistics.median(second) / statistics.median(first)
    if min(len(x), len(y)) < _FEWEST:
        return Comparison(*names, ratio, 0.0, math.inf, math.nan, smallest, False, in_turns)
    if in_turns and len(x) == len(y):
        middle, error, freedom = _trimmed([b - a for a, b in zip(x, y)])
    else:
        (mx, ex, fx), (my, ey, fy) = _trimmed(x), _trimmed(y)
        middle, error = my - mx, math.hypot(ex, ey)
        parts = ex**4 / fx + ey**4 / fy
        freedom = error**4 / parts if parts else fx + fy
    p = _two_sided(middle / error, freedom) if error else (1.0 if middle == 0 else 0.0)
    reach = _quantile(freedom) * error
    low, high = math.exp(middle - reach), math.exp(middle + reach)
    different = p < LEVEL and abs(math.exp(middle) - 1) > smallest
    return Comparison(*names, math.exp(middle), low, high, p, smallest, different, in_turns)


def _blocks(samples: Sequence[float]) -> list[float]:
    """Logarithms of the medians of blocks of consecutive samples: of two, the lower one, which is disturbed less often."""
    n = min(BLOCKS, len(samples) // 2)
    if n < 1:
        return []
    edges = [round(k * len(samples) / n) for k in range(n + 1)]
    return [math.log(max(statistics.median_low(samples[a:b]), 1e-12)) for a, b in itertools.pairwise(edges)]


def _trimmed(values: Sequence[float]) -> tuple[float, float, float]:
    """The trimmed mean, its standard error, and the degrees of freedom of both.

    K. K. Yuen, The two-sample trimmed t for unequal population variances, Biometrika 61 (1974). The error is larger where
    neighbours resemble each other.
    """
    n = len(values)
    cut = int(_TRIMMED * n)
    ordered = sorted(values)
    low, high = ordered[cut], ordered[n - 1 - cut]
    middle = statistics.mean(ordered[cut : n - cut])
    held = [min(max(v, low), high) for v in values]
    spread = statistics.variance(held)
    if spread == 0:
        return middle, 0.0, n - 2.0 * cut - 1
    centre = statistics.mean(held)
    lagged = sum((a - centre) * (b - centre) for a, b in itertools.pairwise(held)) / ((n - 1) * spread)
    r = min(max(lagged, 0.0), 0.9)
    kept = n - 2 * cut
    error = math.sqrt((n - 1) * spread / (kept * (kept - 1)) * (1 + r) / (1 - r))
    return middle, error, kept - 1.0


def _two_sided(t: float, freedom: float) -> float:
    """The chance of a Student's t at least as far from zero."""
    x = freedom / (freedom + t * t)
    a, b, at = (tensor(v, dtype=float64) for v in (freedom / 2, 0.5, x))
    return float(betainc(a, b, at).item())


def _quantile(freedom: float) -> float:
    """How far from zero a Student's t is with the chance LEVEL."""
    low, high = 0.0, 1e3
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _two_sided(middle, freedom) > LEVEL else (low, middle)
    return high


def interval_of_median(samples: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """An interval that covers the median with at least this chance, by counting: no distribution is assumed.

    >>> interval_of_median([float(k) for k in range(100)])
    (39.0, 60.0)
    """
    ordered, n = sorted(samples), len(samples)
    below = 0.0
    k = 0
    while k < n // 2 and below + math.comb(n, k) * 0.5**n <= (1 - level) / 2:
        below += math.comb(n, k) * 0.5**n
        k += 1
    k = max(k - 1, 0)
    return ordered[k], ordered[n - 1 - k]
