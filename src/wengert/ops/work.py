"""How many products and sums an instruction of matrix products takes, by the example sizes: the field `work` of records."""

from __future__ import annotations

import math

from wengert.program.ir import Instruction, Var


def shape_of(i: Instruction, k: int) -> tuple[int, ...]:
    """The shape of an operand."""
    x = i.inputs[k]
    return x.type.example_shape() if isinstance(x, Var) else ()


def of_matrices(i: Instruction, made: int) -> float:
    """A product of matrices."""
    return made * shape_of(i, 0)[-2 if i.attrs[0] else -1]


def of_kernel(i: Instruction, images: int) -> float:
    """Convolution: each element of the images meets each element of one kernel of its channel."""
    kernel = shape_of(i, 1)
    return images * math.prod(kernel) / max(1, kernel[0])


def of_transposed_kernel(i: Instruction, made: int) -> float:
    """The convolution whose result is what is given here."""
    return of_kernel(i, math.prod(shape_of(i, 0)))


def of_all_kernels(i: Instruction, made: int) -> float:
    """The sums for the kernel of a convolution."""
    return made * math.prod(shape_of(i, 1)) / max(1, i.outputs[0].type.example_shape()[0])


def of_scores(i: Instruction, first: int, by_keys: int, by_values: int) -> float:
    """Attention: products of queries and keys, and of scores and values, this many of each. Causal attention needs half.
    Queries, keys and values are the operands from `first` on."""
    q, k, v = (shape_of(i, first + n) for n in range(3))
    scores = math.prod(q[:-1]) * k[-2]
    return scores * (by_keys * q[-1] + by_values * v[-1]) * (0.5 if i.attrs[1] else 1.0)


def of_steps(i: Instruction, *weights: int) -> float:
    """A recurrent layer: each row of each step meets these operands, weights."""
    steps, batch = i.outputs[0].type.example_shape()[:2]
    return float(steps * batch * sum(math.prod(shape_of(i, k)) for k in weights))
