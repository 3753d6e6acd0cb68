"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.ops.simplifications import Producers, producer
from wengert.ops.sparsity import matrix_product
from wengert.ops.tangents import conj
from wengert.ops.work import of_matrices
from wengert.passes.example_axis import all_mapped
from wengert.program.ir import Instruction, is_one
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Invalid, Sample, real


def _reference(a: Any, b: Any, transpose_a: int, transpose_b: int) -> Any:
    return (np.swapaxes(a, -1, -2) if transpose_a else a) @ (np.swapaxes(b, -1, -2) if transpose_b else b)


def _left(y_bar: Any, a: Any, b: Any, transpose_a: int, transpose_b: int) -> Any:
    if transpose_a:
        return matmul(conj(b), y_bar, transpose_b, 1)
    return matmul(y_bar, conj(b), 0, 1 - transpose_b)


def _right(y_bar: Any, a: Any, b: Any, transpose_a: int, transpose_b: int) -> Any:
    if transpose_b:
        return matmul(y_bar, conj(a), 1, transpose_a)
    return matmul(conj(a), y_bar, 1 - transpose_a, 0)


def _of_examples(size: Any, mapped: Any, a: Any, b: Any, transpose_a: int, transpose_b: int) -> Any:
    """One product where one matrix is the same for all examples: the rows of the others lie one below the other."""
    reshape = OPS["reshape"]
    first, second = mapped
    if first and not second and a.ndim == 3 and (not transpose_a or is_one(a.shape[1])):
        rows = a.shape[2 if transpose_a else 1]
        y = matmul(reshape(a, (size * rows, a.shape[1 if transpose_a else 2])), b, 0, transpose_b)
        return reshape(y, (size, rows, y.shape[1]))
    if second and not first and b.ndim == 3 and (transpose_b or is_one(b.shape[2])):  # (a bᵀ)ᵀ = b aᵀ
        columns = b.shape[1 if transpose_b else 2]
        flat = reshape(b, (size * columns, b.shape[2 if transpose_b else 1]))
        y = matmul(flat, a, 0, 1 - transpose_a)
        return OPS["permute"](reshape(y, (size, columns, y.shape[1])), (0, 2, 1))
    return matmul(*all_mapped(size, mapped, (a, b)), transpose_a, transpose_b)


def _without_transposes(i: Instruction, producers: Producers) -> Instruction:
    """A product of transposed matrices by the flags: nothing is copied, and gradients have the layout of the parameter."""
    inputs, flags = list(i.inputs), list(i.attrs)
    for k, x in enumerate(i.inputs):
        before = producer(x, producers)
        if before is not None and before.op is OPS["permute"] and _swaps_last_two(before.attrs[0]):
            inputs[k] = before.inputs[0]
            flags[k] = 1 - flags[k]
    return i if flags == list(i.attrs) else Instruction(i.op, tuple(inputs), tuple(flags), i.outputs, i.origin)


def _swaps_last_two(axes: tuple[int, ...]) -> bool:
    n = len(axes)
    return n >= 2 and tuple(axes) == (*range(n - 2), n - 1, n - 2)


matmul: Op = define(
    "matmul",
    where_zero="the other factor is zero everywhere",
    work=of_matrices,
    simplified=_without_transposes,
    precision="low",
    formula="Σₖ aᵢₖ bₖⱼ, with flags for transposed operands",
    reference=_reference,
    jvp="bilinear",
    transpose=(_left, _right),
    sparsity=matrix_product,
    vmap=_of_examples,
    samples=[
        Sample((real(2, 3), real(3, 4)), (0, 0)),
        Sample((real(3, 2), real(3, 4)), (1, 0)),
        Sample((real(2, 3), real(4, 3)), (0, 1)),
        Sample((real(3, 2), real(4, 3)), (1, 1)),
        Sample((real(5, 2, 3), real(5, 3, 1)), (0, 0)),
        Sample((real(2, 0), real(0, 3)), (0, 0)),
    ],
    invalid=[Invalid((real(2, 3), real(4, 5)), (0, 0), "ShapeError", "matmul")],
    expensive=True,
    public=False,
)
