"""Sorting along an axis and what is read off the order: the k largest, medians and quantiles, places, distinct elements.

Equal elements keep their order: of a tie the first one is first, and has the derivative. NaN has no place in an order; it
is refused with an ArgumentError that says where it is (`unique_*` and `isin` take it: NaN equals nothing).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import DType, bool_, float32, int64, uint8
from wengert.errors import ArgumentError, DTypeError, ShapeError
from wengert.foreign_names import explain_keywords
from wengert.functional.results import ValuesAndIndices
from wengert.tensors.arguments import (
    as_dtype_of,
    as_floating,
    as_index,
    as_tensor,
    describe,
    full,
    native,
    number,
    one_axis,
    product,
    promoted,
    wide,
)
from wengert.tensors.conversion import asarray
from wengert.tensors.numpy import data

_sort, _argsort, _topk, _searchsorted = (native(n) for n in ("sort", "argsort", "topk", "searchsorted"))
_pairs: Any = native("sort_with_indices")
_reshape, _slice, _take, _where, _floor = (native(n) for n in ("reshape", "slice", "take", "where", "floor"))
_permute, _equal, _not = native("permute"), native("equal"), native("logical_not")
_cast, _minimum = native("cast"), native("minimum")


def _sorted(x: Tensor, axis: int, descending: int, name: str) -> Tensor:
    try:
        if x._plain and not x.requires_grad:
            return _sort(x, axis, descending)
        y: Tensor = _pairs(x, axis, descending)[0]  # one sort for the values and for the derivative
        return y
    except ArgumentError as e:
        raise ArgumentError(f"{name}{str(e)[str(e).index(':') :]}") from None


@explain_keywords
def sort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis. Always stable, whatever `stable` says.

    >>> sort([3.0, 1.0, 2.0]).tolist()
    [1.0, 2.0, 3.0]
    """
    t = as_tensor(x, "sort")
    k, down = one_axis(axis, t.ndim, "sort"), int(bool(descending))
    return _sorted(t, k, down, "sort")


@explain_keywords
def argsort(x: Any, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The positions of the elements in order along an axis, as int64. Always stable, whatever `stable` says.

    >>> argsort([3.0, 1.0, 2.0, 1.0]).tolist()
    [1, 3, 2, 0]
    """
    t = as_tensor(x, "argsort")
    return _argsort(t, one_axis(axis, t.ndim, "argsort"), int(bool(descending)), 0)


def _partitioned(x: Any, kth: Any, axis: int | None, name: str) -> tuple[Tensor, int]:
    """The tensor and its axis, if every kth is on it; without an axis all elements as a vector."""
    t = as_tensor(x, name)
    if axis is None:
        t, axis = _reshape(t, (t.size,)), 0
    place = one_axis(axis, t.ndim, name)
    n = t.shape[place]
    for k in kth if isinstance(kth, (list, tuple)) else (kth,):
        if not -n <= operator.index(k) < n:
            raise ArgumentError(f"{name}: kth = {k} is out of range for an axis of size {n}")
    return t, place


@explain_keywords
def partition(x: Any, kth: int | Sequence[int], *, axis: int | None = -1) -> Tensor:
    """The elements along an axis with the kth where it would stand in order, no larger ones before it and no smaller ones
    after it; all elements as a vector, if the axis is None. What is given here is the sorted tensor, which is one of those.

    >>> partition([3.0, 1.0, 2.0], 1).tolist()
    [1.0, 2.0, 3.0]
    """
    t, k = _partitioned(x, kth, axis, "partition")
    return _sorted(t, k, 0, "partition")


@explain_keywords
def argpartition(x: Any, kth: int | Sequence[int], *, axis: int | None = -1) -> Tensor:
    """The positions from which `partition` takes its elements, as int64.

    >>> argpartition([3.0, 1.0, 2.0], 1).tolist()
    [1, 2, 0]
    """
    t, k = _partitioned(x, kth, axis, "argpartition")
    return _argsort(t, k, 0, 0)


@explain_keywords
def topk(x: Any, k: int, *, axis: int = -1, largest: bool = True) -> ValuesAndIndices:
    """The k largest (or smallest) elements along an axis in order, and their positions; of equal elements the first.

    >>> values, indices = topk([1.0, 4.0, 2.0, 4.0], 3)
    >>> values.tolist(), indices.tolist()
    ([4.0, 4.0, 2.0], [1, 3, 2])
    """
    t = as_tensor(x, "topk")
    count = k if isinstance(k, _core.Dim) else operator.index(k)
    return ValuesAndIndices(*_topk(t, (count,), one_axis(axis, t.ndim, "topk"), int(bool(largest))))


@explain_keywords
def searchsorted(x1: Any, x2: Any, *, side: str = "left", sorter: Any = None) -> Tensor:
    """The positions at which the elements of x2 would be inserted into the sorted vector x1, as int64.

    `side="left"`: before elements that are equal, `"right"`: behind them. `sorter` holds positions that sort x1. Of x1
    only the two ends are looked at for NaN.

    >>> searchsorted([1.0, 2.0, 3.0], [2.0, 2.5]).tolist()
    [1, 2]
    """
    a, b = as_tensor(x1, "searchsorted"), as_tensor(x2, "searchsorted")
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side must be 'left' or 'right', got {side!r}")
    if a.ndim != 1:
        raise ShapeError(f"searchsorted: x1 must be a sorted vector, got {describe(a)}")
    if sorter is not None:
        i = as_index(sorter, "searchsorted")
        if i.ndim != 1 or i.shape[0] != a.shape[0]:
            raise ShapeError(
                f"searchsorted: the sorter must have one position for each of {describe(a)}, got {describe(i)}"
            )
        a = _take(a, i, 0)
    a, b = promoted([a, b])
    return _searchsorted(a, b, int(side == "right"), 0)


# --------------------------------------------------------------------------------------------- medians and quantiles


def _lines(x: Any, axis: Any, name: str) -> tuple[Tensor, tuple[Any, ...]]:
    """x in order along a last axis that holds all elements of the reduced ones; the shape with those kept as 1."""
    t = as_floating(as_tensor(x, name))
    if axis is None:
        axes = tuple(range(t.ndim))
    else:
        axes = tuple(one_axis(a, t.ndim, name) for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    kept = tuple(1 if i in axes else n for i, n in enumerate(t.shape))
    rest = tuple(i for i in range(t.ndim) if i not in axes)
    n = product([t.shape[i] for i in axes])
    if n == 0:
        raise ArgumentError(f"{name}: {describe(t)} is empty along the axes, and has no {name}; check the size first")
    order = (*rest, *axes)
    moved = t if order == tuple(range(t.ndim)) else _permute(t, order)
    lines = _reshape(moved, (*(t.shape[i] for i in rest), n))
    return _sorted(lines, lines.ndim - 1, 0, name), kept


def _at(ordered: Tensor, place: Any) -> Tensor:
    """One element of each line."""
    *lead, _ = ordered.shape
    zeros, ones = (0,) * len(lead), (1,) * ordered.ndim
    return _reshape(_slice(ordered, (*zeros, place), (*lead, 1), ones), tuple(lead))


@explain_keywords
def median(x: Any, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """The middle element in order over the axes; of an even number the mean of the middle two, as NumPy.

    >>> median([3.0, 1.0, 2.0, 10.0]).item()
    2.5
    """
    ordered, kept = _lines(x, axis, "median")
    n: Any = ordered.shape[-1]
    low, high = (n - 1) // 2, n // 2
    y = _at(ordered, low) if low == high else 0.5 * _at(ordered, low) + 0.5 * _at(ordered, high)
    return _reshape(y, kept) if keepdims else y


def _asarray(q: Any, dtype: DType) -> Tensor:
    return asarray(q, dtype=dtype)


@explain_keywords
def quantile(x: Any, q: Any, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The value below which a part q of the elements lies, with linear interpolation between neighbours, as NumPy.

    `q` is a number or a vector of numbers in [0, 1]; a vector gives a new first axis. Derivatives flow to x and to q.

    >>> quantile([1.0, 2.0, 4.0], 0.75).item()
    3.0
    """
    ordered, kept = _lines(x, axis, "quantile")
    dtype = float32 if ordered.dtype.itemsize == 2 else ordered.dtype  # half precision cannot count the elements
    parts = as_dtype_of(q, dtype) if isinstance(q, Tensor) else _asarray(q, dtype)
    if parts.ndim > 1:
        raise ShapeError(f"quantile: q must be a number or a vector, got {describe(parts)}")
    if parts._plain and not np.all((data(parts) >= 0) & (data(parts) <= 1)):
        raise ArgumentError(f"quantile: q must be in [0, 1], got {parts.tolist()}")
    n: Any = ordered.shape[-1]
    place = parts * number(n - 1, dtype)
    below = _floor(place.detach())
    low = _cast(below, int64.code)
    last = ordered.ndim - 1
    a = wide(_take(ordered, low, last))
    b = wide(_take(ordered, _minimum(low + 1, number(n - 1, int64)), last))
    y = a + _where(_equal(a, b), 0.0, b - a) * (place - below)  # infinities that are equal have no distance
    y = as_dtype_of(y, ordered.dtype)
    if parts.ndim == 1:
        y = _permute(y, (last, *range(last)))
    return _reshape(y, (*parts.shape, *kept)) if keepdims else y


# ----------------------------------------------------------------------------------------------- distinct elements


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


def _unique(x: Any, name: str) -> UniqueAll:
    t = as_tensor(x, name)
    if not t._plain and not hasattr(t, "value"):
        traced: Any = t
        traced._refuse(f"counts distinct elements ({name}), whose number depends on", "Call it outside of the function")
    flat = _reshape(t, (t.size,))
    plain = flat.detach()
    if t.dtype.kind == "c":
        order = np.argsort(plain.numpy(), kind="stable")  # by the real, then by the imaginary part
    else:
        order = _argsort(_cast(plain, uint8.code) if t.dtype == bool_ else plain, 0, 0, 1).numpy()
    numbers = plain.numpy()[order]
    first = np.concatenate([[True], numbers[1:] != numbers[:-1]])[: t.size]  # NaN equals nothing, itself included
    group = np.cumsum(first) - 1
    inverse = np.empty(t.size, np.int64)
    inverse[order] = group
    indices = asarray(order[first].astype(np.int64))
    counts = np.diff(np.append(np.flatnonzero(first), t.size))
    return UniqueAll(
        _take(flat, indices, 0),
        indices,
        _reshape(asarray(inverse), t.shape),
        asarray(counts.astype(np.int64)),
    )


def unique_all(x: Any) -> UniqueAll:
    """The distinct elements in order, where each comes first, which of them each element is, and how often each occurs.

    NaN equals nothing: each is distinct. Derivatives flow to the first occurrences.

    >>> values, indices, inverse_indices, counts = unique_all([3, 1, 3])
    >>> values.tolist(), indices.tolist(), inverse_indices.tolist(), counts.tolist()
    ([1, 3], [1, 0], [1, 0, 1], [1, 2])
    """
    return _unique(x, "unique_all")


def unique_counts(x: Any) -> UniqueCounts:
    """The distinct elements in order, and how often each occurs.

    >>> [t.tolist() for t in unique_counts([3, 1, 3])]
    [[1, 3], [1, 2]]
    """
    u = _unique(x, "unique_counts")
    return UniqueCounts(u.values, u.counts)


def unique_inverse(x: Any) -> UniqueInverse:
    """The distinct elements in order, and which of them each element is.

    >>> [t.tolist() for t in unique_inverse([3, 1, 3])]
    [[1, 3], [1, 0, 1]]
    """
    u = _unique(x, "unique_inverse")
    return UniqueInverse(u.values, u.inverse_indices)


def unique_values(x: Any) -> Tensor:
    """The distinct elements in order.

    >>> unique_values([3, 1, 3]).tolist()
    [1, 3]
    """
    return _unique(x, "unique_values").values


def isin(x1: Any, x2: Any, *, invert: bool = False) -> Tensor:
    """Whether each element of x1 is an element of x2; with `invert` whether it is not. NaN is in nothing.

    >>> isin([1, 2, 3], [3, 1]).tolist()
    [True, False, True]
    """
    a, b = promoted([as_tensor(x1, "isin").detach(), as_tensor(x2, "isin").detach()])
    if a.dtype.kind == "c":
        raise DTypeError(f"isin: complex numbers are not ordered, got {describe(a)}; test real and imaginary parts")
    if a.dtype == bool_:
        a, b = _cast(a, uint8.code), _cast(b, uint8.code)
    n: Any = b.size
    if n == 0:
        return full(a.shape, float(bool(invert)), bool_, like=a)
    flat = _reshape(b, (n,))
    ordered = _take(flat, _argsort(flat, 0, 0, 1), 0)
    place = _minimum(_searchsorted(ordered, a, 0, 1), number(n - 1, int64))
    found = _equal(_take(ordered, place, 0), a)
    return _not(found) if invert else found
