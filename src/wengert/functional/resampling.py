"""Images of another size: nearest neighbours and linear interpolation, as PyTorch defines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.autograd.creation import asarray
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.arguments import as_dtype_of, as_floating, as_tensor, describe, native
from wengert.functional.linear import matmul
from wengert.functional.shapes import moveaxis
from wengert.program.compile import composite

_take, _reshape, _broadcast_to = native("take"), native("reshape"), native("broadcast_to")

_RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3}


def along_axis(x: Tensor, matrix: np.ndarray[Any, Any], axis: int) -> Tensor:
    """The matrix times x along an axis."""
    m = as_dtype_of(asarray(matrix), x.dtype)
    return moveaxis(matmul(moveaxis(x, axis, -1), m.mT), -1, axis)


def upsample(
    x: Any,
    *,
    size: int | Sequence[int] | None = None,
    scale: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> Tensor:
    """x of (batch, channels, spatial) at another size: `size`, or ⌊n · scale⌋, for all spatial axes or for each.

    `mode` is `"nearest"`, or `"linear"`, `"bilinear"`, `"trilinear"` for one, two, three spatial axes. Interpolation takes
    elements as areas; with `align_corners` as points, of which the outermost stay.

    >>> upsample([[[1.0, 3.0]]], scale=2).tolist()
    [[[1.0, 1.0, 3.0, 3.0]]]
    >>> upsample([[[1.0, 3.0]]], size=3, mode="linear", align_corners=True).tolist()
    [[[1.0, 2.0, 3.0]]]
    """
    t = as_floating(as_tensor(x, "upsample"))
    rank = t.ndim - 2
    if rank not in (1, 2, 3):
        raise ShapeError(f"upsample: takes (batch, channels, one to three spatial axes), got {describe(t)}")
    if mode != "nearest" and _RANKS.get(mode) != rank:
        names = ", ".join(f'"{m}" for {r}' for m, r in _RANKS.items())
        raise ArgumentError(f'upsample: mode is "nearest" or, by spatial axes, {names}; got {mode!r} for {describe(t)}')
    if align_corners and mode == "nearest":
        raise ArgumentError("upsample: align_corners has a meaning for interpolation only; choose a linear mode")
    if (size is None) == (scale is None):
        raise ArgumentError(f"upsample: give either size or scale, got size={size} and scale={scale}")
    ns = [int(n) for n in t.shape[2:]]
    factors = _each("scale", scale, rank) if scale is not None else [None] * rank
    goals = (
        [int(n * f) for n, f in zip(ns, factors)] if scale is not None else [int(g) for g in _each("size", size, rank)]
    )
    if any(g < 1 for g in goals) or any(n < 1 for n in ns):
        raise ArgumentError(f"upsample: sizes must be positive, got {describe(t)} to {tuple(goals)}")
    if mode == "nearest":
        return _nearest(t, ns, goals, factors)
    for k in range(rank):
        t = _interpolated(t, k + 2, ns[k], goals[k], factors[k], align_corners)
    return t


def _each(what: str, given: Any, rank: int) -> list[Any]:
    values = [given] * rank if isinstance(given, (int, float)) else list(given)
    if len(values) != rank:
        raise ArgumentError(f"upsample: {what} must be one number or {rank}, got {given}")
    return values


def _nearest(t: Tensor, ns: list[int], goals: list[int], factors: list[Any]) -> Tensor:
    if all(g % n == 0 and (f is None or f == g // n) for n, g, f in zip(ns, goals, factors)):
        lead = t.shape[:2]
        thin = [s for n in ns for s in (n, 1)]
        wide = [s for n, g in zip(ns, goals) for s in (n, g // n)]
        return _reshape(_broadcast_to(_reshape(t, (*lead, *thin)), (*lead, *wide)), (*lead, *goals))
    for k, (n, g, f) in enumerate(zip(ns, goals, factors)):
        # In single precision, as PyTorch computes it: the ratio's rounding decides which of two neighbours is taken.
        ratio = np.float32(n / g if f is None else 1.0 / f)
        index = np.minimum(np.floor(np.arange(g, dtype=np.float32) * ratio), n - 1).astype(np.int64)
        t = _take(t, asarray(index), k + 2)
    return t


@composite
def _blend(x: Tensor, low: Tensor, high: Tensor, share: Tensor, axis: int) -> Any:
    a, b = _take(x, low, axis), _take(x, high, axis)
    return a * (1.0 - share) + b * share


def _interpolated(t: Tensor, axis: int, n: int, goal: int, factor: Any, align_corners: bool) -> Tensor:
    j = np.arange(goal)
    if align_corners:
        at = j * ((n - 1) / (goal - 1) if goal > 1 else 0.0)
    else:
        at = np.maximum((j + 0.5) * (n / goal if factor is None else 1.0 / factor) - 0.5, 0.0)
    low = np.minimum(at.astype(np.int64), n - 1)
    high = np.minimum(low + 1, n - 1)
    share = (at - low).reshape(-1, *(1 for _ in range(t.ndim - axis - 1)))
    blended: Tensor = _blend(t, asarray(low), asarray(high), as_dtype_of(asarray(share), t.dtype), axis)
    return blended
