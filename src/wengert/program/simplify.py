"""Simplification: common subexpressions, identities, dead code. Nothing is reassociated, so results keep their bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wengert._core import attr_key, same_sizes
from wengert.program.ir import Const, Instruction, Operand, Program, Var, remove_dead, verified


def simplify(program: Program) -> Program:
    """An equivalent, simpler program."""
    replaced: dict[Var, Operand] = {}  # replacements are final: never replaced themselves
    producers: dict[Var, Instruction] = {}
    seen: dict[Any, Instruction] = {}
    body: list[Instruction] = []
    for original in program.instructions:
        i = _with_inputs(original, replaced)
        if i.op.name == "matmul":
            i = _fold_transposes(i, producers)
        identity = _IDENTITIES.get(i.op.name)
        same = identity(i, producers) if identity is not None else None
        if same is not None:
            replaced[i.outputs[0]] = same
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
    return any(i.op.passes_on or any(map(read_by_derivatives, i.regions())) for i in program.instructions)


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
    if regions := i.regions():
        return (i.op.name, *map(id, regions), *operands)
    return (i.op.name, attr_key(i.attrs) if i.attrs else None, *operands)


def _is(x: Operand, value: float) -> bool:
    return isinstance(x, Const) and not isinstance(x.value, complex) and x.value == value


def _times_one(i: Instruction, producers: dict[Var, Instruction]) -> Operand | None:
    a, b = i.inputs
    if isinstance(a, Var) and _is_one(b, producers):
        return a
    commutes = i.op.name in ("mul", "scale", "strong_product")  # a tangent of one is not zero
    return b if commutes and isinstance(b, Var) and _is_one(a, producers) else None


def _is_one(x: Operand, producers: dict[Var, Instruction]) -> bool:
    """Whether every element is known to be 1, as in the cotangent that a gradient starts from."""
    made = producers.get(x) if isinstance(x, Var) else None
    while made is not None and made.op.name in ("broadcast_to", "reshape"):
        made = producers.get(made.inputs[0])  # type: ignore[arg-type]
    return _is(x, 1.0) or (made is not None and made.op.name == "full" and made.attrs[2] == 1.0)


def _same_shape(i: Instruction, producers: dict[Var, Instruction]) -> Operand | None:
    (x,) = i.inputs
    return x if isinstance(x, Var) and same_sizes(x.type.shape, i.attrs[0]) else None


def _same_dtype(i: Instruction, producers: dict[Var, Instruction]) -> Operand | None:
    (x,) = i.inputs
    return x if isinstance(x, Var) and x.type.dtype == i.attrs[0] else None


def _same_value(i: Instruction, producers: dict[Var, Instruction]) -> Operand | None:
    # Values never change, so returning an input unchanged is safe: whoever writes to one of the two copies first.
    (x,) = i.inputs
    return x if isinstance(x, Var) else None


def _no_axes(i: Instruction, producers: dict[Var, Instruction]) -> Operand | None:
    return i.inputs[0] if not i.attrs[0] else None


def _permuted_back(i: Instruction, producers: dict[Var, Instruction]) -> Operand | None:
    (x,), (axes,) = i.inputs, i.attrs
    if tuple(axes) == tuple(range(len(axes))):
        return x
    before = producers.get(x) if isinstance(x, Var) else None
    if before is not None and before.op.name == "permute":
        inner = before.attrs[0]
        if tuple(inner[a] for a in axes) == tuple(range(len(axes))):
            return before.inputs[0]
    return None


def _negated_back(i: Instruction, producers: dict[Var, Instruction]) -> Operand | None:
    (x,) = i.inputs
    before = producers.get(x) if isinstance(x, Var) else None
    return before.inputs[0] if before is not None and before.op.name == "neg" else None


_IDENTITIES: dict[str, Callable[[Instruction, dict[Var, Instruction]], Operand | None]] = {
    "mul": _times_one,
    "div": _times_one,
    "scale": _times_one,
    "unscale": _times_one,
    "strong_product": _times_one,
    "broadcast_to": _same_shape,
    "reshape": _same_shape,
    "cast": _same_dtype,
    "copy": _same_value,
    "sum": _no_axes,
    "permute": _permuted_back,
    "neg": _negated_back,
}


def _fold_transposes(i: Instruction, producers: dict[Var, Instruction]) -> Instruction:
    """Turn a product of transposed matrices into a product with flags: nothing is copied, and gradients have the layout of
    the parameter."""
    inputs, flags = list(i.inputs), list(i.attrs)
    for k in range(2):
        x = inputs[k]
        before = producers.get(x) if isinstance(x, Var) else None
        if before is not None and before.op.name == "permute" and _swaps_last_two(before.attrs[0]):
            inputs[k] = before.inputs[0]
            flags[k] = 1 - flags[k]
    return Instruction(i.op, tuple(inputs), tuple(flags), i.outputs, i.origin)


def _swaps_last_two(axes: tuple[int, ...]) -> bool:
    n = len(axes)
    return n >= 2 and tuple(axes) == (*range(n - 2), n - 1, n - 2)
