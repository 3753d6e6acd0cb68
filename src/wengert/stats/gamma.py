"""The gamma distribution and its special cases: chi-squared and exponential."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.functional.elementwise import _xlogy
from wengert.stats.distribution import Distribution
from wengert.stats.domains import named, non_negative, positive
from wengert.stats.draws import standard_exponential, standard_gamma, uniform_numbers
from wengert.stats.parameters import Shape
from wengert.tensors.arguments import native
from wengert.tensors.random import Generator

_exp, _log, _expm1 = (native(n) for n in ("exp", "log", "expm1"))
_where, _lgamma, _digamma, _relu = (native(n) for n in ("where", "lgamma", "digamma", "relu"))
_gammainc, _gammaincc, _gammaincinv = native("gammainc"), native("gammaincc"), native("gammaincinv")


@composite(precision="full")
def _log_prob(x: Tensor, concentration: Tensor, rate: Tensor) -> Tensor:
    inside = _xlogy(concentration, rate) + _xlogy(concentration - 1.0, x) - rate * x - _lgamma(concentration)
    return _where(x < 0.0, -math.inf, inside)


@composite(precision="full")
def _cdf(x: Tensor, concentration: Tensor, rate: Tensor) -> Tensor:
    return _where(x <= 0.0, 0.0, _gammainc(concentration, rate * _where(x <= 0.0, 1.0, x)))


@composite(precision="full")
def _survival(x: Tensor, concentration: Tensor, rate: Tensor) -> Tensor:
    return _where(x <= 0.0, 1.0, _gammaincc(concentration, rate * _where(x <= 0.0, 1.0, x)))


@composite(precision="full")
def _icdf(p: Tensor, concentration: Tensor, rate: Tensor) -> Tensor:
    return _gammaincinv(concentration, p) / rate


@composite(precision="full")
def _entropy(concentration: Tensor, rate: Tensor) -> Tensor:
    rest = _lgamma(concentration) + (1.0 - concentration) * _digamma(concentration)
    return concentration - _log(rate) + rest


@composite(precision="full")
def _variance(concentration: Tensor, rate: Tensor) -> Tensor:
    return concentration / (rate * rate)


@composite(precision="full")
def _mode(concentration: Tensor, rate: Tensor) -> Tensor:
    return _relu(concentration - 1.0) / rate


class Gamma(Distribution):
    """The gamma distribution: rateᵃ x^(a−1) e^(−rate x) / Γ(a), with a the concentration.

    Samples have implicit gradients with respect to both parameters (Figurnov et al., 2018).

    >>> Gamma(2.0, 4.0).mean.item()
    0.5
    """

    domains = named(concentration=positive, rate=positive)
    support = non_negative
    reparametrised = True

    def __init__(self, concentration: Any, rate: Any = 1.0) -> None:
        self.concentration, self.rate = self._read(concentration=concentration, rate=rate)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _log_prob(x, self.concentration, self.rate)

    def _cdf(self, x: Tensor) -> Tensor:
        return _cdf(x, self.concentration, self.rate)

    def _survival(self, x: Tensor) -> Tensor:
        return _survival(x, self.concentration, self.rate)

    def _icdf(self, p: Tensor) -> Tensor:
        return _icdf(p, self.concentration, self.rate)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        return standard_gamma(self.concentration, shape, generator) / self.rate

    @property
    def mean(self) -> Tensor:
        """concentration / rate."""
        return self._batch(self.concentration / self.rate)

    @property
    def mode(self) -> Tensor:
        """(concentration − 1) / rate, and 0 for concentrations up to 1."""
        return self._batch(_mode(self.concentration, self.rate))

    @property
    def variance(self) -> Tensor:
        """concentration / rate²."""
        return self._batch(_variance(self.concentration, self.rate))

    def entropy(self) -> Tensor:
        """a − ln rate + ln Γ(a) + (1 − a) ψ(a)."""
        return self._batch(_entropy(self.concentration, self.rate))


class Chi2(Gamma):
    """The chi-squared distribution: the sum of df squares of standard normal numbers.

    >>> Chi2(3.0).variance.item()
    6.0
    """

    domains = named(df=positive)

    def __init__(self, df: Any) -> None:
        (self.df,) = self._read(df=df)
        self.concentration = 0.5 * self.df
        self.rate = self.concentration * 0.0 + 0.5


@composite(precision="full")
def _exponential_log_prob(x: Tensor, rate: Tensor) -> Tensor:
    return _where(x < 0.0, -math.inf, _log(rate) - rate * x)


@composite(precision="full")
def _exponential_cdf(x: Tensor, rate: Tensor) -> Tensor:
    return _where(x < 0.0, 0.0, -_expm1(-rate * x))


@composite(precision="full")
def _exponential_survival(x: Tensor, rate: Tensor) -> Tensor:
    return _where(x < 0.0, 1.0, _exp(-rate * x))


class Exponential(Distribution):
    """The exponential distribution: rate e^(−rate x) for x >= 0.

    >>> Exponential(2.0).cdf(0.0).item()
    0.0
    """

    domains = named(rate=positive)
    support = non_negative
    reparametrised = True

    def __init__(self, rate: Any = 1.0) -> None:
        (self.rate,) = self._read(rate=rate)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _exponential_log_prob(x, self.rate)

    def _cdf(self, x: Tensor) -> Tensor:
        return _exponential_cdf(x, self.rate)

    def _survival(self, x: Tensor) -> Tensor:
        return _exponential_survival(x, self.rate)

    def _icdf(self, p: Tensor) -> Tensor:
        return standard_exponential(p, self.rate)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        return standard_exponential(uniform_numbers(shape, self.dtype, generator), self.rate)

    @property
    def mean(self) -> Tensor:
        """1 / rate."""
        return 1.0 / self.rate

    @property
    def mode(self) -> Tensor:
        """0."""
        return self.rate * 0.0

    @property
    def stddev(self) -> Tensor:
        """1 / rate."""
        return self.mean

    @property
    def variance(self) -> Tensor:
        """1 / rate²."""
        return self.mean * self.mean

    def entropy(self) -> Tensor:
        """1 − ln rate."""
        return 1.0 - _log(self.rate)
