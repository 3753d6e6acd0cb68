"""Pooling: the largest element or the mean of windows, over one, two and three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from wengert._core import Tensor
from wengert.dtypes import float32, int64
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.elementwise import pow
from wengert.functional.windows import per_axis, with_batch, without_batch
from wengert.tensors.arguments import (
    as_dtype_of,
    as_floating,
    as_tensor,
    describe,
    full,
    iota,
    native,
    number,
    product,
    shape_text,
)

_argmax, _take, _sum = native("pool_argmax"), native("pool_take"), native("pool_sum")
_remainder, _floor_divide, _reshape = native("remainder"), native("floor_divide"), native("reshape")

Sizes = int | Sequence[int]


@lru_cache(maxsize=256, typed=True)
def _options(
    name: str, rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[tuple[int, ...], ...]:
    """Kernel, stride, padding, dilation, and from the first to the last element of a window, for every axis."""
    kernel = per_axis(name, "kernel_size", kernel_size, rank, least=1)
    step = kernel if stride is None else per_axis(name, "stride", stride, rank, least=1)
    pad = per_axis(name, "padding", padding, rank, least=0)
    apart = per_axis(name, "dilation", dilation, rank, least=1)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, apart))
    if any(2 * p > k for p, k in zip(pad, spans)):
        raise ArgumentError(
            f"{name}: padding {shape_text(pad)} must be at most half of kernel_size {shape_text(kernel)}"
            + (f" with dilation {shape_text(apart)}" if spans != kernel else "")
        )
    return kernel, step, pad, apart, spans


def _window(name: str, rank: int, x: Tensor, *options: Any, ceil_mode: bool) -> tuple[Any, ...]:
    """Sizes of the result, kernel, stride, padding and dilation."""
    try:
        given = _options(name, rank, *options)
    except TypeError:  # lists have no hash
        given = _options.__wrapped__(name, rank, *options)
    kernel, step, pad, apart, spans = given
    sizes = []
    for n, k, s, p, d in zip(x.shape[2:], spans, step, pad, apart):
        if p and n < d:
            raise ShapeError(
                f"{name}: windows with dilation {shape_text(apart)} may have no element of x, {describe(x)}"
            )
        beyond = s - 1 if ceil_mode else 0  # how far the last window may reach
        if n < 1 or n + 2 * p + beyond < k:
            raise ShapeError(
                f"{name}: a window of {shape_text(spans)} is larger than the padded input: "
                f"{describe(x)} with padding {shape_text(pad)}"
            )
        size = (n + 2 * p - k + beyond) // s + 1
        if ceil_mode and (size - 1) * s >= n + p:  # a window that would begin behind x
            size = size - 1
        sizes.append(size)
    return tuple(sizes), kernel, step, pad, apart


def largest_of_windows(
    name: str,
    rank: int,
    x: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool = False,
) -> Any:
    """Shared implementation of `max_pool1d` to `max_pool3d`; `name` appears in errors."""
    t, single = with_batch(name, rank, as_floating(as_tensor(x, name)))
    sizes, *attributes = _window(name, rank, t, kernel_size, stride, padding, dilation, ceil_mode=ceil_mode)
    taps = _argmax(t, sizes, *attributes)
    y = without_batch(_take(t, taps, *attributes), single)
    if not return_indices:
        return y
    return y, without_batch(_places(as_dtype_of(taps, int64), t.shape[2:], *attributes), single)


def _places(taps: Any, sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Tensor:
    """Numbers of taps in their windows as numbers of elements of x, counted along all spatial axes."""
    rank, place, rest = len(kernel), 0, taps
    weights = [product(sizes[i + 1 :]) for i in range(rank)]
    for i in reversed(range(rank)):
        tap = _remainder(rest, kernel[i])
        rest = _floor_divide(rest, kernel[i])
        shape = tuple(taps.shape[2 + i] if k == i else 1 for k in range(rank))
        window = _reshape(iota(taps.shape[2 + i], like=taps), shape)
        place = place + (window * stride[i] + tap * dilation[i] - padding[i]) * number(weights[i], int64)
    return place  # type: ignore[return-value]


def max_pool1d(
    x: Any,
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of every window of `kernel_size` elements, `stride` (by default kernel_size) apart.

    x is (batch, channels, length), or without batch. The elements of a window are `dilation` apart. With `ceil_mode` the
    last window may reach beyond the padding, if it begins before it. Of equal elements the first gets the gradient; NaN
    is largest. With `return_indices` the result is a pair: the elements, and where they are, counted along all spatial
    axes, for `max_unpool1d`.

    >>> max_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2).tolist()
    [[[3.0, 2.0]]]
    >>> max_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2, return_indices=True)[1].tolist()
    [[[1, 2]]]
    >>> max_pool1d([[[1.0, 3.0, 2.0, 0.0, 5.0]]], 2, ceil_mode=True).tolist()
    [[[3.0, 2.0, 5.0]]]
    >>> max_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2, stride=1, dilation=2).tolist()
    [[[2.0, 3.0]]]
    """
    return largest_of_windows("max_pool1d", 1, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    x: Any,
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of every window of (batch, channels, height, width); see `max_pool1d`.

    >>> import wengert as wg
    >>> max_pool2d(wg.reshape(wg.arange(16.0), (1, 1, 4, 4)), 2).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    return largest_of_windows("max_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    x: Any,
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of every window over three spatial axes; see `max_pool1d`.

    >>> import wengert as wg
    >>> max_pool3d(wg.ones((1, 2, 4, 4, 4)), 2).shape
    (1, 2, 2, 2, 2)
    """
    return largest_of_windows("max_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def average_windows(
    name: str, rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool
) -> Tensor:
    """Shared implementation of `avg_pool1d` to `avg_pool3d`; `name` appears in errors."""
    t, single = with_batch(name, rank, as_floating(as_tensor(x, name)))
    sizes, kernel, step, pad, apart = _window(name, rank, t, kernel_size, stride, padding, 1, ceil_mode=ceil_mode)
    dtype = t.dtype
    t = as_dtype_of(t, float32) if dtype.itemsize == 2 else t  # sums of 16-bit numbers overflow where means do not
    sums = _sum(t, sizes, kernel, step, pad, apart)
    whole = not ceil_mode or all(
        (m - 1) * s + k <= n + 2 * p for m, s, k, n, p in zip(sizes, step, kernel, t.shape[2:], pad)
    )
    if whole and (count_include_pad or not any(pad)):
        return without_batch(as_dtype_of(sums / float(product(kernel)), dtype), single)
    padded = [n + 2 * p for n, p in zip(t.shape[2:], pad)]
    counted, around = (padded, (0,) * rank) if count_include_pad else (t.shape[2:], pad)
    counts = _sum(full((1, 1, *counted), 1.0, t.dtype, like=t), sizes, kernel, step, around, apart)
    return without_batch(as_dtype_of(sums / counts, dtype), single)


def avg_pool1d(
    x: Any,
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of every window of `kernel_size` elements, `stride` (by default kernel_size) apart.

    x is (batch, channels, length), or without batch. Padding counts as zeros, or not at all without `count_include_pad`.
    With `ceil_mode` the last window may reach beyond the padding, if it begins before it; what lies there does not count.

    >>> avg_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2).tolist()
    [[[2.0, 1.0]]]
    >>> avg_pool1d([[[1.0, 3.0, 2.0, 0.0, 5.0]]], 2, ceil_mode=True).tolist()
    [[[2.0, 1.0, 5.0]]]
    """
    return average_windows("avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    x: Any,
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of every window of (batch, channels, height, width); see `avg_pool1d`.

    >>> import wengert as wg
    >>> avg_pool2d(wg.reshape(wg.arange(16.0), (1, 1, 4, 4)), 2).tolist()
    [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    return average_windows("avg_pool2d", 2, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool3d(
    x: Any,
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of every window over three spatial axes; see `avg_pool1d`.

    >>> import wengert as wg
    >>> avg_pool3d(wg.ones((1, 2, 4, 4, 4)), 2).shape
    (1, 2, 2, 2, 2)
    """
    return average_windows("avg_pool3d", 3, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


def _power_mean(
    name: str, rank: int, x: Any, norm_type: float, kernel_size: Sizes, stride: Sizes | None, ceil_mode: bool
) -> Tensor:
    """Shared implementation of `lp_pool1d` to `lp_pool3d`; `name` appears in errors."""
    if not norm_type > 0:
        raise ArgumentError(f"{name}: norm_type must be positive, got {norm_type}")
    p, t = float(norm_type), as_floating(as_tensor(x, name))
    means = average_windows(name, rank, pow(t, p), kernel_size, stride, 0, ceil_mode, True)
    sums: Any = means * float(product(per_axis(name, "kernel_size", kernel_size, rank, least=1)))
    return pow(sums, 1.0 / p)


def lp_pool1d(
    x: Any, norm_type: float, kernel_size: Sizes, *, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """(Σ xᵖ)^(1/p) over every window of (batch, channels, length), with p = `norm_type`; see `avg_pool1d`.

    As in PyTorch, powers are taken of x, not of |x|.

    >>> lp_pool1d([[[3.0, 4.0, 1.0, 0.0]]], 2, 2).tolist()
    [[[5.0, 1.0]]]
    """
    return _power_mean("lp_pool1d", 1, x, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    x: Any, norm_type: float, kernel_size: Sizes, *, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """(Σ xᵖ)^(1/p) over every window of (batch, channels, height, width); see `lp_pool1d`.

    >>> import wengert as wg
    >>> lp_pool2d(wg.ones((1, 1, 4, 4)), 2, 2).tolist()
    [[[[2.0, 2.0], [2.0, 2.0]]]]
    """
    return _power_mean("lp_pool2d", 2, x, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    x: Any, norm_type: float, kernel_size: Sizes, *, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """(Σ xᵖ)^(1/p) over every window over three spatial axes; see `lp_pool1d`.

    >>> import wengert as wg
    >>> lp_pool3d(wg.ones((1, 2, 4, 4, 4)), 3, 2).flatten()[0].item()
    2.0
    """
    return _power_mean("lp_pool3d", 3, x, norm_type, kernel_size, stride, ceil_mode)
