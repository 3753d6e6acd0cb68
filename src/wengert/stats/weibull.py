"""The Weibull distribution."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.functional.elementwise import _xlogy
from wengert.stats.distribution import Distribution
from wengert.stats.domains import named, non_negative, positive
from wengert.stats.draws import open_uniform
from wengert.stats.location_scale import EULER
from wengert.stats.parameters import Shape
from wengert.tensors.arguments import native
from wengert.tensors.random import Generator

_exp, _log, _log1p, _expm1 = (native(n) for n in ("exp", "log", "log1p", "expm1"))
_where, _lgamma, _pow, _relu = (native(n) for n in ("where", "lgamma", "pow", "relu"))


def _power(x: Any, scale: Any, concentration: Any) -> Any:
    """(x / scale)^k where x is positive, else 0."""
    return _pow(_where(x > 0.0, x, 0.0) / scale, concentration)


@composite(precision="full")
def _log_prob(x: Tensor, scale: Tensor, concentration: Tensor) -> Tensor:
    inside = _log(concentration / scale) + _xlogy(concentration - 1.0, x / scale) - _power(x, scale, concentration)
    return _where(x < 0.0, -math.inf, inside)


@composite(precision="full")
def _cdf(x: Tensor, scale: Tensor, concentration: Tensor) -> Tensor:
    return -_expm1(-_power(x, scale, concentration))


@composite(precision="full")
def _survival(x: Tensor, scale: Tensor, concentration: Tensor) -> Tensor:
    return _exp(-_power(x, scale, concentration))


@composite(precision="full")
def _icdf(p: Tensor, scale: Tensor, concentration: Tensor) -> Tensor:
    return scale * _pow(-_log1p(-p), 1.0 / concentration)


@composite(precision="full")
def _moment(scale: Tensor, concentration: Tensor, order: float) -> Tensor:
    return _pow(scale, order) * _exp(_lgamma(1.0 + order / concentration))


@composite(precision="full")
def _variance(scale: Tensor, concentration: Tensor) -> Tensor:
    first = _lgamma(1.0 + 1.0 / concentration)
    second = _lgamma(1.0 + 2.0 / concentration)
    return scale * scale * (_exp(second) - _exp(2.0 * first))


@composite(precision="full")
def _mode(scale: Tensor, concentration: Tensor) -> Tensor:
    above = _relu(concentration - 1.0)
    return scale * _pow(above / concentration, 1.0 / concentration)


@composite(precision="full")
def _entropy(scale: Tensor, concentration: Tensor) -> Tensor:
    return EULER * (1.0 - 1.0 / concentration) + _log(scale / concentration) + 1.0


class Weibull(Distribution):
    """The Weibull distribution: (k/λ) (x/λ)^(k−1) exp(−(x/λ)^k), with scale λ and concentration k.

    >>> Weibull(2.0, 1.0).mean.item()
    2.0
    """

    domains = named(scale=positive, concentration=positive)
    support = non_negative
    reparametrised = True

    def __init__(self, scale: Any, concentration: Any) -> None:
        self.scale, self.concentration = self._read(scale=scale, concentration=concentration)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _log_prob(x, self.scale, self.concentration)

    def _cdf(self, x: Tensor) -> Tensor:
        return _cdf(x, self.scale, self.concentration)

    def _survival(self, x: Tensor) -> Tensor:
        return _survival(x, self.scale, self.concentration)

    def _icdf(self, p: Tensor) -> Tensor:
        return _icdf(p, self.scale, self.concentration)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        return _icdf(open_uniform(shape, self.dtype, generator), self.scale, self.concentration)

    @property
    def mean(self) -> Tensor:
        """λ Γ(1 + 1/k)."""
        return self._batch(_moment(self.scale, self.concentration, 1.0))

    @property
    def mode(self) -> Tensor:
        """λ ((k − 1)/k)^(1/k), and 0 for k up to 1."""
        return self._batch(_mode(self.scale, self.concentration))

    @property
    def variance(self) -> Tensor:
        """λ² (Γ(1 + 2/k) − Γ(1 + 1/k)²)."""
        return self._batch(_variance(self.scale, self.concentration))

    def entropy(self) -> Tensor:
        """γ (1 − 1/k) + ln(λ/k) + 1, with Euler's γ."""
        return self._batch(_entropy(self.scale, self.concentration))
