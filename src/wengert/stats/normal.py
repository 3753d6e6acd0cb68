"""The normal distribution, and the one whose logarithm is normal."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.functional.special import _log_ndtr
from wengert.stats.distribution import Distribution
from wengert.stats.domains import named, positive, real
from wengert.stats.draws import normal_numbers
from wengert.stats.parameters import Shape
from wengert.tensors.arguments import native
from wengert.tensors.random import Generator

_exp, _log, _expm1, _where = (native(n) for n in ("exp", "log", "expm1", "where"))
_square, _ndtr, _ndtri = (native(n) for n in ("square", "ndtr", "ndtri"))

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def log_density(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """ln p(x), as part of larger composites."""
    return -0.5 * _square((x - loc) / scale) - _log(scale) - HALF_LOG_TWO_PI


@composite(precision="full")
def _log_prob(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return log_density(x, loc, scale)


@composite(precision="full")
def _cdf(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return _ndtr((x - loc) / scale)


@composite(precision="full")
def _log_cdf(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    y: Tensor = _log_ndtr((x - loc) / scale)
    return y


@composite(precision="full")
def _affine(z: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return loc + scale * z


@composite(precision="full")
def _icdf(p: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return loc + scale * _ndtri(p)


@composite(precision="full")
def _entropy(scale: Tensor) -> Tensor:
    return _log(scale) + (0.5 + HALF_LOG_TWO_PI)


class Normal(Distribution):
    """The normal distribution with this mean and standard deviation: exp(−½ ((x − loc)/scale)²) / (scale √2π).

    >>> d = Normal(0.0, 1.0)
    >>> d.log_prob(0.0).item(), d.cdf(0.0).item()
    (-0.9189385..., 0.5)
    """

    domains = named(loc=real, scale=positive)
    support = real
    reparametrised = True

    def __init__(self, loc: Any = 0.0, scale: Any = 1.0) -> None:
        self.loc, self.scale = self._read(loc=loc, scale=scale)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _log_prob(x, self.loc, self.scale)

    def _cdf(self, x: Tensor) -> Tensor:
        return _cdf(x, self.loc, self.scale)

    def _survival(self, x: Tensor) -> Tensor:
        return _cdf(-x, -self.loc, self.scale)

    def log_cdf(self, x: Any) -> Tensor:
        """ln P(X <= x), accurate in the tail."""
        return _log_cdf(self._value(x, "log_cdf"), self.loc, self.scale)

    def log_survival(self, x: Any) -> Tensor:
        """ln P(X > x), accurate in the tail."""
        return _log_cdf(-self._value(x, "log_survival"), -self.loc, self.scale)

    def _icdf(self, p: Tensor) -> Tensor:
        return _icdf(p, self.loc, self.scale)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        z = normal_numbers(shape, self.dtype, generator)
        return _affine(z, self.loc, self.scale)

    @property
    def mean(self) -> Tensor:
        """loc."""
        return self._batch(self.loc)

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self._batch(self.loc)

    @property
    def stddev(self) -> Tensor:
        """scale."""
        return self._batch(self.scale)

    @property
    def variance(self) -> Tensor:
        """scale²."""
        return self._batch(_square(self.scale))

    def entropy(self) -> Tensor:
        """½ ln(2πe scale²)."""
        return self._batch(_entropy(self.scale))


@composite(precision="full")
def _lognormal_log_prob(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    log = _log(x)
    return _where(x <= 0.0, -math.inf, log_density(log, loc, scale) - log)


@composite(precision="full")
def _lognormal_cdf(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return _where(x <= 0.0, 0.0, _ndtr((_log(x) - loc) / scale))


@composite(precision="full")
def _exp_affine(z: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return _exp(loc + scale * z)


@composite(precision="full")
def _lognormal_mean(loc: Tensor, scale: Tensor) -> Tensor:
    return _exp(loc + 0.5 * _square(scale))


@composite(precision="full")
def _lognormal_mode(loc: Tensor, scale: Tensor) -> Tensor:
    return _exp(loc - _square(scale))


@composite(precision="full")
def _lognormal_variance(loc: Tensor, scale: Tensor) -> Tensor:
    square = _square(scale)
    return _expm1(square) * _exp(2.0 * loc + square)


@composite(precision="full")
def _lognormal_entropy(loc: Tensor, scale: Tensor) -> Tensor:
    return loc + _log(scale) + (0.5 + HALF_LOG_TWO_PI)


class LogNormal(Distribution):
    """eᶻ with z normal with mean loc and standard deviation scale.

    >>> LogNormal(0.0, 1.0).mean.item()
    1.648721...
    """

    domains = named(loc=real, scale=positive)
    support = positive
    reparametrised = True

    def __init__(self, loc: Any = 0.0, scale: Any = 1.0) -> None:
        self.loc, self.scale = self._read(loc=loc, scale=scale)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _lognormal_log_prob(x, self.loc, self.scale)

    def _cdf(self, x: Tensor) -> Tensor:
        return _lognormal_cdf(x, self.loc, self.scale)

    def _icdf(self, p: Tensor) -> Tensor:
        return _exp_affine(_ndtri(p), self.loc, self.scale)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        z = normal_numbers(shape, self.dtype, generator)
        return _exp_affine(z, self.loc, self.scale)

    @property
    def mean(self) -> Tensor:
        """exp(loc + ½ scale²)."""
        return self._batch(_lognormal_mean(self.loc, self.scale))

    @property
    def mode(self) -> Tensor:
        """exp(loc − scale²)."""
        return self._batch(_lognormal_mode(self.loc, self.scale))

    @property
    def variance(self) -> Tensor:
        """(exp(scale²) − 1) exp(2 loc + scale²)."""
        return self._batch(_lognormal_variance(self.loc, self.scale))

    def entropy(self) -> Tensor:
        """loc + ½ ln(2πe scale²)."""
        return self._batch(_lognormal_entropy(self.loc, self.scale))
