"""Gathering and scattering by index along an axis."""

from __future__ import annotations

from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import as_dtype, float32
from wengert.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from wengert.foreign_names import explain_keywords
from wengert.program.trace import broadcast_shapes
from wengert.tensors.arguments import (
    Size,
    as_dtype_of,
    as_index,
    as_tensor,
    describe,
    iota,
    native,
    on_host,
    one_axis,
    product,
    promoted,
    shape_text,
)

_take, _take_along, _put_along = (
    native("take"),
    native("take_along_axis"),
    native("scatter_along_axis"),
)
_scatter_add, _equal = native("scatter_add"), native("equal")
_broadcast_to, _reshape, _slice = native("broadcast_to"), native("reshape"), native("slice")
_where, _slice_update = native("where"), native("slice_update")


def _checked(name: str, op: Any, *args: Any) -> Tensor:
    """The op; an index out of range is reported in the name of the public function."""
    try:
        y: Tensor = op(*args)
        return y
    except IndexRangeError as e:
        raise IndexRangeError(f"{name}{str(e)[str(e).index(':') :]}") from None


@explain_keywords
def take(x: Any, indices: Any, *, axis: int | None = None) -> Tensor:
    """Take slices of x along an axis, at the given indices, which may have any shape.

    The axis may be left out for vectors. Indices out of range raise IndexRangeError.

    >>> take([10, 20, 30], [2, 0]).tolist()
    [30, 10]
    """
    t = as_tensor(x, "take")
    if axis is None:
        if t.ndim != 1:
            raise ShapeError(f"take: axis is required for a tensor with {t.ndim} axes, got {describe(t)}")
        axis = 0
    return _take(t, as_index(indices, "take"), one_axis(axis, t.ndim, "take"))


@explain_keywords
def index_select(x: Any, index: Any, *, axis: int) -> Tensor:
    """Slices of x at the entries of a vector of indices along an axis.

    >>> index_select([[1, 2, 3], [4, 5, 6]], [2, 0], axis=1).tolist()
    [[3, 1], [6, 4]]
    """
    t, i = as_tensor(x, "index_select"), as_index(index, "index_select")
    if i.ndim != 1:
        raise ShapeError(f"index_select: the index must be a vector, got {describe(i)}; take allows any shape")
    return _checked("index_select", _take, t, i, one_axis(axis, t.ndim, "index_select"))


def _aligned(x: Tensor, i: Tensor, axis: int, name: str) -> tuple[Tensor, Tensor, int]:
    """x and indices with all sizes equal but along the axis."""
    if x.ndim != i.ndim:
        raise ShapeError(
            f"{name}: x and indices must have the same number of axes, got {describe(x)} and {describe(i)}"
        )
    k = one_axis(axis, x.ndim, name)
    rest = broadcast_shapes(name, (*x.shape[:k], *x.shape[k + 1 :]), (*i.shape[:k], *i.shape[k + 1 :]))
    x = _broadcast_to(x, (*rest[:k], x.shape[k], *rest[k:]))
    return x, _broadcast_to(i, (*rest[:k], i.shape[k], *rest[k:])), k


@explain_keywords
def take_along_axis(x: Any, indices: Any, *, axis: int = -1) -> Tensor:
    """x[i, indices[i, j], …]: for each place along the axis an index of its own; the other axes broadcast, as in NumPy.

    `gather` takes the leading part of x instead where it is larger than the indices, as in PyTorch.

    >>> take_along_axis([[1, 2, 3], [4, 5, 6]], [[2], [0]], axis=1).tolist()
    [[3], [4]]
    """
    t, i = as_tensor(x, "take_along_axis"), as_index(indices, "take_along_axis")
    shape, wanted = t.shape, i.shape
    if (
        len(shape) == len(wanted)
        and 0 <= axis < len(shape)
        and shape[:axis] == wanted[:axis]
        and shape[axis + 1 :] == wanted[axis + 1 :]
    ):
        return _take_along(t, i, axis)
    return _take_along(*_aligned(t, i, axis, "take_along_axis"))


def _leading(x: Tensor, sizes: tuple[Size, ...]) -> Tensor:
    """The first `sizes` elements along every axis; x itself if that is all of it."""
    n = x.ndim
    return x if tuple(x.shape) == sizes else _slice(x, (0,) * n, sizes, (1,) * n)


def _require_no_larger(i: Tensor, x: Tensor, axis: int | None, what: str, name: str) -> None:
    """Indices reach no further than x on any axis but the one they index."""
    if i.ndim != x.ndim or any(k != axis and a > b for k, (a, b) in enumerate(zip(i.shape, x.shape))):
        beside = "" if axis is None else f" but axis {axis}"
        raise ShapeError(
            f"{name}: indices {describe(i)} must have as many axes as {what} {describe(x)}, and be no larger on any "
            f"axis{beside}"
        )


@explain_keywords
def gather(x: Any, indices: Any, *, axis: int = -1) -> Tensor:
    """x[i, indices[i, j], …] for all places of the indices, which may be fewer than those of x, as in PyTorch.

    >>> gather([[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[2], [0]], axis=1).tolist()
    [[3], [4]]
    """
    t, i = as_tensor(x, "gather"), as_index(indices, "gather")
    k = one_axis(axis, t.ndim, "gather")
    _require_no_larger(i, t, k, "x", "gather")
    part = _leading(t, tuple(n if a == k else m for a, (n, m) in enumerate(zip(t.shape, i.shape))))
    return _checked("gather", _take_along, part, i, k)


def scattered(op: Any, x: Tensor, i: Tensor, src: Tensor, axis: int, name: str) -> Tensor:
    """x with the leading part that the indices cover changed by the op."""
    k = one_axis(axis, x.ndim, name)
    s = _broadcast_to(src, i.shape) if src.ndim == 0 else src
    if i.shape == s.shape == x.shape:
        return _checked(name, op, x, i, s, k)
    _require_no_larger(i, s, None, "the values", name)
    _require_no_larger(i, x, k, "x", name)
    part = _leading(x, tuple(n if a == k else m for a, (n, m) in enumerate(zip(x.shape, i.shape))))
    new = _checked(name, op, part, i, _leading(s, tuple(i.shape)), k)
    return new if part is x else _slice_update(x, new, (0,) * x.ndim, (1,) * x.ndim)


@explain_keywords
def scatter(x: Any, index: Any, src: Any, *, axis: int) -> Tensor:
    """x with src[i, j] written at [i, index[i, j]] along the axis; of equal indices the last one wins.

    The index may be smaller than x and src, as in PyTorch: the rest of x stays, the rest of src is not read.

    >>> scatter([[0, 0, 0]], [[2, 0]], [[5, 6]], axis=1).tolist()
    [[6, 0, 5]]
    """
    t, i, s = as_tensor(x, "scatter"), as_index(index, "scatter"), as_tensor(src, "scatter")
    return scattered(_put_along, t, i, as_dtype_of(s, t.dtype), axis, "scatter")


@explain_keywords
def scatter_add(x: Any, index: Any, src: Any, *, axis: int) -> Tensor:
    """x with src[i, j] added at [i, index[i, j]] along the axis.

    The index may be smaller than x and src, as in PyTorch: the rest of x stays, the rest of src is not read.

    >>> scatter_add([[0, 0, 1]], [[2, 2]], [[5, 6]], axis=1).tolist()
    [[0, 0, 12]]
    """
    t, s = promoted([as_tensor(x, "scatter_add"), as_tensor(src, "scatter_add")])
    return scattered(_scatter_add, t, as_index(index, "scatter_add"), s, axis, "scatter_add")


def one_hot(index: Any, num_classes: int, *, dtype: Any = float32) -> Tensor:
    """Encode integers as vectors along a new last axis: 1 at the index, 0 elsewhere.

    >>> one_hot([2, 0], 3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    i = as_index(index, "one_hot")
    if num_classes <= 0:
        raise ArgumentError(f"one_hot: num_classes must be positive, got {num_classes}")
    if on_host(i) and i.size:
        values = i.numpy()
        low, high = int(values.min()), int(values.max())
        if low < 0 or high >= num_classes:
            bad = low if low < 0 else high
            raise IndexRangeError(f"one_hot: index {bad} is out of range for {num_classes} classes")
    hits = _equal(_reshape(i, (*i.shape, 1)), iota(num_classes, like=i))
    return as_dtype_of(hits, as_dtype(dtype))


def embedding(index: Any, weight: Any, *, padding_idx: int | None = None) -> Tensor:
    """Rows of the weight at the indices. No gradient goes to row `padding_idx`.

    >>> embedding([[1, 0]], [[1.0, 2.0], [3.0, 4.0]]).tolist()
    [[[3.0, 4.0], [1.0, 2.0]]]
    """
    w, i = as_tensor(weight, "embedding"), as_index(index, "embedding")
    if w.ndim != 2:
        raise ShapeError(f"embedding: the weight must have shape (entries, features), got {shape_text(w.shape)}")
    rows = _checked("embedding", _take, w, i, 0)
    if padding_idx is None:
        return rows
    padding = _reshape(_equal(i, padding_idx), (*i.shape, 1))
    return _where(padding, rows.detach(), rows)


def _found(x: Any, name: str) -> Tensor:
    """The indices of the elements that are not zero, one row for each."""
    t = as_tensor(x, name)
    if not t._plain and not hasattr(t, "value"):
        traced: Any = t
        traced._refuse(
            f"counts nonzero elements ({name}), whose number depends on",
            "Use where(mask, x, 0); or call it outside of the function",
        )
    rows: Tensor = _core.nonzero(t if t._plain else t.detach())
    return rows


def nonzero(x: Any) -> tuple[Tensor, ...]:
    """The indices of the elements that are not zero, one vector for each axis.

    >>> [t.tolist() for t in nonzero([[0, 1], [2, 0]])]
    [[0, 1], [1, 0]]
    """
    t = as_tensor(x, "nonzero")
    if t.ndim == 0:
        raise ShapeError("nonzero: a 0-d tensor has no indices; compare it with 0 instead")
    rows = _found(t, "nonzero")
    n = rows.shape[0]
    return tuple(_reshape(_slice(rows, (0, k), (n, 1), (1, 1)), (n,)) for k in range(t.ndim))


def argwhere(x: Any) -> Tensor:
    """The indices of the elements that are not zero, one row for each, in order.

    >>> argwhere([[0, 1], [2, 0]]).tolist()
    [[0, 1], [1, 0]]
    """
    return _found(x, "argwhere")


def _as_mask(mask: Any, x: Tensor, name: str) -> Tensor:
    m = as_tensor(mask, name)
    if m.dtype.kind != "b":
        raise DTypeError(f"{name}: the mask must be bool, got {describe(m)}; compare it first, e.g. mask != 0")
    return _broadcast_to(m, broadcast_shapes(name, m.shape, x.shape))


def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """x with the value where the mask holds: where(mask, value, x) in x's dtype.

    >>> masked_fill([1.0, 2.0, 3.0], [True, False, True], 0.0).tolist()
    [0.0, 2.0, 0.0]
    """
    t = as_tensor(x, "masked_fill")
    filled = as_dtype_of(value, t.dtype) if isinstance(value, Tensor) else value
    return as_dtype_of(_where(_as_mask(mask, t, "masked_fill"), filled, t), t.dtype)


def masked_select(x: Any, mask: Any) -> Tensor:
    """The elements of x where the mask holds, as a vector in row-major order; both broadcast.

    >>> masked_select([[1.0, 2.0], [3.0, 4.0]], [True, False]).tolist()
    [1.0, 3.0]
    """
    t = as_tensor(x, "masked_select")
    m = _as_mask(mask, t, "masked_select")
    n = product(m.shape)
    rows = _found(_reshape(m, (n,)), "masked_select")
    return _take(_reshape(_broadcast_to(t, m.shape), (n,)), _reshape(rows, (rows.shape[0],)), 0)
