"""Simpler forms of instructions, for the field `simplified` of the ops' records.

Each is a function of an instruction and of what makes its operands. It returns the operand that the result equals, or an
instruction: another one for the same result, or the one that it got.
"""

from __future__ import annotations

from collections.abc import Mapping

from wengert._core import same_sizes
from wengert.program.ir import Instruction, Operand, Var
from wengert.program.simplify import number_everywhere

Producers = Mapping[Var, Instruction]


def times_one(i: Instruction, producers: Producers) -> Operand | Instruction:
    """x · 1 and 1 · x."""
    for x, other in (i.inputs, i.inputs[::-1]):
        if isinstance(x, Var) and _is_one(other, producers):
            return x
    return i


def over_one(i: Instruction, producers: Producers) -> Operand | Instruction:
    """x / 1."""
    a, b = i.inputs
    return a if isinstance(a, Var) and _is_one(b, producers) else i


def same_shape(i: Instruction, producers: Producers) -> Operand | Instruction:
    """To the shape that the operand has."""
    (x,) = i.inputs
    return x if isinstance(x, Var) and same_sizes(x.type.shape, i.attrs[0]) else i


def same_dtype(i: Instruction, producers: Producers) -> Operand | Instruction:
    """To the dtype that the operand has."""
    (x,) = i.inputs
    return x if isinstance(x, Var) and x.type.dtype == i.attrs[0] else i


def same_value(i: Instruction, producers: Producers) -> Operand | Instruction:
    """The operand itself. Values never change: whoever writes to one of the two copies first."""
    (x,) = i.inputs
    return x if isinstance(x, Var) else i


def no_axes(i: Instruction, producers: Producers) -> Operand | Instruction:
    """A reduction over no axes."""
    return i if i.attrs[0] else i.inputs[0]


def undone(i: Instruction, producers: Producers) -> Operand | Instruction:
    """Of an op that is its own inverse."""
    before = producer(i.inputs[0], producers)
    return before.inputs[0] if before is not None and before.op is i.op else i


def permuted_back(i: Instruction, producers: Producers) -> Operand | Instruction:
    """No permutation of the axes, or the inverse of the one before."""
    (x,), (axes,) = i.inputs, i.attrs
    unmoved = tuple(range(len(axes)))
    if tuple(axes) == unmoved:
        return x
    before = producer(x, producers)
    if before is not None and before.op is i.op and tuple(before.attrs[0][a] for a in axes) == unmoved:
        return before.inputs[0]
    return i


def _is_one(x: Operand, producers: Producers) -> bool:
    """Whether it is a real 1: a complex one is multiplied by, because it turns infinities into NaN."""
    number = number_everywhere(x, producers)
    return not isinstance(number, complex) and number == 1.0


def producer(x: Operand, producers: Producers) -> Instruction | None:
    """The instruction that makes an operand."""
    return producers.get(x) if isinstance(x, Var) else None
