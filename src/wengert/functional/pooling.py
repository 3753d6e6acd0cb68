"""Pooling: the largest element or the mean of windows, over one, two and three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.arguments import as_floating, as_tensor, describe, full, native, product, shape_text
from wengert.functional.reductions import mean
from wengert.functional.resampling import along_axis
from wengert.functional.windows import per_axis, with_batch, without_batch

_argmax, _take, _sum = native("pool_argmax"), native("pool_take"), native("pool_sum")

Sizes = int | Sequence[int]


def _window(name: str, rank: int, x: Tensor, kernel_size: Any, stride: Any, padding: Any) -> tuple[Any, ...]:
    """Sizes of the result, kernel, stride and padding."""
    kernel = per_axis(name, "kernel_size", kernel_size, rank, least=1)
    step = kernel if stride is None else per_axis(name, "stride", stride, rank, least=1)
    pad = per_axis(name, "padding", padding, rank, least=0)
    if any(2 * p > k for p, k in zip(pad, kernel)):
        raise ArgumentError(
            f"{name}: padding {shape_text(pad)} must be at most half of kernel_size {shape_text(kernel)}"
        )
    sizes = []
    for n, k, s, p in zip(x.shape[2:], kernel, step, pad):
        if n + 2 * p < k:
            raise ShapeError(
                f"{name}: a window of {shape_text(kernel)} is larger than the padded input: "
                f"{describe(x)} with padding {shape_text(pad)}"
            )
        sizes.append((n + 2 * p - k) // s + 1)
    return tuple(sizes), kernel, step, pad


def _max_pool(name: str, rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any) -> Tensor:
    t, single = with_batch(name, rank, as_floating(as_tensor(x, name)))
    sizes, *window = _window(name, rank, t, kernel_size, stride, padding)
    return without_batch(_take(t, _argmax(t, sizes, *window), *window), single)


def max_pool1d(x: Any, kernel_size: Sizes, *, stride: Sizes | None = None, padding: Sizes = 0) -> Tensor:
    """The largest element of every window of `kernel_size` elements, `stride` (by default kernel_size) apart.

    x is (batch, channels, length), or without batch. Of equal elements the first gets the gradient; NaN is largest.

    >>> max_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2).tolist()
    [[[3.0, 2.0]]]
    """
    return _max_pool("max_pool1d", 1, x, kernel_size, stride, padding)


def max_pool2d(x: Any, kernel_size: Sizes, *, stride: Sizes | None = None, padding: Sizes = 0) -> Tensor:
    """The largest element of every window of (batch, channels, height, width); see `max_pool1d`.

    >>> import wengert as wg
    >>> max_pool2d(wg.reshape(wg.arange(16.0), (1, 1, 4, 4)), 2).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """
    return _max_pool("max_pool2d", 2, x, kernel_size, stride, padding)


def max_pool3d(x: Any, kernel_size: Sizes, *, stride: Sizes | None = None, padding: Sizes = 0) -> Tensor:
    """The largest element of every window over three spatial axes; see `max_pool1d`.

    >>> import wengert as wg
    >>> max_pool3d(wg.ones((1, 2, 4, 4, 4)), 2).shape
    (1, 2, 2, 2, 2)
    """
    return _max_pool("max_pool3d", 3, x, kernel_size, stride, padding)


def _avg_pool(
    name: str, rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any, count_include_pad: bool
) -> Tensor:
    t, single = with_batch(name, rank, as_floating(as_tensor(x, name)))
    sizes, kernel, step, pad = _window(name, rank, t, kernel_size, stride, padding)
    sums = _sum(t, sizes, kernel, step, pad)
    if count_include_pad or not any(pad):
        return without_batch(sums / float(product(kernel)), single)
    counts = _sum(full((1, 1, *t.shape[2:]), 1.0, t.dtype), sizes, kernel, step, pad)
    return without_batch(sums / counts, single)


def avg_pool1d(
    x: Any, kernel_size: Sizes, *, stride: Sizes | None = None, padding: Sizes = 0, count_include_pad: bool = True
) -> Tensor:
    """The mean of every window of `kernel_size` elements, `stride` (by default kernel_size) apart.

    x is (batch, channels, length), or without batch. Padding counts as zeros, or not at all without `count_include_pad`.

    >>> avg_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2).tolist()
    [[[2.0, 1.0]]]
    """
    return _avg_pool("avg_pool1d", 1, x, kernel_size, stride, padding, count_include_pad)


def avg_pool2d(
    x: Any, kernel_size: Sizes, *, stride: Sizes | None = None, padding: Sizes = 0, count_include_pad: bool = True
) -> Tensor:
    """The mean of every window of (batch, channels, height, width); see `avg_pool1d`.

    >>> import wengert as wg
    >>> avg_pool2d(wg.reshape(wg.arange(16.0), (1, 1, 4, 4)), 2).tolist()
    [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    return _avg_pool("avg_pool2d", 2, x, kernel_size, stride, padding, count_include_pad)


def avg_pool3d(
    x: Any, kernel_size: Sizes, *, stride: Sizes | None = None, padding: Sizes = 0, count_include_pad: bool = True
) -> Tensor:
    """The mean of every window over three spatial axes; see `avg_pool1d`.

    >>> import wengert as wg
    >>> avg_pool3d(wg.ones((1, 2, 4, 4, 4)), 2).shape
    (1, 2, 2, 2, 2)
    """
    return _avg_pool("avg_pool3d", 3, x, kernel_size, stride, padding, count_include_pad)


def _averages(n: int, size: int) -> np.ndarray[Any, Any]:
    """The matrix that takes means over [⌊i n / size⌋, ⌈(i + 1) n / size⌉)."""
    a = np.zeros((size, n))
    for i in range(size):
        low, high = i * n // size, -(-(i + 1) * n // size)
        a[i, low:high] = 1.0 / (high - low)
    return a


def _adaptive_avg_pool(name: str, rank: int, x: Any, output_size: Any) -> Tensor:
    t, single = with_batch(name, rank, as_floating(as_tensor(x, name)))
    wanted = (output_size,) * rank if output_size is None or hasattr(output_size, "__index__") else tuple(output_size)
    if len(wanted) != rank:
        raise ArgumentError(f"{name}: output_size must be one integer or {rank}, got {output_size}")
    spatial = range(2, rank + 2)
    goal = [t.shape[i] if w is None else int(w) for i, w in zip(spatial, wanted)]
    if any(g < 1 for g in goal) or any(n < 1 for n in t.shape[2:]):
        raise ArgumentError(f"{name}: output_size {output_size} of {describe(t)}: sizes must be positive")
    if all(g == 1 for g in goal):
        return without_batch(mean(t, tuple(spatial), keepdims=True), single)
    if all(n // g * g == n for n, g in zip(t.shape[2:], goal)):
        window = tuple(int(n) // g for n, g in zip(t.shape[2:], goal))
        return without_batch(_avg_pool(name, rank, t, window, None, 0, True), single)
    for axis, size in zip(spatial, goal):
        if size != t.shape[axis]:
            t = along_axis(t, _averages(int(t.shape[axis]), int(size)), axis)
    return without_batch(t, single)


def adaptive_avg_pool1d(x: Any, output_size: Any) -> Tensor:
    """Means of `output_size` windows that cover x: window i is [⌊i n / size⌋, ⌈(i + 1) n / size⌉); None keeps an axis.

    >>> adaptive_avg_pool1d([[[1.0, 2.0, 3.0, 4.0, 5.0]]], 2).tolist()
    [[[2.0, 4.0]]]
    """
    return _adaptive_avg_pool("adaptive_avg_pool1d", 1, x, output_size)


def adaptive_avg_pool2d(x: Any, output_size: Any) -> Tensor:
    """Means of windows that cover (batch, channels, height, width); see `adaptive_avg_pool1d`.

    >>> import wengert as wg
    >>> adaptive_avg_pool2d(wg.ones((2, 3, 7, 5)), (1, 1)).shape
    (2, 3, 1, 1)
    """
    return _adaptive_avg_pool("adaptive_avg_pool2d", 2, x, output_size)


def adaptive_avg_pool3d(x: Any, output_size: Any) -> Tensor:
    """Means of windows that cover three spatial axes; see `adaptive_avg_pool1d`.

    >>> import wengert as wg
    >>> adaptive_avg_pool3d(wg.ones((2, 3, 7, 5, 4)), 2).shape
    (2, 3, 2, 2, 2)
    """
    return _adaptive_avg_pool("adaptive_avg_pool3d", 3, x, output_size)
