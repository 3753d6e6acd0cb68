"""Student's distribution."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.stats.distribution import Distribution
from wengert.stats.domains import named, positive, real
from wengert.stats.draws import normal_numbers, standard_gamma
from wengert.stats.parameters import Shape
from wengert.tensors.arguments import native
from wengert.tensors.random import Generator

_log, _log1p, _where, _square = (native(n) for n in ("log", "log1p", "where", "square"))
_sqrt, _digamma, _lgamma = native("sqrt"), native("digamma"), native("lgamma")
_betaln, _betainc, _betaincinv = native("betaln"), native("betainc"), native("betaincinv")


def _apart_from_zero(z: Any, least: float) -> Any:
    """z, or `least` where it is 0: there z² has no slope, and that of a square root of it would be lost."""
    return z + _where(z == 0.0, least, 0.0)


def _log_gamma_step(x: Tensor) -> Tensor:
    """ln Γ(x + ½) − ln Γ(x): from 10 on by its asymptotic series, as the two grow and their difference does not."""
    low = x < 10.0
    far, near = _where(low, 10.0, x), _where(low, x, 1.0)
    r = 1.0 / far
    z = r * r
    rest = -1 / 8 + z * (1 / 192 + z * (-1 / 640 + z * (17 / 14336 + z * (-31 / 18432 + z * (691 / 180224)))))
    return _where(low, _lgamma(near + 0.5) - _lgamma(near), 0.5 * _log(far) + r * rest)


@composite(precision="full")
def _log_prob(x: Tensor, df: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    tail = -0.5 * (df + 1.0) * _log1p(_square((x - loc) / scale) / df)
    return tail + _log_gamma_step(0.5 * df) - 0.5 * _log(math.pi * df) - _log(scale)


@composite(precision="full")
def _cdf(x: Tensor, df: Tensor, loc: Tensor, scale: Tensor, least: float) -> Tensor:
    """Half of I(df/2, ½) is the tail, half of I(½, df/2) the part around 0; each where it is accurate."""
    z = _apart_from_zero((x - loc) / scale, least)
    square, half = _square(z), 0.5 * df
    near = square < df
    middle = 0.5 * _betainc(0.5 + 0.0 * half, half, _where(near, square, 0.0) / (df + square))
    tail = 0.5 * _betainc(half, 0.5 + 0.0 * half, df / (df + square))
    upper = _where(near, 0.5 - middle, tail)
    return _where(z < 0.0, upper, _where(near, 0.5 + middle, 1.0 - tail))


@composite(precision="full")
def _icdf(p: Tensor, df: Tensor, loc: Tensor, scale: Tensor, least: float) -> Tensor:
    half = 0.5 * df
    low = _where(p < 0.5, p, 1.0 - p)
    around = _apart_from_zero(1.0 - 2.0 * low, least)
    near = low > 0.25
    w = _betaincinv(0.5 + 0.0 * half, half, _where(near, around, 0.5))
    y = _betaincinv(half, 0.5 + 0.0 * half, 2.0 * _where(near, 0.25, low))
    size = _sqrt(df * _where(near, w / (1.0 - w), (1.0 - y) / y))
    return loc + scale * _where(p < 0.5, -size, size)


@composite(precision="full")
def _scaled(z: Tensor, g: Tensor, df: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return loc + scale * z * _sqrt(0.5 * df / g)


@composite(precision="full")
def _variance(df: Tensor, scale: Tensor) -> Tensor:
    finite = _square(scale) * df / (df - 2.0)
    return _where(df > 2.0, finite, _where(df > 1.0, math.inf, math.nan))


@composite(precision="full")
def _entropy(df: Tensor, scale: Tensor) -> Tensor:
    half = 0.5 * df
    slopes = (half + 0.5) * (_digamma(half + 0.5) - _digamma(half))
    return slopes + 0.5 * _log(df) + _betaln(half, 0.5 + 0.0 * half) + _log(scale)


class StudentT(Distribution):
    """Student's distribution with df degrees of freedom: proportional to (1 + z²/df)^(−(df + 1)/2), z = (x − loc)/scale.

    Samples have gradients with respect to all parameters, by df implicit ones.

    >>> StudentT(1.0).cdf(1.0).item()
    0.75
    """

    domains = named(df=positive, loc=real, scale=positive)
    support = real
    reparametrised = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> None:
        self.df, self.loc, self.scale = self._read(df=df, loc=loc, scale=scale)
        self._least = 1e-100 if self.dtype.itemsize == 8 else 1e-18 if self.dtype.name != "float16" else 1e-3

    def _log_prob(self, x: Tensor) -> Tensor:
        return _log_prob(x, self.df, self.loc, self.scale)

    def _cdf(self, x: Tensor) -> Tensor:
        return _cdf(x, self.df, self.loc, self.scale, self._least)

    def _survival(self, x: Tensor) -> Tensor:
        return _cdf(-x, self.df, -self.loc, self.scale, self._least)

    def _icdf(self, p: Tensor) -> Tensor:
        return _icdf(p, self.df, self.loc, self.scale, self._least)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        z = normal_numbers(shape, self.dtype, generator)
        g = standard_gamma(0.5 * self.df, shape, generator)
        return _scaled(z, g, self.df, self.loc, self.scale)

    @property
    def mean(self) -> Tensor:
        """loc; NaN where df is 1 or less."""
        return self._batch(_where(self.df > 1.0, self.loc, math.nan))

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self._batch(self.loc)

    @property
    def variance(self) -> Tensor:
        """scale² df / (df − 2); infinite for df up to 2, NaN up to 1."""
        return self._batch(_variance(self.df, self.scale))

    def entropy(self) -> Tensor:
        """½(df + 1)(ψ(½(df + 1)) − ψ(½ df)) + ln(scale √df B(½ df, ½))."""
        return self._batch(_entropy(self.df, self.scale))
