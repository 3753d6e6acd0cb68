"""Convolution: one trilinear form in input, kernel and output, of which each op is the part that belongs to one of them.

T(x, w, y) = Σ y[n, o, j] · w[o, c, k] · x[n, c, j·stride + k·dilation − padding]

`conv` gives the coefficient of y, `conv_transpose` that of x, `conv_kernel` that of w. So each is bilinear, and each
one's transposes are the other two. `sizes` are the spatial sizes of the result.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from wengert.ops.shape import broadcast_to, full, reshape
from wengert.ops.sparsity import convolution
from wengert.ops.tangents import conj
from wengert.ops.work import of_all_kernels, of_kernel, of_transposed_kernel
from wengert.passes.example_axis import all_mapped, merge, unmerge
from wengert.program.trace import create
from wengert.registry.record import Op, define
from wengert.registry.samples import Invalid, Sample, real
from wengert.registry.zero import ZERO


def _terms(x: Any, w: Any, y: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Every (tap, input positions, output positions) that meet, one axis of positions per spatial axis."""
    rank = len(stride)
    for tap in itertools.product(*(range(n) for n in w[2:])):
        inside, outside = [], []
        for i in range(rank):
            j = np.arange(y[2 + i])
            at = j * stride[i] + tap[i] * dilation[i] - padding[i]
            ok = (at >= 0) & (at < x[2 + i])
            inside.append(at[ok])
            outside.append(j[ok])
        yield tap, inside, outside


def _at(a: Any, positions: list[Any]) -> Any:
    return a[np.ix_(range(a.shape[0]), range(a.shape[1]), *positions)]


def _grouped(a: Any, axis: int, groups: int) -> Any:
    shape = a.shape
    return a.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def _np_conv(x: Any, w: Any, sizes: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    y = np.zeros((x.shape[0], w.shape[0], *sizes), x.dtype)
    for tap, i, j in _terms(x.shape, w.shape, y.shape, stride, padding, dilation, groups):
        part = np.einsum("ngc...,goc->ngo...", _grouped(_at(x, i), 1, groups), _grouped(w[(..., *tap)], 0, groups))
        y[np.ix_(range(y.shape[0]), range(y.shape[1]), *j)] += part.reshape(y.shape[0], y.shape[1], *map(len, j))
    return y


def _np_conv_transpose(y: Any, w: Any, sizes: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    x = np.zeros((y.shape[0], w.shape[1] * groups, *sizes), y.dtype)
    for tap, i, j in _terms(x.shape, w.shape, y.shape, stride, padding, dilation, groups):
        part = np.einsum("ngo...,goc->ngc...", _grouped(_at(y, j), 1, groups), _grouped(w[(..., *tap)], 0, groups))
        x[np.ix_(range(x.shape[0]), range(x.shape[1]), *i)] += part.reshape(x.shape[0], x.shape[1], *map(len, i))
    return x


def _np_conv_kernel(x: Any, y: Any, sizes: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    w = np.zeros((y.shape[1], x.shape[1] // groups, *sizes), x.dtype)
    letters = "stu"[: len(sizes)]
    for tap, i, j in _terms(x.shape, w.shape, y.shape, stride, padding, dilation, groups):
        part = np.einsum(
            f"ngo{letters},ngc{letters}->goc", _grouped(_at(y, j), 1, groups), _grouped(_at(x, i), 1, groups)
        )
        w[(..., *tap)] = part.reshape(w.shape[:2])
    return w


def _samples(first: int, second: int) -> list[Sample]:
    """Operands and attributes of every kind; `first` and `second` are places among (x, w, y)."""
    shapes: list[Any] = [  # x, w, y, stride, padding, dilation, groups
        ((2, 3, 6, 5), (4, 3, 3, 2), (2, 4, 6, 4), (1, 1), (1, 0), (1, 1), 1),
        ((1, 4, 7, 9), (6, 2, 3, 3), (1, 6, 4, 4), (2, 2), (1, 1), (1, 1), 2),
        ((2, 2, 9, 8), (2, 2, 2, 3), (2, 2, 3, 5), (3, 1), (2, 0), (2, 1), 1),
        ((2, 3, 5, 4), (3, 1, 3, 3), (2, 3, 5, 4), (1, 1), (1, 1), (1, 1), 3),
        ((2, 2, 11), (3, 2, 4), (2, 3, 4), (2,), (0,), (1,), 1),
        ((1, 2, 3, 4, 5), (2, 2, 2, 1, 3), (1, 2, 2, 2, 5), (1, 2, 1), (0, 0, 1), (1, 1, 1), 1),
        ((2, 3, 4, 4), (2, 3, 1, 1), (2, 2, 4, 4), (1, 1), (0, 0), (1, 1), 1),
        ((0, 3, 4, 4), (2, 3, 3, 3), (0, 2, 2, 2), (1, 1), (0, 0), (1, 1), 1),
    ]
    third = 3 - first - second
    return [Sample((real(*s[first]), real(*s[second])), (s[third][2:], *s[3:])) for s in shapes]


def _invalid(name: str) -> list[Invalid]:
    one = ((2, 2), (1, 1), (0, 0), (1, 1), 1)
    x, w = real(2, 3, 4, 4), real(2, 3, 3, 3)
    return [
        Invalid((x, real(2, 3, 3)), one, "ShapeError", name),
        Invalid((real(3, 4), real(3, 4)), ((), (), (), (), 1), "ShapeError", name),
        Invalid((x, w), ((2, 2), (0, 1), (0, 0), (1, 1), 1), "ArgumentError", "stride must be positive"),
        Invalid((x, w), ((2, 2), (1, 1), (0, 0), (1, -1), 1), "ArgumentError", "dilation must be positive"),
        Invalid((x, w), ((2,), (1, 1), (0, 0), (1, 1), 1), "ArgumentError", "sizes must have 2 entries"),
        Invalid((x, w), ((2, 2), (1, 1), (0, 0), (1, 1), 2), "ShapeError", "does not divide"),
        Invalid((x, w), ((2, 2), (1, 1), (0, 0), (1, 1), 0), "ArgumentError", "groups must be positive"),
    ]


# Examples are merged into the batch where they share the kernel; else each has channels, and groups, of its own.


def _conv_of_examples(size: Any, mapped: Any, x: Any, w: Any, *bias: Any, groups: int, **rest: Any) -> Any:
    """The batch rule of `conv` and `conv_bias`."""
    op, attrs = (conv_bias if bias else conv), rest.values()
    if not any(mapped[1:]):
        return unmerge(op(merge(x), w, *bias, *attrs, groups), size, x.shape[1])
    parameters = all_mapped(size, mapped[1:], (w, *bias))
    n, merged = parameters[0].shape[1], [merge(p) for p in parameters]
    if not mapped[0] and groups == 1:
        return unmerge(op(x, *merged, *attrs, 1), size, n, 1)
    (x,) = all_mapped(size, mapped[:1], (x,))
    if not size:
        return _nothing(x, x.shape[1], n, rest)
    return unmerge(op(merge(x, 1), *merged, *attrs, groups * int(size)), size, n, 1)


def _nothing(like: Any, first: Any, second: Any, attrs: dict[str, Any]) -> Any:
    """The results of no examples; there are no convolutions of no groups."""
    return create(full, ((0, first, second, *attrs["sizes"]), like.dtype.code, 0.0))


def _conv_transpose_of_examples(size: Any, mapped: Any, y: Any, w: Any, *, groups: int, **rest: Any) -> Any:
    if not mapped[1]:
        return unmerge(conv_transpose(merge(y), w, *rest.values(), groups), size, y.shape[1])
    y, w = all_mapped(size, mapped, (y, w))
    if not size:
        return _nothing(y, y.shape[1], w.shape[2] * groups, rest)
    x = conv_transpose(merge(y, 1), merge(w), *rest.values(), groups * int(size))
    return unmerge(x, size, w.shape[2] * groups, 1)


def _conv_kernel_of_examples(size: Any, mapped: Any, x: Any, y: Any, *, groups: int, **rest: Any) -> Any:
    if groups == 1 and not mapped[0]:
        return unmerge(conv_kernel(x, merge(y, 1), *rest.values(), 1), size, y.shape[2])
    if groups == 1 and not mapped[1]:
        return unmerge(conv_kernel(merge(x, 1), y, *rest.values(), 1), size, x.shape[2], 1)
    x, y = all_mapped(size, mapped, (x, y))
    if not size:
        return _nothing(x, y.shape[2], x.shape[2] // groups, rest)
    return unmerge(conv_kernel(merge(x, 1), merge(y, 1), *rest.values(), groups * int(size)), size, y.shape[2])


conv: Op = define(
    "conv",
    work=of_kernel,
    precision="low",
    functions=("conv1d", "conv2d", "conv3d"),
    formula="Σ w[o, c, k] · x[n, c, j·stride + k·dilation − padding] over c and k",
    reference=_np_conv,
    jvp="bilinear",
    transpose=(
        lambda y_bar, x, w, sizes, stride, padding, dilation, groups: conv_transpose(
            y_bar, conj(w), x.shape[2:], stride, padding, dilation, groups
        ),
        lambda y_bar, x, w, sizes, stride, padding, dilation, groups: conv_kernel(
            conj(x), y_bar, w.shape[2:], stride, padding, dilation, groups
        ),
    ),
    sparsity=convolution("y", "xw"),
    vmap=_conv_of_examples,
    samples=_samples(0, 1),
    invalid=[
        *_invalid("conv"),
        Invalid((real(2, 3, 4, 4), real(2, 4, 3, 3)), ((2, 2), (1, 1), (0, 0), (1, 1), 1), "ShapeError", "channels"),
    ],
    expensive=True,
    public=False,
)
conv_transpose: Op = define(
    "conv_transpose",
    work=of_transposed_kernel,
    precision="low",
    functions=("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    formula="Σ y[n, o, j] · w[o, c, k] over o and all j, k with j·stride + k·dilation − padding at the position",
    reference=_np_conv_transpose,
    jvp="bilinear",
    transpose=(
        lambda x_bar, y, w, sizes, stride, padding, dilation, groups: conv(
            x_bar, conj(w), y.shape[2:], stride, padding, dilation, groups
        ),
        lambda x_bar, y, w, sizes, stride, padding, dilation, groups: conv_kernel(
            x_bar, conj(y), w.shape[2:], stride, padding, dilation, groups
        ),
    ),
    sparsity=convolution("x", "yw"),
    vmap=_conv_transpose_of_examples,
    samples=_samples(2, 1),
    invalid=_invalid("conv_transpose")[:5],
    expensive=True,
    public=False,
)
conv_kernel: Op = define(
    "conv_kernel",
    work=of_all_kernels,
    formula="Σ y[n, o, j] · x[n, c, j·stride + k·dilation − padding] over n and j",
    reference=_np_conv_kernel,
    jvp="bilinear",
    transpose=(
        lambda w_bar, x, y, sizes, stride, padding, dilation, groups: conv_transpose(
            conj(y), w_bar, x.shape[2:], stride, padding, dilation, groups
        ),
        lambda w_bar, x, y, sizes, stride, padding, dilation, groups: conv(
            conj(x), w_bar, y.shape[2:], stride, padding, dilation, groups
        ),
    ),
    sparsity=convolution("w", "xy"),
    vmap=_conv_kernel_of_examples,
    samples=_samples(0, 2),
    invalid=[
        *_invalid("conv_kernel")[:5],
        Invalid((real(2, 3, 4, 4), real(3, 2, 2, 2)), ((3, 3), (1, 1), (0, 0), (1, 1), 1), "ShapeError", "batch"),
    ],
    expensive=True,
    public=False,
)


def _conv_bias_jvp(x_dot: Any, w_dot: Any, b_dot: Any, y: Any, x: Any, w: Any, b: Any, **attrs: Any) -> Any:
    y_dot = ZERO if x_dot is ZERO else conv(x_dot, w, *attrs.values())
    y_dot = y_dot + (ZERO if w_dot is ZERO else conv(x, w_dot, *attrs.values()))
    if b_dot is ZERO:
        return y_dot
    return y_dot + broadcast_to(reshape(b_dot, (b.shape[0], *(1 for _ in y.shape[2:]))), y.shape)


def _np_conv_bias(x: Any, w: Any, b: Any, *attrs: Any) -> Any:
    return _np_conv(x, w, *attrs) + b.reshape(-1, *(1 for _ in attrs[0]))


conv_bias: Op = define(
    "conv_bias",
    precision="low",
    functions=("conv1d", "conv2d", "conv3d"),
    formula="conv(x, w) + b, without a pass of its own for the bias",
    reference=_np_conv_bias,
    jvp=_conv_bias_jvp,
    vmap=_conv_of_examples,
    samples=[Sample((*s.inputs, real(s.inputs[1].shape[0])), s.attrs) for s in _samples(0, 1)[:5]],
    invalid=[
        Invalid(
            (real(2, 3, 4, 4), real(2, 3, 3, 3), real(3)), ((2, 2), (1, 1), (0, 0), (1, 1), 1), "ShapeError", "bias"
        )
    ],
    expensive=True,
    public=False,
)
