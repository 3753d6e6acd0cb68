"""The norm of many tensors together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import float64
from wengert.errors import ArgumentError
from wengert.tensors.arguments import as_dtype_of, native
from wengert.tensors.creation import zeros

_abs, _sqrt, _square = native("abs"), native("sqrt"), native("square")


@composite
def _sum_of_squares(*gradients: Any) -> Any:
    total: Any = 0.0
    for g in gradients:
        total = total + F.sum(_square(as_dtype_of(_abs(g), float64)))
    return total


def norm(gradients: Sequence[Tensor], kind: float = 2.0) -> Tensor:
    """The norm of all gradients together, in float64: (Σ |g|ᵏ)^(1/k), or max |g| for k = ∞.

    >>> import wengert as wg
    >>> norm([wg.tensor([3.0]), wg.tensor([4.0])]).item()
    5.0
    """
    if not gradients:
        return zeros((), dtype=float64)
    if kind == 2.0:
        return _sqrt(_sum_of_squares(*gradients))
    wide = [as_dtype_of(_abs(g), float64) for g in gradients if g.size]
    if kind == math.inf:
        return F.max(F.stack([F.max(g) for g in wide]))
    if not kind > 0.0:
        raise ArgumentError(f"norm: kind must be positive, got {kind}")
    return F.sum(F.stack([F.sum(g**kind) for g in wide])) ** (1.0 / kind)
