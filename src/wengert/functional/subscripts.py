"""Keys of indexing, read against the shape of a tensor: `x[1:, None, mask, [0, 2]]`.

A basic key (integers, slices, None, ...) is a *place*: one `slice` and one `reshape`. Another key is read into *terms*, one
for each entry.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import int64
from wengert.errors import DTypeError, IndexRangeError
from wengert.tensors.arguments import Size, as_dtype_of, as_tensor, describe, native, shape_text, signed
from wengert.tensors.conversion import asarray
from wengert.tensors.device import like
from wengert.tensors.numpy import data

_slice, _reshape = native("slice"), native("reshape")

# What an entry of a key does with its place: in the result it is an axis (slice, new), nothing (integer), or it takes
# part in the axes that all index arrays share.
SLICE, NEW, INTEGER, ARRAY = range(4)


@dataclass(slots=True)
class Term:
    """One entry of a key that is not basic."""

    kind: int
    axis: int = -1  # of x; -1 for new axes and 0-d masks
    size: Size = 1  # of a slice
    index: Any = None  # of an array


@dataclass(slots=True)
class Key:
    """A key, read against a shape."""

    starts: list[Size]
    sizes: list[Size]
    steps: list[int]
    terms: list[Term] = field(default_factory=list)


def bounded(i: Size, n: Size, axis: int, x: Tensor, name: str) -> Size:
    """An index counted from the front, or an error if the axis does not have it."""
    if -n <= i < n:
        return i + n if i < 0 else i
    raise IndexRangeError(f"{name}: index {i} is out of range for axis {axis} with size {n} of {describe(x)}")


_LONGEST = 2**61  # beyond any axis: what is longer leads as far


def _bounded(i: int) -> int:
    return max(-_LONGEST, min(i, _LONGEST))


def _slice_bounds(s: slice, n: Size, name: str) -> tuple[Size, Size, int]:
    """Start, number of elements and step. Sizes may be symbolic; comparing them records what was assumed."""
    step = 1 if s.step is None else _bounded(operator.index(s.step))
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
    if isinstance(i, int):
        i = _bounded(i)
    if i < 0:
        i = i + n
    if i < low:
        return low
    return high if i > high else i


def _as_array(k: Any, name: str) -> Tensor:
    """An index array or mask: int64 or bool."""
    if not isinstance(k, (Tensor, list, tuple, np.ndarray, bool, np.bool_)):
        raise TypeError(
            f"{name}: {type(k).__name__} cannot be an index; use integers, slices, None, ..., index arrays and masks"
        )
    t = as_tensor(k, name)
    if t.dtype.kind == "b":
        return t
    if not t.dtype.is_integer and not (isinstance(k, (list, tuple)) and t.size == 0):
        raise DTypeError(f"{name}: index arrays must be integers or bools, got {describe(t)}")
    return signed(t, name) if t.dtype.is_integer else as_dtype_of(t, int64)


_BASIC = (int, slice, type(None), type(Ellipsis))


def entries_of(key: Any, name: str, x: Tensor) -> tuple[list[Any], bool]:
    """The entries of a key of x, and whether all are basic. Others become tensors where x is, so that their ranks are
    known."""
    given = key if isinstance(key, tuple) else (key,)
    entries, basic = [], True
    for k in given:
        if type(k) not in _BASIC and not isinstance(k, _core.Dim):
            k = operator.index(k) if isinstance(k, np.integer) else _as_array(k, name)
            if isinstance(k, Tensor):
                basic = False
                if _core.device_of(x) > 0:
                    k = k.to(x.device)
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
        raise IndexRangeError(f"{name}: an index may contain at most one ellipsis ('...')")
    if used > x.ndim:
        raise IndexRangeError(f"{name}: {used} indices for {describe(x)}, which has {x.ndim} axes")
    at = dots[0] if dots else len(entries)
    entries[at : at + 1] = [_ALL] * (x.ndim - used)
    return entries


_ALL = slice(None)


def read_key(x: Tensor, entries: list[Any], name: str) -> Key:
    """A key that holds index arrays or masks."""
    out = Key([0] * x.ndim, list(x.shape), [1] * x.ndim)
    axis = 0
    for k in _filled(x, entries, name):
        _add_term(out, x, k, axis, name)
        axis += _consumed(k)
    return out


def _add_term(out: Key, x: Tensor, k: Any, axis: int, name: str) -> None:
    if k is None:
        out.terms.append(Term(NEW))
    elif isinstance(k, slice):
        out.starts[axis], out.sizes[axis], out.steps[axis] = _slice_bounds(k, x.shape[axis], name)
        out.terms.append(Term(SLICE, axis, out.sizes[axis]))
    elif not isinstance(k, Tensor):
        out.starts[axis] = bounded(k, x.shape[axis], axis, x, name)
        out.sizes[axis] = 1
        out.terms.append(Term(INTEGER, axis))
    elif k.dtype.kind == "b":
        out.terms.extend(_mask_terms(x, k, axis, name))
    else:
        out.terms.append(Term(ARRAY, axis, index=k))


def _mask_terms(x: Tensor, mask: Tensor, axis: int, name: str) -> list[Term]:
    """A mask is the indices of its true elements, one array for each of its axes."""
    for i, n in enumerate(mask.shape):
        if n != x.shape[axis + i] and n != 0:  # an axis of size 0 selects nothing of any axis (array API)
            raise IndexRangeError(
                f"{name}: a mask of shape {shape_text(mask.shape)} does not fit axes {axis} to "
                f"{axis + mask.ndim - 1} of {describe(x)}: axis {axis + i} has size {x.shape[axis + i]}, not {n}"
            )
    if not hasattr(mask, "value") and not mask._plain:
        traced: Any = mask
        traced._refuse(f"selects by a mask ({name}) a number of elements that depends on", "Use where(mask, x, 0)")
    values = data(mask)
    found, device = np.nonzero(values if mask.ndim else values.reshape(1)), like(x)

    if mask.ndim == 0:
        return [Term(ARRAY, -1, index=asarray(found[0], device=device))]
    return [Term(ARRAY, axis + i, index=asarray(indices, device=device)) for i, indices in enumerate(found)]


def same_size(a: Size, b: Size) -> bool:
    """Whether two sizes are known to be equal; nothing is assumed of symbols."""
    if isinstance(a, _core.Dim) or isinstance(b, _core.Dim):
        return isinstance(a, _core.Dim) and isinstance(b, _core.Dim) and a.raw == b.raw
    return bool(a == b)


@dataclass(slots=True)
class BasicKey:
    """What a basic key selects: a slice, and its shape after dropping integer axes and adding new ones."""

    starts: tuple[Size, ...]
    sizes: tuple[Size, ...]
    steps: tuple[int, ...]
    shape: tuple[Size, ...]
    reshaped: bool

    def of(self, x: Tensor) -> Tensor:
        """The view of x there."""
        y = _slice(x, self.starts, self.sizes, self.steps)
        return _reshape(y, self.shape) if self.reshaped else y


def read_basic(x: Tensor, entries: list[Any], name: str) -> BasicKey:
    """A key of integers, slices, None and ... alone."""
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
            start, size = bounded(k, size, axis, x, name), 1
            reshaped = True
        starts.append(start)
        sizes.append(size)
        steps.append(step)
    return BasicKey(tuple(starts), tuple(sizes), tuple(steps), tuple(result), reshaped)
