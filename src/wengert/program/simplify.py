"""Simplification: common subexpressions, identities, dead code. Nothing is reassociated, so results keep their bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wengert._core import attr_key
from wengert.program.ir import Const, Instruction, Operand, Program, Var, remove_dead, verified
from wengert.program.nested import innermost_first


def simplify(program: Program) -> Program:
    """An equivalent, simpler program."""
    replaced: dict[Var, Operand] = {}  # replacements are final: never replaced themselves
    producers: dict[Var, Instruction] = {}
    seen: dict[Any, Instruction] = {}
    body: list[Instruction] = []
    for original in program.instructions:
        i = _with_inputs(original, replaced)
        if i.op.simplified is not None:
            simpler = i.op.simplified(i, producers)
            if isinstance(simpler, Instruction):
                i = simpler
            elif isinstance(simpler, tuple):
                *before, i = simpler
                body += before
            else:
                replaced[i.outputs[0]] = simpler
                continue
        first = seen.setdefault(_key(i), i)
        if first is not i:
            replaced.update(zip(i.outputs, first.outputs))
            continue
        body.append(i)
        for o in i.outputs:
            producers[o] = i
    outputs = [replaced.get(o, o) if isinstance(o, Var) else o for o in program.outputs]
    return verified(Program(program.inputs, remove_dead(body, outputs), outputs))


def _with_inputs(i: Instruction, replaced: dict[Var, Operand]) -> Instruction:
    """The instruction with its operands replaced; the same object if none is."""
    for x in i.inputs:
        if isinstance(x, Var) and x in replaced:
            inputs = [replaced.get(x, x) if isinstance(x, Var) else x for x in i.inputs]
            return Instruction(i.op, tuple(inputs), i.attrs, i.outputs, i.origin)
    return i


def read_by_derivatives(program: Program) -> bool:
    """Whether an instruction, here or in a nested program, affects only derivatives."""
    programs = [program, *innermost_first(program.instructions)]
    return any(i.op.passes_on for p in programs for i in p.instructions)


def without_stops(program: Program) -> Program:
    """The program without `stop_gradient` and `replace_value`, which only affect derivatives, for running it."""
    if not any(i.op.passes_on for i in program.instructions):
        return program
    replaced: dict[Var, Operand] = {}
    body = []
    for original in program.instructions:
        i = _with_inputs(original, replaced)
        if i.op.passes_on:
            replaced[i.outputs[0]] = i.inputs[-1]
        else:
            body.append(i)
    outputs = [replaced.get(o, o) if isinstance(o, Var) else o for o in program.outputs]
    return Program(program.inputs, remove_dead(body, outputs), outputs)


def _key(i: Instruction) -> Any:
    """A key that is equal for instructions that compute the same."""
    operands = [x if isinstance(x, Var) else (repr(x.value), x.dtype) for x in i.inputs]
    if i.regions():
        others = tuple(v for a, v in zip(i.op.attrs, i.attrs) if a.kind != "programs")
        return (i.op.name, i.regions(), attr_key(others), *operands)
    return (i.op.name, attr_key(i.attrs) if i.attrs else None, *operands)


def number_everywhere(x: Operand, producers: Mapping[Var, Instruction]) -> complex | None:
    """The number that every element is, as in the cotangent of ones that a gradient starts from; None if not known."""
    made = producers.get(x) if isinstance(x, Var) else None
    while made is not None and made.op.rearranges:
        x = made.inputs[0]
        made = producers.get(x) if isinstance(x, Var) else None
    if isinstance(x, Const):
        return x.value
    return None if made is None or made.op.fills_with is None else made.op.fills_with(*made.attrs)
