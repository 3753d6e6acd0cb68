"""The hybrid scheduler: Jacobians in the mode that is predicted to cost least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wengert import tree
from wengert.errors import ArgumentError
from wengert.passes.evaluate import apply
from wengert.program.ir import Const, Instruction, Program, Var
from wengert.registry.record import OPS
from wengert.transforms.functional import result_leaves
from wengert.transforms.regions import PartTrace, closed_over, traced_part, types_of
from wengert.transforms.schedule import Plan, SchedulerConfig, between, plan_program

Blocks = list[list[Any]]  # [output][input]
# f of a tuple of tensors, which returns a tuple, and where: its derivatives in one mode
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


class HybridScheduler:
    """Chooses how Jacobians are computed: forward, reverse, or mixed, which cuts the program at its narrowest place.

    The costs of each way are predicted from the program: arithmetic and bytes of each instruction's derivative.

    >>> import wengert as wg
    >>> down, up = wg.ones((400, 2)), wg.ones((2, 400))
    >>> scheduler = HybridScheduler()
    >>> plan = scheduler.plan(lambda x: wg.tanh(x @ down) @ up, wg.ones((400,)))
    mixed: 4 passes for 400 outputs by 400 inputs
      cut at float32[...2]: reverse before it, forward after it, then a product
      forward ... ms predicted
      mixed ... ms predicted
      reverse ... ms predicted
    >>> plan.mode, plan.waist
    ('mixed', 2)
    """

    def __init__(self, config: SchedulerConfig | None = None) -> None:
        self.config = as_config(config if config is not None else SchedulerConfig(), "HybridScheduler")

    def plan(self, f: Callable[..., Any], *args: Any, argnums: int | Sequence[int] = 0) -> Plan:
        """How the Jacobian of f would be computed at these arguments: printed, and returned."""
        from wengert.transforms.jacobian import _of_one, _tensor_leaves

        g, point = _of_one(f, argnums, args, {})
        xs, structure = _tensor_leaves(point)
        traced = TracedFunction(lambda *leaves: g(tree.unflatten(structure, leaves)), xs, "plan")
        plan = plan_program(traced.program, traced.sources, self.config)
        print(plan)
        return plan

    def jacobian(
        self, f: Callable[..., Any], *, argnums: int | Sequence[int] = 0, chunk: int | None = None
    ) -> Callable[..., Any]:
        """The Jacobian of f, as `wengert.jacobian` has it, scheduled by this configuration."""
        from wengert.transforms.jacobian import jacobian

        return jacobian(f, self.config, argnums=argnums, chunk=chunk)

    def __repr__(self) -> str:
        return f"HybridScheduler({self.config})"


def as_config(given: Any, what: str) -> SchedulerConfig:
    """The configuration of a scheduler, or of one that is given by its configuration."""
    config = given.config if isinstance(given, HybridScheduler) else given
    if not isinstance(config, SchedulerConfig):
        raise ArgumentError(f"{what}: takes a SchedulerConfig, got a {type(given).__name__}")
    return config


def run_plan(
    program: Program, plan: Plan, sources: Sequence[Var], values: dict[Var, Any], differentiate: Differentiate
) -> Blocks:
    """The Jacobian of a program's outputs by some of its inputs, which all have values."""
    outputs: list[Any] = list(program.outputs)
    xs = [values[v] for v in sources]
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
    """The instructions as a function of a tuple; what is not given has the value that it has."""

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
        k = 1
        for size in of_cut.shape[: len(c.type.shape)]:
            k = k * size
        left = OPS["reshape"](by_cut, (_count(y_shape), k))
        right = OPS["reshape"](of_cut, (k, x.size))
        term = OPS["reshape"](left @ right, (*y_shape, *x.shape))
        total = term if total is None else total + term
    return total


def _count(shape: Any) -> Any:
    n: Any = 1
    for size in shape:
        n = n * size
    return n


__all__ = ["HybridScheduler", "TracedFunction", "as_config", "run_plan"]
