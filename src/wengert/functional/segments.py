"""Rows that belong together: sums, means and extrema of the rows of one id, and how many there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import float64, int64
from wengert.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError, TraceError
from wengert.foreign_names import explain_keywords
from wengert.tensors.arguments import (
    as_dtype_of,
    as_floating,
    as_index,
    as_tensor,
    decreases,
    describe,
    full,
    narrow,
    native,
    on_host,
    wide,
)
from wengert.tensors.conversion import asarray
from wengert.tensors.numpy import data

_index_add, _take, _where, _equal = (native(n) for n in ("index_add", "take", "where", "equal"))
_argsort, _take_along, _put_along = (native(n) for n in ("argsort", "take_along_axis", "scatter_along_axis"))
_reshape, _slice, _broadcast_to = (native(n) for n in ("reshape", "slice", "broadcast_to"))
_isfinite, _maximum, _invert = (native(n) for n in ("isfinite", "maximum", "bitwise_invert"))
_searchsorted, _and, _sum = native("searchsorted"), native("logical_and"), native("sum")


def _segments(x: Any, ids: Any, num_segments: int, name: str) -> tuple[Tensor, Tensor]:
    """The rows and their ids, checked as far as they are known."""
    t, i = as_tensor(x, name), as_index(ids, name)
    if not hasattr(num_segments, "__index__"):
        raise TypeError(f"{name}: num_segments must be an integer, got {num_segments!r}")
    if i.ndim != 1 or t.ndim == 0 or t.shape[0] != i.shape[0]:
        raise ShapeError(f"{name}: needs one id for each row of x, got {describe(t)} and ids {describe(i)}")
    if num_segments < 0:
        raise ArgumentError(f"{name}: num_segments must not be negative, got {num_segments}")
    if on_host(i) and i.size:
        low, high = int(i.numpy().min()), int(i.numpy().max())
        if low < 0:
            raise IndexRangeError(f"{name}: id {low} is negative; ids are in 0 … num_segments − 1")
        if high >= num_segments:
            raise IndexRangeError(f"{name}: id {high} is out of range for {num_segments} segments")
    return t, i


def _added(x: Any, ids: Any, n: int) -> Any:
    return _index_add(x, ids, (n, *x.shape[1:]), 0)


@explain_keywords
def segment_sum(x: Any, ids: Any, *, num_segments: int) -> Tensor:
    """Sums of the rows of x with the same id: y[ids[i]] += x[i]. Ids are in 0 … num_segments − 1.

    >>> segment_sum([1.0, 2.0, 3.0], [0, 1, 0], num_segments=3).tolist()
    [4.0, 2.0, 0.0]
    """
    t, i = _segments(x, ids, num_segments, "segment_sum")
    y: Tensor = _added(t, i, num_segments)
    return y


def _rows_of(ids: Any, n: int, like: Any) -> Any:
    """How many rows each segment has, to divide by what has the axes of `like`."""
    count = _added(full(ids.shape, 1.0, like.dtype, like=like), ids, n)
    return _reshape(count, (n, *(1,) * (like.ndim - 1)))


@composite(precision="full", functions=("segment_mean",))
def _segment_mean(x: Tensor, ids: Tensor, n: int) -> Any:
    rows = wide(x)
    return narrow(_added(rows, ids, n) / _maximum(_rows_of(ids, n, rows), 1.0), x.dtype)


@explain_keywords
def segment_mean(x: Any, ids: Any, *, num_segments: int) -> Tensor:
    """Means of the rows of x with the same id; 0 for an id without rows. Integers give float32.

    >>> segment_mean([1.0, 2.0, 4.0], [0, 1, 0], num_segments=3).tolist()
    [2.5, 2.0, 0.0]
    """
    t, i = _segments(x, ids, num_segments, "segment_mean")
    if t.dtype.kind == "c":  # a count is real: both parts of a complex number are divided by it
        raise DTypeError(f"segment_mean: x must be real, got {describe(t)}; average real(x) and imag(x) separately")
    y: Tensor = _segment_mean(as_floating(t), i, int(num_segments))
    return y


def _largest(x: Any, ids: Any, n: int) -> Any:
    """The values alone: rows are written in ascending order, NaN last, and of equal places the last one wins."""
    lowest = -math.inf if x.dtype.is_floating else float(np.iinfo(x.dtype.name).min)
    order = _argsort(x, 0, 0, 1)
    column = _broadcast_to(_reshape(ids, (ids.shape[0], *(1,) * (x.ndim - 1))), x.shape)
    start = full((n, *x.shape[1:]), lowest, x.dtype, like=x)
    return _put_along(start, _take_along(column, order, 0), _take_along(x, order, 0), 0)


@composite
def _segment_max(x: Tensor, ids: Tensor, n: int) -> Any:
    y = _largest(x.detach(), ids, n)
    if not x.dtype.is_floating:
        return y
    rows = wide(x)
    hit = _equal(x.detach(), _take(y, ids, 0))
    counted = as_dtype_of(hit, rows.dtype)
    ties = _added(counted, ids, n)  # none of NaN, and of a segment without rows
    share = counted / _take(_maximum(ties, 1.0), ids, 0)
    flow = as_dtype_of(_added(_where(hit, rows, 0.0) * share, ids, n), x.dtype)
    # What flows is an equal part to each of the rows that tie; their mean may be rounded, the largest is not.
    return _where(ties > 0.0, _where(_isfinite(y), y + (flow - flow.detach()), flow), y)


def _ordered(t: Tensor, name: str) -> Tensor:
    if t.dtype.kind not in "iuf":
        raise DTypeError(f"{name}: {t.dtype.name} is not ordered, got {describe(t)}; use integers or floats")
    return t


@explain_keywords
def segment_max(x: Any, ids: Any, *, num_segments: int) -> Tensor:
    """The largest of the rows of x with the same id, in each column; NaN if one is. Rows that tie share the derivative
    evenly. An id without rows has −∞, or the smallest integer of the dtype.

    >>> segment_max([1.0, 2.0, 3.0], [0, 1, 0], num_segments=3).tolist()
    [3.0, 2.0, -inf]
    """
    t, i = _segments(x, ids, num_segments, "segment_max")
    y: Tensor = _segment_max(_ordered(t, "segment_max"), i, int(num_segments))
    return y


@explain_keywords
def segment_min(x: Any, ids: Any, *, num_segments: int) -> Tensor:
    """The smallest of the rows of x with the same id, in each column; NaN if one is. Rows that tie share the derivative
    evenly. An id without rows has ∞, or the largest integer of the dtype.

    >>> segment_min([1.0, 2.0, 3.0], [0, 1, 0], num_segments=3).tolist()
    [1.0, 2.0, inf]
    """
    t, i = _segments(x, ids, num_segments, "segment_min")
    t = _ordered(t, "segment_min")
    if t.dtype.is_floating:
        largest: Tensor = _segment_max(-t, i, int(num_segments))
        return -largest
    turned: Tensor = _segment_max(_invert(t), i, int(num_segments))  # −x − 1, which reverses the order without overflow
    return _invert(turned)


# --------------------------------------------------------------------------------------------------------- counting


@explain_keywords
def bincount(x: Any, *, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, … occurs in a vector, or the sum of the weights of its occurrences.

    >>> bincount([0, 2, 2]).tolist()
    [1, 0, 2]
    """
    i = as_index(x, "bincount")
    if i.ndim != 1:
        raise ShapeError(f"bincount: x must be a vector, got {describe(i)}")
    if not i._plain:
        raise TraceError(
            f"bincount: the largest entry of {describe(i)} is not known while tracing; use segment_sum with num_segments"
        )
    if minlength < 0:
        raise ArgumentError(f"bincount: minlength must not be negative, got {minlength}")
    values = data(i)
    if i.size and (lowest := int(values.min())) < 0:
        raise IndexRangeError(f"bincount: x must not be negative, got {lowest}")
    highest = int(values.max()) if i.size else -1
    w = full(i.shape, 1.0, int64, like=i) if weights is None else as_tensor(weights, "bincount")
    if tuple(w.shape) != tuple(i.shape):
        raise ShapeError(f"bincount: weights {describe(w)} must have the shape of x {describe(i)}")
    return segment_sum(w, i, num_segments=max(minlength, highest + 1))


def _edges(x: Tensor, bins: Any, limits: Sequence[float] | None) -> Tensor:
    """The n + 1 edges of n bins."""
    dtype = x.dtype if x.dtype.is_floating else float64  # float32 would not tell large integers apart
    if not isinstance(bins, (int, np.integer)):
        edges = as_tensor(bins, "histogram")
        if edges.ndim != 1 or edges.shape[0] < 2:
            raise ShapeError(f"histogram: edges must be a vector of at least two numbers, got {describe(edges)}")
        if decreases(edges):
            raise ArgumentError("histogram: edges must be increasing")
        return as_dtype_of(edges, dtype).detach()
    if bins < 1:
        raise ArgumentError(f"histogram: bins must be at least 1, got {bins}")
    if limits is None:
        if not x._plain and not hasattr(x, "value"):
            raise TraceError(
                f"histogram: the range of {describe(x)} is not known while tracing; pass range=(low, high) or the edges"
            )
        values = data(x)
        limits = (values.min(), values.max()) if values.size else (0.0, 1.0)
    try:
        low, high = (float(v) for v in limits)
    except (TypeError, ValueError):
        raise ArgumentError(f"histogram: range must be (low, high), got {limits!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ArgumentError(f"histogram: the range must be finite and increasing, got ({low}, {high})")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return asarray(np.linspace(low, high, int(bins) + 1), dtype=dtype)


@explain_keywords
def histogram(
    x: Any, bins: Any = 10, *, range: Sequence[float] | None = None, density: bool = False, weights: Any = None
) -> tuple[Tensor, Tensor]:
    """How many elements lie in each bin, or the sum of their weights, and the edges of the bins, as NumPy.

    `bins` is a number of equal bins over `range` (that of the data by default), or the edges. A bin holds its lower edge,
    the last one its upper edge too; elements outside count nothing. `density` divides by the sum and the widths. The edges
    for integers are float64.
    Derivatives flow to the weights.

    >>> counts, edges = histogram([1.0, 2.0, 1.5, 4.0], 3)
    >>> counts.tolist(), edges.tolist()
    ([2, 1, 1], [1.0, 2.0, 3.0, 4.0])
    """
    t = as_tensor(x, "histogram")
    if t.dtype.kind == "c":
        raise DTypeError(f"histogram: complex numbers have no order, got {describe(t)}")
    edges = _edges(t, bins, range)
    n = int(edges.shape[0]) - 1
    w = full(t.shape, 1.0, int64, like=t) if weights is None else as_tensor(weights, "histogram")
    if tuple(w.shape) != tuple(t.shape):
        raise ShapeError(f"histogram: weights {describe(w)} must have the shape of x {describe(t)}")
    size = t.size
    v = as_dtype_of(_reshape(t.detach(), (size,)), edges.dtype)
    low, high = _slice(edges, (0,), (1,), (1,)), _slice(edges, (n,), (1,), (1,))
    inside = _and(v >= low, v <= high)
    place = _searchsorted(edges, _where(inside, v, low), 1, 0) - 1
    place = _where(inside, _where(place >= n, n - 1, place), n)  # the upper edge; and a bin for what is outside
    counts = _slice(_added(_reshape(w, (size,)), place, n + 1), (0,), (n,), (1,))
    if not density:
        return counts, edges
    widths = _slice(edges, (1,), (n,), (1,)) - _slice(edges, (0,), (n,), (1,))
    weighed = as_dtype_of(counts, edges.dtype) if not counts.dtype.is_inexact else counts
    return weighed / _sum(weighed, (0,), 0) / widths, edges
