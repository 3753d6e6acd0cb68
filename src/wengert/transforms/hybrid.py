"""Jacobians of programs according to a plan: forward, reverse, or cut in two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wengert import tree
from wengert.passes.evaluate import apply
from wengert.passes.example_axis import count
from wengert.program.ir import Const, Instruction, Program, Var
from wengert.registry.record import OPS
from wengert.transforms.compressed import dense_blocks
from wengert.transforms.functional import result_leaves
from wengert.transforms.regions import PartTrace, closed_over, traced_part, types_of
from wengert.transforms.schedule import Plan, between

Blocks = list[list[Any]]  # [output][input]
# f (from a tuple of tensors to a tuple) and a point → its derivatives in one mode
Differentiate = Callable[[str, Callable[[Any], Any], tuple[Any, ...]], Any]


class TracedFunction:
    """A function of tensors as a program, with the tensors that it closes over."""

    def __init__(self, f: Callable[..., Any], xs: Sequence[Any], what: str) -> None:
        def checked(*xs: Any) -> Any:
            leaves, structure = result_leaves(f(*xs), what)
            return tree.unflatten(structure, leaves)

        part = traced_part(PartTrace(f"{what}: the function"), checked, types_of(xs))
        outside = closed_over([part])
        self.program = part.program(outside)
        self.structure = part.structure
        self.n = len(xs)
        self.captured = list(outside.values())

    @property
    def sources(self) -> list[Var]:
        """The inputs that are arguments."""
        return self.program.inputs[: self.n]


def run_plan(
    program: Program,
    plan: Plan,
    sources: Sequence[Var],
    values: dict[Var, Any],
    differentiate: Differentiate,
    chunk: int | None = None,
) -> Blocks:
    """The Jacobian of a program's outputs with respect to some of its inputs, which all have values."""
    outputs: list[Any] = list(program.outputs)
    xs = [values[v] for v in sources]
    if plan.colouring is not None:
        f = _as_function(program.instructions, sources, outputs, values)
        return dense_blocks(f, xs, outputs, plan.colouring, chunk)
    if plan.mode != "mixed":
        f = _as_function(program.instructions, sources, outputs, values)
        return _rows(differentiate(plan.mode, f, tuple(xs)))
    assert plan.sides is not None
    env = dict(values)
    _run(program.instructions, env)
    cut = list(plan.values)
    first = _as_function(between(program.instructions, cut, sources), sources, cut, env)
    second = _as_function(between(program.instructions, outputs, cut), cut, outputs, env)
    before = _rows(differentiate(plan.sides[0], first, tuple(xs)))
    after = _rows(differentiate(plan.sides[1], second, tuple(env[c] for c in cut)))
    return [[_product(row, [b[k] for b in before], cut, x) for k, x in enumerate(xs)] for row in after]


def _rows(nested: Any) -> Blocks:
    return [list(row) for row in nested]


def _as_function(
    instructions: Sequence[Instruction], given: Sequence[Var], results: Sequence[Any], values: dict[Var, Any]
) -> Callable[[Any], Any]:
    """The instructions as a function of a tuple; all other values stay as they are."""

    def f(xs: Any) -> Any:
        env = {**values, **dict(zip(given, xs))}
        _run(instructions, env)
        return tuple(env[v] for v in results)

    return f


def _run(instructions: Sequence[Instruction], env: dict[Var, Any]) -> None:
    for i in instructions:
        outputs = apply(i.op, [x.value if isinstance(x, Const) else env[x] for x in i.inputs], i.attrs)
        env.update(zip(i.outputs, (outputs,) if i.op.n_outputs == 1 else outputs))


def _product(row: list[Any], column: list[Any], cut: list[Var], x: Any) -> Any:
    """Σ over the cut of ∂y/∂c · ∂c/∂x, for one output and one input."""
    total: Any = None
    for c, by_cut, of_cut in zip(cut, row, column):
        y_shape = by_cut.shape[: by_cut.ndim - len(c.type.shape)]
        k = count(of_cut.shape[: len(c.type.shape)])
        left = OPS["reshape"](by_cut, (count(y_shape), k))
        right = OPS["reshape"](of_cut, (k, x.size))
        term = OPS["reshape"](left @ right, (*y_shape, *x.shape))
        total = term if total is None else total + term
    return total


__all__ = ["TracedFunction", "run_plan"]
