"""The hybrid scheduler: Jacobians in the mode that is predicted to cost least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wengert import tree
from wengert.errors import ArgumentError
from wengert.transforms.hybrid import TracedFunction
from wengert.transforms.jacobian import _of_one, _tensor_leaves, jacobian
from wengert.transforms.schedule import Plan, SchedulerConfig, plan_program


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
        g, point = _of_one(f, argnums, args, {})
        xs, structure = _tensor_leaves(point)
        traced = TracedFunction(lambda *leaves: g(tree.unflatten(structure, leaves)), xs, "plan")
        plan = plan_program(traced.program, traced.sources, self.config, may_colour=True)
        print(plan)
        return plan

    def jacobian(
        self, f: Callable[..., Any], *, argnums: int | Sequence[int] = 0, chunk: int | None = None
    ) -> Callable[..., Any]:
        """The Jacobian of f, as `wengert.jacobian` has it, scheduled by this configuration."""
        return jacobian(f, self.config, argnums=argnums, chunk=chunk)

    def __repr__(self) -> str:
        return f"HybridScheduler({self.config})"


def as_config(given: Any, what: str) -> SchedulerConfig:
    """The configuration of a scheduler, or of one that is given by its configuration."""
    config = given.config if isinstance(given, HybridScheduler) else given
    if not isinstance(config, SchedulerConfig):
        raise ArgumentError(f"{what}: takes a SchedulerConfig, got {type(given).__name__}")
    return config


__all__ = ["HybridScheduler", "as_config"]
