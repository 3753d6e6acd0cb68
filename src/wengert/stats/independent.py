"""Axes of a batch as axes of the event: several independent numbers as one draw."""

from __future__ import annotations

import operator
from typing import Any

from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.stats.distribution import Distribution, require_kind
from wengert.stats.domains import Domain
from wengert.stats.parameters import Shape
from wengert.tensors.arguments import native
from wengert.tensors.random import Generator

_sum, _all = native("sum"), native("all")


def sum_last(x: Tensor, axes: int) -> Tensor:
    """The sum over the last axes."""
    return _sum(x, tuple(range(x.ndim - axes, x.ndim)), 0) if axes else x


class Independent(Distribution):
    """The distribution `base` with the last `event_ndim` axes of its batch as axes of the event: densities multiply.

    >>> from wengert.stats import Normal
    >>> d = Independent(Normal([0.0, 1.0], 1.0), 1)
    >>> d.batch_shape, d.event_shape, d.log_prob([0.0, 0.0]).shape
    ((), (2,), ())
    """

    def __init__(self, base: Distribution, event_ndim: int = 1) -> None:
        require_kind(base, Distribution, "Independent: base")
        n = operator.index(event_ndim)
        if not 0 <= n <= len(base.batch_shape):
            raise ArgumentError(
                f"Independent: event_ndim must be between 0 and the {len(base.batch_shape)} axes of the batch, got {n}"
            )
        self.base, self.event_ndim = base, n
        keep = len(base.batch_shape) - n
        self.batch_shape, self.event_shape = base.batch_shape[:keep], (*base.batch_shape[keep:], *base.event_shape)
        self.dtype, self.reparametrised = base.dtype, base.reparametrised

    @property
    def support(self) -> Domain:  # type: ignore[override]
        """Draws all of whose parts are in the base's support."""
        inner, n = self.base.support, self.event_ndim

        def contains(x: Tensor) -> Any:
            inside = inner.contains(x)
            return _all(inside, tuple(range(inside.ndim - n, inside.ndim)), 0)

        return Domain(f"{inner.name}, for each part", contains, inner.event_ndim + n, inner.discrete)

    def _log_prob(self, x: Tensor) -> Tensor:
        return sum_last(self.base._log_prob(x), self.event_ndim)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        return self.base._sample(shape, generator)

    @property
    def mean(self) -> Tensor:
        """The base's."""
        return self.base.mean

    @property
    def mode(self) -> Tensor:
        """The base's."""
        return self.base.mode

    @property
    def variance(self) -> Tensor:
        """The base's."""
        return self.base.variance

    def entropy(self) -> Tensor:
        """The sum of the base's."""
        return sum_last(self.base.entropy(), self.event_ndim)

    def __repr__(self) -> str:
        return f"Independent({self.base!r}, {self.event_ndim})"
