"""Scattering with a reduction: sums, products, means and extrema of the values that fall on one place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import bool_
from wengert.errors import ArgumentError, DTypeError
from wengert.foreign_names import explain_keywords
from wengert.functional.gather import scattered
from wengert.functional.joining import narrow
from wengert.tensors.arguments import as_dtype_of, as_index, as_tensor, describe, full, native, promoted, wide

_scatter_add, _put_along, _take_along = native("scatter_add"), native("scatter_along_axis"), native("take_along_axis")
_argsort, _where, _equal, _concat = native("argsort"), native("where"), native("equal"), native("concat")
_maximum, _isfinite, _invert, _or = (native(n) for n in ("maximum", "isfinite", "bitwise_invert", "logical_or"))


def _hit(x: Any, i: Any, axis: int) -> Any:
    """The places that an index names."""
    return _put_along(full(x.shape, 0, bool_, like=x), i, full(i.shape, 1, bool_, like=i), axis)


def _without(x: Any, i: Any, axis: int, neutral: float) -> Any:
    """x with the neutral element where something will be scattered to."""
    return _where(_hit(x, i, axis), full(x.shape, neutral, x.dtype, like=x), x)


@composite(precision="full", functions=("scatter_reduce",))
def _summed(x: Tensor, i: Tensor, v: Tensor, axis: int, alone: bool) -> Any:
    return _scatter_add(_without(x, i, axis, 0.0) if alone else x, i, v, axis)


@composite(precision="full", functions=("scatter_reduce",))
def _mean(x: Tensor, i: Tensor, v: Tensor, axis: int, alone: bool) -> Any:
    start = wide(_without(x, i, axis, 0.0) if alone else x)
    total = _scatter_add(start, i, as_dtype_of(v, start.dtype), axis)
    ones = full(v.shape, 1.0, start.dtype, like=start)
    count = _scatter_add(full(x.shape, 0.0 if alone else 1.0, start.dtype, like=start), i, ones, axis)
    return as_dtype_of(total / _maximum(count, 1.0), x.dtype)


# The product of all values that fall on one place is a segmented scan of the values in the order of their places, by
# doubling: only products are taken, so that derivatives of every order are right where factors are zero.
@composite(precision="full", functions=("scatter_reduce",))
def _product(x: Tensor, i: Tensor, v: Tensor, axis: int, alone: bool) -> Any:
    n = i.shape[axis]
    i = _where(i < 0, i + x.shape[axis], i)
    order = _argsort(i, axis, 0, 1)
    places, w = _take_along(i, order, axis), _take_along(v, order, axis)
    reach = 1
    while reach < n:
        same = _equal(narrow(places, axis, reach, n - reach), narrow(places, axis, 0, n - reach))
        factor = _where(same, narrow(w, axis, 0, n - reach), full(same.shape, 1, w.dtype, like=w))
        w = _concat([narrow(w, axis, 0, reach), narrow(w, axis, reach, n - reach) * factor], axis)
        reach *= 2
    start = _without(x, i, axis, 1.0) if alone else x
    # Of equal places the last one wins, which has the product of them all.
    return start * _put_along(full(x.shape, 1, x.dtype, like=x), places, w, axis)


def _lowest(x: Any) -> float:
    return -math.inf if x.dtype.is_floating else float(np.iinfo(x.dtype.name).min)


@composite
def _largest(x: Tensor, i: Tensor, v: Tensor, axis: int, alone: bool) -> Any:
    start = _without(x, i, axis, _lowest(x)) if alone else x
    order = _argsort(v.detach(), axis, 0, 1)  # in ascending order, NaN last: the last one wins
    best = _put_along(
        full(x.shape, _lowest(x), x.dtype, like=x),
        _take_along(i, order, axis),
        _take_along(v.detach(), order, axis),
        axis,
    )
    y = _maximum(start.detach(), best)
    if not x.dtype.is_floating:
        return y
    rows, values = wide(start), wide(v)
    of_x, of_v = _equal(start.detach(), y), _equal(v.detach(), _take_along(y, i, axis))
    if alone:
        of_x = _where(_hit(x, i, axis), full(x.shape, 0, bool_, like=x), of_x)
    ties = _scatter_add(as_dtype_of(of_x, rows.dtype), i, as_dtype_of(of_v, rows.dtype), axis)  # none where it is NaN
    flow = _scatter_add(_where(of_x, rows, 0.0), i, _where(of_v, values, 0.0), axis) / _maximum(ties, 1.0)
    flow = as_dtype_of(flow, x.dtype)
    # What flows is an equal part to each of the values that tie; their mean may be rounded, the largest is not.
    return _where(ties > 0.0, _where(_isfinite(y), y + (flow - flow.detach()), flow), y)


def _smallest(x: Tensor, i: Tensor, v: Tensor, axis: int, alone: bool) -> Any:
    if x.dtype.is_floating:
        return -_largest(-x, i, -v, axis, alone)
    return _invert(_largest(_invert(x), i, _invert(v), axis, alone))  # −x − 1 reverses the order without overflow


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _summed,
    "prod": _product,
    "mean": _mean,
    "amax": _largest,
    "amin": _smallest,
}


def _check_dtype(x: Tensor, reduce: str) -> None:
    kinds = {"mean": "f", "amax": "iuf", "amin": "iuf"}.get(reduce, "iufc")
    if x.dtype.kind not in kinds:
        raise DTypeError(f"scatter_reduce: reduce={reduce!r} is not defined for {describe(x)}")


@explain_keywords
def scatter_reduce(x: Any, index: Any, src: Any, *, axis: int, reduce: str, include_self: bool = True) -> Tensor:
    """x with all src[i, j] for which index[i, j] is the same place along the axis combined there, by `reduce`: "sum",
    "prod", "mean", "amax" or "amin". Without `include_self` the element of x itself does not count where something falls.

    The index may be smaller than x and src, as in PyTorch. Elements that tie share the derivative of an extremum evenly.

    >>> scatter_reduce([1.0, 2.0, 3.0], [0, 0, 2], [4.0, 5.0, 6.0], axis=0, reduce="amax").tolist()
    [5.0, 2.0, 6.0]
    """
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"scatter_reduce: reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    t, s = promoted([as_tensor(x, "scatter_reduce"), as_tensor(src, "scatter_reduce")])
    _check_dtype(t, reduce)

    def op(part: Tensor, i: Tensor, v: Tensor, k: int) -> Any:
        return REDUCTIONS[reduce](part, i, v, k, not include_self)

    return scattered(op, t, as_index(index, "scatter_reduce"), s, axis, "scatter_reduce")
