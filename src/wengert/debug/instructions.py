"""What the instructions of a program compute: every value, for those who look for one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wengert import _core
from wengert.modes import no_grad
from wengert.passes.evaluate import apply
from wengert.program.ir import Const, Program, Var, resized_attrs


def values_of(program: Program, inputs: Sequence[Any], leaves: list[Any], sizes: list[Any]) -> dict[Var, Any]:
    """All values of a program on these inputs; `leaves` are the sizes that it reads, with numbers."""
    env: dict[Var, Any] = dict(zip(program.inputs, inputs))
    with no_grad():
        for i in program.instructions:
            operands = [x.value if isinstance(x, Const) else env[x] for x in i.inputs]
            attrs = resized_attrs(i, lambda shape: tuple(_core.substitute_sizes(shape, leaves, sizes)))
            outputs = apply(i.op, operands, attrs)
            env.update(zip(i.outputs, (outputs,) if i.op.n_outputs == 1 else outputs))
    return env
