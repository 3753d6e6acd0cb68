"""Shapes: views and copies of them. All are linear ops, so all are differentiable."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import as_dtype
from wengert.errors import ArgumentError, AxisError, ShapeError
from wengert.foreign_names import explain_keywords
from wengert.functional.shortcuts import shortcut
from wengert.program.trace import broadcast_shapes as common_shape
from wengert.tensors.arguments import (
    Axis,
    Size,
    all_axes,
    as_dtype_of,
    as_tensor,
    describe,
    is_one,
    native,
    one_axis,
    product,
    shape_text,
)
from wengert.tensors.device import move

_reshape, _permute, _broadcast_to = native("reshape"), native("permute"), native("broadcast_to")
_copy, _bitcast = native("copy"), native("bitcast")


def _sizes(shape: Any, more: tuple[Any, ...], name: str) -> tuple[Size, ...]:
    """A shape given as `(2, 3)`, `[2, 3]`, `2` or `2, 3`."""
    if more or isinstance(shape, (int, _core.Dim)):
        shape = (shape, *more)
    elif not isinstance(shape, (tuple, list)) and hasattr(shape, "__index__"):
        shape = (shape,)
    try:
        return tuple(s if isinstance(s, (int, _core.Dim)) else operator.index(s) for s in shape)
    except TypeError:
        raise TypeError(f"{name}: a shape must consist of integers, got {shape!r}") from None


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
    if d == 0:
        raise ShapeError(f"{name}: -1 is ambiguous beside sizes whose product is 0, for {describe(x)}")
    if isinstance(n, int) and isinstance(d, int) and n % d:
        raise ShapeError(
            f"{name}: {describe(x)} has {x.size} elements, which the sizes beside -1, "
            f"{shape_text(known)}, do not divide"
        )
    return n // d


@shortcut
def reshape(x: Any, /, shape: Any, *more: Any, copy: bool | None = None) -> Tensor:
    """The same elements, in row-major order, in a new shape; a size of −1 is inferred from the others.

    The shape is a tuple or several sizes. The result is a view where the strides allow it: `copy=True` always copies,
    `copy=False` raises where a copy is needed.

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


@explain_keywords
def unflatten(x: Any, axis: int, shape: Sequence[Size]) -> Tensor:
    """One axis as several of these sizes, of which one may be −1: the inverse of `flatten`.

    >>> unflatten([1, 2, 3, 4, 5, 6], 0, (2, -1)).tolist()
    [[1, 2, 3], [4, 5, 6]]
    """
    t = as_tensor(x, "unflatten")
    k, sizes = one_axis(axis, t.ndim, "unflatten"), tuple(shape)
    unknown = [i for i, n in enumerate(sizes) if isinstance(n, int) and n == -1]
    known = product([n for i, n in enumerate(sizes) if i not in unknown])
    if len(unknown) == 1 and not (isinstance(known, int) and known == 0):
        sizes = tuple(t.shape[k] // known if i in unknown else n for i, n in enumerate(sizes))
    if not sizes or len(unknown) > 1 or product(sizes) != t.shape[k]:
        raise ShapeError(f"unflatten: sizes {tuple(shape)} do not make up axis {k} of {describe(t)}")
    return _reshape(t, (*t.shape[:k], *sizes, *t.shape[k + 1 :]))


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


def transpose(x: Any, axes: Sequence[int] | None = None, *more: Any) -> Tensor:
    """The axes in reverse order, or in the order that a tuple gives, as in NumPy.

    >>> transpose([[1, 2, 3], [4, 5, 6]]).tolist()
    [[1, 4], [2, 5], [3, 6]]
    """
    t = as_tensor(x, "transpose")
    if axes is None:
        return _permute(t, tuple(range(t.ndim))[::-1])
    if more or not isinstance(axes, (tuple, list)):
        raise TypeError(
            "transpose: takes a tuple of all axes, or none to reverse them. Two numbers mean an order in NumPy and an "
            "exchange in PyTorch: here these are permute_dims(axes) and swapaxes(a, b)"
        )
    return permute_dims(t, axes)


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
        raise ShapeError(f"moveaxis: {source} and {destination} must name the same number of axes, each once")
    order = [a for a in range(t.ndim) if a not in sources]
    for place, axis in sorted(zip(places, sources)):
        order.insert(place, axis)
    return _permute(t, tuple(order))


def rollaxis(x: Any, axis: int, start: int = 0) -> Tensor:
    """The axis moved until it stands before `start`, as in NumPy; `moveaxis` says it better.

    >>> rollaxis([[[1, 2, 3]]], 2).shape
    (3, 1, 1)
    """
    t = as_tensor(x, "rollaxis")
    source = one_axis(axis, t.ndim, "rollaxis")
    place = operator.index(start)
    place = place + t.ndim if place < 0 else place
    if not 0 <= place <= t.ndim:
        raise AxisError(f"rollaxis: start = {start} is out of range for a tensor with {t.ndim} axes")
    return moveaxis(t, source, place - 1 if place > source else place)


def _at_least(ndim: int, xs: tuple[Any, ...]) -> Any:
    """Tensors with new axes as NumPy places them: one of a vector in front, and the third behind."""

    def one(x: Any) -> Tensor:
        t = as_tensor(x, f"atleast_{ndim}d")
        while t.ndim < min(ndim, 2):
            t = expand_dims(t, 0)
        return expand_dims(t, t.ndim) if t.ndim < ndim else t

    made = tuple(one(x) for x in xs)
    return made[0] if len(made) == 1 else made


def atleast_1d(*xs: Any) -> Any:
    """Tensors with one axis or more; of several a tuple.

    >>> atleast_1d(1.0).shape
    (1,)
    """
    return _at_least(1, xs)


def atleast_2d(*xs: Any) -> Any:
    """Tensors with two axes or more; a vector becomes a row. Of several a tuple.

    >>> atleast_2d([1.0, 2.0]).shape
    (1, 2)
    """
    return _at_least(2, xs)


def atleast_3d(*xs: Any) -> Any:
    """Tensors with three axes or more, as NumPy: (n,) becomes (1, n, 1) and (m, n) becomes (m, n, 1). Of several a tuple.

    >>> atleast_3d([1.0, 2.0]).shape
    (1, 2, 1)
    """
    return _at_least(3, xs)


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
    """Remove these axes of size 1; by default all of them.

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
    """Repeated along axes of size 1 and new leading axes; a view, which cannot be written in place: clone() it first.

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
    """All tensors in their common shape: views, which cannot be written in place where elements repeat.

    >>> [t.shape for t in broadcast_arrays([[1], [2]], [3, 4])]
    [(2, 2), (2, 2)]
    """
    tensors = [as_tensor(x, "broadcast_arrays") for x in xs]
    if not tensors:
        return ()
    shape = common_shape("broadcast_arrays", *(t.shape for t in tensors))
    return tuple(_broadcast_to(t, shape) for t in tensors)


def astype(x: Any, dtype: Any, *, copy: bool = True, device: Any = None) -> Tensor:
    """Cast to another dtype. If that is the dtype already, the result is a copy, or with `copy=False` x itself.

    >>> astype([1.7, -1.7], int).tolist()
    [1, -1]
    """
    if device is not None:
        x = move(as_tensor(x, "astype"), device)
    t, wanted = as_tensor(x, "astype"), as_dtype(dtype)
    if t.dtype.code == wanted.code:
        return _copy(t) if copy else t
    return as_dtype_of(t, wanted)


def bitcast(x: Any, dtype: Any) -> Tensor:
    """The same bits interpreted as another dtype of the same element size. No derivative flows through.

    >>> import wengert as wg
    >>> hex(bitcast(wg.tensor(1.0), wg.int32).item())
    '0x3f800000'
    """
    return _bitcast(as_tensor(x, "bitcast").detach(), as_dtype(dtype).code)


def clone(x: Any) -> Tensor:
    """A copy with memory of its own; gradients flow through.

    >>> clone([1, 2]).tolist()
    [1, 2]
    """
    return _copy(as_tensor(x, "clone"))
