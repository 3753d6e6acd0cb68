"""Shape ops: all linear; each is the transpose of another."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.dtypes import ALL as DTYPES
from wengert.ops.simplifications import permuted_back, same_dtype, same_shape
from wengert.passes.example_axis import all_mapped, count
from wengert.program.ir import is_one
from wengert.program.trace import create
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Invalid, Sample, complex, index, real
from wengert.registry.zero import ZERO

reshape: Op = define(
    "reshape",
    simplified=same_shape,
    rearranges=True,
    may_copy=True,
    written_back=lambda emit, base, part, attrs: emit(reshape, (part,), (base.shape,)),
    formula="the same elements in row-major order under another shape",
    reference=np.reshape,
    jvp="linear",
    transpose=lambda y_bar, x, shape: reshape(y_bar, x.shape),
    sparsity="same",
    vmap="axes",
    samples=[
        Sample((real(2, 3),), ((3, 2),)),
        Sample((real(2, 3),), ((6,),)),
        Sample((real(),), ((1, 1),)),
        Sample((real(0, 3),), ((3, 0),)),
    ],
    invalid=[Invalid((real(2, 3),), ((4,),), "ShapeError", "reshape")],
)
permute: Op = define(
    "permute",
    simplified=permuted_back,
    rearranges=True,
    written_back=lambda emit, base, part, attrs: emit(
        permute, (part,), (tuple(attrs[0].index(k) for k in range(len(attrs[0]))),)
    ),
    formula="axes in another order",
    reference=np.transpose,
    jvp="linear",
    transpose=lambda y_bar, x, axes: permute(y_bar, tuple(int(a) for a in np.argsort(axes))),
    sparsity="moves",
    vmap=lambda size, mapped, x, axes: permute(x, (0, *(a + 1 for a in axes))),
    samples=[Sample((real(2, 3, 4),), ((2, 0, 1),)), Sample((real(2, 3),), ((1, 0),)), Sample((real(),), ((),))],
    invalid=[Invalid((real(2, 3),), ((0, 0),), "ShapeError", "permute")],
    public=False,
)


def _sum_to(y_bar: Any, x: Any, shape: Any) -> Any:
    lead = len(shape) - x.ndim
    axes = tuple(i for i, n in enumerate(shape) if i < lead or (is_one(x.shape[i - lead]) and not is_one(n)))
    # Rows first: their sums are part of the fused group that makes y_bar, which then need not exist as a whole.
    first_of_row = len(shape)
    while first_of_row - 1 in axes:
        first_of_row -= 1
    rows, rest = tuple(i for i in axes if i >= first_of_row), tuple(i for i in axes if i < first_of_row)
    for some in (rows, rest):
        y_bar = OPS["sum"](y_bar, some, 1) if some else y_bar
    return reshape(y_bar, x.shape)


def _repeat_examples(size: Any, mapped: Any, x: Any, shape: Any) -> Any:
    ones = (1,) * (len(shape) - x.ndim + 1)
    return broadcast_to(reshape(x, (size, *ones, *x.shape[1:])) if ones else x, (size, *shape))


broadcast_to: Op = define(
    "broadcast_to",
    simplified=same_shape,
    rearranges=True,
    formula="repeated along axes of size 1 and new leading axes",
    reference=np.broadcast_to,
    jvp="linear",
    transpose=_sum_to,
    sparsity="moves",
    vmap=_repeat_examples,
    samples=[
        Sample((real(3),), ((2, 3),)),
        Sample((real(2, 1),), ((2, 3),)),
        Sample((real(),), ((2, 2),)),
        Sample((real(1, 3),), ((0, 3),)),
        Sample((real(2, 3),), ((2, 3),)),
    ],
    invalid=[Invalid((real(3),), ((2, 4),), "ShapeError", "broadcast_to")],
)


def _cast_back(y_bar: Any, x: Any, dtype: int) -> Any:
    real_part_only = y_bar.dtype.kind == "c" and x.dtype.kind != "c"
    return cast(OPS["real"](y_bar) if real_part_only else y_bar, x.dtype.code)


define(
    "bitcast",
    formula="the same bits as numbers of another dtype",
    reference=lambda x, dtype: x.view(DTYPES[dtype].name),
    vmap="elementwise",
    samples=[
        Sample((index(2, 3, below=2**62),), (12,), gradients=False),
        Sample((index(3, below=100),), (8,), gradients=False),
        Sample((index(0, 3, below=100),), (8,), gradients=False),
    ],
    invalid=[Invalid((index(2, 3, below=5),), (11,), "DTypeError", "sizes of the elements differ")],
    public=False,
)
cast: Op = define(
    "cast",
    converts=True,
    taylor="linear",
    work="moving",
    simplified=same_dtype,
    formula="the same numbers in another dtype",
    jvp=lambda x_dot, y, x, dtype: cast(x_dot, dtype) if DTYPES[dtype].is_inexact else ZERO,
    transpose=_cast_back,
    vmap="elementwise",
    samples=[
        Sample((real(2, 3),), (12,)),
        Sample((real(),), (12,)),
        Sample((real(2, 3),), (14,)),
        Sample((complex(2, 3),), (14,)),
    ],
    invalid=[Invalid((complex(2, 3),), (12,), "DTypeError", "imaginary part")],
    public=False,
)
stop_gradient = define(
    "stop_gradient",
    where_zero="it lets no gradient through",
    passes_on=True,
    formula="x, through which no derivative flows",
    reference=lambda x: x,
    vmap="elementwise",
    samples=[Sample((real(2, 3),), gradients=False)],
    public=False,
)
replace_value = define(
    "replace_value",
    taylor="linear",
    passes_on=True,
    formula="the elements of `value` with the derivative of x: what a write under no_grad leaves",
    reference=lambda x, value: value,
    jvp=lambda x_dot, value_dot, y, x, value: x_dot,
    sparsity="jvp",
    vmap="elementwise",
    samples=[Sample((real(2, 3), real(2, 3)), gradients=False)],  # by design not the derivative of its value
    invalid=[Invalid((real(2, 3), real(3, 2)), (), "ShapeError", "replace_value")],
    public=False,
)
to_device: Op = define(
    "to_device",
    formula="x, on another device",
    reference=lambda x, source, target: np.copy(x),
    jvp="linear",
    transpose=lambda y_bar, x, source, target: to_device(y_bar, target, source),
    sparsity="same",
    vmap="elementwise",
    samples=[Sample((real(2, 3),), (0, 0))],
    public=False,
)


contiguous = define(
    "contiguous",
    work="moving",
    formula="a packed copy",
    reference=np.ascontiguousarray,
    jvp="linear",
    transpose=lambda y_bar, x: y_bar,
    sparsity="same",
    vmap="elementwise",
    samples=[Sample((real(2, 3),))],
    public=False,
)


def _np_slice(x: Any, starts: Any, sizes: Any, steps: Any) -> Any:
    index = [np.arange(n) * step + start for start, n, step in zip(starts, sizes, steps)]
    return x[np.ix_(*index)] if index else x


def _slice_transpose(y_bar: Any, x: Any, starts: Any, sizes: Any, steps: Any) -> Any:
    if tuple(sizes) == tuple(x.shape):  # every element, in another order: turned back by the same steps
        return slice(y_bar, starts, sizes, steps)
    return unslice(y_bar, x.shape, starts, steps)


slice: Op = define(
    "slice",
    where_zero="no element of its operand that matters was selected",
    work="moving",
    written_back=lambda emit, base, part, attrs: emit(slice_update, (base, part), (attrs[0], attrs[2])),
    formula="x[start + step·i] along every axis",
    reference=_np_slice,
    jvp="linear",
    transpose=_slice_transpose,
    sparsity="moves",
    vmap=lambda size, mapped, x, starts, sizes, steps: slice(x, (0, *starts), (size, *sizes), (1, *steps)),
    samples=[
        Sample((real(4, 5),), ((1, 0), (2, 3), (1, 2))),
        Sample((real(6),), ((5,), (3,), (-2,))),
        Sample((real(4, 1, 3),), ((3, 0, 0), (4, 1, 3), (-1, 7, 1))),
        Sample((real(4, 5),), ((0, 0), (0, 5), (1, 1))),
    ],
    invalid=[Invalid((real(4),), ((3,), (4,), (1,)), "IndexRangeError", "slice")],
    public=False,
)


def _np_unslice(x: Any, shape: Any, starts: Any, steps: Any) -> Any:
    y = np.zeros(shape, x.dtype)
    y[np.ix_(*(np.arange(n) * step + start for start, n, step in zip(starts, x.shape, steps)))] = x
    return y


unslice: Op = define(
    "unslice",
    work="moving",
    formula="zeros with x at start + step·i along every axis",
    reference=_np_unslice,
    jvp="linear",
    transpose=lambda y_bar, x, shape, starts, steps: slice(y_bar, starts, x.shape, steps),
    sparsity="moves",
    vmap=lambda size, mapped, x, shape, starts, steps: unslice(x, (size, *shape), (0, *starts), (1, *steps)),
    samples=[Sample((real(2, 3),), ((4, 6), (1, 0), (1, 2))), Sample((real(3),), ((6,), (5,), (-2,)))],
    public=False,
)


def _np_slice_update(x: Any, v: Any, starts: Any, steps: Any) -> Any:
    y = x.copy()
    y[np.ix_(*(np.arange(n) * step + start for start, n, step in zip(starts, v.shape, steps)))] = v
    return y


slice_update: Op = define(
    "slice_update",
    work="moving",
    formula="x with v written at start + step·i along every axis",
    reference=_np_slice_update,
    jvp="linear",
    transpose=(
        lambda y_bar, x, v, starts, steps: slice_update(y_bar, zeros_like(v), starts, steps),
        lambda y_bar, x, v, starts, steps: slice(y_bar, starts, v.shape, steps),
    ),
    sparsity="moves",
    vmap=lambda size, mapped, x, v, starts, steps: slice_update(
        *all_mapped(size, mapped, (x, v)), (0, *starts), (1, *steps)
    ),
    samples=[Sample((real(4, 6), real(2, 3)), ((1, 0), (1, 2)))],
    public=False,
)


def zeros_like(x: Any) -> Any:
    """Zeros of x's shape and dtype."""
    return create(full, (x.shape, x.dtype.code, 0.0))


def repeated_zeros(x: Any) -> Any:
    """Zeros of x's shape and dtype that take no memory: one number, for all places. For kernels that read strides."""
    return broadcast_to(create(full, ((1,) * x.ndim, x.dtype.code, 0.0)), x.shape)


def _concat_transpose(y_bar: Any, which: list[int], xs: list[Any], axis: int) -> list[Any]:
    """The cotangents of some operands; of all in one pass, as each begins where those before it end."""
    wanted, x_bars, start = set(which), [], 0
    for k, x in enumerate(xs):
        if k in wanted:
            starts = tuple(start if i == axis else 0 for i in range(x.ndim))
            x_bars.append(slice(y_bar, starts, x.shape, (1,) * x.ndim))
        start = start + x.shape[axis]
    return x_bars


concat = define(
    "concat",
    work="moving",
    formula="tensors one after the other along an axis",
    reference=lambda *a: np.concatenate(a[:-1], axis=a[-1]),
    jvp="linear",
    transpose=_concat_transpose,
    sparsity="moves",
    vmap="axes",
    samples=[
        Sample((real(2, 3), real(1, 3)), (0,)),
        Sample((real(2, 3), real(2, 0), real(2, 2)), (1,)),
    ],
    invalid=[Invalid((real(2, 3), real(2, 4)), (0,), "ShapeError", "concat")],
    public=False,
)


as_strided: Op = define(
    "as_strided",
    work="moving",
    written_back=lambda emit, base, part, attrs: emit(as_strided_update, (base, part), attrs),
    formula="elements offset + Σ iₖ·strideₖ of the packed input",
    reference=lambda x, shape, strides, offset: np.lib.stride_tricks.as_strided(
        x.ravel()[offset[0] :], shape, [s * x.itemsize for s in strides]
    ),
    jvp="linear",
    transpose=lambda y_bar, x, shape, strides, offset: as_strided_add(y_bar, x.shape, strides, offset),
    sparsity="moves",
    vmap=lambda size, mapped, x, shape, strides, offset: as_strided(
        x, (size, *shape), (count(x.shape[1:]), *strides), offset
    ),
    samples=[Sample((real(4, 3),), ((2, 2), (3, 1), (1,))), Sample((real(6),), ((4, 2), (1, 1), (0,)))],
    public=False,
)


def _np_strided_add(x: Any, shape: Any, strides: Any, offset: Any) -> Any:
    y = np.zeros(shape, x.dtype)
    for i in np.ndindex(*x.shape):
        y.flat[offset[0] + int(np.dot(i, strides))] += x[i]
    return y


as_strided_add: Op = define(
    "as_strided_add",
    work="moving",
    formula="zeros to which x is added at offset + Σ iₖ·strideₖ",
    reference=_np_strided_add,
    jvp="linear",
    transpose=lambda y_bar, x, shape, strides, offset: as_strided(y_bar, x.shape, strides, offset),
    sparsity="adds",
    vmap=lambda size, mapped, x, shape, strides, offset: as_strided_add(
        x, (size, *shape), (count(shape), *strides), offset
    ),
    samples=[Sample((real(2, 2),), ((4, 3), (3, 1), (1,))), Sample((real(4, 2),), ((6,), (1, 1), (0,)))],
    public=False,
)


def _np_strided_update(x: Any, v: Any, shape: Any, strides: Any, offset: Any) -> Any:
    y = x.copy()
    for i in np.ndindex(*v.shape):
        y.flat[offset[0] + int(np.dot(i, strides))] = v[i]
    return y


def _update_examples(size: Any, mapped: Any, x: Any, v: Any, shape: Any, strides: Any, offset: Any) -> Any:
    x, v = all_mapped(size, mapped, (x, v))
    return as_strided_update(x, v, (size, *shape), (count(x.shape[1:]), *strides), offset)


as_strided_update: Op = define(
    "as_strided_update",
    where_zero="all of its elements were overwritten",
    work="moving",
    formula="x with v written at offset + Σ iₖ·strideₖ",
    reference=_np_strided_update,
    jvp="linear",
    transpose=(
        lambda y_bar, x, v, shape, strides, offset: as_strided_update(y_bar, zeros_like(v), shape, strides, offset),
        lambda y_bar, x, v, shape, strides, offset: as_strided(y_bar, v.shape, strides, offset),
    ),
    sparsity="moves",
    vmap=_update_examples,
    samples=[Sample((real(4, 3), real(2, 2)), ((2, 2), (3, 1), (1,)))],
    public=False,
)
triu: Op = define(
    "triu",
    work="moving",
    formula="the elements on and above diagonal k",
    reference=np.triu,
    jvp="linear",
    transpose=lambda y_bar, x, k: triu(y_bar, k),
    sparsity="moves",
    vmap="leading",
    samples=[Sample((real(3, 4),), (0,)), Sample((real(2, 3, 3),), (1,))],
    invalid=[Invalid((real(3),), (0,), "ShapeError", "triu")],
    public=False,
)
tril: Op = define(
    "tril",
    work="moving",
    formula="the elements on and below diagonal k",
    reference=np.tril,
    jvp="linear",
    transpose=lambda y_bar, x, k: tril(y_bar, k),
    sparsity="moves",
    vmap="leading",
    samples=[Sample((real(3, 4),), (0,)), Sample((real(2, 3, 3),), (-1,))],
    public=False,
)

# ------------------------------------------------------------------------------------------ values from nothing

full = define(
    "full",
    fills_with=lambda shape, dtype, value: value,
    formula="a tensor of one value",
    samples=[Sample((), ((2, 3), 11, 1.5), gradients=False)],
    reference=lambda shape, dtype, value: np.full(shape, value, DTYPES[dtype].name),
    public=False,
)
iota = define(
    "iota",
    formula="start, start + step, …",
    samples=[Sample((), ((5,), 11, 1.0, 0.5), gradients=False)],
    reference=lambda shape, dtype, start, step: (start + step * np.arange(shape[0])).astype(DTYPES[dtype].name),
    public=False,
)
size_scalar = define(
    "size_scalar",
    formula="a size as a number",
    samples=[Sample((), ((7,), 11), gradients=False)],
    reference=lambda size, dtype: np.asarray(size[0], DTYPES[dtype].name),
    public=False,
)
