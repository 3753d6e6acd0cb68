"""The beta distribution, and Dirichlet's, which it is for two classes."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import ShapeError
from wengert.functional.activations import softmax
from wengert.functional.elementwise import _xlogy
from wengert.functional.special import _xlog1py
from wengert.stats.distribution import Distribution
from wengert.stats.domains import named, positive, simplex, unit_interval
from wengert.stats.draws import ratio, standard_gamma
from wengert.stats.parameters import Shape, read
from wengert.tensors.arguments import describe, native
from wengert.tensors.random import Generator

_where, _lgamma, _digamma = (native(n) for n in ("where", "lgamma", "digamma"))
_betaln, _betainc, _betaincinv = native("betaln"), native("betainc"), native("betaincinv")
_or, _sum, _all, _square = (native(n) for n in ("logical_or", "sum", "all", "square"))


@composite(precision="full")
def _log_prob(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    inside = _xlogy(a - 1.0, x) + _xlog1py(b - 1.0, -x) - _betaln(a, b)
    return _where(_or(x < 0.0, x > 1.0), -math.inf, inside)


@composite(precision="full")
def _cdf(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return _where(x <= 0.0, 0.0, _where(x >= 1.0, 1.0, _betainc(a, b, x)))


@composite(precision="full")
def _survival(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return _where(x <= 0.0, 1.0, _where(x >= 1.0, 0.0, _betainc(b, a, 1.0 - x)))


@composite(precision="full")
def _icdf(p: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return _betaincinv(a, b, p)


@composite(precision="full")
def _mean(a: Tensor, b: Tensor) -> Tensor:
    return a / (a + b)


@composite(precision="full")
def _variance(a: Tensor, b: Tensor) -> Tensor:
    total = a + b
    return a * b / (_square(total) * (total + 1.0))


@composite(precision="full")
def _mode(a: Tensor, b: Tensor) -> Tensor:
    return _where(_or(a < 1.0, b < 1.0), math.nan, (a - 1.0) / (a + b - 2.0))


@composite(precision="full")
def _entropy(a: Tensor, b: Tensor) -> Tensor:
    total = a + b
    return _betaln(a, b) - (a - 1.0) * _digamma(a) - (b - 1.0) * _digamma(b) + (total - 2.0) * _digamma(total)


class Beta(Distribution):
    """The beta distribution: x^(a−1) (1 − x)^(b−1) / B(a, b), with a = concentration1 and b = concentration0.

    Samples are ratios of gamma draws, and have implicit gradients with respect to both.

    >>> Beta(1.0, 3.0).mean.item()
    0.25
    """

    domains = named(concentration1=positive, concentration0=positive)
    support = unit_interval
    reparametrised = True

    def __init__(self, concentration1: Any, concentration0: Any) -> None:
        self.concentration1, self.concentration0 = self._read(
            concentration1=concentration1, concentration0=concentration0
        )

    def _log_prob(self, x: Tensor) -> Tensor:
        return _log_prob(x, self.concentration1, self.concentration0)

    def _cdf(self, x: Tensor) -> Tensor:
        return _cdf(x, self.concentration1, self.concentration0)

    def _survival(self, x: Tensor) -> Tensor:
        return _survival(x, self.concentration1, self.concentration0)

    def _icdf(self, p: Tensor) -> Tensor:
        return _icdf(p, self.concentration1, self.concentration0)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        parts = (self.concentration1, self.concentration0)
        log_a, log_b = (standard_gamma(c, shape, generator, True) for c in parts)
        return ratio(log_a, log_b)

    @property
    def mean(self) -> Tensor:
        """a / (a + b)."""
        return self._batch(_mean(self.concentration1, self.concentration0))

    @property
    def mode(self) -> Tensor:
        """(a − 1) / (a + b − 2); NaN where a or b is less than 1, and the density infinite at an end."""
        return self._batch(_mode(self.concentration1, self.concentration0))

    @property
    def variance(self) -> Tensor:
        """a b / ((a + b)² (a + b + 1))."""
        return self._batch(_variance(self.concentration1, self.concentration0))

    def entropy(self) -> Tensor:
        """ln B(a, b) − (a − 1) ψ(a) − (b − 1) ψ(b) + (a + b − 2) ψ(a + b)."""
        return self._batch(_entropy(self.concentration1, self.concentration0))


@composite(precision="full")
def _dirichlet_log_prob(x: Tensor, c: Tensor, inside: Tensor) -> Tensor:
    k = (c.ndim - 1,)
    terms = _xlogy(c - 1.0, x)
    density = _sum(terms, (terms.ndim - 1,), 0) + _lgamma(_sum(c, k, 0)) - _sum(_lgamma(c), k, 0)
    return _where(inside, density, -math.inf)


@composite(precision="full")
def _dirichlet_mean(c: Tensor) -> Tensor:
    return c / _sum(c, (c.ndim - 1,), 1)


@composite(precision="full")
def _dirichlet_variance(c: Tensor) -> Tensor:
    total = _sum(c, (c.ndim - 1,), 1)
    return c * (total - c) / (_square(total) * (total + 1.0))


@composite(precision="full")
def _dirichlet_mode(c: Tensor) -> Tensor:
    k = (c.ndim - 1,)
    mode = (c - 1.0) / _sum(c - 1.0, k, 1)
    return _where(_all(c >= 1.0, k, 1), mode, math.nan)


@composite(precision="full")
def _dirichlet_entropy(c: Tensor) -> Tensor:
    k = (c.ndim - 1,)
    total = _sum(c, k, 0)
    log_beta = _sum(_lgamma(c), k, 0) - _lgamma(total)
    classes = _sum(c * 0.0 + 1.0, k, 0)
    return log_beta + (total - classes) * _digamma(total) - _sum((c - 1.0) * _digamma(c), k, 0)


class Dirichlet(Distribution):
    """The Dirichlet distribution over vectors of probabilities: ∏ xᵢ^(cᵢ − 1) / B(c), c the concentration (last axis).

    Samples are gamma draws divided by their sum, and have implicit gradients.

    >>> Dirichlet([1.0, 1.0, 2.0]).mean.tolist()
    [0.25, 0.25, 0.5]
    """

    domains = named(concentration=positive)
    support = simplex
    reparametrised = True

    def __init__(self, concentration: Any) -> None:
        (c,) = read("Dirichlet", {"concentration": concentration}, self.domains)
        if c.ndim == 0 or c.shape[-1] == 0:
            raise ShapeError(
                f"Dirichlet: the last axis of the concentration must hold at least one class, got {describe(c)}"
            )
        self.concentration = c
        self.batch_shape, self.event_shape, self.dtype = tuple(c.shape[:-1]), tuple(c.shape[-1:]), c.dtype

    def _log_prob(self, x: Tensor) -> Tensor:
        inside = simplex.contains(x.detach())
        return _dirichlet_log_prob(x, self.concentration, inside)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        return softmax(standard_gamma(self.concentration, shape, generator, True))

    @property
    def mean(self) -> Tensor:
        """c / Σ c."""
        return _dirichlet_mean(self.concentration)

    @property
    def mode(self) -> Tensor:
        """(c − 1) / Σ (c − 1); NaN where some concentration is less than 1."""
        return _dirichlet_mode(self.concentration)

    @property
    def variance(self) -> Tensor:
        """c (s − c) / (s² (s + 1)) with s = Σ c, element by element."""
        return _dirichlet_variance(self.concentration)

    def entropy(self) -> Tensor:
        """ln B(c) + (s − k) ψ(s) − Σ (c − 1) ψ(c), for k classes with s = Σ c."""
        return _dirichlet_entropy(self.concentration)
