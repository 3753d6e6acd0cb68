"""Continuous distributions with a location and a scale whose quantiles are elementary: a uniform number is all they need."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.functional.elementwise import softplus
from wengert.stats.distribution import Distribution
from wengert.stats.domains import named, positive, real
from wengert.stats.draws import open_uniform
from wengert.stats.parameters import Shape
from wengert.tensors.arguments import native
from wengert.tensors.random import Generator

_exp, _log, _log1p, _expm1 = (native(n) for n in ("exp", "log", "log1p", "expm1"))
_where, _abs, _square = (native(n) for n in ("where", "abs", "square"))
_sin, _cos, _atan, _sigmoid, _hypot = (native(n) for n in ("sin", "cos", "atan", "sigmoid", "hypot"))

EULER = 0.57721566490153286061


class LocationScale(Distribution):
    """loc + scale · Z, with Z of a standard distribution, which subclasses give as composites of (x, loc, scale)."""

    domains = named(loc=real, scale=positive)
    support = real
    reparametrised = True
    _log_density: ClassVar[Callable[..., Tensor]]
    _distribution: ClassVar[Callable[..., Tensor]]
    _upper: ClassVar[Callable[..., Tensor]]
    _quantile: ClassVar[Callable[..., Tensor]]
    _standard_mean: ClassVar[float] = 0.0
    _standard_variance: ClassVar[float]
    _standard_entropy: ClassVar[float]

    def __init__(self, loc: Any = 0.0, scale: Any = 1.0) -> None:
        self.loc, self.scale = self._read(loc=loc, scale=scale)

    def _log_prob(self, x: Tensor) -> Tensor:
        return type(self)._log_density(x, self.loc, self.scale)

    def _cdf(self, x: Tensor) -> Tensor:
        return type(self)._distribution(x, self.loc, self.scale)

    def _survival(self, x: Tensor) -> Tensor:
        return type(self)._upper(x, self.loc, self.scale)

    def _icdf(self, p: Tensor) -> Tensor:
        return type(self)._quantile(p, self.loc, self.scale)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        return self._icdf(open_uniform(shape, self.dtype, generator))

    @property
    def mean(self) -> Tensor:
        """loc + scale times the mean of the standard distribution."""
        return self._batch(self.loc + self.scale * self._standard_mean if self._standard_mean else self.loc)

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self._batch(self.loc)

    @property
    def variance(self) -> Tensor:
        """scale² times the variance of the standard distribution."""
        return self._batch(_square(self.scale) * self._standard_variance)

    def entropy(self) -> Tensor:
        """ln scale plus the entropy of the standard distribution."""
        return self._batch(_log(self.scale) + self._standard_entropy)


@composite(precision="full")
def _laplace_log_prob(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return -_abs(x - loc) / scale - _log(2.0 * scale)


@composite(precision="full")
def _laplace_cdf(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    z = (x - loc) / scale
    tail = 0.5 * _exp(-_abs(z))
    return _where(z < 0.0, tail, 1.0 - tail)


@composite(precision="full")
def _laplace_survival(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    z = (x - loc) / scale
    tail = 0.5 * _exp(-_abs(z))
    return _where(z < 0.0, 1.0 - tail, tail)


@composite(precision="full")
def _laplace_icdf(p: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return loc + scale * _where(p < 0.5, _log(2.0 * p), -_log(2.0 * (1.0 - p)))


class Laplace(LocationScale):
    """The Laplace distribution: exp(−|x − loc| / scale) / (2 scale).

    >>> Laplace(0.0, 2.0).variance.item()
    8.0
    """

    _log_density, _distribution, _upper = _laplace_log_prob, _laplace_cdf, _laplace_survival
    _quantile = _laplace_icdf
    _standard_variance, _standard_entropy = 2.0, 1.0 + math.log(2.0)


@composite(precision="full")
def _cauchy_log_prob(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    # ln(1 + z²) as twice ln √(1 + z²), whose square does not overflow: samples are large.
    z = (x - loc) / scale
    return -2.0 * _log(_hypot(z, 1.0 + 0.0 * z)) - _log(math.pi * scale)


@composite(precision="full")
def _cauchy_cdf(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    # Left of loc as the angle of the reciprocal, which keeps small probabilities.
    z = (x - loc) / scale
    far = z < -1.0
    near = 0.5 + _atan(_where(far, 0.0, z)) / math.pi
    return _where(far, _atan(-1.0 / _where(far, z, -1.0)) / math.pi, near)


@composite(precision="full")
def _cauchy_survival(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    z = (x - loc) / scale
    far = z > 1.0
    near = 0.5 - _atan(_where(far, 0.0, z)) / math.pi
    return _where(far, _atan(1.0 / _where(far, z, 1.0)) / math.pi, near)


@composite(precision="full")
def _cauchy_icdf(p: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    # −cot(πp), with the sine taken from the nearer end.
    low = p < 0.5
    sine = _sin(math.pi * _where(low, p, 1.0 - p))
    return loc - scale * _cos(math.pi * p) / sine


class Cauchy(LocationScale):
    """The Cauchy distribution: 1 / (π scale (1 + ((x − loc)/scale)²)); it has neither mean nor variance.

    >>> Cauchy(0.0, 1.0).cdf(1.0).item()
    0.75
    """

    _log_density, _distribution, _upper = _cauchy_log_prob, _cauchy_cdf, _cauchy_survival
    _quantile = _cauchy_icdf
    _standard_mean, _standard_variance, _standard_entropy = math.nan, math.nan, math.log(4.0 * math.pi)


@composite(precision="full")
def _gumbel_log_prob(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    z = (x - loc) / scale
    return -z - _exp(-z) - _log(scale)


@composite(precision="full")
def _gumbel_cdf(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return _exp(-_exp((loc - x) / scale))


@composite(precision="full")
def _gumbel_survival(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return -_expm1(-_exp((loc - x) / scale))


@composite(precision="full")
def _gumbel_icdf(p: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    # Near 1, −ln p as −ln(1 − (1 − p)).
    surprise = _where(p < 0.5, -_log(p), -_log1p(-(1.0 - p)))
    return loc - scale * _log(surprise)


class Gumbel(LocationScale):
    """The Gumbel distribution of largest values: exp(−z − e^−z) / scale, z = (x − loc)/scale.

    >>> Gumbel(0.0, 1.0).mean.item()
    0.577215...
    """

    _log_density, _distribution, _upper = _gumbel_log_prob, _gumbel_cdf, _gumbel_survival
    _quantile = _gumbel_icdf
    _standard_mean, _standard_variance, _standard_entropy = EULER, math.pi**2 / 6.0, 1.0 + EULER


@composite(precision="full")
def _logistic_log_prob(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    z = _abs((x - loc) / scale)
    return -z - 2.0 * _log1p(_exp(-z)) - _log(scale)


@composite(precision="full")
def _logistic_cdf(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return _sigmoid((x - loc) / scale)


@composite(precision="full")
def _logistic_survival(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return _sigmoid((loc - x) / scale)


@composite(precision="full")
def _logistic_log_cdf(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return -softplus((loc - x) / scale)


@composite(precision="full")
def _logistic_icdf(p: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return loc + scale * (_log(p) - _log1p(-p))


class Logistic(LocationScale):
    """The logistic distribution, whose distribution function is the sigmoid of (x − loc)/scale.

    >>> Logistic(0.0, 1.0).cdf(0.0).item()
    0.5
    """

    _log_density, _distribution, _upper = _logistic_log_prob, _logistic_cdf, _logistic_survival
    _quantile = _logistic_icdf
    _standard_variance, _standard_entropy = math.pi**2 / 3.0, 2.0

    def log_cdf(self, x: Any) -> Tensor:
        """ln P(X <= x), accurate in the tail."""
        return _logistic_log_cdf(self._value(x, "log_cdf"), self.loc, self.scale)

    def log_survival(self, x: Any) -> Tensor:
        """ln P(X > x), accurate in the tail."""
        return _logistic_log_cdf(-self._value(x, "log_survival"), -self.loc, self.scale)
