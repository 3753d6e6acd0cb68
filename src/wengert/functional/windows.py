"""Arguments of convolution and pooling: options per spatial axis, and images without a batch axis."""

from __future__ import annotations

import operator
from typing import Any

from wengert._core import Tensor
from wengert.errors import ArgumentError, ShapeError
from wengert.tensors.arguments import describe, native

_reshape = native("reshape")


def per_axis(name: str, what: str, value: Any, rank: int, *, least: int) -> tuple[int, ...]:
    """`value` for every axis, each at least `least`."""
    try:
        given = (operator.index(value),) * rank if hasattr(value, "__index__") else tuple(map(operator.index, value))
    except TypeError:
        raise ArgumentError(f"{name}: {what} must be an integer or {rank} of them, got {value!r}") from None
    if len(given) == 1:
        given *= rank
    if len(given) != rank:
        raise ArgumentError(f"{name}: {what} must be one integer or {rank}, got {given}")
    if any(v < least for v in given):
        raise ArgumentError(f"{name}: {what} must be {'positive' if least else 'at least 0'}, got {value}")
    return given


def with_batch(name: str, rank: int, x: Tensor) -> tuple[Tensor, bool]:
    """x with a batch axis, and whether it had none."""
    if x.ndim == rank + 2:
        return x, False
    if x.ndim == rank + 1:
        return _reshape(x, (1, *x.shape)), True
    raise ShapeError(f"{name}: takes x of shape (batch, channels, {rank} spatial) or without batch, got {describe(x)}")


def without_batch(y: Tensor, single: bool) -> Tensor:
    """y without the batch axis that was added."""
    return _reshape(y, y.shape[1:]) if single else y
