"""Planning Jacobians: forward, reverse, or cut in two at the narrowest place of the program.

Forward mode has a pass for each input, reverse mode one for each output; where the pattern of the Jacobian has few colours,
one for each colour. Where all paths from the inputs to the outputs lead through a few numbers c, ∂y/∂x = ∂y/∂c · ∂c/∂x, and
each factor has as few passes as there are of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from wengert.dtypes import ALL as DTYPES
from wengert.errors import ArgumentError
from wengert.program.ir import Instruction, Program, Type, Var
from wengert.program.mincut import minimum_vertex_cut
from wengert.transforms.colouring import Colouring
from wengert.transforms.compressed import few_colours
from wengert.transforms.costs import Derivative, Work, derivatives, total, work_of

STRATEGIES = ("auto", "forward", "reverse", "mixed")


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """How Jacobians are scheduled.

    `strategy` is "auto" (the least predicted cost), or a mode: "forward", "reverse", "mixed". Where outputs / inputs is at
    least `forward_mode_threshold`, "auto" takes forward mode without an estimate; at most `reverse_mode_threshold`,
    reverse mode. `enable_mixed_mode`: whether "auto" may cut the program in two.

    >>> SchedulerConfig(forward_mode_threshold=4.0)
    SchedulerConfig(strategy='auto', forward_mode_threshold=4.0, reverse_mode_threshold=0.1, enable_mixed_mode=True)
    """

    strategy: str = "auto"
    forward_mode_threshold: float = 10.0
    reverse_mode_threshold: float = 0.1
    enable_mixed_mode: bool = True

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ArgumentError(
                f"SchedulerConfig: strategy must be one of {', '.join(STRATEGIES)}, got {self.strategy!r}"
            )
        for name in ("forward_mode_threshold", "reverse_mode_threshold"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise ArgumentError(
                    f"SchedulerConfig: {name} (outputs / inputs) must be a positive number, got {value!r}"
                )
        if self.reverse_mode_threshold >= self.forward_mode_threshold:
            raise ArgumentError(
                f"SchedulerConfig: reverse_mode_threshold ({self.reverse_mode_threshold}) must be below "
                f"forward_mode_threshold ({self.forward_mode_threshold})"
            )
        if not isinstance(self.enable_mixed_mode, bool):
            raise ArgumentError(
                f"SchedulerConfig: enable_mixed_mode must be True or False, got {self.enable_mixed_mode!r}"
            )


@dataclass(slots=True)
class Plan:
    """How a Jacobian is computed, and its predicted cost.

    `costs` are seconds by mode, of those that were estimated; `cut` the types of the values at which the program is cut, in
    mixed mode, and `sides` the modes before and after the cut. `colouring` says which columns or rows are computed together,
    if any are. `passes` counts derivatives: tangents pushed forward and cotangents pulled back.
    """

    mode: str
    inputs: int
    outputs: int
    costs: dict[str, float] = field(default_factory=dict)
    cut: tuple[Type, ...] = ()
    sides: tuple[str, str] | None = None
    values: tuple[Var, ...] = field(default=(), repr=False)  # the values where the program is cut
    colouring: Colouring | None = None

    @property
    def waist(self) -> int:
        """The number of elements at the cut."""
        return sum(t.example_size() for t in self.cut)

    @property
    def passes(self) -> int:
        """How many derivatives are computed."""
        if self.colouring is not None:
            return self.colouring.n_colours
        if self.sides is None:
            return self.inputs if self.mode == "forward" else self.outputs
        before, after = self.sides
        return (self.inputs if before == "forward" else self.waist) + (
            self.waist if after == "forward" else self.outputs
        )

    def __str__(self) -> str:
        what = "passes" if self.colouring is None else "passes, one for each colour,"
        lines = [f"{self.mode}: {self.passes} {what} for {self.outputs} outputs by {self.inputs} inputs"]
        if self.sides is not None:
            at = ", ".join(map(str, self.cut))
            lines.append(f"  cut at {at}: {self.sides[0]} before it, {self.sides[1]} after it, then a product")
        lines += [f"  {mode:8} {seconds * 1e3:10.4f} ms predicted" for mode, seconds in sorted(self.costs.items())]
        return "\n".join(lines)


def count(values: Iterable[Any]) -> int:
    """The number of elements of program values."""
    return sum(v.type.example_size() for v in values)


def plan_program(
    program: Program, sources: Sequence[Var], config: SchedulerConfig, *, may_colour: bool = False
) -> Plan:
    """The plan for the Jacobian with respect to these inputs. `may_colour`: columns or rows may be computed together."""
    outputs = [o for o in program.outputs if isinstance(o, Var)]
    n, m = count(sources), count(outputs)
    if config.strategy in ("forward", "reverse"):
        return Plan(config.strategy, n, m)
    if config.strategy == "auto":
        if m >= config.forward_mode_threshold * n:
            return Plan("forward", n, m)
        if m <= config.reverse_mode_threshold * n:
            return Plan("reverse", n, m)
    costs_of = derivatives(program, sources)
    itself = total(map(work_of, program.instructions)).seconds()
    plan = _estimated(costs_of, list(sources), outputs, config, itself)
    if may_colour and config.strategy == "auto":
        return _coloured(program, sources, costs_of, plan, itself) or plan
    return plan


def _coloured(
    program: Program, sources: Sequence[Var], costs_of: list[Derivative], plan: Plan, itself: float
) -> Plan | None:
    """The plan with one pass for each colour, where that costs less."""
    colouring = few_colours(program, sources, is_hessian=False)
    if colouring is None:
        return None
    mode, passes = "forward" if colouring.n_columns else "reverse", colouring.n_colours
    moved = Work(bytes=8.0 * plan.inputs * plan.outputs, instructions=3)  # the matrix, filled and written to
    seconds = itself + _seconds(costs_of, mode, passes, passes) + moved.seconds()
    if seconds >= plan.costs[plan.mode]:
        return None
    return Plan(mode, plan.inputs, plan.outputs, {**plan.costs, mode: seconds}, colouring=colouring)


def _estimated(
    costs_of: list[Derivative], sources: list[Var], outputs: list[Var], config: SchedulerConfig, itself: float
) -> Plan:
    n, m = count(sources), count(outputs)
    plain = {mode: itself + _seconds(costs_of, mode, n, m) for mode in ("forward", "reverse")}
    mode = min(plain, key=plain.__getitem__)
    plan = Plan(mode, n, m, dict(plain))
    if not (config.enable_mixed_mode or config.strategy == "mixed"):
        return plan
    mixed = _mixed(costs_of, sources, outputs, plan, itself)
    if mixed is None:
        if config.strategy == "mixed":
            plan.costs["mixed"] = plain[mode]
        return plan
    if config.strategy == "mixed" or mixed.costs["mixed"] < plain[mode]:
        return mixed
    plan.costs = mixed.costs
    return plan


def _seconds(costs_of: Sequence[Derivative], mode: str, n: int, m: int) -> float:
    """The derivatives of m outputs with respect to n inputs: of as many unit vectors, which are made first."""
    times = n if mode == "forward" else m
    units = Work(bytes=4.0 * times * times, instructions=1)
    each = (d.push if mode == "forward" else d.pull for d in costs_of)
    return units.seconds() + sum(d.once.seconds() for d in costs_of) + sum(work.seconds(times) for work in each)


def _mixed(
    costs_of: list[Derivative], sources: list[Var], outputs: list[Var], plain: Plan, itself: float
) -> Plan | None:
    """The plan with the narrowest cut, where there is one narrower than inputs and outputs."""
    if any(DTYPES[v.type.dtype].kind == "c" for v in (*sources, *outputs)):
        return None
    cut = _narrowest(costs_of, sources, outputs)
    k = count(cut)
    if not k or k >= min(plain.inputs, plain.outputs) or any(DTYPES[v.type.dtype].kind == "c" for v in cut):
        return None
    before = _slice(costs_of, cut, sources)
    after = _slice(costs_of, outputs, cut)
    first = {mode: _seconds(before, mode, plain.inputs, k) for mode in ("forward", "reverse")}
    second = {mode: _seconds(after, mode, k, plain.outputs) for mode in ("forward", "reverse")}
    sides = min(first, key=first.__getitem__), min(second, key=second.__getitem__)
    n, m = plain.inputs, plain.outputs
    product = Work(2.0 * n * k * m, 0.0, 4.0 * (n * k + k * m + n * m), 1)
    costs = {**plain.costs, "mixed": itself + first[sides[0]] + second[sides[1]] + product.seconds()}
    return Plan("mixed", n, m, costs, tuple(v.type for v in cut), sides, tuple(cut))


def _narrowest(costs_of: Sequence[Derivative], sources: list[Var], outputs: list[Var]) -> list[Var]:
    """The values with the fewest elements through which all paths from the sources to the outputs lead."""
    active = dict.fromkeys(sources)
    edges = []
    for d in costs_of:
        i = d.instruction
        made = [o for o in i.outputs if DTYPES[o.type.dtype].is_inexact]
        edges += [(v, o) for v in i.vars() if v in active for o in made]
        active.update(dict.fromkeys(made))
    weights = {v: float(v.type.example_size()) for v in active}
    cut = minimum_vertex_cut(edges, weights, sources, [o for o in outputs if o in active])
    return [v for v in active if v in cut]


def _slice(costs_of: Sequence[Derivative], results: Iterable[Var], given: Iterable[Var]) -> list[Derivative]:
    """The derivatives between what is given and the results."""
    kept = set(map(id, between([d.instruction for d in costs_of], results, given)))
    return [d for d in costs_of if id(d.instruction) in kept]


def between(instructions: Sequence[Instruction], results: Iterable[Var], given: Iterable[Var]) -> list[Instruction]:
    """The instructions that make the results of what is given, in order."""
    stops = set(given)
    live = set(results) - stops
    kept = []
    for i in reversed(instructions):
        if any(o in live for o in i.outputs):
            kept.append(i)
            live.update(v for v in i.vars() if v not in stops)
    return kept[::-1]


__all__ = ["STRATEGIES", "Plan", "SchedulerConfig", "between", "count", "plan_program"]
