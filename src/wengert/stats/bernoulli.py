"""Single trials: whether one succeeds, and how many fail before one does."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.stats.domains import binary, counts, half_open_unit, named, real, unit_interval
from wengert.stats.draws import open_uniform, uniform_numbers
from wengert.stats.odds import Odds, log_odds, times
from wengert.stats.parameters import Shape
from wengert.tensors.arguments import as_dtype_of, native
from wengert.tensors.random import Generator

_exp, _expm1, _log, _log1p = (native(n) for n in ("exp", "expm1", "log", "log1p"))
_where, _floor, _ceil, _maximum = (native(n) for n in ("where", "floor", "ceil", "maximum"))
_or, _and = native("logical_or"), native("logical_and")


@composite(precision="full")
def _bernoulli_log_prob(x: Tensor, odds: Tensor, is_logit: bool) -> Tensor:
    yes, no = log_odds(odds, is_logit)
    outside = _and(_and(x != 0.0, x != 1.0), x == x)
    return _where(outside, -math.inf, times(x, yes) + times(1.0 - x, no))


@composite(precision="full")
def _bernoulli_cdf(x: Tensor, p: Tensor) -> Tensor:
    return _where(x < 0.0, 0.0, _where(x < 1.0, 1.0 - p, 1.0)) + 0.0 * x


@composite(precision="full")
def _two_entropies(odds: Tensor, is_logit: bool) -> Tensor:
    yes, no = log_odds(odds, is_logit)
    p, q = _exp(yes), _exp(no)
    return -times(p, yes) - times(q, no)


class Bernoulli(Odds):
    """1 with the probability `probs`, else 0; or the sigmoid of `logits` is the probability.

    >>> Bernoulli(0.25).log_prob([0.0, 1.0]).tolist()
    [-0.287682..., -1.386294...]
    """

    domains = named(probs=unit_interval, logits=real)
    support = binary

    def __init__(self, probs: Any = None, *, logits: Any = None) -> None:
        (odds,) = self._read(**self._given(probs, logits))
        self._keep(odds)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _bernoulli_log_prob(x, self._odds, self._is_logit)

    def _cdf(self, x: Tensor) -> Tensor:
        return _bernoulli_cdf(x, self.probs)

    def _icdf(self, p: Tensor) -> Tensor:
        return as_dtype_of(p.detach() > 1.0 - self.probs.detach(), self.dtype) + 0.0 * p.detach()

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        u = uniform_numbers(shape, self.dtype, generator)
        return as_dtype_of(u < self.probs.detach(), self.dtype)

    @property
    def mean(self) -> Tensor:
        """p."""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """1 where p is at least ½, else 0."""
        return as_dtype_of(self.probs >= 0.5, self.dtype)

    @property
    def variance(self) -> Tensor:
        """p (1 − p)."""
        return self.probs * (1.0 - self.probs)

    def entropy(self) -> Tensor:
        """−p ln p − (1 − p) ln(1 − p)."""
        return _two_entropies(self._odds, self._is_logit)


@composite(precision="full")
def _geometric_log_prob(x: Tensor, odds: Tensor, is_logit: bool) -> Tensor:
    yes, no = log_odds(odds, is_logit)
    outside = _or(x < 0.0, _and(_floor(x) != x, x == x))
    return _where(outside, -math.inf, yes + times(x, no))


@composite(precision="full")
def _geometric_cdf(x: Tensor, odds: Tensor, is_logit: bool) -> Tensor:
    _, no = log_odds(odds, is_logit)
    return _where(x < 0.0, 0.0, -_expm1((_floor(x) + 1.0) * no))


@composite(precision="full")
def _geometric_survival(x: Tensor, odds: Tensor, is_logit: bool) -> Tensor:
    _, no = log_odds(odds, is_logit)
    return _where(x < 0.0, 1.0, _exp((_floor(x) + 1.0) * no))


@composite(precision="full")
def _geometric_draw(u: Tensor, odds: Tensor, is_logit: bool) -> Tensor:
    _, no = log_odds(odds, is_logit)
    return _floor(_log(u) / no)


@composite(precision="full")
def _geometric_icdf(p: Tensor, odds: Tensor, is_logit: bool) -> Tensor:
    _, no = log_odds(odds, is_logit)
    near = _ceil(_log1p(-p) / no) - 1.0
    # Rounding may be one count off: too many if the one before is enough as well, too few if this one is not.
    before = -_expm1(near * no) >= p
    enough = -_expm1((near + 1.0) * no) >= p
    return _maximum(_where(before, near - 1.0, _where(enough, near, near + 1.0)), 0.0)


class Geometric(Odds):
    """How many trials fail before the first success: p (1 − p)ᵏ for k = 0, 1, …

    >>> Geometric(0.25).mean.item()
    3.0
    """

    domains = named(probs=half_open_unit, logits=real)
    support = counts

    def __init__(self, probs: Any = None, *, logits: Any = None) -> None:
        (odds,) = self._read(**self._given(probs, logits))
        self._keep(odds)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _geometric_log_prob(x, self._odds, self._is_logit)

    def _cdf(self, x: Tensor) -> Tensor:
        return _geometric_cdf(x, self._odds, self._is_logit)

    def _survival(self, x: Tensor) -> Tensor:
        return _geometric_survival(x, self._odds, self._is_logit)

    def _icdf(self, p: Tensor) -> Tensor:
        return _geometric_icdf(p.detach(), self._odds.detach(), self._is_logit)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        u = open_uniform(shape, self.dtype, generator)
        return _geometric_draw(u, self._odds.detach(), self._is_logit)

    @property
    def mean(self) -> Tensor:
        """(1 − p) / p."""
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        """0."""
        return self._odds.detach() * 0.0

    @property
    def variance(self) -> Tensor:
        """(1 − p) / p²."""
        return self.mean / self.probs

    def entropy(self) -> Tensor:
        """−ln p − ln(1 − p) (1 − p)/p."""
        return _two_entropies(self._odds, self._is_logit) / self.probs
