"""Gathering and scattering."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.ops.shape import broadcast_to, iota, permute, reshape, zeros_like
from wengert.ops.tangents import where
from wengert.passes.example_axis import all_mapped, count, indices_of_all
from wengert.program.trace import create
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Invalid, Sample, exactly, index, real
from wengert.registry.zero import ZERO


def _to_second(x: Any, axis: int, count: int = 1) -> Any:
    """`count` axes of the examples, from `axis` on, directly after that of the examples."""
    moved = range(axis + 1, axis + 1 + count)
    order = (0, *moved, *(a for a in range(1, x.ndim) if a not in moved))
    return x if order == tuple(range(x.ndim)) else permute(x, order)


def _from_second(y: Any, axis: int, count: int = 1) -> Any:
    """The axes that `_to_second` has moved, where they were."""
    rest = list(range(1 + count, y.ndim))
    order = (0, *rest[:axis], *range(1, 1 + count), *rest[axis:])
    return y if order == tuple(range(y.ndim)) else permute(y, order)


def _take_of_examples(size: Any, mapped: Any, x: Any, i: Any, axis: int) -> Any:
    if not mapped[1]:
        return take(x, i, axis + 1)
    if not mapped[0]:
        y = take(x, i, axis)
        return permute(y, (axis, *(a for a in range(y.ndim) if a != axis))) if axis else y
    if x.ndim == 2:  # out of vectors: the indices stay what they are
        return reshape(take_along_axis(x, reshape(i, (size, count(i.shape[1:]))), 1), i.shape)
    rows = _to_second(x, axis)
    flat = reshape(rows, (size * rows.shape[1], *rows.shape[2:]))
    return _from_second(take(flat, indices_of_all(i, rows.shape[1], size), 0), axis, i.ndim - 1)


def _add_of_examples(size: Any, mapped: Any, x: Any, i: Any, shape: Any, axis: int) -> Any:
    if not mapped[1]:
        return index_add(x, i, (size, *shape), axis + 1)
    (x,) = all_mapped(size, mapped[:1], (x,))
    n, rest = shape[axis], (*shape[:axis], *shape[axis + 1 :])
    flat = index_add(_to_second(x, axis, i.ndim - 1), indices_of_all(i, n, size), (size * n, *rest), 0)
    return _from_second(reshape(flat, (size, n, *rest)), axis)


def _put_of_examples(size: Any, mapped: Any, x: Any, i: Any, v: Any, axis: int) -> Any:
    x, v = all_mapped(size, (mapped[0], mapped[2]), (x, v))
    if not mapped[1]:
        return index_put(x, i, v, axis + 1)
    rows, values = _to_second(x, axis), _to_second(v, axis)
    flat, written = (reshape(t, (size * t.shape[1], *t.shape[2:])) for t in (rows, values))
    index = reshape(indices_of_all(i, rows.shape[1], size), (written.shape[0],))
    return _from_second(reshape(index_put(flat, index, written, 0), rows.shape), axis)


def _winners_of_examples(examples: Any, mapped: Any, i: Any, /, size: Any) -> Any:
    (n,) = size
    flat = reshape(indices_of_all(i, n, examples), (examples * i.shape[1],))
    return reshape(winners(flat, (examples * n,)), i.shape)


take: Op = define(
    "take",
    where_zero="no element of its operand that matters was selected",
    taylor="linear",
    work="moving",
    formula="x[..., index, ...] along an axis",
    reference=lambda x, i, axis: np.take(x, i, axis=axis),
    jvp=lambda x_dot, i_dot, y, x, i, axis: take(x_dot, i, axis),
    transpose=(lambda y_bar, x, i, axis: index_add(y_bar, i, x.shape, axis), None),
    sparsity="moves",
    vmap=_take_of_examples,
    samples=[
        Sample((real(4, 3), index(5, below=4)), (0,)),
        Sample((real(2, 5, 3), index(2, 2, below=5)), (1,)),
        Sample((real(6), index(2, 3, below=6)), (0,)),
        Sample((real(4), index(0, below=4)), (0,)),
    ],
    invalid=[
        Invalid((real(4), exactly(7)), (0,), "IndexRangeError", "7"),
    ],
    public=False,
)


def _np_index_add(x: Any, i: Any, shape: Any, axis: int) -> Any:
    y = np.zeros(shape, x.dtype)
    moved = np.moveaxis(y, axis, 0)
    updates = np.moveaxis(x, range(axis, axis + i.ndim), range(i.ndim))
    np.add.at(moved, i, updates)
    return y


index_add: Op = define(
    "index_add",
    taylor="linear",
    formula="zeros to which x is added at the indices along an axis",
    reference=_np_index_add,
    jvp=lambda x_dot, i_dot, y, x, i, shape, axis: index_add(x_dot, i, shape, axis),
    transpose=(lambda y_bar, x, i, shape, axis: take(y_bar, i, axis), None),
    sparsity="adds",
    vmap=_add_of_examples,
    samples=[
        Sample((real(5, 3), index(5, below=4)), ((4, 3), 0)),
        Sample((real(2, 2, 2, 3), index(2, 2, below=5)), ((2, 5, 3), 1)),
    ],
    public=False,
)


def _np_index_put(x: Any, i: Any, v: Any, axis: int) -> Any:
    y = x.copy()
    np.moveaxis(y, axis, 0)[i] = np.moveaxis(v, axis, 0)
    return y


def _winning(i: Any, v: Any, axis: int, size: Any) -> Any:
    """Whether each written slice is the last one for its index, in the shape of v."""
    mask = reshape(winners(i, (size,)), tuple(n if k == axis else 1 for k, n in enumerate(v.shape)))
    return broadcast_to(mask, v.shape)


def _filled(t: Any, like: Any) -> Any:
    return zeros_like(like) if t is ZERO else t


index_put: Op = define(
    "index_put",
    work="moving",
    formula="x with v written at the indices along an axis; the last of equal indices wins",
    reference=_np_index_put,
    jvp=lambda x_dot, i_dot, v_dot, y, x, i, v, axis: index_put(_filled(x_dot, x), i, _filled(v_dot, v), axis),
    transpose=(
        lambda y_bar, x, i, v, axis: index_put(y_bar, i, zeros_like(v), axis),
        None,
        lambda y_bar, x, i, v, axis: where(_winning(i, v, axis, x.shape[axis]), take(y_bar, i, axis), 0.0),
    ),
    sparsity="moves",
    vmap=_put_of_examples,
    samples=[
        Sample((real(5, 3), exactly(4, 0, 4, 1), real(4, 3)), (0,)),
        Sample((real(2, 5), exactly(3, 3, 0), real(2, 3)), (1,)),
    ],
    public=False,
)
winners: Op = define(
    "winners",
    formula="whether no later entry has the same index",
    reference=lambda i, size: np.array([k not in i[j + 1 :] for j, k in enumerate(i)], bool),
    vmap=_winners_of_examples,
    samples=[Sample((exactly(4, 0, 4, 1),), ((5,),), gradients=False)],
    public=False,
)
take_along_axis: Op = define(
    "take_along_axis",
    where_zero="no element of its operand that matters was selected",
    taylor="linear",
    work="moving",
    formula="x[i, index[i, j], ...]",
    reference=lambda x, i, axis: np.take_along_axis(x, i, axis=axis),
    jvp=lambda x_dot, i_dot, y, x, i, axis: take_along_axis(x_dot, i, axis),
    transpose=(lambda y_bar, x, i, axis: scatter_add_along_axis(y_bar, i, x.shape, axis), None),
    sparsity="moves",
    vmap="axes",
    samples=[
        Sample((real(3, 4), index(3, 2, below=4)), (1,)),
        Sample((real(3, 4), index(5, 4, below=3)), (0,)),
    ],
    invalid=[Invalid((real(3, 4), exactly(0, 9, 0, shape=(3, 1))), (1,), "IndexRangeError", "9")],
    public=False,
)


def _np_scatter_add(x: Any, i: Any, shape: Any, axis: int) -> Any:
    y = np.zeros(shape, x.dtype)
    grid = list(np.indices(i.shape))
    grid[axis] = i
    np.add.at(y, tuple(grid), x)
    return y


scatter_add_along_axis: Op = define(
    "scatter_add_along_axis",
    taylor="linear",
    formula="zeros to which x[i, j] is added at [i, index[i, j]]",
    reference=_np_scatter_add,
    jvp=lambda x_dot, i_dot, y, x, i, shape, axis: scatter_add_along_axis(x_dot, i, shape, axis),
    transpose=(lambda y_bar, x, i, shape, axis: take_along_axis(y_bar, i, axis), None),
    sparsity="adds",
    vmap="axes",
    samples=[
        Sample((real(3, 2), index(3, 2, below=4)), ((3, 4), 1)),
        Sample((real(5, 4), index(5, 4, below=3)), ((3, 4), 0)),
    ],
    public=False,
)


def _np_scatter_add_to(x: Any, i: Any, v: Any, axis: int) -> Any:
    return x + _np_scatter_add(v, i, x.shape, axis)


def _scatter_add_jvp(x_dot: Any, i_dot: Any, v_dot: Any, y: Any, x: Any, i: Any, v: Any, axis: int) -> Any:
    if v_dot is ZERO:
        return x_dot
    return scatter_add_along_axis(v_dot, i, x.shape, axis) if x_dot is ZERO else scatter_add(x_dot, i, v_dot, axis)


# Not the sum of x and the op above: that would be two more passes over memory, several times the cost of this one.
scatter_add: Op = define(
    "scatter_add",
    taylor="linear",
    formula="x to which v[i, j] is added at [i, index[i, j]]",
    reference=_np_scatter_add_to,
    jvp=_scatter_add_jvp,
    transpose=(
        lambda y_bar, x, i, v, axis: y_bar,
        None,
        lambda y_bar, x, i, v, axis: take_along_axis(y_bar, i, axis),
    ),
    sparsity="adds",
    vmap="axes",
    samples=[
        Sample((real(3, 4), index(3, 2, below=4), real(3, 2)), (1,)),
        Sample((real(3, 4), index(5, 4, below=3), real(5, 4)), (0,)),
        Sample((real(3, 4), exactly(0, 0, 1, 1, 1, 3, shape=(3, 2)), real(3, 2)), (1,)),
        Sample((real(3, 4), index(3, 0, below=4), real(3, 0)), (1,)),
    ],
    invalid=[
        Invalid((real(3, 4), exactly(0, 9, 0, shape=(3, 1)), real(3, 1)), (1,), "IndexRangeError", "9"),
        Invalid((real(3, 4), index(3, 1, below=4), real(3, 2)), (1,), "ShapeError", "operand 2"),
    ],
    public=False,
)


def _np_scatter(x: Any, i: Any, v: Any, axis: int) -> Any:
    y = x.copy()
    np.put_along_axis(y, i, v, axis)
    return y


def _last_along(i: Any, axis: int, like: Any) -> Any:
    """Whether v[i, j] is the last write to its element: every write stores its position, then reads whose is left."""
    n = i.shape[axis]
    positions = create(iota, ((n,), i.dtype.code, 0.0, 1.0))
    positions = broadcast_to(reshape(positions, tuple(n if k == axis else 1 for k in range(i.ndim))), i.shape)
    left = scatter_along_axis(zeros_like_as(like, i.dtype.code), i, positions, axis)
    return take_along_axis(left, i, axis) == positions


def zeros_like_as(x: Any, dtype: int) -> Any:
    """Zeros of x's shape in another dtype."""
    return create(OPS["full"], (x.shape, dtype, 0.0))


scatter_along_axis: Op = define(
    "scatter_along_axis",
    formula="x with v[i, j] written at [i, index[i, j]]; the last of equal indices wins",
    reference=_np_scatter,
    jvp=lambda x_dot, i_dot, v_dot, y, x, i, v, axis: scatter_along_axis(_filled(x_dot, x), i, _filled(v_dot, v), axis),
    transpose=(
        lambda y_bar, x, i, v, axis: scatter_along_axis(y_bar, i, zeros_like(v), axis),
        None,
        lambda y_bar, x, i, v, axis: where(_last_along(i, axis, x), take_along_axis(y_bar, i, axis), 0.0),
    ),
    sparsity="moves",
    vmap="axes",
    samples=[
        Sample((real(3, 4), exactly(0, 0, 1, 2, 3, 3, shape=(3, 2)), real(3, 2)), (1,)),
    ],
    public=False,
)
