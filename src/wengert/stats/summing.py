"""Statistics of counts that have no formula: sums over counts, and quantiles by halving intervals."""

from __future__ import annotations

import math
from collections.abc import Callable

from wengert._core import Tensor
from wengert.errors import TraceError
from wengert.program.trace import tracing
from wengert.stats.distribution import Distribution
from wengert.stats.domains import known
from wengert.stats.odds import times
from wengert.stats.parameters import common_shape, spread
from wengert.tensors.arguments import as_dtype_of, iota, native
from wengert.tensors.numpy import data

_exp, _where, _floor, _sum, _reshape = (native(n) for n in ("exp", "where", "floor", "sum", "reshape"))
_sqrt, _or, _maximum = native("sqrt"), native("logical_or"), native("maximum")
_STEPS = 64  # halvings where the interval is not known: enough for every count that a float64 holds


def largest(x: Tensor, owner: str) -> float:
    """The largest number of a parameter, on which the length of a sum depends."""
    if tracing() is not None:
        raise TraceError(f"{owner}: sums over as many counts as its parameters say, and cannot be compiled")
    return float(data(x).max(initial=0.0))


def counts_up_to(most: float, d: Distribution) -> Tensor:
    """0, 1, … most along an axis before those of the batch."""
    values = as_dtype_of(iota(int(most) + 1), d.dtype)
    return _reshape(values, (values.shape[0], *([1] * len(d.batch_shape))))


def summed_entropy(d: Distribution, most: float) -> Tensor:
    """−Σ p ln p over 0, 1, … most."""
    logs = d._log_prob(counts_up_to(most, d))
    return -_sum(times(_exp(logs), logs), (0,), 0)


def bound(mean: Tensor, variance: Tensor, p: Tensor) -> Tensor:
    """A count that is exceeded with a probability of 1 − p at most: by Cantelli's inequality."""
    return _floor(mean + _sqrt(variance * (p / (1.0 - p)))) + 1.0


def quantile(cdf: Callable[[Tensor], Tensor], p: Tensor, high: Tensor) -> Tensor:
    """The least count k with cdf(k) >= p, for counts up to `high`; it has no derivative."""
    p, high = p.detach(), high.detach()
    shape = common_shape("icdf", tuple(p.shape), tuple(high.shape))
    last = spread(high, shape)
    open_ended = _or(p >= 1.0, p != p)  # the last of all counts, or none
    above = _where(open_ended, 0.0, last)
    below = above * 0.0 - 1.0
    most = float(data(above).max(initial=1.0)) if known(above) else math.inf
    for _ in range(_STEPS if not math.isfinite(most) else math.ceil(math.log2(most + 2.0)) + 1):
        middle = _floor(0.5 * (below + above))  # where both are neighbours, it is below, which is not enough
        enough = cdf(middle) >= p
        below, above = _where(enough, below, middle), _where(enough, middle, above)
    return _where(open_ended, _where(p == p, last, p), _maximum(above, 0.0))
