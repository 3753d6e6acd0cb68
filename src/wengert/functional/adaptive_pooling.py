"""Pooling to a given size: means and largest elements of windows that cover x."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.functional.gather import take
from wengert.functional.pooling import average_windows, largest_of_windows
from wengert.functional.reductions import mean
from wengert.functional.windows import with_batch, without_batch
from wengert.ops.resample import WINDOWS
from wengert.tensors.arguments import as_floating, as_tensor, describe, native
from wengert.tensors.conversion import asarray

_resample = native("resample")


def _goal(name: str, rank: int, x: Any, output_size: Any) -> tuple[Tensor, bool, list[Any]]:
    """x with a batch axis, whether it had none, and the sizes wanted."""
    t, single = with_batch(name, rank, as_floating(as_tensor(x, name)))
    wanted = (output_size,) * rank if output_size is None or hasattr(output_size, "__index__") else tuple(output_size)
    if len(wanted) != rank:
        raise ArgumentError(f"{name}: output_size must be one integer or {rank}, got {output_size}")
    goal = [n if w is None else int(w) for n, w in zip(t.shape[2:], wanted)]
    if any(g < 1 for g in goal) or any(n < 1 for n in t.shape[2:]):
        raise ArgumentError(f"{name}: output_size {output_size} of {describe(t)}: sizes must be positive")
    return t, single, goal


def _adaptive_avg_pool(name: str, rank: int, x: Any, output_size: Any) -> Tensor:
    t, single, goal = _goal(name, rank, x, output_size)
    if all(g == 1 for g in goal):
        return without_batch(mean(t, tuple(range(2, rank + 2)), keepdims=True), single)
    if all(n // g * g == n for n, g in zip(t.shape[2:], goal)):
        window = tuple(int(n) // g for n, g in zip(t.shape[2:], goal))
        return without_batch(average_windows(name, rank, t, window, None, 0, False, True), single)
    # The last axis first: along the others whole rows are added.
    for axis, size in zip(range(rank + 1, 1, -1), reversed(goal)):
        if size != t.shape[axis]:
            t = _resample(t, (size,), axis, WINDOWS, 0.0)
    return without_batch(t, single)


def _cover(n: int, size: int) -> tuple[int, Any]:
    """The longest window's length, and every window's positions, the last repeated in those that are shorter."""
    i = np.arange(size)
    low, high = i * n // size, -(-(i + 1) * n // size)
    longest = int((high - low).max())
    return longest, np.minimum(low[:, None] + np.arange(longest), high[:, None] - 1)


def _adaptive_max_pool(name: str, rank: int, x: Any, output_size: Any, return_indices: bool) -> Any:
    t, single, goal = _goal(name, rank, x, output_size)
    window, places, sizes = [], [], tuple(int(n) for n in t.shape[2:])
    for axis, (n, size) in enumerate(zip(sizes, goal), 2):
        if n // size * size == n:
            window.append(n // size)
            places.append(np.arange(n))
        else:
            longest, positions = _cover(n, size)
            t = take(t, positions.reshape(-1), axis=axis)
            window.append(longest)
            places.append(positions.reshape(-1))
    if not return_indices:
        y: Tensor = largest_of_windows(name, rank, t, tuple(window), None, 0, 1, False)
        return without_batch(y, single)
    y, at = largest_of_windows(name, rank, t, tuple(window), None, 0, 1, False, return_indices=True)
    # Where the elements that were taken stand in x.
    numbers = np.ravel_multi_index(np.meshgrid(*places, indexing="ij"), sizes).reshape(-1)
    return without_batch(y, single), without_batch(take(asarray(numbers), at), single)


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


def adaptive_max_pool1d(x: Any, output_size: Any, *, return_indices: bool = False) -> Any:
    """The largest elements of `output_size` windows that cover x, those of `adaptive_avg_pool1d`; None keeps an axis.

    Of equal elements the first gets the gradient; NaN is largest. With `return_indices` the result is a pair: the elements,
    and where they are, counted along all spatial axes.

    >>> adaptive_max_pool1d([[[1.0, 2.0, 3.0, 4.0, 5.0]]], 2).tolist()
    [[[3.0, 5.0]]]
    """
    return _adaptive_max_pool("adaptive_max_pool1d", 1, x, output_size, return_indices)


def adaptive_max_pool2d(x: Any, output_size: Any, *, return_indices: bool = False) -> Any:
    """The largest elements of windows that cover (batch, channels, height, width); see `adaptive_max_pool1d`.

    >>> import wengert as wg
    >>> adaptive_max_pool2d(wg.ones((2, 3, 7, 5)), (3, None)).shape
    (2, 3, 3, 5)
    """
    return _adaptive_max_pool("adaptive_max_pool2d", 2, x, output_size, return_indices)


def adaptive_max_pool3d(x: Any, output_size: Any, *, return_indices: bool = False) -> Any:
    """The largest elements of windows that cover three spatial axes; see `adaptive_max_pool1d`.

    >>> import wengert as wg
    >>> adaptive_max_pool3d(wg.ones((2, 3, 7, 5, 4)), 2).shape
    (2, 3, 2, 2, 2)
    """
    return _adaptive_max_pool("adaptive_max_pool3d", 3, x, output_size, return_indices)
