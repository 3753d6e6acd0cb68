"""Images of another size: nearest neighbours and linear interpolation, as PyTorch defines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wengert._core import Tensor
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.arguments import as_floating, as_tensor, describe, native
from wengert.ops.resample import CORNERS, LINEAR, NEAREST

_resample = native("resample")

_RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3}


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
    kind = NEAREST if mode == "nearest" else CORNERS if align_corners else LINEAR
    # The last axis first: along the others whole rows are combined.
    for goal, factor, axis in zip(reversed(goals), reversed(factors), range(t.ndim - 1, 1, -1)):
        t = _resample(t, (goal,), axis, kind, 0.0 if factor is None else 1.0 / factor)
    return t


def _each(what: str, given: Any, rank: int) -> list[Any]:
    values = [given] * rank if isinstance(given, (int, float)) else list(given)
    if len(values) != rank:
        raise ArgumentError(f"upsample: {what} must be one number or {rank}, got {given}")
    return values
