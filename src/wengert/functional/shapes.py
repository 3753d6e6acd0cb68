"""Shapes: views, joins, repetitions. All are compositions of linear ops, so all are differentiable."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import as_dtype
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.arguments import (
    Axis,
    Size,
    all_axes,
    as_dtype_of,
    as_index,
    as_tensor,
    describe,
    full,
    iota,
    is_one,
    native,
    number,
    one_axis,
    product,
    promoted,
    shape_text,
)
from wengert.functional.foreign_names import explain_keywords
from wengert.program.trace import broadcast_shapes as common_shape

_reshape, _permute, _broadcast_to = native("reshape"), native("permute"), native("broadcast_to")
_slice, _unslice, _slice_update = native("slice"), native("unslice"), native("slice_update")
_concat, _take, _copy = native("concat"), native("take"), native("copy")
_triu, _tril, _cast = native("triu"), native("tril"), native("cast")
_maximum, _minimum, _remainder = native("maximum"), native("minimum"), native("remainder")


def _sizes(shape: Any, more: tuple[Any, ...], name: str) -> tuple[Size, ...]:
    """A shape given as `(2, 3)`, `[2, 3]`, `2` or `2, 3`."""
    if more or isinstance(shape, (int, _core.Dim)):
        shape = (shape, *more)
    elif not isinstance(shape, (tuple, list)) and hasattr(shape, "__index__"):
        shape = (shape,)
    try:
        return tuple(s if isinstance(s, (int, _core.Dim)) else operator.index(s) for s in shape)
    except TypeError:
        raise TypeError(f"{name}: a shape consists of integers, got {shape!r}") from None


def _same(a: Size, b: Size) -> bool:
    """Whether two sizes are the same expression; asks nothing of the example sizes, so it records no guard."""
    if isinstance(a, _core.Dim) and isinstance(b, _core.Dim):
        return a.raw == b.raw
    return isinstance(a, int) and isinstance(b, int) and a == b


def _remaining(x: Tensor, known: list[Size], name: str) -> Size:
    """The size that -1 stands for."""
    left, right = list(x.shape), []
    for s in known:  # sizes that stay cancel, so that symbolic ones need no division
        match = next((i for i, n in enumerate(left) if _same(n, s)), None)
        if match is None or s == 0:
            right.append(s)
        else:
            left.pop(match)
    n, d = product(left), product(right)
    if isinstance(d, int) and d == 0:
        raise ShapeError(f"{name}: -1 is ambiguous beside sizes whose product is 0, for {describe(x)}")
    if isinstance(n, int) and isinstance(d, int) and n % d:
        raise ShapeError(
            f"{name}: {describe(x)} has {x.size} elements, which the sizes beside -1, "
            f"{shape_text(known)}, do not divide"
        )
    return n // d


def reshape(x: Any, /, shape: Any, *more: Any, copy: bool | None = None) -> Tensor:
    """The same elements in row-major order under another shape; one size may be -1. Copies only if it must.

    `copy=True` always copies, `copy=False` raises where a view is impossible. The shape is a tuple or several sizes.

    >>> reshape([1, 2, 3, 4, 5, 6], (2, -1)).tolist()
    [[1, 2, 3], [4, 5, 6]]
    """
    t = as_tensor(x, "reshape")
    sizes = _sizes(shape, more, "reshape")
    unknown = [i for i, s in enumerate(sizes) if isinstance(s, int) and s == -1]
    if len(unknown) > 1:
        raise ShapeError(f"reshape: only one size may be -1, got {shape_text(sizes)}")
    if unknown:
        known = [s for i, s in enumerate(sizes) if i != unknown[0]]
        sizes = (*sizes[: unknown[0]], _remaining(t, known, "reshape"), *sizes[unknown[0] + 1 :])
    return _reshape(t, sizes) if copy is None else _reshaped(t, sizes, copy)


def _reshaped(x: Tensor, sizes: tuple[Size, ...], copy: bool) -> Tensor:
    if copy:
        return _reshape(_copy(x), sizes)
    y = _reshape(x, sizes)
    if x._plain and x.size and y.data_ptr != x.data_ptr:
        raise ArgumentError(f"reshape: {describe(x)} with strides {x.strides} has no view of shape {shape_text(sizes)}")
    return y


def flatten(x: Any, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Axes from `start_axis` to `end_axis` as one; all of them by default.

    >>> flatten([[1, 2], [3, 4]]).tolist()
    [1, 2, 3, 4]
    """
    t = as_tensor(x, "flatten")
    if t.ndim == 0:
        return _reshape(t, (1,))
    first, last = one_axis(start_axis, t.ndim, "flatten"), one_axis(end_axis, t.ndim, "flatten")
    if last < first:
        raise ShapeError(f"flatten: axis {end_axis} comes before axis {start_axis} in {describe(t)}")
    return _reshape(t, (*t.shape[:first], product(t.shape[first : last + 1]), *t.shape[last + 1 :]))


def permute_dims(x: Any, /, axes: Any, *more: Any) -> Tensor:
    """Axes in another order: axis k of the result is axis axes[k] of x.

    >>> permute_dims([[1, 2, 3], [4, 5, 6]], (1, 0)).shape
    (3, 2)
    """
    t = as_tensor(x, "permute_dims")
    order = axes if isinstance(axes, (tuple, list)) else (axes, *more)
    order = tuple(one_axis(a, t.ndim, "permute_dims") for a in order)
    if sorted(order) != list(range(t.ndim)):
        raise ShapeError(f"permute_dims: axes {order} are not a permutation of the {t.ndim} axes of {describe(t)}")
    return _permute(t, order)


def matrix_transpose(x: Any) -> Tensor:
    """The last two axes exchanged.

    >>> matrix_transpose([[1, 2, 3], [4, 5, 6]]).shape
    (3, 2)
    """
    t = as_tensor(x, "matrix_transpose")
    if t.ndim < 2:
        raise ShapeError(f"matrix_transpose: needs at least two axes, got {describe(t)}")
    return _permute(t, (*range(t.ndim - 2), t.ndim - 1, t.ndim - 2))


def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Two axes exchanged.

    >>> swapaxes([[1, 2, 3], [4, 5, 6]], 0, 1).shape
    (3, 2)
    """
    t = as_tensor(x, "swapaxes")
    order = list(range(t.ndim))
    a, b = one_axis(axis1, t.ndim, "swapaxes"), one_axis(axis2, t.ndim, "swapaxes")
    order[a], order[b] = b, a
    return _permute(t, tuple(order))


def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Axes moved to other places; the others keep their order.

    >>> moveaxis([[[1, 2, 3]]], 2, 0).shape
    (3, 1, 1)
    """
    t = as_tensor(x, "moveaxis")
    given = [(a,) if isinstance(a, int) else tuple(a) for a in (source, destination)]
    sources, places = ([one_axis(a, t.ndim, "moveaxis") for a in axes] for axes in given)
    if len(sources) != len(places) or len(set(sources)) != len(sources) or len(set(places)) != len(places):
        raise ShapeError(f"moveaxis: {source} and {destination} must be equally many different axes")
    order = [a for a in range(t.ndim) if a not in sources]
    for place, axis in sorted(zip(places, sources)):
        order.insert(place, axis)
    return _permute(t, tuple(order))


@explain_keywords
def expand_dims(x: Any, axis: int | Sequence[int] = 0) -> Tensor:
    """New axes of size 1 at these places of the result.

    >>> expand_dims([1, 2], 1).shape
    (2, 1)
    """
    t = as_tensor(x, "expand_dims")
    n_new = len(axis) if isinstance(axis, (tuple, list)) else 1
    places = all_axes(axis, t.ndim + n_new, "expand_dims")
    rest = iter(t.shape)
    return _reshape(t, tuple(1 if i in places else next(rest) for i in range(t.ndim + n_new)))


@explain_keywords
def squeeze(x: Any, axis: Axis = None) -> Tensor:
    """Without these axes of size 1; without all of them by default.

    >>> squeeze([[[1], [2]]], 0).shape
    (2, 1)
    """
    t = as_tensor(x, "squeeze")
    if axis is None:
        return _reshape(t, tuple(n for n in t.shape if not is_one(n)))
    axes = all_axes(axis, t.ndim, "squeeze")
    for a in axes:
        if not is_one(t.shape[a]):
            raise ShapeError(f"squeeze: axis {a} of {describe(t)} has size {t.shape[a]}, not 1")
    return _reshape(t, tuple(n for i, n in enumerate(t.shape) if i not in axes))


def broadcast_to(x: Any, /, shape: Any, *more: Any) -> Tensor:
    """Repeated along axes of size 1 and new leading axes; a view.

    >>> broadcast_to([1, 2], (2, 2)).tolist()
    [[1, 2], [1, 2]]
    """
    return _broadcast_to(as_tensor(x, "broadcast_to"), _sizes(shape, more, "broadcast_to"))


def broadcast_shapes(*shapes: Sequence[Size]) -> tuple[Size, ...]:
    """The shape that several broadcast to.

    >>> broadcast_shapes((2, 1), (3,), ())
    (2, 3)
    """
    return common_shape("broadcast_shapes", *map(tuple, shapes)) if shapes else ()


def broadcast_arrays(*xs: Any) -> tuple[Tensor, ...]:
    """All tensors in their common shape.

    >>> [t.shape for t in broadcast_arrays([[1], [2]], [3, 4])]
    [(2, 2), (2, 2)]
    """
    tensors = [as_tensor(x, "broadcast_arrays") for x in xs]
    if not tensors:
        return ()
    shape = common_shape("broadcast_arrays", *(t.shape for t in tensors))
    return tuple(_broadcast_to(t, shape) for t in tensors)


@explain_keywords
def concat(xs: Sequence[Any], axis: int | None = 0) -> Tensor:
    """Tensors one after the other along an axis; `axis=None` flattens them first.

    >>> concat([[1, 2], [3]]).tolist()
    [1, 2, 3]
    """
    tensors = [as_tensor(x, "concat") for x in xs]
    if not tensors:
        raise ArgumentError("concat: needs at least one tensor")
    if axis is None:
        tensors, axis = [_reshape(t, (t.size,)) for t in tensors], 0
    if tensors[0].ndim == 0:
        raise ShapeError("concat: tensors without axes cannot be joined; use stack")
    return _concat(promoted(tensors), one_axis(axis, tensors[0].ndim, "concat"))


@explain_keywords
def stack(xs: Sequence[Any], axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis.

    >>> stack([[1, 2], [3, 4]], 1).tolist()
    [[1, 3], [2, 4]]
    """
    tensors = [as_tensor(x, "stack") for x in xs]
    if not tensors:
        raise ArgumentError("stack: needs at least one tensor")
    shape = tensors[0].shape
    for t in tensors[1:]:
        if t.ndim != len(shape) or any(a != b for a, b in zip(t.shape, shape)):
            raise ShapeError(f"stack: all shapes must be equal, got {describe(tensors[0])} and {describe(t)}")
    k = one_axis(axis, len(shape) + 1, "stack")
    return _concat([_reshape(t, (*shape[:k], 1, *shape[k:])) for t in promoted(tensors)], k)


@explain_keywords
def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without it.

    >>> [t.tolist() for t in unstack([[1, 2], [3, 4]], 1)]
    [[1, 3], [2, 4]]
    """
    t = as_tensor(x, "unstack")
    k = one_axis(axis, t.ndim, "unstack")
    rest = (*t.shape[:k], *t.shape[k + 1 :])
    return tuple(_reshape(narrow(t, k, i, 1), rest) for i in range(int(t.shape[k])))


def narrow(x: Tensor, axis: int, start: Size, size: Size, step: int = 1) -> Tensor:
    """`size` elements from `start` along one axis (not negative); a view."""
    n = x.ndim
    starts = tuple(start if i == axis else 0 for i in range(n))
    sizes = tuple(size if i == axis else s for i, s in enumerate(x.shape))
    return _slice(x, starts, sizes, tuple(step if i == axis else 1 for i in range(n)))


def _clamped(index: int, n: Size) -> Size:
    """An end of a slice as NumPy reads it: negative ones count from the end, and all are brought into range."""
    place = index + n if index < 0 else index
    if place < 0:
        return 0
    return n if place > n else place


@explain_keywords
def split(x: Any, sections_or_indices: int | Sequence[int], *, axis: int = 0) -> list[Tensor]:
    """Parts along an axis: a number of equal parts, or the indices to cut at (NumPy's rules).

    >>> [t.tolist() for t in split([1, 2, 3, 4], 2)], [t.tolist() for t in split([1, 2, 3, 4], [1, 3])]
    ([[1, 2], [3, 4]], [[1], [2, 3], [4]])
    """
    t = as_tensor(x, "split")
    k = one_axis(axis, t.ndim, "split")
    n = t.shape[k]
    if not hasattr(sections_or_indices, "__len__"):
        parts = operator.index(sections_or_indices)
        if parts <= 0 or n % parts != 0:
            raise ShapeError(f"split: axis {k} of {describe(t)} has size {n}, which {parts} equal parts do not make")
        return [narrow(t, k, i * (n // parts), n // parts) for i in range(parts)]
    cuts = [_clamped(operator.index(i), n) for i in sections_or_indices]  # type: ignore[union-attr]
    pieces = []
    for start, end in zip([0, *cuts], [*cuts, n]):
        pieces.append(narrow(t, k, start, end - start if end > start else 0))
    return pieces


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


def _roll_one(x: Tensor, shift: int, axis: int) -> Tensor:
    n = x.shape[axis]
    if isinstance(n, _core.Dim):  # short shifts need no division by a symbolic size
        turn: Size = n - shift if 0 <= shift <= n else -shift if shift < 0 and -shift <= n else -shift % int(n)
    else:
        turn = -shift % n if n else 0
    if isinstance(turn, int) and turn == 0:
        return x
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
    return t if t is not x else _copy(t)


def tile(x: Any, repetitions: int | Sequence[int]) -> Tensor:
    """The whole tensor repeated along each axis.

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
    return _reshape(wide, tuple(r * size for r, size in zip(reps, sizes)))


@explain_keywords
def repeat(x: Any, repeats: Any, *, axis: int | None = None) -> Tensor:
    """Each element repeated along an axis; a number, or one number for each element. Flattens by default.

    >>> repeat([1, 2], 2).tolist(), repeat([1, 2], [1, 3]).tolist()
    ([1, 1, 2, 2], [1, 2, 2, 2])
    """
    t = as_tensor(x, "repeat")
    if axis is None:
        t, axis = _reshape(t, (t.size,)), 0
    k = one_axis(axis, t.ndim, "repeat")
    if not isinstance(repeats, int):
        counts = as_index(repeats, "repeat").numpy()
        if counts.ndim == 0 or counts.size == 1:
            repeats = int(counts.item())
        else:
            return _repeat_each(t, counts, k)
    if repeats < 0:
        raise ArgumentError(f"repeat: repeats must not be negative, got {repeats}")
    before, n, after = t.shape[:k], t.shape[k], t.shape[k + 1 :]
    wide = _broadcast_to(_reshape(t, (*before, n, 1, *after)), (*before, n, repeats, *after))
    return _reshape(wide, (*before, n * repeats, *after))


def _repeat_each(x: Tensor, counts: np.ndarray[Any, Any], axis: int) -> Tensor:
    from wengert.autograd.creation import asarray

    if counts.ndim != 1 or counts.size != x.shape[axis] or (counts < 0).any():
        raise ShapeError(
            f"repeat: repeats of shape {counts.shape} must be one count ≥ 0 for each of the "
            f"{x.shape[axis]} elements of axis {axis} of {describe(x)}"
        )
    return _take(x, asarray(np.repeat(np.arange(counts.size), counts)), axis)


def _is_pair(p: Any) -> bool:
    return isinstance(p, (tuple, list)) and len(p) == 2 and type(p[0]) is int and type(p[1]) is int


def _pairs(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, (tuple, list)) and len(pad_width) == ndim and all(map(_is_pair, pad_width)):
        pairs = [tuple(p) for p in pad_width]  # as most write it: NumPy would take longer to read it than the padding
    else:
        try:
            pairs = np.broadcast_to(np.asarray(pad_width, dtype=np.int64), (ndim, 2)).tolist()
        except ValueError:
            raise ShapeError(
                f"pad: pad_width {pad_width!r} must be (before, after) for each of {ndim} axes, one pair, or one number"
            ) from None
    if any(before < 0 or after < 0 for before, after in pairs):
        raise ArgumentError(f"pad: widths must not be negative, got {pad_width!r}")
    return [(before, after) for before, after in pairs]


def _source(mode: str, n: Size, before: int, after: int) -> Tensor:
    """For each place along a padded axis the index that it copies."""
    place: Any = iota(n + before + after, -before)
    size = number(n, place.dtype)
    if mode == "wrap":
        return _remainder(place, size)
    if mode == "edge":
        return _minimum(_maximum(place, 0), size - 1)
    period = (size - 1) * 2
    period = _maximum(period, 1) if isinstance(period, Tensor) else max(period, 1)
    folded = _remainder(place, period)
    return _minimum(folded, period - folded)


@explain_keywords
def pad(x: Any, pad_width: Any, *, mode: str = "constant", value: float = 0) -> Tensor:
    """More elements before and after along each axis: `((before, after), …)`, one pair for all, or one number.

    mode: "constant" (`value`), "edge" (the last element), "reflect" (mirrored, without the last) or "wrap" (round the
    end).

    >>> pad([1, 2, 3], (1, 2)).tolist(), pad([1, 2, 3], 2, mode="reflect").tolist()
    ([0, 1, 2, 3, 0, 0], [3, 2, 1, 2, 3, 2, 1])
    """
    t = as_tensor(x, "pad")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise ArgumentError(f"pad: mode is 'constant', 'edge', 'reflect' or 'wrap', got {mode!r}")
    pairs = _pairs(pad_width, t.ndim)
    if mode == "constant":
        shape = tuple(n + b + a for n, (b, a) in zip(t.shape, pairs))
        starts, steps = tuple(b for b, _ in pairs), (1,) * len(pairs)
        if value == 0:
            return _unslice(t, shape, starts, steps)
        return _slice_update(full(shape, value, t.dtype), t, starts, steps)
    for axis, (before, after) in enumerate(pairs):
        n: Size = t.shape[axis]
        if isinstance(n, int) and n == 0 and before + after:
            raise ShapeError(f"pad: axis {axis} of {describe(t)} is empty; mode {mode!r} has nothing to copy")
        if before + after:
            t = _take(t, _source(mode, n, before, after), axis)
    return t if t is not x else _copy(t)


def triu(x: Any, *, k: int = 0) -> Tensor:
    """The elements on and above diagonal k, zeros elsewhere.

    >>> triu([[1, 2], [3, 4]]).tolist()
    [[1, 2], [0, 4]]
    """
    return _triu(as_tensor(x, "triu"), k)


def tril(x: Any, *, k: int = 0) -> Tensor:
    """The elements on and below diagonal k, zeros elsewhere.

    >>> tril([[1, 2], [3, 4]]).tolist()
    [[1, 0], [3, 4]]
    """
    return _tril(as_tensor(x, "tril"), k)


def diagonal(x: Any, *, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """The elements x[…, i, i + offset] of two axes, as the last axis of the result.

    >>> diagonal([[1, 2], [3, 4]]).tolist()
    [1, 4]
    """
    t = as_tensor(x, "diagonal")
    if t.ndim < 2:
        raise ShapeError(f"diagonal: needs at least two axes, got {describe(t)}")
    t = moveaxis(t, (axis1, axis2), (-2, -1))
    *lead, rows, cols = t.shape
    height, width = (rows, cols - offset) if offset >= 0 else (rows + offset, cols)
    length = height if height <= width else width
    length = 0 if length < 0 else length
    start = (offset if offset >= 0 else -offset * cols) if isinstance(length, _core.Dim) or length else 0
    starts, steps = (*(0,) * len(lead), start), (*(1,) * len(lead), cols + 1)
    return _slice(_reshape(t, (*lead, rows * cols)), starts, (*lead, length), steps)


def diag(x: Any, *, k: int = 0) -> Tensor:
    """A matrix with a vector on diagonal k; of a matrix, its diagonal k.

    >>> diag([1, 2]).tolist()
    [[1, 0], [0, 2]]
    """
    t = as_tensor(x, "diag")
    if t.ndim == 2:
        return diagonal(t, offset=k)
    if t.ndim != 1:
        raise ShapeError(f"diag: takes a vector or a matrix, got {describe(t)}")
    n = t.shape[0] + abs(k)
    start = k if k >= 0 else -k * n
    return _reshape(_unslice(t, (n * n,), (start,), (n + 1,)), (n, n))


def trace(x: Any, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of a diagonal of the last two axes. Small integers are summed as `sum` does.

    >>> trace([[1, 2], [3, 4]]).item()
    5
    """
    from wengert.functional.reductions import sum

    return sum(diagonal(x, offset=offset), -1, dtype=dtype)


def astype(x: Any, dtype: Any, *, copy: bool = True, device: Any = None) -> Tensor:
    """The same numbers in another dtype. With the same dtype a copy, unless `copy=False`.

    >>> astype([1.7, -1.7], int).tolist()
    [1, -1]
    """
    if device is not None:
        from wengert.autograd.device import check_device

        check_device(device)
    t, wanted = as_tensor(x, "astype"), as_dtype(dtype)
    if t.dtype.code == wanted.code:
        return _copy(t) if copy else t
    return as_dtype_of(t, wanted)


def clone(x: Any) -> Tensor:
    """A copy with memory of its own; gradients flow through.

    >>> clone([1, 2]).tolist()
    [1, 2]
    """
    return _copy(as_tensor(x, "clone"))
