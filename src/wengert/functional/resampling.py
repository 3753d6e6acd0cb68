"""Images of another size: nearest neighbours, linear and cubic interpolation, as PyTorch defines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.gather import take
from wengert.ops.resample import CORNERS, LINEAR, NEAREST
from wengert.tensors.arguments import as_dtype_of, as_floating, as_tensor, describe, native
from wengert.tensors.conversion import asarray

_resample = native("resample")

_RANKS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
_NEAREST = ("nearest", "nearest-exact")
_CUBIC = -0.75  # the slope of the kernel at one (Keys, 1981, has −½)


def upsample(
    x: Any,
    *,
    size: int | Sequence[int] | None = None,
    scale: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> Tensor:
    """x of (batch, channels, spatial) at another size: `size`, or ⌊n · scale⌋, for all spatial axes or for each.

    `mode` is `"nearest"` (the element at ⌊j n/m⌋) or `"nearest-exact"` (at ⌊(j + ½) n/m⌋), or `"linear"`, `"bilinear"`,
    `"trilinear"` for one, two, three spatial axes, or `"bicubic"` for two. Interpolation takes elements as areas; with
    `align_corners` as points, of which the outermost stay. The nearest elements keep their dtype, integers too.

    >>> upsample([[[1.0, 3.0]]], scale=2).tolist()
    [[[1.0, 1.0, 3.0, 3.0]]]
    >>> upsample([[[1.0, 3.0]]], size=3, mode="linear", align_corners=True).tolist()
    [[[1.0, 2.0, 3.0]]]
    >>> upsample([[[1.0, 3.0, 5.0]]], size=2, mode="nearest-exact").tolist()
    [[[1.0, 5.0]]]
    """
    t = as_tensor(x, "upsample")
    t = t if mode in _NEAREST and not t.dtype.is_inexact else as_floating(t)  # elements that are copied may be integers
    rank = t.ndim - 2
    if rank not in (1, 2, 3):
        raise ShapeError(f"upsample: takes (batch, channels, one to three spatial axes), got {describe(t)}")
    if mode not in _NEAREST and _RANKS.get(mode) != rank:
        names = ", ".join(f'"{m}" for {r}' for m, r in _RANKS.items())
        raise ArgumentError(
            f'upsample: mode is "nearest", "nearest-exact" or, by spatial axes, {names}; got {mode!r} for {describe(t)}'
        )
    if align_corners and mode in _NEAREST:
        raise ArgumentError("upsample: align_corners applies to interpolation only; choose a linear mode")
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
        ratio = 0.0 if factor is None else 1.0 / factor
        if mode == "nearest-exact" or not t.dtype.is_inexact:
            t = _nearest(t, goal, axis, ratio, 0.5 if mode == "nearest-exact" else 0.0)
        elif mode == "bicubic":
            t = _cubic(t, goal, axis, ratio, align_corners)
        else:
            t = _resample(t, (goal,), axis, kind, ratio)
    return t


def _nearest(t: Any, size: int, axis: int, ratio: float, offset: float) -> Tensor:
    """The elements at ⌊(j + offset) n/m⌋."""
    n = int(t.shape[axis])
    at = np.floor((np.arange(size, dtype=np.float32) + np.float32(offset)) * np.float32(ratio or n / size))
    return take(t, asarray(np.minimum(at.astype(np.int64), n - 1)), axis=axis)


def _cubic(t: Any, size: int, axis: int, ratio: float, align_corners: bool) -> Any:
    """Four neighbours, those beyond the border repeated, by Keys' convolution."""
    n, j = int(t.shape[axis]), np.arange(size)
    at = j * ((n - 1) / max(size - 1, 1)) if align_corners else (j + 0.5) * (ratio or n / size) - 0.5
    low = np.floor(at).astype(np.int64)
    total: Any = 0.0
    for k in (-1, 0, 1, 2):
        d, a = np.abs(at - low - k), _CUBIC
        near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weights = asarray(np.where(d <= 1, near, far).reshape(-1, *(1,) * (t.ndim - 1 - axis)))
        rows = take(t, asarray(np.clip(low + k, 0, n - 1)), axis=axis)
        total = rows * as_dtype_of(weights, t.dtype) + total
    return total


def _each(what: str, given: Any, rank: int) -> list[Any]:
    values = [given] * rank if isinstance(given, (int, float)) else list(given)
    if len(values) != rank:
        raise ArgumentError(f"upsample: {what} must be one number or {rank}, got {given}")
    return values
