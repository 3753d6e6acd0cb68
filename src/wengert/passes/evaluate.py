"""Running a program op by op through dispatch: on recorded, dual, traced or batched tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wengert import _core
from wengert.program.ir import Const, Program, Shape, Var, resized_attrs
from wengert.program.nested import Task, finished
from wengert.program.trace import create, filled, tracing
from wengert.registry.record import Op


def apply(op: Op, operands: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """The outputs of an op on tensors of any level."""
    if not operands:
        return create(op, attrs)
    cast_by = _core.set_autocast(None)  # instructions keep their precision
    try:
        return op(operands, *attrs) if op.n_inputs < 0 else op(*operands, *attrs)
    finally:
        if cast_by is not None:
            _core.set_autocast(cast_by)


def at_sizes(shape: Shape, leaves: list[Any], sizes: list[Any]) -> Shape:
    """A shape where these leaves have these sizes."""
    return tuple(_core.substitute_sizes(shape, leaves, sizes)) if leaves else shape


def run_now(operands: Sequence[Any]) -> bool:
    """Whether an op that holds programs runs on these operands, and does not become an instruction of a trace."""
    trace = tracing()
    return all(x._plain for x in operands) and (trace is None or not trace.captures)


def evaluate(program: Program, inputs: Sequence[Any], leaves: list[Any], sizes: list[Any]) -> list[Any]:
    """The program's outputs (None for symbolic zeros) on these inputs; `leaves` are the sizes it reads, with values."""
    return finished(evaluating(program, inputs, leaves, sizes))


def evaluating(program: Program, inputs: Sequence[Any], leaves: list[Any], sizes: list[Any]) -> Task[list[Any]]:
    """The task of `evaluate`."""
    env: dict[Var, Any] = dict(zip(program.inputs, inputs))
    for i in program.instructions:
        operands = [x.value if isinstance(x, Const) else env[x] for x in i.inputs]
        if i.op.evaluated is not None and run_now(operands):
            env.update(zip(i.outputs, (yield i.op.evaluated(operands, i.attrs, leaves, sizes))))
            continue
        attrs = resized_attrs(i, lambda shape: at_sizes(shape, leaves, sizes)) if leaves else i.attrs
        outputs = apply(i.op, operands, attrs)
        env.update(zip(i.outputs, (outputs,) if i.op.n_outputs == 1 else outputs))
    return [_output(env, o) for o in program.outputs]


def _output(env: dict[Var, Any], o: Any) -> Any:
    if o is None:
        return None
    if isinstance(o, Const):
        return filled((), o.value, o.dtype)
    return env[o]
