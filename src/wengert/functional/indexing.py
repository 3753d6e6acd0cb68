"""Indexing as in NumPy, reading and writing: `x[...]` and `x[...] = v`.

A basic key (integers, slices, None, ...) is a *place*: one `slice` and one `reshape`, a view. Another key is read into
*terms*, one for each entry: its index arrays and masks become one linear index into the axes they name, for one `take`
(reading) or `index_put` (writing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import bool_, int64
from wengert.errors import IndexRangeError, ShapeError
from wengert.functional.subscripts import (
    ARRAY,
    INTEGER,
    NEW,
    SLICE,
    BasicKey,
    Key,
    Term,
    bounded,
    entries_of,
    read_basic,
    read_key,
    same_size,
)
from wengert.program.call_trace import call_trace
from wengert.program.trace import broadcast_shapes, filled, same_shape, untraced
from wengert.tensors.arguments import (
    Size,
    as_dtype_of,
    as_tensor,
    describe,
    is_one,
    native,
    number,
    on_host,
    product,
    shape_text,
)
from wengert.tensors.conversion import asarray

_slice, _reshape, _permute, _take = (
    native("slice"),
    native("reshape"),
    native("permute"),
    native("take"),
)
_broadcast_to, _index_put = native("broadcast_to"), native("index_put")
_slice_update, _where, _logical_or = native("slice_update"), native("where"), native("logical_or")
_copy = native("copy")

# ------------------------------------------------------------------------------------------------ basic indexing


def _sliced(x: Tensor, key: Key) -> Tensor:
    """The slices of a key, with all axes kept; x itself if they select everything."""
    whole = all(
        isinstance(start, int) and start == 0 and step == 1 and same_size(size, n)
        for start, size, step, n in zip(key.starts, key.sizes, key.steps, x.shape)
    )
    return x if whole else _slice(x, tuple(key.starts), tuple(key.sizes), tuple(key.steps))


def _first(x: Tensor, i: int, name: str) -> Tensor:
    """x[i]: the shortest way for the most common key."""
    shape = x.shape
    if not shape:
        raise IndexRangeError(f"{name}: 1 index for {describe(x)}, which has no axes")
    start, rest = bounded(i, shape[0], 0, x, name), shape[1:]
    zeros, ones = (0,) * len(rest), (1,) * len(shape)
    return _reshape(_slice(x, (start, *zeros), (1, *rest), ones), rest)


# --------------------------------------------------------------------------------------------- advanced indexing


@dataclass(slots=True)
class _Plan:
    """How an advanced key reads `part`, the slices of x without integer axes: arrays index `axes` of it."""

    axes: list[int]
    index: Tensor  # linear into those axes
    rest: list[Size]  # sizes of the other axes of part
    order: tuple[int, ...]  # of the axes of the result, counted as index axes, then rest
    shape: tuple[Size, ...]  # of the result, with new axes

    @property
    def fronted(self) -> tuple[Size, ...]:
        return (*self.index.shape, *self.rest)


def _plan(x: Tensor, part: Tensor, key: Key, name: str) -> _Plan:
    terms = key.terms
    kept = [t for t in terms if t.kind == SLICE or (t.kind == ARRAY and t.axis >= 0)]
    arrays = [t for t in terms if t.kind == ARRAY]
    axes = [i for i, t in enumerate(kept) if t.kind == ARRAY]
    if name == "getitem" and len(arrays) == 1 and axes == [arrays[0].axis]:
        index = arrays[0].index  # `take` checks it, and knows the axis
    else:
        index = _linear_index(x, arrays, name)
    rest = [t.size for t in kept if t.kind == SLICE]
    places = [i for i, t in enumerate(terms) if t.kind in (ARRAY, INTEGER)]
    adjacent = places[-1] - places[0] == len(places) - 1
    before = [t for t in terms[: places[0]] if t.kind != INTEGER] if adjacent else []
    after = [t for t in terms if t.kind in (SLICE, NEW) and not any(t is b for b in before)]
    n_index, n_before = index.ndim, sum(t.kind == SLICE for t in before)
    others = list(range(n_index, n_index + len(rest)))
    order = (*others[:n_before], *range(n_index), *others[n_before:])
    shape = (*(t.size for t in before), *index.shape, *(t.size for t in after))
    return _Plan(axes, index, rest, order, shape)


def _linear_index(x: Tensor, terms: list[Term], name: str) -> Tensor:
    """All index arrays of a key as one array of linear indices into the axes they name."""
    named = [t for t in terms if t.axis >= 0]
    shape = _common_shape([t.index for t in terms], name)
    if len(named) == 1 and named[0].index.ndim == len(shape) and len(terms) == 1:
        return _checked(named[0], x, name)
    sizes = [x.shape[t.axis] for t in named]
    found = _native_linear_index(tuple(t.index for t in named), tuple(sizes))
    if found is not None and found.shape == shape:
        return found
    if all(on_host(t.index) for t in terms) and all(isinstance(n, int) for n in (*sizes, *shape)):
        checked = [_checked(t, x, name) for t in named]
        if _core.recording_tapes():  # which know by instructions how the index was computed
            return _traced_linear_index(named, sizes, shape)
        flat = np.zeros(shape, np.int64)
        for index, n in zip(checked, sizes):
            i = index.numpy()
            flat = flat * n + np.where(i < 0, i + n, i)
        return asarray(flat)
    return _traced_linear_index(named, sizes, shape)


def _native_linear_index(indices: tuple[Any, ...], sizes: tuple[Any, ...]) -> Tensor | None:
    """The same for plain arrays of one shape, all in range. Not while a tape records, which knows by instructions how the
    index was computed."""
    found: Tensor | None = None if _core.recording_tapes() else _core.linear_index(indices, sizes)
    return found


def _checked(term: Term, x: Tensor, name: str) -> Tensor:
    index = term.index
    n: Size = x.shape[term.axis]
    if on_host(index) and isinstance(n, int) and index.size:
        values = index.numpy()
        low, high = values.min(), values.max()
        if low < -n or high >= n:
            bad = high if high >= n else low
            raise IndexRangeError(
                f"{name}: index {bad} is out of range for axis {term.axis} with size {n} of {describe(x)}"
            )
    tensor: Tensor = index
    return tensor


def _traced_linear_index(terms: list[Term], sizes: list[Size], shape: tuple[Size, ...]) -> Tensor:
    linear: Any = None
    bad: Any = None
    for t, n in zip(terms, sizes):
        size = number(n, int64)
        i = _broadcast_to(t.index, shape)
        outside = _logical_or(i >= size, i < -size)
        i = _where(i < 0, i + size, i)
        linear = i if linear is None else linear * size + i
        bad = outside if bad is None else _logical_or(bad, outside)
    # Out of range in one axis may be in range as a linear index: such a one is sent where the core refuses it.
    return _where(bad, number(product(sizes), int64), linear)


def _common_shape(arrays: list[Tensor], name: str) -> tuple[Size, ...]:
    try:
        return broadcast_shapes(name, *(a.shape for a in arrays))
    except ShapeError:
        shapes = " and ".join(shape_text(a.shape) for a in arrays)
        raise IndexRangeError(f"{name}: index arrays of shapes {shapes} do not broadcast together") from None


def _dropped(y: Tensor, key: Key) -> Tensor:
    """Drop the axes that are indexed by integers."""
    if not any(t.kind == INTEGER for t in key.terms):
        return y
    gone = {t.axis for t in key.terms if t.kind == INTEGER}
    return _reshape(y, tuple(n for i, n in enumerate(y.shape) if i not in gone))


def _fronted(part: Tensor, plan: _Plan) -> Tensor:
    """The indexed axes first, as one."""
    others = [i for i in range(part.ndim) if i not in plan.axes]
    n = product([part.shape[i] for i in plan.axes])
    moved = part if plan.axes == list(range(len(plan.axes))) else _permute(part, (*plan.axes, *others))
    return _reshape(moved, (n, *plan.rest))


def _unfronted(y: Tensor, part: Tensor, plan: _Plan) -> Tensor:
    others = [i for i in range(part.ndim) if i not in plan.axes]
    order = (*plan.axes, *others)
    apart = _reshape(y, tuple(part.shape[i] for i in order))
    return _permute(apart, tuple(int(i) for i in np.argsort(order)))


def _advanced(x: Tensor, key: Key, name: str) -> Tensor:
    part = _dropped(_sliced(x, key), key)
    plan = _plan(x, part, key, name)
    if len(plan.axes) == 1:
        axis = plan.axes[0]
        y = _take(part, plan.index, axis)  # its index axes stand where the axis was
        n_index = plan.index.ndim
        now = [*range(n_index, n_index + axis), *range(n_index), *range(n_index + axis, y.ndim)]
        order = tuple(now.index(a) for a in plan.order)
    else:
        y, order = _take(_fronted(part, plan), plan.index, 0), plan.order
    if order != tuple(range(y.ndim)):
        y = _permute(y, order)
    return y if len(plan.shape) == y.ndim else _reshape(y, plan.shape)


def _masked(x: Tensor, mask: Tensor) -> Tensor:
    """x[mask] for a mask that fits: its axes as one, and one index."""
    n: Size = product(mask.shape)
    with untraced():  # inside a compiled function the mask is a constant
        rows: Any = _core.nonzero(_reshape(mask, (n,)))
    return _take(_reshape(x, (n, *x.shape[mask.ndim :])), _reshape(rows, (rows.shape[0],)), 0)


def getitem(x: Tensor, key: Any) -> Tensor:
    """x[key], for every key that NumPy allows. Integers, slices, None and ... give a view; arrays and masks a copy.

    >>> import wengert as wg
    >>> x = wg.tensor([[1, 2, 3], [4, 5, 6]])
    >>> getitem(x, (slice(None), [2, 0])).tolist()
    [[3, 1], [6, 4]]
    """
    if type(key) is int:
        return _first(x, key, "getitem")
    entries, basic = entries_of(key, "getitem", x)
    if basic:
        return read_basic(x, entries, "getitem").of(x)
    if len(entries) == 1 and entries[0].dtype.code == int64.code and x.ndim:
        return _take(x, entries[0], 0)
    if len(entries) == 1 and entries[0]._plain and entries[0].ndim and entries[0].shape == x.shape[: entries[0].ndim]:
        return _masked(x, entries[0])
    n = len(entries)
    if 1 < n <= x.ndim and all(isinstance(k, Tensor) for k in entries):
        shape = x.shape
        index = _native_linear_index(tuple(entries), shape[:n])
        if index is not None:
            return _take(_reshape(x, (product(shape[:n]), *shape[n:])), index, 0)
    return _advanced(x, read_key(x, entries, "getitem"), "getitem")


# ------------------------------------------------------------------------------------------------------- writing


def assign(x: Tensor, value: Tensor, name: str) -> Tensor:
    """Give x the new value in place."""
    trace = call_trace()
    if trace is not None and trace.owns(x) and trace.owns(value):
        trace.write(x, value, name)
        return x
    if not (x._plain and value._plain):
        levelled: list[Any] = [t for t in (x, value) if not t._plain]
        if x.dtype != value.dtype or not same_shape(x.shape, value.shape):
            raise ShapeError(
                f"{name}: the result {value.dtype.name}{tuple(value.shape)} does not fit in place of "
                f"{x.dtype.name}{tuple(x.shape)}"
            )
        top = max(levelled, key=lambda t: t._level)
        top._trace.rebind(x, value, name)
        return x
    if value.is_leaf and (value.requires_grad or _core.recording_tapes()):
        value = _copy(value)  # x must not become that leaf; and a tape records ops
    x._assign(value, name)
    return x


def _value(value: Any, x: Tensor, name: str) -> Tensor:
    """The value to write, in x's dtype. Python numbers are converted directly: a float is not rounded to float32 first."""
    if type(value) is float and x.dtype.is_floating:
        number: Tensor = filled((), value, x.dtype.code)
        return number
    if isinstance(value, (bool, int, float, complex, list, tuple)):
        v = asarray(value, dtype=x.dtype)
    else:
        v = as_dtype_of(as_tensor(value, name), x.dtype)
    return v if isinstance(value, Tensor) or _core.device_of(x) <= 0 or not v.ndim else v.to(x.device)


def _fitting(value: Any, x: Tensor, shape: tuple[Size, ...], name: str) -> Tensor:
    """The value in x's dtype, broadcast to the place it is written to."""
    v = _value(value, x, name)
    while v.ndim > len(shape) and is_one(v.shape[0]):  # as NumPy: leading axes of size 1 are no matter
        v = _reshape(v, v.shape[1:])
    if v.ndim == len(shape) and all(same_size(a, b) for a, b in zip(v.shape, shape)):
        return v
    try:
        return _broadcast_to(v, shape)
    except ShapeError:
        raise ShapeError(
            f"{name}: a value of shape {shape_text(v.shape)} does not fit a place of shape "
            f"{shape_text(shape)} in {describe(x)}"
        ) from None


def _scalar_mask(key: Any, value: Any) -> Tensor | None:
    """The mask, if the key is one mask and the value one number: no index is needed then."""
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    if isinstance(key, (np.ndarray, list)) and np.asarray(key).dtype == bool:
        key = as_tensor(key, "setitem")
    if not (isinstance(key, Tensor) and key.dtype == bool_):
        return None
    return key if np.ndim(value) == 0 or (isinstance(value, Tensor) and value.ndim == 0) else None


def _masked_part(x: Tensor, entries: Sequence[Any], value: Any) -> tuple[tuple[Any, ...], Tensor] | None:
    """For a key with one traced mask whose other entries are basic, and a single number as value: the key with full slices
    in place of the mask, and the mask in the shape of what that selects."""
    masks = [k for k, e in enumerate(entries) if isinstance(e, Tensor)]
    scalar = value.ndim == 0 if isinstance(value, Tensor) else np.ndim(value) == 0
    mask = entries[masks[0]]
    if len(masks) > 1 or mask.dtype != bool_ or mask._plain or mask.ndim == 0 or not scalar:
        return None
    at = masks[0]
    part = (*entries[:at], *(slice(None) for _ in range(mask.ndim)), *entries[at + 1 :])
    before, after = (sum(e is None or isinstance(e, slice) for e in es) for es in (entries[:at], entries[at + 1 :]))
    if not any(e is Ellipsis for e in entries[:at]):  # axes that are not named come after the mask
        after = getitem(x, part).ndim - before - mask.ndim
    return part, _reshape(mask, (*mask.shape, *(1,) * after))


def _has_places(x: Tensor) -> bool:
    """Whether a part of x is written by writing to a view of it: x is data, with a place for every element."""
    return x._plain and call_trace() is None and not x._overlaps


def _assign_basic(x: Tensor, place: BasicKey, value: Any) -> None:
    v = _fitting(value, x, place.shape, "setitem")
    if _has_places(x) and v._plain:
        assign(place.of(x), v, "setitem")
    else:
        new = _slice_update(x, _reshape(v, place.sizes), place.starts, place.steps)
        assign(x, new, "setitem")


def _assign_advanced(x: Tensor, key: Key, value: Any) -> None:
    whole = _sliced(x, key)
    part = _dropped(whole, key)
    plan = _plan(x, part, key, "setitem")
    v = _fitting(value, x, plan.shape, "setitem")
    sizes = plan.fronted
    v = _reshape(v, tuple(sizes[a] for a in plan.order))
    v = _permute(v, tuple(int(i) for i in np.argsort(plan.order)))
    n = product(plan.index.shape)
    new = _index_put(_fronted(part, plan), _reshape(plan.index, (n,)), _reshape(v, (n, *plan.rest)), 0)
    new = _unfronted(new, part, plan)
    if (_has_places(x) and new._plain) or whole is x:
        assign(part, new, "setitem")
        return
    updated = _slice_update(x, _reshape(new, whole.shape), tuple(key.starts), tuple(key.steps))
    assign(x, updated, "setitem")


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """x[key] = value in place, with gradients to both. Of equal indices the last one wins.

    >>> import wengert as wg
    >>> x = wg.tensor([1, 2, 3])
    >>> setitem(x, [0, 2], [10, 30])
    >>> x.tolist()
    [10, 2, 30]
    """
    if _has_places(x) and (part := _core.basic_part(x, key)) is not None:
        v = _fitting(value, x, part.shape, "setitem")
        if v._plain:
            assign(part, v, "setitem")
            return
    mask = _scalar_mask(key, value)
    if mask is not None and mask.ndim <= x.ndim and all(a == b for a, b in zip(mask.shape, x.shape)):
        mask = _reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
        assign(x, _where(mask, _value(value, x, "setitem"), x), "setitem")
        return
    entries, basic = entries_of(key, "setitem", x)
    if not basic and (found := _masked_part(x, entries, value)) is not None:
        part, mask = found
        setitem(x, part, _where(mask, _value(value, x, "setitem"), getitem(x, part)))
    elif basic:
        _assign_basic(x, read_basic(x, entries, "setitem"), value)
    else:
        _assign_advanced(x, read_key(x, entries, "setitem"), value)
