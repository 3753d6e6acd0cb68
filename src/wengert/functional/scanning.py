"""Running sums, products and extrema along an axis, and differences of neighbours."""

from __future__ import annotations

import math
import operator
from typing import Any

from wengert._core import Tensor
from wengert.dtypes import float32
from wengert.errors import ArgumentError, ShapeError
from wengert.foreign_names import explain_keywords
from wengert.functional.joining import flip
from wengert.functional.reductions import accumulable
from wengert.functional.results import ValuesAndIndices
from wengert.tensors.arguments import (
    as_dtype_of,
    as_floating,
    as_tensor,
    describe,
    full,
    native,
    one_axis,
    promoted,
)

_cumsum, _cumprod, _logcumsumexp = native("cumsum"), native("cumprod"), native("logcumsumexp")
_cummax: Any = native("cummax")
_cummin: Any = native("cummin")
_concat, _slice = native("concat"), native("slice")


def _only_axis(t: Tensor, axis: int | None, name: str) -> int:
    """The axis, which may be left out for vectors."""
    if axis is None:
        if t.ndim != 1:
            raise ShapeError(f"{name}: axis is required for a tensor with {t.ndim} axes, got {describe(t)}")
        return 0
    return one_axis(axis, t.ndim, name)


def _with_initial(y: Tensor, k: int, initial: float, reverse: bool, exclusive: bool) -> Tensor:
    """The running values after the initial one, which stands where the scan starts; without the whole if `exclusive`."""
    first = full(tuple(1 if i == k else n for i, n in enumerate(y.shape)), initial, y.dtype, like=y)
    if exclusive:
        if y.shape[k] == 0:
            return y
        sizes = tuple(n - 1 if i == k else n for i, n in enumerate(y.shape))
        y = _slice(y, tuple(int(i == k and reverse) for i in range(y.ndim)), sizes, (1,) * y.ndim)
    return _concat([y, first] if reverse else [first, y], k)


def _scan(op: Any, x: Any, axis: int | None, dtype: Any, initial: float, name: str, kinds: tuple[bool, ...]) -> Tensor:
    t = accumulable(x, dtype, name)
    k = _only_axis(t, axis, name)
    include_initial, reverse, exclusive = kinds
    if include_initial and exclusive:
        raise ArgumentError(f"{name}: give include_initial=True or exclusive=True, not both")
    y: Tensor = op(t, k, int(reverse))
    return _with_initial(y, k, initial, reverse, exclusive) if include_initial or exclusive else y


@explain_keywords
def cumulative_sum(
    x: Any,
    axis: int | None = None,
    *,
    dtype: Any = None,
    include_initial: bool = False,
    reverse: bool = False,
    exclusive: bool = False,
) -> Tensor:
    """Sums of the first 1, 2, … elements along an axis; `include_initial` puts a 0 in front. Alias: cumsum.

    `reverse` starts from the end; `exclusive` leaves out of each sum the element at its place.

    >>> cumulative_sum([1, 2, 3]).tolist(), cumulative_sum([1, 2, 3], reverse=True, exclusive=True).tolist()
    ([1, 3, 6], [5, 3, 0])
    """
    return _scan(_cumsum, x, axis, dtype, 0.0, "cumulative_sum", (include_initial, reverse, exclusive))


@explain_keywords
def cumulative_prod(
    x: Any,
    axis: int | None = None,
    *,
    dtype: Any = None,
    include_initial: bool = False,
    reverse: bool = False,
    exclusive: bool = False,
) -> Tensor:
    """Products of the first 1, 2, … elements along an axis; `include_initial` puts a 1 in front. Alias: cumprod.

    `reverse` starts from the end; `exclusive` leaves out of each product the element at its place. The derivative is right
    where elements are zero, and takes one pass.

    >>> cumulative_prod([1, 2, 3]).tolist(), cumulative_prod([1, 2, 3], exclusive=True).tolist()
    ([1, 2, 6], [1, 1, 2])
    """
    return _scan(_cumprod, x, axis, dtype, 1.0, "cumulative_prod", (include_initial, reverse, exclusive))


cumsum = cumulative_sum
cumprod = cumulative_prod


@explain_keywords
def logcumsumexp(x: Any, *, axis: int | None = None, reverse: bool = False, exclusive: bool = False) -> Tensor:
    """ln Σ eˣ of the first 1, 2, … elements along an axis, without overflow.

    `reverse` starts from the end; `exclusive` leaves out of each sum the element at its place: −∞ where none is left.

    >>> logcumsumexp([1000.0, 1000.0]).tolist()
    [1000.0, 1000.693...]
    """
    t = as_floating(as_tensor(x, "logcumsumexp"))
    k = _only_axis(t, axis, "logcumsumexp")
    # The derivative reads the running value, whose rounding to a half type would be a wrong weight.
    y = _logcumsumexp(as_dtype_of(t, float32) if t.dtype.itemsize == 2 else t, k, int(reverse))
    return as_dtype_of(_with_initial(y, k, -math.inf, reverse, True) if exclusive else y, t.dtype)


def _running(op: Any, x: Tensor, k: int, reverse: bool) -> ValuesAndIndices:
    if not reverse:
        return ValuesAndIndices(*op(x, k))
    values, places = op(flip(x, k), k)
    return ValuesAndIndices(flip(values, k), x.shape[k] - 1 - flip(places, k))


@explain_keywords
def cummax(x: Any, *, axis: int | None = None, reverse: bool = False) -> ValuesAndIndices:
    """The largest of the first 1, 2, … elements along an axis, and where it first was. NaN stays from where it appears.
    `reverse` starts from the end, from where "first" is counted then.

    >>> values, indices = cummax([1.0, 3.0, 2.0, 3.0])
    >>> values.tolist(), indices.tolist()
    ([1.0, 3.0, 3.0, 3.0], [0, 1, 1, 1])
    """
    t = as_tensor(x, "cummax")
    return _running(_cummax, t, _only_axis(t, axis, "cummax"), reverse)


@explain_keywords
def cummin(x: Any, *, axis: int | None = None, reverse: bool = False) -> ValuesAndIndices:
    """The smallest of the first 1, 2, … elements along an axis, and where it first was. NaN stays from where it appears.
    `reverse` starts from the end, from where "first" is counted then.

    >>> values, indices = cummin([2.0, 3.0, 1.0, 1.0])
    >>> values.tolist(), indices.tolist()
    ([2.0, 2.0, 1.0, 1.0], [0, 0, 2, 2])
    """
    t = as_tensor(x, "cummin")
    return _running(_cummin, t, _only_axis(t, axis, "cummin"), reverse)


@explain_keywords
def diff(x: Any, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Tensor:
    """Differences of neighbours along an axis, n times over; values to prepend and append come first.

    >>> diff([1.0, 4.0, 9.0]).tolist()
    [3.0, 5.0]
    """
    t = as_tensor(x, "diff")
    k, times = one_axis(axis, t.ndim, "diff"), operator.index(n)
    if times < 0:
        raise ArgumentError(f"diff: n must not be negative, got {times}")
    if times and (prepend is not None or append is not None):
        parts = [as_tensor(p, "diff") for p in (prepend, t, append) if p is not None]
        t = _concat(promoted(parts), k)
    for _ in range(times):
        if t.shape[k] == 0:
            break
        sizes = tuple(s - 1 if i == k else s for i, s in enumerate(t.shape))
        ones = (1,) * t.ndim
        later = _slice(t, tuple(int(i == k) for i in range(t.ndim)), sizes, ones)
        t = later - _slice(t, (0,) * t.ndim, sizes, ones)
    return t
