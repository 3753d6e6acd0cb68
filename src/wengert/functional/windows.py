"""Options of convolution and pooling: a number, or one for every spatial axis."""

from __future__ import annotations

import operator
from typing import Any

from wengert.errors import ArgumentError


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
