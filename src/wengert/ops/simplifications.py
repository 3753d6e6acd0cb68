"""Simpler forms of instructions, for the field `simplified` of the ops' records.

Each is a function of an instruction and of what makes its operands. It returns the operand that the result equals, or an
instruction: another one for the same result, or the one that it got. A tuple of instructions ends with that for the result.
"""

from __future__ import annotations

from collections.abc import Mapping

from wengert._core import same_sizes
from wengert.program.ir import Const, Instruction, Operand, Var
from wengert.program.simplify import number_everywhere
from wengert.registry.record import OPS

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


def joined_slices(i: Instruction, producers: Producers) -> Instruction | tuple[Instruction, Instruction]:
    """A sum of slices that lie side by side and cover everything, as of the derivative by what was split: instead of zeros
    around each, what they are joined to. Adding 0 turns -0 into 0, as the zeros would have done."""
    slices = _slices_of(i, producers)
    if len(slices) < 2:
        return i
    shape, first, _ = slices[0].attrs
    if any(n != 1 for s in slices for n in s.attrs[2]) or not all(same_sizes(s.attrs[0], shape) for s in slices):
        return i
    axes = [a for a in range(len(shape)) if any(s.attrs[1][a] != first[a] for s in slices)]
    if len(axes) != 1:
        return i
    (axis,) = axes
    slices.sort(key=lambda s: s.attrs[1][axis])
    begin = 0
    for s in slices:
        (part,) = s.inputs
        if isinstance(part, Const):
            return i
        x = part.type.shape
        if tuple(s.attrs[1]) != tuple(begin if a == axis else 0 for a in range(len(shape))):
            return i
        if not same_sizes((*x[:axis], *x[axis + 1 :]), (*shape[:axis], *shape[axis + 1 :])):
            return i
        begin = begin + x[axis]
    if not same_sizes((begin,), (shape[axis],)):
        return i
    joined = Var(i.outputs[0].type)
    return (
        Instruction(OPS["concat"], tuple(s.inputs[0] for s in slices), (axis,), (joined,), i.origin),
        Instruction(i.op, (joined, Const(0.0, i.outputs[0].type.dtype)), (), i.outputs, i.origin),
    )


_MOST_SLICES = 64  # so that a sum of very many terms is not searched from each of its additions


def _slices_of(x: Instruction, producers: Producers) -> list[Instruction]:
    """The terms of a sum, if all of them are slices among zeros."""
    found, terms = [], [x]
    while terms:
        i = terms.pop()
        if i.op is not x.op:
            found.append(i)
            continue
        for v in i.inputs:
            made = producer(v, producers)
            if made is None or not (made.op is x.op or _is_fixed_slice(made)) or len(found) == _MOST_SLICES:
                return []
            terms.append(made)
    return found


def _is_fixed_slice(i: Instruction) -> bool:
    return i.op is OPS["unslice"] and all(isinstance(n, int) for n in i.attrs[1])


def _is_one(x: Operand, producers: Producers) -> bool:
    """Whether it is a real 1: a complex one is multiplied by, because it turns infinities into NaN."""
    number = number_everywhere(x, producers)
    return not isinstance(number, complex) and number == 1.0


def producer(x: Operand, producers: Producers) -> Instruction | None:
    """The instruction that makes an operand."""
    return producers.get(x) if isinstance(x, Var) else None
