"""Parameters that are updated together, by one native call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import DType
from wengert.errors import DTypeError
from wengert.modes import no_grad
from wengert.optim.update import Rule, state_dtype
from wengert.registry.precision import uncast
from wengert.tensors.arguments import as_dtype_of, native
from wengert.tensors.conversion import asarray

_update_in_place = _core.update_in_place
_where = native("where")


class Plan:
    """What a step takes from the options besides its scalars; good for as long as the options are these."""

    __slots__ = ("n_state", "options", "program", "rule", "wide")

    def __init__(self, options: list[Any], dtype: DType, rule: Rule, n_state: int, program: Any) -> None:
        self.options = options
        self.wide = state_dtype(dtype).code
        self.rule = rule
        self.n_state = n_state
        self.program = program  # None for a rule that looks at whole tensors


class UpdateBatch:
    """Parameters of one group and one dtype that have made the same number of steps, with their states."""

    __slots__ = ("dtype", "parameters", "plan", "states", "steps")

    def __init__(self, dtype: DType, parameters: list[Tensor], states: list[list[Tensor]], steps: int) -> None:
        self.dtype = dtype
        self.parameters = parameters
        self.states = states
        self.steps = steps
        self.plan: Plan | None = None

    def __reduce__(self) -> Any:
        """For copies and pickles: all but the plan, which is made again."""
        return UpdateBatch, (self.dtype, self.parameters, self.states, self.steps)

    def split(self, chosen: Sequence[int]) -> UpdateBatch:
        """Take the parameters at these positions out, as a update_batch of their own."""
        out = set(chosen)
        parameters, states = [self.parameters[k] for k in chosen], [self.states[k] for k in chosen]
        self.parameters = [p for k, p in enumerate(self.parameters) if k not in out]
        self.states = [s for k, s in enumerate(self.states) if k not in out]
        return UpdateBatch(self.dtype, parameters, states, self.steps)

    def run(self, plan: Plan, gradients: list[Tensor | None] | None, scalars: tuple[float, ...]) -> bool:
        """One step in place; False, and nothing is changed, if a gradient is missing."""
        self._check_dtype()
        if plan.program is None:
            return self._run_whole(plan, gradients, scalars)
        # A fused pass per parameter; raises `steps`, too.
        given = (plan.program, self.parameters, gradients, self.states, scalars, plan.wide, self)
        return _update_in_place(*given) is None

    def _run_whole(self, plan: Plan, gradients: list[Tensor | None] | None, scalars: tuple[float, ...]) -> bool:
        """One compiled program over all parameters."""
        given = [p.grad for p in self.parameters] if gradients is None else gradients
        if any(g is None for g in given):
            return False
        operands = [asarray(x, dtype=state_dtype(self.dtype)) for x in scalars]
        flat = [t for p, g, s in zip(self.parameters, given, self.states) for t in (p, g, *s)]
        width = 1 + plan.n_state
        with no_grad():
            new = _over_all(plan.rule, plan.n_state, len(scalars))(*operands, *flat)
            for k, (p, state) in enumerate(zip(self.parameters, self.states)):
                for target, value in zip((p, *state), new[k * width : (k + 1) * width]):
                    target._take(value, "step")
        self.steps += 1
        return True

    def trace_step(
        self, rule: Rule, gradients: Sequence[Tensor], scalars: Sequence[Tensor], condition: Tensor | None
    ) -> None:
        """The step as instructions of the trace that is open; where a condition does not hold, everything stays as it is."""
        self._check_dtype()
        with no_grad(), uncast():
            for p, g, state in zip(self.parameters, gradients, self.states):
                for target, value in zip((p, *state), wide_rule(rule, p, g, *state, *scalars)):
                    target._assign(value if condition is None else _where(condition, value, target), "step")

    def tensors(self) -> list[Tensor]:
        """All that a step changes."""
        return [*self.parameters, *(t for state in self.states for t in state)]

    def count(self, steps: int) -> None:
        """Steps that were made elsewhere."""
        self.steps += steps

    def _check_dtype(self) -> None:
        # The first stands for all: `Module.to` casts every parameter.
        now = self.parameters[0].dtype
        if now is not self.dtype and now != self.dtype:
            raise DTypeError(
                f"step: the parameters were {self.dtype.name} when the optimizer was made and are {now.name} now; "
                "make the optimizer after net.to(...)"
            )


@functools.cache
def _over_all(rule: Rule, n_state: int, n_scalars: int) -> Any:
    """The rule applied to one parameter after the other, as one compiled function of flat arguments."""
    width = 2 + n_state

    def step(*given: Any) -> list[Any]:
        scalars, flat = given[:n_scalars], given[n_scalars:]
        starts = range(0, len(flat), width)
        return [x for k in starts for x in wide_rule(rule, *flat[k : k + width], *scalars)]

    return composite(step)


def wide_rule(rule: Rule, p: Any, g: Any, *others: Any) -> tuple[Any, ...]:
    """The rule computed in the dtype of the state, and the parameter in its own."""
    wide = state_dtype(p.dtype)
    new_p, *state = rule(as_dtype_of(p, wide), as_dtype_of(g, wide), *others)
    return as_dtype_of(new_p, p.dtype), *state
