"""Jacobians of recorded computations, as planned by the scheduler.

What was recorded is a program. Its Jacobian is compiled, all rows or columns in one pass, and kept for recordings that read
the same, as those of a loop do. A recording that is seen for the first time, with few rows, is walked natively once for each
of them: that is faster than compiling.
"""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from wengert import _core
from wengert.autograd.recorded import Reader
from wengert.compiling.compile import _wrap
from wengert.errors import ArgumentError, InPlaceError
from wengert.modes import running_reverse
from wengert.program.ir import Instruction, Program, Var, infer
from wengert.registry.record import OPS
from wengert.tensors.creation import zeros, zeros_like
from wengert.transforms.costs import total, work_of
from wengert.transforms.hybrid import run_plan
from wengert.transforms.jacobian import _basis, _row, _stacked, in_mode
from wengert.transforms.pullback import pull
from wengert.transforms.schedule import Plan, SchedulerConfig, between, plan_program

_SECONDS_TO_COMPILE = 1.5e-3  # per instruction
_SECONDS_PER_STEP = 5e-7  # per instruction of a native walk
_MOST = 64

_known: OrderedDict[Any, Any] = OrderedDict()  # compiled Jacobians; None for a recording seen only once


class RecordedJacobian:
    """The derivative of one target with respect to one source, of which a tape has several names.

    `by_example`: the sum over the first axis of the target is differentiated, which gives the Jacobian of each example where
    examples do not depend on each other.
    """

    def __init__(self, calls: Sequence[Any], target: Any, names: list[Any], by_example: bool = False) -> None:
        self.target, self.names, self.by_example = target, names, by_example
        self.shape = tuple(target.shape[1:] if by_example else target.shape)
        self._read(calls)

    def compute(self, config: SchedulerConfig, record: bool) -> tuple[Any, Plan]:
        """Its value, with the axes of the target before those of the source, and how it was computed.

        `record`: so that it can be differentiated itself.
        """
        plan = self._plan(config)
        compiled = None if record or self.program is None else self._compiled(plan)
        if compiled is not None:
            return functools.reduce(operator.add, compiled(*self.values)[0]), plan
        if plan.mode == "mixed":  # only a program can be cut
            plan = Plan(
                min(plan.costs, key=lambda m: plan.costs[m] if m != "mixed" else 1e9), plan.inputs, plan.outputs
            )
        if plan.mode == "forward" and "c" in (self.target.dtype.kind, self.names[0].dtype.kind):
            plan = Plan(
                "reverse", plan.inputs, plan.outputs
            )  # whose rows `_row` combines from real and imaginary parts
        return (self._columns if plan.mode == "forward" else self._rows)(record), plan

    # ------------------------------------------------------------------------------------------------- the program

    def _read(self, calls: Sequence[Any]) -> None:
        """The program between the source and the target with the values of its inputs, or None."""
        self.program: Program | None = None
        reader = Reader()
        try:
            for call in calls:
                reader.read(call)
                call.check_operands()
            result: Any = reader.result(self.target)
        except (ArgumentError, InPlaceError):  # made elsewhere or overwritten since, so only saved values are left
            return
        found = [(reader.received(_core.node_of(x)), x) for x in self.names]
        sources = [(v, x) for v, x in found if v is not None]
        instructions = [i for step in reader.steps for i in step.instructions]
        body = between(instructions, [result], [v for v, _ in sources])
        if len(sources) != len(self.names) or any(_is_custom(i) for i in body):
            return
        if self.by_example:
            attrs = ((0,), 0)
            total_of = Var(infer(OPS["sum"], [result], attrs)[0])
            body.append(Instruction(OPS["sum"], (result,), attrs, (total_of,)))
            result = total_of
        given = {v: x.detach() for v, x in sources}
        arguments = dict(zip(reader.inputs.values(), reader.arguments))
        read = dict.fromkeys(v for i in body for v in i.vars())
        given.update((v, arguments[v]) for v in read if v in arguments and v not in given)
        self.program = Program(list(given), body, [result])
        self.values = list(given.values())

    def _plan(self, config: SchedulerConfig) -> Plan:
        if self.program is not None:
            return plan_program(self.program, self.program.inputs[: len(self.names)], config)
        n, m = self.names[0].size, self.target.size
        mode = config.strategy if config.strategy in ("forward", "reverse") else "forward" if m >= n else "reverse"
        return Plan(mode, n, m)

    def _compiled(self, plan: Plan) -> Any:
        """The Jacobian as a compiled function of the program's inputs, if it exists or is worth compiling."""
        program = self.program
        assert program is not None
        key = (str(program), len(self.names), plan.mode)
        seen = key in _known
        made = _known.get(key)
        if made is None and (seen or plan.mode == "mixed" or self._takes_longer_than_compiling(plan)):
            made = _wrap(_jacobian_of(program, plan, len(self.names)), "tape.jacobian")
        _known[key] = made
        _known.move_to_end(key)
        if len(_known) > _MOST:
            _known.popitem(last=False)
        return made

    def _takes_longer_than_compiling(self, plan: Plan) -> bool:
        assert self.program is not None
        n = len(self.program.instructions)
        one = n * _SECONDS_PER_STEP + total(map(work_of, self.program.instructions)).seconds()
        return plan.passes * one > n * _SECONDS_TO_COMPILE

    # ------------------------------------------------------------------------------------------------ native walks

    def _pull(self, bar: Any, record: bool) -> Any:
        """The gradient of the source; None where there is no path to it."""
        found = pull([self.target], [bar], self.names, retain=True, record=record)
        parts = [g for g in found if g is not None]
        return functools.reduce(operator.add, parts) if parts else None

    def connected(self) -> bool:
        """Whether a derivative leads from the target to the source."""
        return self._pull(zeros_like(self.target), False) is not None

    def _rows(self, record: bool) -> Any:
        y = zeros(self.shape, dtype=self.target.dtype)
        rows = [_row(lambda bar: [self._pull(self._spread(bar), record)], y, e)[0] for e in _basis(y)]
        return OPS["reshape"](_stacked(rows), (*self.shape, *self.names[0].shape))

    def _spread(self, e: Any) -> Any:
        return OPS["broadcast_to"](e, tuple(self.target.shape)) if self.by_example else e

    def _columns(self, record: bool) -> Any:
        """The recorded pull is linear in its seed, so pulling it back pushes a tangent of the source forward."""
        x = self.names[0]
        with running_reverse() as extent:
            seed = _core.fresh_leaf(zeros_like(self.target), extent=extent)
            pulled = self._pull(seed, True)
            columns = [pull([pulled], [e], [seed], retain=True, record=record)[0] for e in _basis(x)]
        stacked = OPS["reshape"](_stacked([self._summed(c) for c in columns]), (*x.shape, *self.shape))
        n, m = x.ndim, len(self.shape)
        return OPS["permute"](stacked, (*range(n, n + m), *range(n)))

    def _summed(self, column: Any) -> Any:
        return OPS["sum"](column, (0,), 0) if self.by_example else column


def _jacobian_of(program: Program, plan: Plan, n: int) -> Callable[..., Any]:
    def run(*values: Any) -> Any:
        blocks = run_plan(program, plan, program.inputs[:n], dict(zip(program.inputs, values)), in_mode(None))
        return tuple(map(tuple, blocks))

    return run


def _is_custom(i: Instruction) -> bool:
    """Whether a Python function made it, whose rule is in the recorded node."""
    return i.op.callback and i.op.n_inputs > 0  # one without operands is a constant


__all__ = ["RecordedJacobian"]
