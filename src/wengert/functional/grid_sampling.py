"""Images sampled at points between their elements, and grids of such points."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import int64
from wengert.errors import ArgumentError, DTypeError, ShapeError
from wengert.functional.linear import matmul
from wengert.tensors.arguments import (
    as_dtype_of,
    as_floating,
    as_tensor,
    describe,
    iota,
    native,
    number,
    product,
    promoted,
    shape_text,
    wide,
)
from wengert.tensors.conversion import asarray

_where, _floor, _round, _abs, _and = (native(n) for n in ("where", "floor", "round", "abs", "logical_and"))
_permute, _reshape, _slice, _take, _remainder = (
    native(n) for n in ("permute", "reshape", "slice", "take", "remainder")
)

_MODES, _PADDING = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
_CUBIC = -0.75  # the slope of the kernel at one, as in `upsample`


def _place(g: Any, n: Any, align_corners: bool) -> Any:
    """−1 … 1 as a place among n elements: their centres, or their outer edges, are at −1 and 1."""
    return (g + 1.0) * 0.5 * (n - 1.0) if align_corners else ((g + 1.0) * n - 1.0) * 0.5


def _within(x: Any, n: Any, padding: str, align_corners: bool) -> Any:
    """The place that stands for one outside of the image."""
    if padding == "zeros":
        return x
    if padding == "reflection":
        low, span = (0.0, n - 1.0) if align_corners else (-0.5, n)
        far = _where(x < low, low - x, x - low)
        # One element has no inside to be reflected in.
        period = (
            _where(span > 0.0, span, 1.0) * 2.0 if isinstance(span, Tensor) else (span if span > 0.0 else 1.0) * 2.0
        )
        turned = _remainder(far, period)
        x = _where(turned > span, period - turned, turned) + low
    return _where(x <= 0.0, 0.0, _where(x >= n - 1.0, n - 1.0, x))


def _taps(g: Any, n: Any, mode: str, padding: str, align_corners: bool) -> list[tuple[Any, Any]]:
    """The neighbours along one axis of places that are given as −1 … 1: their indices, and their weights."""
    x = _place(g, n, align_corners)
    if mode == "bicubic":
        low = _floor(x).detach()
        t, found = x - low, []
        for k in (-1.0, 0.0, 1.0, 2.0):
            d = _abs(t - k)
            if k in (0.0, 1.0):
                weight = ((_CUBIC + 2.0) * d - (_CUBIC + 3.0)) * d * d + 1.0
            else:
                weight = ((_CUBIC * d - 5.0 * _CUBIC) * d + 8.0 * _CUBIC) * d - 4.0 * _CUBIC
            found.append((_within(low + k, n, padding, align_corners), weight))
        return found
    x = _within(x, n, padding, align_corners)
    if mode == "nearest":
        return [(_round(x).detach(), 1.0)]
    low = _floor(x).detach()
    return [(low, 1.0 - (x - low)), (low + 1.0, x - low)]


@composite(precision="full", functions=("grid_sample",))
def _sampled(x: Tensor, grid: Tensor, mode: str, padding: str, align_corners: bool) -> Any:
    rank, sizes, (batch, channels) = x.ndim - 2, x.shape[2:], x.shape[:2]
    points = batch * product(grid.shape[1:-1])
    where = wide(_reshape(grid, (points, rank)))
    # An element is a row of channels; the first one of each image:
    rows = wide(_reshape(_permute(x, (0, *range(2, x.ndim), 1)), (batch * product(sizes), channels)))
    image = _reshape(iota(batch, like=x) * number(product(sizes), int64), (batch, 1))
    first = _reshape(image + 0 * _reshape(iota(points, like=x), (batch, product(grid.shape[1:-1]))), (points,))
    axes = []
    for axis, n in enumerate(sizes):
        g = _reshape(_slice(where, (0, rank - 1 - axis), (points, 1), (1, 1)), (points,))
        size = number(n, where.dtype)
        taps = []
        for index, weight in _taps(g, size, mode, padding, align_corners):
            inside = _and(index >= 0.0, index < size)  # false for NaN, too
            jump = as_dtype_of(_where(inside, index, 0.0), int64) * number(product(sizes[axis + 1 :]), int64)
            taps.append((jump, _where(inside, weight, 0.0)))
        axes.append(taps)
    total: Any = 0.0
    for corner in itertools.product(*axes):
        at, weight = first, 1.0
        for jump, part in corner:
            at, weight = at + jump, part * weight
        total = _take(rows, at, 0) * _reshape(weight, (points, 1)) + total
    out = _reshape(as_dtype_of(total, x.dtype), (*grid.shape[:-1], channels))
    return _permute(out, (0, rank + 1, *range(1, rank + 1)))


def grid_sample(
    x: Any, grid: Any, *, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    """Images (batch, channels, height, width) at the points (batch, …, 2) of a grid, as (batch, channels, …).

    A point is (horizontal, vertical), from −1 to 1: from edge to edge, or with `align_corners` from centre to centre of
    the outermost elements. With three spatial axes it is (horizontal, vertical, depth). `mode` is "bilinear" (of eight
    neighbours in three dimensions), "nearest", or "bicubic" in two. Outside of the image there are zeros, the nearest
    element ("border"), or what is reflected at the edges ("reflection"). Jaderberg et al., 2015.

    >>> import wengert as wg
    >>> x = wg.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> grid_sample(x, [[[[0.0, 0.0], [-1.0, 1.0]]]], align_corners=True).tolist()
    [[[[2.5, 3.0]]]]
    """
    name = "grid_sample"
    t, g = promoted([as_floating(as_tensor(v, name)) for v in (x, grid)])
    if t.dtype.kind == "c":
        raise DTypeError(f"{name}: images and grids must be real, got {describe(t)}")
    if t.ndim not in (4, 5) or g.ndim != t.ndim or g.shape[0] != t.shape[0] or g.shape[-1] != t.ndim - 2:
        raise ShapeError(
            f"{name}: takes x of shape (batch, channels, height, width) and a grid (batch, height, width, 2), or the same "
            f"with depth and 3, got {describe(t)} and {describe(g)}"
        )
    if any(n == 0 for n in t.shape[2:]):
        raise ShapeError(f"{name}: images must have elements, got {describe(t)}")
    if mode not in _MODES or (mode == "bicubic" and t.ndim == 5):
        raise ArgumentError(
            f"{name}: mode must be 'bilinear', 'nearest' or, for two spatial axes, 'bicubic', got {mode!r} for {describe(t)}"
        )
    if padding_mode not in _PADDING:
        raise ArgumentError(
            f"{name}: padding_mode must be one of {', '.join(map(repr, _PADDING))}, got {padding_mode!r}"
        )
    y: Tensor = _sampled(t, g, mode, padding_mode, align_corners)
    return y


def affine_grid(theta: Any, size: Sequence[int], *, align_corners: bool = False) -> Tensor:
    """The grid for `grid_sample` of the affine maps theta, (batch, 2, 3), of an image of `size` (batch, channels, …).

    For three spatial axes the maps are (batch, 3, 4).

    >>> import wengert as wg
    >>> affine_grid(wg.eye(2, 3)[None], (1, 1, 2, 2), align_corners=True).tolist()
    [[[[-1.0, -1.0], [1.0, -1.0]], [[-1.0, 1.0], [1.0, 1.0]]]]
    """
    name = "affine_grid"
    t, sizes = as_floating(as_tensor(theta, name)), tuple(int(n) for n in size)
    rank = len(sizes) - 2
    if rank not in (2, 3) or t.ndim != 3 or tuple(t.shape[1:]) != (rank, rank + 1) or t.shape[0] != sizes[0]:
        raise ShapeError(
            f"{name}: takes maps (batch, 2, 3) and a size (batch, channels, height, width), or (batch, 3, 4) with depth, "
            f"got {describe(t)} and {shape_text(sizes)}"
        )
    if any(n < 1 for n in sizes[2:]):
        raise ArgumentError(f"{name}: sizes must be positive, got {shape_text(sizes)}")
    places = [
        np.linspace(-1.0, 1.0, n) if align_corners and n > 1 else (2.0 * np.arange(n) + 1.0) / n - 1.0
        for n in sizes[2:]
    ]
    points = np.stack([*np.meshgrid(*places, indexing="ij")[::-1], np.ones(sizes[2:])], axis=-1)
    base = as_dtype_of(asarray(points.reshape(1, -1, rank + 1)), t.dtype)
    moved = matmul(base, _permute(t, (0, 2, 1)))
    return _reshape(moved, (sizes[0], *sizes[2:], rank))
