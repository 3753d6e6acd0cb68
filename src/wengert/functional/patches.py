"""Pictures taken apart and put together: windows as columns, channels as pixels, and what pooling left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from wengert.functional.gather import scatter, scatter_add, take
from wengert.functional.padding import pad
from wengert.functional.shapes import broadcast_to, permute_dims, reshape
from wengert.functional.windows import per_axis, with_batch, without_batch
from wengert.tensors.arguments import as_tensor, describe
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import zeros

# ---------------------------------------------------------------------------------------- windows as columns


def _positions(
    name: str, size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[Any, Any, Any]:
    """The flat position of each tap (row) of each window (column) in the padded image; with padding and kernel."""
    kernel = per_axis(name, "kernel_size", kernel_size, 2, least=1)
    apart = per_axis(name, "dilation", dilation, 2, least=1)
    around = per_axis(name, "padding", padding, 2, least=0)
    step = per_axis(name, "stride", stride, 2, least=1)
    padded = [int(n) + 2 * p for n, p in zip(size, around)]
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(padded, apart, kernel, step)]
    if min(counts) < 1:
        raise ShapeError(f"{name}: windows of {kernel} do not fit an image of {tuple(int(n) for n in size)}")
    rows, columns = (np.arange(k)[:, None] * d + np.arange(c) * s for k, d, c, s in zip(kernel, apart, counts, step))
    places = rows[:, None, :, None] * padded[1] + columns[None, :, None, :]
    return places.reshape(kernel[0] * kernel[1], counts[0] * counts[1]), around, padded


def unfold(x: Any, kernel_size: Any, *, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The windows of (batch, channels, height, width) as columns: (batch, channels · elements of a window, windows).

    >>> import wengert as wg
    >>> unfold(wg.reshape(wg.arange(9.0), (1, 1, 3, 3)), 2).tolist()
    [[[0.0, 1.0, 3.0, 4.0], [1.0, 2.0, 4.0, 5.0], [3.0, 4.0, 6.0, 7.0], [4.0, 5.0, 7.0, 8.0]]]
    """
    t, single = with_batch("unfold", 2, as_tensor(x, "unfold"))
    places, (top, left), padded = _positions("unfold", t.shape[2:], kernel_size, dilation, padding, stride)
    n, channels = t.shape[:2]
    if top or left:
        t = pad(t, ((0, 0), (0, 0), (top, top), (left, left)))
    flat = reshape(t, (n, channels, padded[0] * padded[1]))
    taken = take(flat, asarray(places.reshape(-1)), axis=2)
    return without_batch(reshape(taken, (n, channels * places.shape[0], places.shape[1])), single)


def fold(x: Any, output_size: Any, kernel_size: Any, *, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Columns of windows added up to (batch, channels, height, width) of `output_size`: the transpose of `unfold`.

    >>> import wengert as wg
    >>> fold(wg.ones((1, 4, 4)), 3, 2).tolist()  # how many windows have a pixel
    [[[[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]]]
    """
    t = as_tensor(x, "fold")
    size = per_axis("fold", "output_size", output_size, 2, least=1)
    places, (top, left), padded = _positions("fold", size, kernel_size, dilation, padding, stride)
    taps, windows = places.shape
    single = t.ndim == 2
    t = reshape(t, (1, *t.shape)) if single else t
    if t.ndim != 3 or t.shape[1] % taps or t.shape[2] != windows:
        raise ShapeError(
            f"fold: x must be (batch, channels · {taps}, {windows}) for windows of {kernel_size} in "
            f"{size}, got {describe(t)}"
        )
    n, channels = t.shape[0], t.shape[1] // taps
    flat = reshape(t, (n, channels, taps * windows))
    index = broadcast_to(asarray(places.reshape(1, 1, -1)), flat.shape)
    empty = zeros((n, channels, padded[0] * padded[1]), dtype=t.dtype, device=t.device)
    whole = reshape(scatter_add(empty, index, flat, axis=2), (n, channels, *padded))
    return without_batch(whole[:, :, top : top + size[0], left : left + size[1]], single)


# ---------------------------------------------------------------------------------------- channels as pixels


def pixel_shuffle(x: Any, upscale_factor: int) -> Tensor:
    """(…, channels · r², height, width) as (…, channels, height · r, width · r) (Shi et al., 2016).

    >>> pixel_shuffle([[[1.0]], [[2.0]], [[3.0]], [[4.0]]], 2).tolist()
    [[[1.0, 2.0], [3.0, 4.0]]]
    """
    t, r = as_tensor(x, "pixel_shuffle"), upscale_factor
    if t.ndim < 3 or r < 1 or t.shape[-3] % (r * r):
        raise ShapeError(f"pixel_shuffle: the channels of {describe(t)} must be a multiple of {r}²")
    lead, (channels, height, width) = tuple(t.shape[:-3]), t.shape[-3:]
    parts = reshape(t, (*lead, channels // (r * r), r, r, height, width))
    k = len(lead)
    moved = permute_dims(parts, (*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return reshape(moved, (*lead, channels // (r * r), height * r, width * r))


def pixel_unshuffle(x: Any, downscale_factor: int) -> Tensor:
    """(…, channels, height · r, width · r) as (…, channels · r², height, width): the inverse of `pixel_shuffle`.

    >>> pixel_unshuffle([[[1.0, 2.0], [3.0, 4.0]]], 2).tolist()
    [[[1.0]], [[2.0]], [[3.0]], [[4.0]]]
    """
    t, r = as_tensor(x, "pixel_unshuffle"), downscale_factor
    if t.ndim < 3 or r < 1 or t.shape[-2] % r or t.shape[-1] % r:
        raise ShapeError(f"pixel_unshuffle: height and width of {describe(t)} must be multiples of {r}")
    lead, (channels, height, width) = tuple(t.shape[:-3]), t.shape[-3:]
    parts = reshape(t, (*lead, channels, height // r, r, width // r, r))
    k = len(lead)
    moved = permute_dims(parts, (*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return reshape(moved, (*lead, channels * r * r, height // r, width // r))


# ---------------------------------------------------------------------------------------- what pooling left out


def _unpooled(
    name: str, rank: int, x: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    t, single = with_batch(name, rank, as_tensor(x, name))
    at, _ = with_batch(name, rank, as_tensor(indices, name))
    if not at.dtype.is_integer:
        raise DTypeError(
            f"{name}: indices must be integers, as max_pool{rank}d(return_indices=True) gives, got {describe(at)}"
        )
    if tuple(at.shape) != tuple(t.shape):
        raise ShapeError(f"{name}: indices {describe(at)} must have the shape of x {describe(t)}")
    kernel = per_axis(name, "kernel_size", kernel_size, rank, least=1)
    step = kernel if stride is None else per_axis(name, "stride", stride, rank, least=1)
    around = per_axis(name, "padding", padding, rank, least=0)
    size = [(int(n) - 1) * s - 2 * p + k for n, s, p, k in zip(t.shape[2:], step, around, kernel)]
    if output_size is not None:
        wanted = tuple(output_size)[-rank:]
        if len(wanted) != rank or any(not n - s < w < n + s for n, w, s in zip(size, wanted, step)):
            raise ArgumentError(f"{name}: output_size must be within one stride of {tuple(size)}, got {output_size}")
        size = [int(w) for w in wanted]
    n, channels = t.shape[:2]
    elements = int(np.prod(size))
    flat, places = (reshape(v, (n, channels, -1)) for v in (t, at))
    if places._plain and places.size and not 0 <= int(places.min()) <= int(places.max()) < elements:
        raise IndexRangeError(f"{name}: an index is outside of the {elements} elements of the output {tuple(size)}")
    filled = scatter(zeros((n, channels, elements), dtype=t.dtype, device=t.device), places, flat, axis=2)
    return without_batch(reshape(filled, (n, channels, *size)), single)


def max_unpool1d(
    x: Any, indices: Any, kernel_size: Any, *, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Zeros with the elements of x where `max_pool1d(…, return_indices=True)` found them.

    >>> import wengert as wg
    >>> y, at = wg.max_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2, return_indices=True)
    >>> max_unpool1d(y, at, 2).tolist()
    [[[0.0, 3.0, 2.0, 0.0]]]
    """
    return _unpooled("max_unpool1d", 1, x, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    x: Any, indices: Any, kernel_size: Any, *, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Zeros with the elements of x where `max_pool2d(…, return_indices=True)` found them.

    >>> import wengert as wg
    >>> y, at = wg.max_pool2d(wg.reshape(wg.arange(4.0), (1, 1, 2, 2)), 2, return_indices=True)
    >>> max_unpool2d(y, at, 2).tolist()
    [[[[0.0, 0.0], [0.0, 3.0]]]]
    """
    return _unpooled("max_unpool2d", 2, x, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    x: Any, indices: Any, kernel_size: Any, *, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Zeros with the elements of x where `max_pool3d(…, return_indices=True)` found them.

    >>> import wengert as wg
    >>> y, at = wg.max_pool3d(wg.ones((1, 1, 2, 2, 2)), 2, return_indices=True)
    >>> max_unpool3d(y, at, 2).sum().item()
    1.0
    """
    return _unpooled("max_unpool3d", 3, x, indices, kernel_size, stride, padding, output_size)
