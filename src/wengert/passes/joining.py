"""Joins the derivative programs of a repeated graph into one program that replaces the walk and gives the same bits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from wengert import _core
from wengert.passes.variants import at_sizes
from wengert.program.ir import Const, Instruction, Operand, Program, Shape, Type, Var
from wengert.program.lower import lower
from wengert.program.simplify import simplify
from wengert.program.sizes import own_symbols
from wengert.registry.record import OPS


def join(inputs: list[tuple[int, Shape]], steps: Sequence[_core.JoinedStep], n_leaves: int) -> Any:
    """The executable program of a graph's backward pass, for the core; None if it should be walked instead.

    It computes what the walk computes, sums of cotangents in the walk's order, so the bits are the same.
    """
    try:
        with own_symbols():
            return _lowered(inputs, steps, n_leaves)
    except Exception as e:  # the walk computes the same, only slower
        warnings.warn(f"backward: the derivative programs were not joined ({e})", RuntimeWarning, stacklevel=2)
        return None


def _lowered(inputs: list[tuple[int, Shape]], steps: Sequence[_core.JoinedStep], n_leaves: int) -> Any:
    _core.open_guards()
    try:
        program = joined(inputs, steps, n_leaves)
        executable = None if program is None else lower(simplify(program))
    finally:
        guards = _core.close_guards()
    return None if guards else executable  # a program with guards on random streams would never be reused


def joined(inputs: list[tuple[int, Shape]], steps: Sequence[_core.JoinedStep], n_leaves: int) -> Program | None:
    """The program from the seed and the saved values to the gradients of the leaves (None if only zeros arrive there); or
    None if the graph should be walked instead."""
    variables = [Var(Type(dtype, shape)) for dtype, shape in inputs]
    body: list[Instruction] = []
    bars: dict[tuple[int, int], Operand] = {(0, 0): variables[0]}  # by step or leaf, and output
    for k, step in enumerate(steps):
        arrived = [bars.pop((k, output), None) for output in range(step.n_outputs)]
        if all(bar is None for bar in arrived):
            continue
        cotangents = [bar for bar in arrived if bar is not None]
        if len(cotangents) < len(arrived):
            return None  # the walk runs a variant for just the cotangents that are present
        made = _append(body, step, [*cotangents, *(variables[s] for s in step.saved)])
        for target, bar in zip(step.edges, made):
            if target.to == _core.NOWHERE or bar is None:
                continue
            at = (target.to, target.output)
            bars[at] = bar if at not in bars else _sum(body, bars[at], bar)
    return Program(variables, body, [bars.get((~k, 0)) for k in range(n_leaves)])


def _append(body: list[Instruction], step: _core.JoinedStep, operands: list[Operand]) -> list[Operand | None]:
    """Append a step's program on these operands and return its results."""
    program = at_sizes(step.source, [_type_of(x) for x in operands], step.sizes, step.first_size)
    known: dict[Any, Operand] = dict(zip(program.inputs, operands))
    for i in program.instructions:
        inputs = tuple(known.get(x, x) if isinstance(x, Var) else x for x in i.inputs)
        body.append(Instruction(i.op, inputs, i.attrs, i.outputs, i.origin))
    results: list[Operand | None] = []
    for o in program.outputs:
        if isinstance(o, Const):
            o = _full(body, Type(o.dtype, ()), o.value)
        results.append(known.get(o, o) if isinstance(o, Var) else o)
    return results


def _type_of(x: Operand) -> tuple[int, Shape]:
    assert isinstance(x, Var)
    return x.type.dtype, x.type.shape


def _sum(body: list[Instruction], x: Operand, y: Operand) -> Var:
    assert isinstance(x, Var)
    total = Var(x.type)
    body.append(Instruction(OPS["add"], (x, y), (), (total,)))
    return total


def _full(body: list[Instruction], type_: Type, value: Any) -> Var:
    made = Var(type_)
    body.append(Instruction(OPS["full"], (), (type_.shape, type_.dtype, value), (made,)))
    return made
