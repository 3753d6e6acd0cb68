"""Indexing as in NumPy, reading and writing: `x[...]` and `x[...] = v`.

A basic key (integers, slices, None, ...) is a *place*: one `slice` and one `reshape`, a view. Another key is read into
*terms*, one for each entry: its index arrays and masks become one linear index into the axes they name, for one `take`
(reading) or `index_put` (writing).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import bool_, int64
from wengert.errors import DTypeError, IndexRangeError, ShapeError, TraceError
from wengert.functional.arguments import (
    Size,
    as_dtype_of,
    as_tensor,
    describe,
    is_one,
    native,
    number,
    product,
    shape_text,
)
from wengert.program.call_trace import call_trace
from wengert.program.trace import broadcast_shapes, untraced

_slice, _reshape, _permute, _take = (
    native("slice"),
    native("reshape"),
    native("permute"),
    native("take"),
)
_broadcast_to, _index_put = native("broadcast_to"), native("index_put")
_slice_update, _where, _logical_or = native("slice_update"), native("where"), native("logical_or")
_copy = native("copy")

# What an entry of a key does with its place: in the result it is an axis (slice, new), nothing (integer), or it takes
# part in the axes that all index arrays share.
_SLICE, _NEW, _INTEGER, _ARRAY = range(4)


@dataclass(slots=True)
class _Term:
    kind: int
    axis: int = -1  # of x; -1 for new axes and 0-d masks
    size: Size = 1  # of a slice
    index: Any = None  # of an array


@dataclass(slots=True)
class _Key:
    """A key, read against a shape."""

    starts: list[Size]
    sizes: list[Size]
    steps: list[int]
    terms: list[_Term] = field(default_factory=list)


# ------------------------------------------------------------------------------------------------ reading the key


def _bounded(i: Size, n: Size, axis: int, x: Tensor, name: str) -> Size:
    if -n <= i < n:
        return i + n if i < 0 else i
    raise IndexRangeError(f"{name}: index {i} is out of range for axis {axis} with size {n} of {describe(x)}")


def _slice_bounds(s: slice, n: Size, name: str) -> tuple[Size, Size, int]:
    """Start, number of elements and step. Sizes may be symbolic; comparing them records what was assumed."""
    step = 1 if s.step is None else operator.index(s.step)
    if step == 0:
        raise IndexRangeError(f"{name}: the step of a slice must not be 0")
    if isinstance(n, int) and not isinstance(s.start, _core.Dim) and not isinstance(s.stop, _core.Dim):
        r = range(*s.indices(n))
        return (r.start if len(r) else 0), len(r), step
    low, high = (0, n) if step > 0 else (-1, n - 1)
    start = _end(s.start, n, low, high) if s.start is not None else low if step > 0 else high
    stop = _end(s.stop, n, low, high) if s.stop is not None else high if step > 0 else low
    reach = stop - start if step > 0 else start - stop
    if reach <= 0:
        return 0, 0, step
    return start, reach if abs(step) == 1 else (reach + (abs(step) - 1)) // abs(step), step


def _end(i: Any, n: Size, low: Size, high: Size) -> Size:
    if not isinstance(i, (int, _core.Dim)):
        i = operator.index(i)
    if i < 0:
        i = i + n
    if i < low:
        return low
    return high if i > high else i


def _as_array(k: Any, name: str) -> Tensor:
    """An index array or mask: int64 or bool."""
    if not isinstance(k, (Tensor, list, tuple, np.ndarray, bool, np.bool_)):
        raise TypeError(
            f"{name}: {type(k).__name__} is no index; use integers, slices, None, ..., index arrays and masks"
        )
    t = as_tensor(k, name)
    if t.dtype.kind == "b":
        return t
    if not t.dtype.is_integer and not (isinstance(k, (list, tuple)) and t.size == 0):
        raise DTypeError(f"{name}: index arrays are integers or bools, got {describe(t)}")
    return as_dtype_of(t, int64)


_BASIC = (int, slice, type(None), type(Ellipsis))


def _entries(key: Any, name: str) -> tuple[list[Any], bool]:
    """The entries of a key, and whether all are basic. Others become tensors, so that their ranks are known."""
    given = key if isinstance(key, tuple) else (key,)
    entries, basic = [], True
    for k in given:
        if type(k) not in _BASIC and not isinstance(k, _core.Dim):
            k = operator.index(k) if isinstance(k, np.integer) else _as_array(k, name)
            basic = basic and not isinstance(k, Tensor)
        entries.append(k)
    return entries, basic


def _consumed(k: Any) -> int:
    if k is None or k is Ellipsis:
        return 0
    return k.ndim if isinstance(k, Tensor) and k.dtype.kind == "b" else 1


def _filled(x: Tensor, entries: list[Any], name: str) -> list[Any]:
    """The entries with whole slices in place of the ellipsis, and for axes that are not named."""
    dots = [i for i, k in enumerate(entries) if k is Ellipsis]
    used = sum(map(_consumed, entries))
    if len(dots) > 1:
        raise IndexRangeError(f"{name}: a key holds at most one ellipsis ('...')")
    if used > x.ndim:
        raise IndexRangeError(f"{name}: {used} indices for {describe(x)}, which has {x.ndim} axes")
    at = dots[0] if dots else len(entries)
    entries[at : at + 1] = [_ALL] * (x.ndim - used)
    return entries


_ALL = slice(None)


def _read_key(x: Tensor, entries: list[Any], name: str) -> _Key:
    out = _Key([0] * x.ndim, list(x.shape), [1] * x.ndim)
    axis = 0
    for k in _filled(x, entries, name):
        _add_term(out, x, k, axis, name)
        axis += _consumed(k)
    return out


def _add_term(out: _Key, x: Tensor, k: Any, axis: int, name: str) -> None:
    if k is None:
        out.terms.append(_Term(_NEW))
    elif isinstance(k, slice):
        out.starts[axis], out.sizes[axis], out.steps[axis] = _slice_bounds(k, x.shape[axis], name)
        out.terms.append(_Term(_SLICE, axis, out.sizes[axis]))
    elif not isinstance(k, Tensor):
        out.starts[axis] = _bounded(k, x.shape[axis], axis, x, name)
        out.sizes[axis] = 1
        out.terms.append(_Term(_INTEGER, axis))
    elif k.dtype.kind == "b":
        out.terms.extend(_mask_terms(x, k, axis, name))
    else:
        out.terms.append(_Term(_ARRAY, axis, index=k))


def _mask_terms(x: Tensor, mask: Tensor, axis: int, name: str) -> list[_Term]:
    """A mask is the indices of its true elements, one array for each of its axes."""
    for i, n in enumerate(mask.shape):
        if n != x.shape[axis + i] and n != 0:  # an axis of size 0 selects nothing of any axis (array API)
            raise IndexRangeError(
                f"{name}: a mask of shape {shape_text(mask.shape)} does not fit axes {axis} to "
                f"{axis + mask.ndim - 1} of {describe(x)}: axis {axis + i} has size {x.shape[axis + i]}, not {n}"
            )
    if not hasattr(mask, "value") and not mask._plain:
        raise TraceError(
            f"{name}: the number of elements that a mask {describe(mask)} selects is data, which a traced function "
            "cannot read; use where(mask, x, 0)"
        )
    found = np.nonzero(mask.numpy() if mask.ndim else mask.numpy().reshape(1))
    from wengert.autograd.creation import asarray

    if mask.ndim == 0:
        return [_Term(_ARRAY, -1, index=asarray(found[0]))]
    return [_Term(_ARRAY, axis + i, index=asarray(indices)) for i, indices in enumerate(found)]


# ------------------------------------------------------------------------------------------------ basic indexing


def _sliced(x: Tensor, key: _Key) -> Tensor:
    """The slices of a key, with all axes kept; x itself if they select everything."""
    whole = all(
        isinstance(start, int) and start == 0 and step == 1 and _same(size, n)
        for start, size, step, n in zip(key.starts, key.sizes, key.steps, x.shape)
    )
    return x if whole else _slice(x, tuple(key.starts), tuple(key.sizes), tuple(key.steps))


def _same(a: Size, b: Size) -> bool:
    if isinstance(a, _core.Dim) or isinstance(b, _core.Dim):
        return isinstance(a, _core.Dim) and isinstance(b, _core.Dim) and a.raw == b.raw
    return bool(a == b)


@dataclass(slots=True)
class _Place:
    """What a basic key names: a slice, and the shape it has without integer axes and with new ones."""

    starts: tuple[Size, ...]
    sizes: tuple[Size, ...]
    steps: tuple[int, ...]
    shape: tuple[Size, ...]
    reshaped: bool

    def of(self, x: Tensor) -> Tensor:
        y = _slice(x, self.starts, self.sizes, self.steps)
        return _reshape(y, self.shape) if self.reshaped else y


def _read_basic(x: Tensor, entries: list[Any], name: str) -> _Place:
    shape = x.shape
    starts: list[Size] = []
    sizes: list[Size] = []
    steps: list[int] = []
    result: list[Size] = []
    reshaped = False
    for k in _filled(x, entries, name):
        if k is None:
            result.append(1)
            reshaped = True
            continue
        axis = len(sizes)
        start, size, step = 0, shape[axis], 1
        if isinstance(k, slice):
            if k != _ALL:
                start, size, step = _slice_bounds(k, size, name)
            result.append(size)
        else:
            start, size = _bounded(k, size, axis, x, name), 1
            reshaped = True
        starts.append(start)
        sizes.append(size)
        steps.append(step)
    return _Place(tuple(starts), tuple(sizes), tuple(steps), tuple(result), reshaped)


def _first(x: Tensor, i: int, name: str) -> Tensor:
    """x[i]: the shortest way for the most common key."""
    shape = x.shape
    if not shape:
        raise IndexRangeError(f"{name}: 1 index for {describe(x)}, which has no axes")
    start, rest = _bounded(i, shape[0], 0, x, name), shape[1:]
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


def _plan(x: Tensor, part: Tensor, key: _Key, name: str) -> _Plan:
    terms = key.terms
    kept = [t for t in terms if t.kind == _SLICE or (t.kind == _ARRAY and t.axis >= 0)]
    arrays = [t for t in terms if t.kind == _ARRAY]
    axes = [i for i, t in enumerate(kept) if t.kind == _ARRAY]
    if name == "getitem" and len(arrays) == 1 and axes == [arrays[0].axis]:
        index = arrays[0].index  # `take` checks it, and knows the axis
    else:
        index = _linear_index(x, arrays, name)
    rest = [t.size for t in kept if t.kind == _SLICE]
    places = [i for i, t in enumerate(terms) if t.kind in (_ARRAY, _INTEGER)]
    adjacent = places[-1] - places[0] == len(places) - 1
    before = [t for t in terms[: places[0]] if t.kind != _INTEGER] if adjacent else []
    after = [t for t in terms if t.kind in (_SLICE, _NEW) and not any(t is b for b in before)]
    n_index, n_before = index.ndim, sum(t.kind == _SLICE for t in before)
    others = list(range(n_index, n_index + len(rest)))
    order = (*others[:n_before], *range(n_index), *others[n_before:])
    shape = (*(t.size for t in before), *index.shape, *(t.size for t in after))
    return _Plan(axes, index, rest, order, shape)


def _linear_index(x: Tensor, terms: list[_Term], name: str) -> Tensor:
    """All index arrays of a key as one array of linear indices into the axes they name."""
    named = [t for t in terms if t.axis >= 0]
    shape = _common_shape([t.index for t in terms], name)
    if len(named) == 1 and named[0].index.ndim == len(shape) and len(terms) == 1:
        return _checked(named[0], x, name)
    sizes = [x.shape[t.axis] for t in named]
    if all(t.index._plain for t in terms) and all(isinstance(n, int) for n in (*sizes, *shape)):
        from wengert.autograd.creation import asarray

        flat = np.zeros(shape, np.int64)
        for t, n in zip(named, sizes):
            i = _checked(t, x, name).numpy()
            flat = flat * n + np.where(i < 0, i + n, i)
        return asarray(flat)
    return _traced_linear_index(named, sizes, shape)


def _checked(term: _Term, x: Tensor, name: str) -> Tensor:
    index = term.index
    n: Size = x.shape[term.axis]
    if index._plain and isinstance(n, int) and index.size:
        values = index.numpy()
        low, high = values.min(), values.max()
        if low < -n or high >= n:
            bad = high if high >= n else low
            raise IndexRangeError(
                f"{name}: index {bad} is out of range for axis {term.axis} with size {n} of {describe(x)}"
            )
    tensor: Tensor = index
    return tensor


def _traced_linear_index(terms: list[_Term], sizes: list[Size], shape: tuple[Size, ...]) -> Tensor:
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


def _dropped(y: Tensor, key: _Key) -> Tensor:
    """Without the axes that integers index."""
    if not any(t.kind == _INTEGER for t in key.terms):
        return y
    gone = {t.axis for t in key.terms if t.kind == _INTEGER}
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


def _advanced(x: Tensor, key: _Key, name: str) -> Tensor:
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
    entries, basic = _entries(key, "getitem")
    if basic:
        return _read_basic(x, entries, "getitem").of(x)
    if len(entries) == 1 and entries[0].dtype.code == int64.code and x.ndim:
        return _take(x, entries[0], 0)
    if len(entries) == 1 and entries[0]._plain and entries[0].ndim and entries[0].shape == x.shape[: entries[0].ndim]:
        return _masked(x, entries[0])
    return _advanced(x, _read_key(x, entries, "getitem"), "getitem")


# ------------------------------------------------------------------------------------------------------- writing


def assign(x: Tensor, value: Tensor, name: str) -> Tensor:
    """Give x the new value in place; x must be a tensor with data of its own, and so must the value."""
    trace = call_trace()
    if trace is not None and trace.owns(x) and trace.owns(value):
        trace.write(x, value, name)
        return x
    if type(x)._assign is Tensor._assign and not (x._plain and value._plain):
        raise TraceError(
            f"{name}: {describe(x)} cannot be changed in place here, because it or the new value is traced or dual; "
            "compute a new tensor instead"
        )
    if value.requires_grad and value.is_leaf:
        value = _copy(value)  # x must not become that leaf
    x._assign(value, name)
    return x


def _value(value: Any, x: Tensor, name: str) -> Tensor:
    """What is written, in x's dtype. Python numbers take it at once: a float is not rounded to float32 on its way."""
    if isinstance(value, (bool, int, float, complex, list, tuple)):
        from wengert.autograd.creation import asarray

        return asarray(value, dtype=x.dtype)
    return as_dtype_of(as_tensor(value, name), x.dtype)


def _fitting(value: Any, x: Tensor, shape: tuple[Size, ...], name: str) -> Tensor:
    """The value in x's dtype, broadcast to the place it is written to."""
    v = _value(value, x, name)
    while v.ndim > len(shape) and is_one(v.shape[0]):  # as NumPy: leading axes of size 1 are no matter
        v = _reshape(v, v.shape[1:])
    if v.ndim == len(shape) and all(_same(a, b) for a, b in zip(v.shape, shape)):
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
    if not (isinstance(key, Tensor) and key.dtype == bool_ and key.ndim):
        return None
    return key if np.ndim(value) == 0 or (isinstance(value, Tensor) and value.ndim == 0) else None


def _assign_basic(x: Tensor, place: _Place, value: Any) -> None:
    v = _fitting(value, x, place.shape, "setitem")
    if x._plain and call_trace() is None:
        assign(place.of(x), v, "setitem")
    else:
        new = _slice_update(x, _reshape(v, place.sizes), place.starts, place.steps)
        assign(x, new, "setitem")


def _assign_advanced(x: Tensor, key: _Key, value: Any) -> None:
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
    if (x._plain and call_trace() is None) or whole is x:
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
    mask = _scalar_mask(key, value)
    if mask is not None and mask.ndim <= x.ndim and all(a == b for a, b in zip(mask.shape, x.shape)):
        mask = _reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
        assign(x, _where(mask, _value(value, x, "setitem"), x), "setitem")
        return
    entries, basic = _entries(key, "setitem")
    if basic:
        _assign_basic(x, _read_basic(x, entries, "setitem"), value)
    else:
        _assign_advanced(x, _read_key(x, entries, "setitem"), value)
