"""Joins, parts and repetitions along axes. All are compositions of linear ops, so all are differentiable."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.errors import ArgumentError, ShapeError
from wengert.foreign_names import explain_keywords
from wengert.functional.shapes import swapaxes
from wengert.tensors.arguments import (
    Axis,
    Size,
    all_axes,
    as_index,
    as_tensor,
    describe,
    native,
    one_axis,
    promoted,
)
from wengert.tensors.conversion import asarray

_reshape, _broadcast_to = native("reshape"), native("broadcast_to")
_slice = native("slice")
_concat, _take, _copy = native("concat"), native("take"), native("copy")


@explain_keywords
def concat(xs: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Join tensors along an existing axis; `axis=None` flattens them first. PyTorch's `cat`.

    >>> concat([[1, 2], [3]]).tolist()
    [1, 2, 3]
    """
    if isinstance(axis, Tensor):
        raise TypeError("concat: tensors must be passed as one list: concat([a, b], axis)")
    tensors = [as_tensor(x, "concat") for x in xs]
    if not tensors:
        raise ArgumentError("concat: needs at least one tensor")
    if axis is None:
        tensors, axis = [_reshape(t, (t.size,)) for t in tensors], 0
    if tensors[0].ndim == 0:
        raise ShapeError("concat: 0-d tensors cannot be concatenated; use stack")
    return _concat(promoted(tensors), one_axis(axis, tensors[0].ndim, "concat"))


@explain_keywords
def stack(xs: Sequence[Any], axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis.

    >>> stack([[1, 2], [3, 4]], 1).tolist()
    [[1, 3], [2, 4]]
    """
    if isinstance(axis, Tensor):  # type: ignore[unreachable]
        raise TypeError("stack: tensors must be passed as one list: stack([a, b], axis)")
    tensors = [as_tensor(x, "stack") for x in xs]
    if not tensors:
        raise ArgumentError("stack: needs at least one tensor")
    shape = tensors[0].shape
    for t in tensors[1:]:
        if t.shape != shape:
            raise ShapeError(f"stack: all shapes must be equal, got {describe(tensors[0])} and {describe(t)}")
    k = one_axis(axis, len(shape) + 1, "stack")
    one = (*shape[:k], 1, *shape[k:])
    return _concat([_reshape(t, one) for t in promoted(tensors)], k)


@explain_keywords
def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without it.

    >>> [t.tolist() for t in unstack([[1, 2], [3, 4]], 1)]
    [[1, 3], [2, 4]]
    """
    t = as_tensor(x, "unstack")
    k = one_axis(axis, t.ndim, "unstack")
    before = (slice(None),) * k
    return tuple(t[(*before, i)] for i in range(int(t.shape[k])))


def narrow(x: Tensor, axis: int, start: Size, size: Size, step: int = 1) -> Tensor:
    """`size` elements from `start` along one axis (not negative); a view."""
    shape = x.shape
    before, behind = axis, len(shape) - axis - 1
    sizes = (*shape[:axis], size, *shape[axis + 1 :])
    return _slice(x, (0,) * before + (start,) + (0,) * behind, sizes, (1,) * before + (step,) + (1,) * behind)


def _clamped(index: int, n: Size) -> Size:
    """An end of a slice as NumPy reads it: negative ones count from the end, and all are brought into range."""
    place = index + n if index < 0 else index
    if place < 0:
        return 0
    return n if place > n else place


_MOST_EMPTY_PARTS = 2**20  # nothing is any number of parts of nothing


@explain_keywords
def split(x: Any, sections_or_indices: int | Sequence[int], *, axis: int = 0) -> list[Tensor]:
    """Split along an axis, into a number of equal parts or at the given indices (NumPy's rules).

    PyTorch's `split` takes the *size* of the parts instead.

    >>> [t.tolist() for t in split([1, 2, 3, 4], 2)], [t.tolist() for t in split([1, 2, 3, 4], [1, 3])]
    ([[1, 2], [3, 4]], [[1], [2, 3], [4]])
    """
    t = as_tensor(x, "split")
    k = one_axis(axis, t.ndim, "split")
    n = t.shape[k]
    if not hasattr(sections_or_indices, "__len__"):
        parts = operator.index(sections_or_indices)
        if parts <= 0 or n % parts != 0:
            raise ShapeError(
                f"split: axis {k} of {describe(t)} has size {n}, which cannot be split into {parts} equal parts"
            )
        if parts > _MOST_EMPTY_PARTS and parts > n:
            raise ShapeError(f"split: axis {k} of {describe(t)} is empty; it makes at most {_MOST_EMPTY_PARTS} parts")
        return [narrow(t, k, i * (n // parts), n // parts) for i in range(parts)]
    cuts = [_clamped(operator.index(i), n) for i in sections_or_indices]  # type: ignore[union-attr]
    pieces = []
    for start, end in zip([0, *cuts], [*cuts, n]):
        pieces.append(narrow(t, k, start, end - start if end > start else 0))
    return pieces


def _split_at(x: Any, sections_or_indices: int | Sequence[int], axis: int, least: int, name: str) -> list[Tensor]:
    t = as_tensor(x, name)
    if t.ndim < least:
        raise ShapeError(f"{name}: needs {least} axes or more, got {describe(t)}")
    return split(t, sections_or_indices, axis=axis)


def hsplit(x: Any, sections_or_indices: int | Sequence[int]) -> list[Tensor]:
    """`split` along axis 1, or along axis 0 of a vector.

    >>> [t.tolist() for t in hsplit([[1, 2], [3, 4]], 2)]
    [[[1], [3]], [[2], [4]]]
    """
    t = as_tensor(x, "hsplit")
    return _split_at(t, sections_or_indices, 0 if t.ndim == 1 else 1, 1, "hsplit")


def vsplit(x: Any, sections_or_indices: int | Sequence[int]) -> list[Tensor]:
    """`split` along axis 0 of a tensor with two axes or more.

    >>> [t.tolist() for t in vsplit([[1, 2], [3, 4]], 2)]
    [[[1, 2]], [[3, 4]]]
    """
    return _split_at(x, sections_or_indices, 0, 2, "vsplit")


def dsplit(x: Any, sections_or_indices: int | Sequence[int]) -> list[Tensor]:
    """`split` along axis 2 of a tensor with three axes or more.

    >>> [t.tolist() for t in dsplit([[[1, 2]]], 2)]
    [[[[1]]], [[[2]]]]
    """
    return _split_at(x, sections_or_indices, 2, 3, "dsplit")


@explain_keywords
def flip(x: Any, axis: Axis = None) -> Tensor:
    """Elements in reverse order along the axes; a view.

    >>> flip([1, 2, 3]).tolist()
    [3, 2, 1]
    """
    t = as_tensor(x, "flip")
    axes = all_axes(axis, t.ndim, "flip")
    shape = t.shape
    starts, steps = [0] * len(shape), [1] * len(shape)
    for a in axes:
        starts[a], steps[a] = shape[a] - 1, -1
    return _slice(t, tuple(starts), shape, tuple(steps))


def _turn(shift: int, n: int) -> int:
    return -shift % n if n else 0


def _roll_one(x: Tensor, shift: int, axis: int) -> Tensor:
    n = x.shape[axis]
    if isinstance(n, _core.Dim):  # short shifts need no division by a symbolic size
        turn: Size = n - shift if 0 <= shift <= n else -shift if shift < 0 and -shift <= n else _turn(shift, int(n))
    else:
        turn = _turn(shift, n)
    if isinstance(turn, int) and turn == 0:
        return _copy(x)
    return _concat([narrow(x, axis, turn, n - turn), narrow(x, axis, 0, turn)], axis)


@explain_keywords
def roll(x: Any, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved `shift` places along the axes, round the end; in the flattened tensor by default.

    >>> roll([1, 2, 3, 4], 1).tolist()
    [4, 1, 2, 3]
    """
    t = as_tensor(x, "roll")
    if axis is None:
        amount = shift if isinstance(shift, int) else int(np.sum(shift))
        return _reshape(_roll_one(_reshape(t, (t.size,)), amount, 0), t.shape)
    axes = [one_axis(a, t.ndim, "roll") for a in ([axis] if isinstance(axis, int) else axis)]
    shifts = [operator.index(s) for s in (shift if isinstance(shift, Sequence) else [shift])]
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(axes) == 1:
        axes = axes * len(shifts)
    if len(shifts) != len(axes):
        raise ArgumentError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for s, a in zip(shifts, axes):
        t = _roll_one(t, s, a)
    return t if axes else _copy(t)


def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """x turned by k quarters of a circle in the plane of two axes, from the first towards the second.

    >>> rot90([[1, 2], [3, 4]]).tolist()
    [[2, 4], [1, 3]]
    """
    t = as_tensor(x, "rot90")
    if len(axes) != 2:
        raise ArgumentError(f"rot90: axes must be a pair, got {tuple(axes)}")
    a, b = (one_axis(i, t.ndim, "rot90") for i in axes)
    if a == b:
        raise ArgumentError(f"rot90: the two axes must differ, got {tuple(axes)} for {t.ndim} axes")
    quarters = operator.index(k) % 4
    if quarters == 0:
        return _copy(t)
    if quarters == 2:
        return flip(t, (a, b))
    return flip(swapaxes(t, a, b), a) if quarters == 1 else swapaxes(flip(t, a), a, b)


def tile(x: Any, repetitions: int | Sequence[int]) -> Tensor:
    """The whole tensor repeated along each axis; a copy.

    >>> tile([1, 2], 2).tolist()
    [1, 2, 1, 2]
    """
    t = as_tensor(x, "tile")
    reps = (repetitions,) if isinstance(repetitions, int) else tuple(operator.index(r) for r in repetitions)
    if any(r < 0 for r in reps):
        raise ArgumentError(f"tile: repetitions must not be negative, got {reps}")
    n = max(t.ndim, len(reps))
    reps, sizes = (1,) * (n - len(reps)) + reps, (1,) * (n - t.ndim) + tuple(t.shape)
    apart = _reshape(t, tuple(s for size in sizes for s in (1, size)))
    wide = _broadcast_to(apart, tuple(s for r, size in zip(reps, sizes) for s in (r, size)))
    return _reshape(_copy(wide), tuple(r * size for r, size in zip(reps, sizes)))


@explain_keywords
def repeat(x: Any, repeats: Any, *, axis: int | None = None) -> Tensor:
    """Each element repeated along an axis, a copy: a number, or one number for each element. Flattens by default.

    >>> repeat([1, 2], 2).tolist(), repeat([1, 2], [1, 3]).tolist()
    ([1, 1, 2, 2], [1, 2, 2, 2])
    """
    t = as_tensor(x, "repeat")
    if axis is None:
        t, axis = _reshape(t, (t.size,)), 0
    k = one_axis(axis, t.ndim, "repeat")
    if not isinstance(repeats, (int, _core.Dim)):
        counts = as_index(repeats, "repeat").numpy()
        if counts.ndim == 0 or counts.size == 1:
            repeats = int(counts.item())
        else:
            return _repeat_each(t, counts, k)
    if repeats < 0:
        raise ArgumentError(f"repeat: repeats must not be negative, got {repeats}")
    before, n, after = t.shape[:k], t.shape[k], t.shape[k + 1 :]
    wide = _broadcast_to(_reshape(t, (*before, n, 1, *after)), (*before, n, repeats, *after))
    return _reshape(_copy(wide), (*before, n * repeats, *after))


def _repeat_each(x: Tensor, counts: np.ndarray[Any, Any], axis: int) -> Tensor:
    if counts.ndim != 1 or counts.size != x.shape[axis] or (counts < 0).any():
        raise ShapeError(
            f"repeat: repeats of shape {counts.shape} must be one count ≥ 0 for each of the "
            f"{x.shape[axis]} elements of axis {axis} of {describe(x)}"
        )
    return _take(x, asarray(np.repeat(np.arange(counts.size), counts)), axis)
