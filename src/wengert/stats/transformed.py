"""Distributions of transformed draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.stats.distribution import Distribution, require_kind
from wengert.stats.domains import Domain
from wengert.stats.independent import sum_last
from wengert.stats.parameters import Shape
from wengert.stats.transforms import Compose, Transform
from wengert.tensors.arguments import native
from wengert.tensors.random import Generator

_where, _all = native("where"), native("all")


class Transformed(Distribution):
    """f(X) for a draw X of `base` and an invertible f: one transform, or several in turn.

    >>> from wengert.stats import Normal
    >>> from wengert.stats.transforms import Exp
    >>> Transformed(Normal(0.0, 1.0), Exp()).log_prob(1.0).item()
    -0.918938...
    """

    def __init__(self, base: Distribution, transforms: Transform | Sequence[Transform]) -> None:
        require_kind(base, Distribution, "Transformed: base")
        self.base = base
        self.transform = transforms if isinstance(transforms, Transform) else Compose(transforms)
        shape = self.transform.shape_after((*base.batch_shape, *base.event_shape))
        events = max(len(base.event_shape), self.transform.event_ndim)
        if len(shape) < events:
            raise ArgumentError(f"Transformed: {self.transform!r} takes vectors, and draws of the base are {base!r}")
        self.batch_shape, self.event_shape = shape[: len(shape) - events], shape[len(shape) - events :]
        self.dtype, self.reparametrised = base.dtype, base.reparametrised

    @property
    def support(self) -> Domain:  # type: ignore[override]
        """The image of the base's support under the transform."""
        return self.transform.codomain

    def _log_prob(self, y: Tensor) -> Tensor:
        n = len(self.event_shape)
        x = self.transform.inverse(y)
        change = sum_last(self.transform.log_abs_det(x, y), n - self.transform.event_ndim)
        density = sum_last(self.base.log_prob(x), n - len(self.base.event_shape))
        inside = self.transform.codomain.contains(y.detach())
        parts = n - self.transform.codomain.event_ndim
        if parts > 0:
            inside = _all(inside, tuple(range(inside.ndim - parts, inside.ndim)), 0)
        return _where(inside | (y != y) if n == 0 else inside, density - change, -math.inf)

    def _cdf(self, y: Tensor) -> Tensor:
        return self._monotone(y, "cdf", "_cdf", "_survival")

    def _survival(self, y: Tensor) -> Tensor:
        return self._monotone(y, "survival", "_survival", "_cdf")

    def _monotone(self, y: Tensor, name: str, rising: str, falling: str) -> Tensor:
        if self.event_shape or self.transform.increasing is None:
            self._missing(name)
        method = rising if self.transform.increasing else falling
        found: Tensor = getattr(self.base, method)(self.transform.inverse(y))
        return found

    def _icdf(self, p: Tensor) -> Tensor:
        if self.event_shape or self.transform.increasing is None:
            self._missing("icdf")
        return self.transform(self.base._icdf(p if self.transform.increasing else 1.0 - p))

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        drawn = len(shape) - len(self.batch_shape) - len(self.event_shape)
        return self.transform(self.base.sample(shape[:drawn], generator=generator))

    def __repr__(self) -> str:
        return f"Transformed({self.base!r}, {self.transform!r})"
