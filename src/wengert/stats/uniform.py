"""The uniform distribution on an interval."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.stats.distribution import Distribution
from wengert.stats.domains import Domain, finite, interval, named, require_less
from wengert.stats.draws import uniform_numbers
from wengert.stats.parameters import Shape
from wengert.tensors.arguments import native
from wengert.tensors.random import Generator

_log, _where, _square, _or = (native(n) for n in ("log", "where", "square", "logical_or"))
_minimum, _maximum = native("minimum"), native("maximum")


@composite(precision="full")
def _log_prob(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    outside = _or(x < low, x > high)
    return _where(outside, -math.inf, -_log(high - low) + 0.0 * x)


@composite(precision="full")
def _cdf(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return _minimum(_maximum((x - low) / (high - low), 0.0), 1.0)


@composite(precision="full")
def _survival(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return _minimum(_maximum((high - x) / (high - low), 0.0), 1.0)


@composite(precision="full")
def _icdf(p: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return low + (high - low) * p


class Uniform(Distribution):
    """The uniform distribution: 1 / (high − low) from low to high.

    >>> Uniform(0.0, 2.0).prob(1.0).item()
    0.5
    """

    domains = named(low=finite, high=finite)
    reparametrised = True

    def __init__(self, low: Any = 0.0, high: Any = 1.0) -> None:
        self.low, self.high = self._read(low=low, high=high)
        require_less(self.low, self.high, "Uniform")

    @property
    def support(self) -> Domain:  # type: ignore[override]
        """From low to high."""
        return interval(self.low, self.high)

    def _log_prob(self, x: Tensor) -> Tensor:
        return _log_prob(x, self.low, self.high)

    def _cdf(self, x: Tensor) -> Tensor:
        return _cdf(x, self.low, self.high)

    def _survival(self, x: Tensor) -> Tensor:
        return _survival(x, self.low, self.high)

    def _icdf(self, p: Tensor) -> Tensor:
        return _icdf(p, self.low, self.high)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        return _icdf(uniform_numbers(shape, self.dtype, generator), self.low, self.high)

    @property
    def mean(self) -> Tensor:
        """(low + high) / 2."""
        return self._batch(0.5 * (self.low + self.high))

    @property
    def variance(self) -> Tensor:
        """(high − low)² / 12."""
        return self._batch(_square(self.high - self.low) / 12.0)

    def entropy(self) -> Tensor:
        """ln(high − low)."""
        return self._batch(_log(self.high - self.low))
