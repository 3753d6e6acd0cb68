"""Counts: successes of several trials, failures before several successes, and what comes at random in a while."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.functional.elementwise import _xlogy
from wengert.stats.distribution import Distribution
from wengert.stats.domains import Domain, below_one, integers, named, non_negative, positive, real, unit_interval
from wengert.stats.domains import counts as whole_counts
from wengert.stats.draws import binomial_counts, poisson_counts, standard_gamma
from wengert.stats.odds import Odds, log_odds, times
from wengert.stats.parameters import Shape
from wengert.stats.summing import bound, largest, quantile, summed_entropy
from wengert.tensors.arguments import native
from wengert.tensors.random import Generator

_exp, _log, _where, _floor = (native(n) for n in ("exp", "log", "where", "floor"))
_and, _relu = native("logical_and"), native("relu")
_minimum, _maximum, _lgamma = (native(n) for n in ("minimum", "maximum", "lgamma"))
_betaln, _betainc = native("betaln"), native("betainc")
_gammainc, _gammaincc = native("gammainc"), native("gammaincc")


def _is_count(x: Any) -> Any:
    return _and(x >= 0.0, _floor(x) == x)


@composite(precision="full")
def _binomial_log_prob(x: Tensor, n: Tensor, odds: Tensor, is_logit: bool) -> Tensor:
    yes, no = log_odds(odds, is_logit)
    inside = _and(_is_count(x), x <= n)
    k = _where(inside, x, 0.0)
    ways = -_log(n + 1.0) - _betaln(n - k + 1.0, k + 1.0)
    return _where(inside, ways + times(k, yes) + times(n - k, no), _where(x == x, -math.inf, x))


@composite(precision="full")
def _binomial_cdf(x: Tensor, n: Tensor, p: Tensor) -> Tensor:
    k = _floor(x)
    inside = _and(k >= 0.0, k < n)
    k = _where(inside, k, 0.0)
    between = _betainc(_where(inside, n - k, 1.0), k + 1.0, 1.0 - p)
    return _where(inside, between, _where(x < 0.0, 0.0, 1.0))


@composite(precision="full")
def _binomial_survival(x: Tensor, n: Tensor, p: Tensor) -> Tensor:
    k = _floor(x)
    inside = _and(k >= 0.0, k < n)
    k = _where(inside, k, 0.0)
    between = _betainc(k + 1.0, _where(inside, n - k, 1.0), p)
    return _where(inside, between, _where(x < 0.0, 1.0, 0.0))


class Binomial(Odds):
    """How many of total_count trials succeed, each with the probability p.

    >>> Binomial(4, 0.5).mean.item()
    2.0
    """

    domains = named(total_count=whole_counts, probs=unit_interval, logits=real)

    def __init__(self, total_count: Any, probs: Any = None, *, logits: Any = None) -> None:
        self.total_count, odds = self._read(total_count=total_count, **self._given(probs, logits))
        self._keep(odds)

    @property
    def support(self) -> Domain:  # type: ignore[override]
        """Whole numbers from 0 to total_count."""
        return integers(0, self.total_count)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _binomial_log_prob(x, self.total_count, self._odds, self._is_logit)

    def _cdf(self, x: Tensor) -> Tensor:
        return _binomial_cdf(x, self.total_count, self.probs)

    def _survival(self, x: Tensor) -> Tensor:
        return _binomial_survival(x, self.total_count, self.probs)

    def _icdf(self, p: Tensor) -> Tensor:
        return quantile(self._cdf, p, self._batch(self.total_count))

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        return binomial_counts(self.total_count, self.probs, shape, generator)

    @property
    def mean(self) -> Tensor:
        """n p."""
        return self._batch(self.total_count * self.probs)

    @property
    def mode(self) -> Tensor:
        """⌊(n + 1) p⌋, or n where p is 1."""
        return self._batch(_minimum(_floor((self.total_count + 1.0) * self.probs), self.total_count))

    @property
    def variance(self) -> Tensor:
        """n p (1 − p)."""
        return self._batch(self.total_count * self.probs * (1.0 - self.probs))

    def entropy(self) -> Tensor:
        """−Σ p(k) ln p(k) over all counts."""
        return self._batch(summed_entropy(self, largest(self.total_count, "Binomial.entropy")))


@composite(precision="full")
def _poisson_log_prob(x: Tensor, rate: Tensor) -> Tensor:
    inside = _is_count(x)
    k = _where(inside, x, 0.0)
    return _where(inside, _xlogy(k, rate) - rate - _lgamma(k + 1.0), _where(x == x, -math.inf, x))


@composite(precision="full")
def _poisson_cdf(x: Tensor, rate: Tensor) -> Tensor:
    k = _maximum(_floor(x), 0.0)
    return _where(x < 0.0, 0.0, _gammaincc(k + 1.0, rate))


@composite(precision="full")
def _poisson_survival(x: Tensor, rate: Tensor) -> Tensor:
    k = _maximum(_floor(x), 0.0)
    return _where(x < 0.0, 1.0, _gammainc(k + 1.0, rate))


class Poisson(Distribution):
    """The Poisson distribution: rateᵏ e^−rate / k! for k = 0, 1, …

    >>> Poisson(3.0).log_prob(0.0).item()
    -3.0
    """

    domains = named(rate=non_negative)
    support = whole_counts

    def __init__(self, rate: Any) -> None:
        (self.rate,) = self._read(rate=rate)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _poisson_log_prob(x, self.rate)

    def _cdf(self, x: Tensor) -> Tensor:
        return _poisson_cdf(x, self.rate)

    def _survival(self, x: Tensor) -> Tensor:
        return _poisson_survival(x, self.rate)

    def _icdf(self, p: Tensor) -> Tensor:
        return quantile(self._cdf, p, bound(self.rate, self.rate, p))

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        return poisson_counts(self.rate, shape, generator)

    @property
    def mean(self) -> Tensor:
        """rate."""
        return self.rate

    @property
    def mode(self) -> Tensor:
        """⌊rate⌋."""
        return _floor(self.rate)

    @property
    def variance(self) -> Tensor:
        """rate."""
        return self.rate

    def entropy(self) -> Tensor:
        """−Σ p(k) ln p(k) over all counts whose probability is not negligible."""
        rate = largest(self.rate, "Poisson.entropy")
        return summed_entropy(self, rate + 12.0 * math.sqrt(rate) + 40.0)


@composite(precision="full")
def _negative_binomial_log_prob(x: Tensor, r: Tensor, odds: Tensor, is_logit: bool) -> Tensor:
    yes, no = log_odds(odds, is_logit)
    inside = _is_count(x)
    k = _where(inside, x, 0.0)
    ways = -_betaln(r, k + 1.0) - _log(r + k)
    return _where(inside, ways + r * no + times(k, yes), _where(x == x, -math.inf, x))


@composite(precision="full")
def _negative_binomial_cdf(x: Tensor, r: Tensor, p: Tensor) -> Tensor:
    k = _maximum(_floor(x), 0.0)
    return _where(x < 0.0, 0.0, _betainc(r, k + 1.0, 1.0 - p))


@composite(precision="full")
def _negative_binomial_survival(x: Tensor, r: Tensor, p: Tensor) -> Tensor:
    k = _maximum(_floor(x), 0.0)
    return _where(x < 0.0, 1.0, _betainc(k + 1.0, r, p))


class NegativeBinomial(Odds):
    """How many trials succeed, each with the probability p, before total_count of them fail; total_count may be fractional.

    >>> NegativeBinomial(2.0, 0.75).mean.item()
    6.0
    """

    domains = named(total_count=positive, probs=below_one, logits=real)
    support = whole_counts

    def __init__(self, total_count: Any, probs: Any = None, *, logits: Any = None) -> None:
        self.total_count, odds = self._read(total_count=total_count, **self._given(probs, logits))
        self._keep(odds)

    @property
    def _ratio(self) -> Any:
        """p / (1 − p)."""
        return _exp(self._odds) if self._is_logit else self._odds / (1.0 - self._odds)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _negative_binomial_log_prob(x, self.total_count, self._odds, self._is_logit)

    def _cdf(self, x: Tensor) -> Tensor:
        return _negative_binomial_cdf(x, self.total_count, self.probs)

    def _survival(self, x: Tensor) -> Tensor:
        return _negative_binomial_survival(x, self.total_count, self.probs)

    def _icdf(self, p: Tensor) -> Tensor:
        return quantile(self._cdf, p, bound(self.mean, self.variance, p))

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        rate = standard_gamma(self.total_count.detach(), shape, generator) * self._ratio.detach()
        return poisson_counts(rate, shape, generator)

    @property
    def mean(self) -> Tensor:
        """n p / (1 − p)."""
        return self._batch(self.total_count * self._ratio)

    @property
    def mode(self) -> Tensor:
        """⌊(n − 1) p / (1 − p)⌋, and 0 for n up to 1."""
        return self._batch(_floor(_relu(self.total_count - 1.0) * self._ratio))

    @property
    def variance(self) -> Tensor:
        """n p / (1 − p)²."""
        return self._batch(self.total_count * self._ratio * (1.0 + self._ratio))

    def entropy(self) -> Tensor:
        """−Σ p(k) ln p(k) over all counts whose probability is not negligible."""
        # Far from the mean, a probability is p times the one before.
        far = self.mean + 12.0 * self.stddev - 45.0 / log_odds(self._odds, self._is_logit)[0]
        return self._batch(summed_entropy(self, largest(far, "NegativeBinomial.entropy") + 40.0))
