"""Learning rates over time: functions of the step number that give a factor, and what applies them to an optimizer."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec

from wengert.errors import ArgumentError
from wengert.optim.optimizer import Optimizer
from wengert.program.call_trace import call_trace

__all__ = [
    "ReduceOnPlateau",
    "Schedule",
    "Scheduler",
    "chain",
    "constant",
    "cosine",
    "cosine_restarts",
    "exponential",
    "linear",
    "linear_warmup",
    "one_cycle",
    "sequential",
    "step",
    "warmup_cosine",
]

Schedule = Callable[[int], float]  # step, counted from 0 → factor of the learning rate
P = ParamSpec("P")


class _Made:
    """A schedule that remembers how it was made: it prints, and can be pickled, as functions inside functions cannot."""

    def __init__(self, factor: Schedule, make: Callable[..., Schedule], args: Any, options: Any) -> None:
        self._factor, self._make, self._args, self._options = factor, make, args, options

    def __call__(self, t: int) -> float:
        return self._factor(t)

    def __reduce__(self) -> Any:
        return functools.partial(self._make, *self._args, **self._options), ()

    def __repr__(self) -> str:
        given = [*map(repr, self._args), *(f"{k}={v!r}" for k, v in self._options.items())]
        return f"{self._make.__name__}({', '.join(given)})"


def _remembered(make: Callable[P, Schedule]) -> Callable[P, Schedule]:
    @functools.wraps(make)
    def call(*args: P.args, **options: P.kwargs) -> Schedule:
        return _Made(make(*args, **options), call, args, options)

    return call


@_remembered
def constant(factor: float = 1.0, steps: int | None = None) -> Schedule:
    """The same factor at every step, or for so many steps and 1 from then on.

    >>> [constant(0.5, steps=2)(t) for t in range(4)]
    [0.5, 0.5, 1.0, 1.0]
    """
    return lambda t: factor if steps is None or t < steps else 1.0


@_remembered
def step(size: int, gamma: float = 0.1) -> Schedule:
    """γ^⌊t / size⌋: lower by a factor every `size` steps.

    >>> [step(2, 0.5)(t) for t in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    _check("step", size)
    return lambda t: float(gamma ** (t // size))


@_remembered
def exponential(gamma: float) -> Schedule:
    """γᵗ.

    >>> exponential(0.5)(3)
    0.125
    """
    return lambda t: float(gamma**t)


@_remembered
def linear(steps: int, start: float, final: float) -> Schedule:
    """From `start` to `final` in a straight line, and `final` from then on.

    >>> [linear(4, 1.0, 0.0)(t) for t in (0, 1, 4, 9)]
    [1.0, 0.75, 0.0, 0.0]
    """
    _check("linear", steps)
    return lambda t: start + (final - start) * min(t, steps) / steps


@_remembered
def linear_warmup(steps: int, start: float = 0.0) -> Schedule:
    """From `start` up to 1 in a straight line.

    >>> [linear_warmup(4)(t) for t in (0, 1, 4, 9)]
    [0.0, 0.25, 1.0, 1.0]
    """
    return linear(steps, start, 1.0)


@_remembered
def cosine(steps: int, final: float = 0.0) -> Schedule:
    """Half a cosine from 1 down to `final` in `steps` steps, and `final` from then on (Loshchilov & Hutter, 2017).

    >>> [round(cosine(4)(t), 3) for t in (0, 2, 4, 9)]
    [1.0, 0.5, 0.0, 0.0]
    """
    _check("cosine", steps)
    return lambda t: _half_cosine(1.0, final, min(t, steps) / steps)


@_remembered
def cosine_restarts(period: int, growth: int = 1, final: float = 0.0) -> Schedule:
    """`cosine` again and again, each time `growth` times as long (Loshchilov & Hutter, 2017).

    >>> [round(cosine_restarts(2, growth=2)(t), 3) for t in range(7)]
    [1.0, 0.5, 1.0, 0.854, 0.5, 0.146, 1.0]
    """
    _check("cosine_restarts", period, growth)

    def factor(t: int) -> float:
        length = period
        if growth == 1:
            t %= period
        while t >= length:
            t -= length
            length *= growth
        return _half_cosine(1.0, final, t / length)

    return factor


@_remembered
def warmup_cosine(warmup: int, steps: int, start: float = 0.0, final: float = 0.0) -> Schedule:
    """Up in a straight line for `warmup` steps, then half a cosine down, `steps` in all.

    >>> [round(warmup_cosine(2, 6)(t), 3) for t in range(7)]
    [0.0, 0.5, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    if not 0 < warmup < steps:
        raise ArgumentError(f"warmup_cosine: warmup must be at least 1 and less than the {steps} steps, got {warmup}")
    return sequential([linear_warmup(warmup, start), cosine(steps - warmup, final)], [warmup])


@_remembered
def one_cycle(
    steps: int, peak: float = 0.3, start_divisor: float = 25.0, final_divisor: float = 1e4, anneal: str = "cosine"
) -> Schedule:
    """From 1/`start_divisor` up to 1 in the part `peak` of all steps, then down to that / `final_divisor` (Smith, 2018).

    >>> [round(one_cycle(11)(t), 3) for t in (0, 2, 10)]
    [0.04, 0.96, 0.0]
    """
    _check("one_cycle", steps)
    if anneal not in ("cosine", "linear"):
        raise ArgumentError(f"one_cycle: anneal must be 'cosine' or 'linear', got {anneal!r}")
    between = _half_cosine if anneal == "cosine" else lambda a, b, x: a + (b - a) * x
    low, top = 1.0 / start_divisor, peak * steps - 1.0

    def factor(t: int) -> float:
        if t <= top:
            return between(low, 1.0, t / top)
        return between(1.0, low / final_divisor, min((t - top) / (steps - 1.0 - top), 1.0))

    return factor


@_remembered
def chain(*schedules: Schedule) -> Schedule:
    """The product of several schedules.

    >>> chain(linear_warmup(2), exponential(0.5))(3)
    0.125
    """

    return lambda t: math.prod(s(t) for s in schedules)


@_remembered
def sequential(schedules: Sequence[Schedule], milestones: Sequence[int]) -> Schedule:
    """One schedule after the other: the next starts, from its own step 0, at each milestone.

    >>> [sequential([constant(0.1), exponential(0.5)], [2])(t) for t in range(5)]
    [0.1, 0.1, 1.0, 0.5, 0.25]
    """
    if len(milestones) != len(schedules) - 1 or sorted(milestones) != list(milestones):
        raise ArgumentError(
            f"sequential: {len(schedules)} schedules need {len(schedules) - 1} milestones in increasing order, got "
            f"{list(milestones)}"
        )
    starts = [0, *milestones]

    def factor(t: int) -> float:
        k = max(i for i, s in enumerate(starts) if s <= t)
        return schedules[k](t - starts[k])

    return factor


def _half_cosine(a: float, b: float, x: float) -> float:
    return b + (a - b) * 0.5 * (1.0 + math.cos(math.pi * x))


def _check(name: str, *counts: int) -> None:
    if any(n < 1 for n in counts):
        raise ArgumentError(f"{name}: lengths must be at least 1, got {', '.join(map(str, counts))}")


class Scheduler:
    """Apply a schedule to an optimizer: sets each group's learning rate to its initial value times the schedule's
    factor.

    - `schedule`: a function from the step, 0, 1, 2, …, to a factor, such as `schedules.cosine(steps)`.

    Call `step()` after every step of the optimizer, or after every epoch if the schedule counts epochs.

    >>> import wengert as wg
    >>> opt = wg.optim.SGD([wg.Parameter.ones((1,))], lr=0.5)
    >>> scheduler = Scheduler(opt, exponential(0.5))
    >>> scheduler.step()
    >>> opt.param_groups[0]["lr"]
    0.25
    """

    def __init__(self, optimizer: Optimizer, schedule: Schedule) -> None:
        self.optimizer, self.schedule = optimizer, schedule
        self.steps = 0
        self.base_lrs = [float(g["lr"]) for g in optimizer.param_groups]
        self._apply()

    def step(self) -> None:
        """Go on to the next learning rate. Inside a compiled function every call does."""
        trace = call_trace()
        if trace is None:
            self._advance()
        else:
            trace.act(self._advance, self._saved)

    def _advance(self) -> None:
        self.steps += 1
        self._apply()

    def _saved(self) -> Callable[[], None]:
        """What takes later steps back."""
        groups = self.optimizer.param_groups
        steps, bases, rates = self.steps, list(self.base_lrs), [g["lr"] for g in groups]

        def restore() -> None:
            self.steps, self.base_lrs = steps, bases
            for group, rate in zip(groups, rates):
                group["lr"] = rate

        return restore

    def _apply(self) -> None:
        factor = self.schedule(self.steps)
        groups = self.optimizer.param_groups
        self.base_lrs += [float(g["lr"]) for g in groups[len(self.base_lrs) :]]  # groups that were added since
        for group, base in zip(groups, self.base_lrs):
            group["lr"] = base * factor

    def state_dict(self) -> dict[str, Any]:
        """The step count and the learning rates it started from; the schedule itself is code, and stays with it."""
        return {"steps": self.steps, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        if len(state["base_lrs"]) != len(self.optimizer.param_groups):
            raise ArgumentError(
                f"Scheduler: the state is for {len(state['base_lrs'])} groups, the optimizer has "
                f"{len(self.optimizer.param_groups)}"
            )
        self.steps, self.base_lrs = int(state["steps"]), list(state["base_lrs"])
        self._apply()

    def __repr__(self) -> str:
        rates = ", ".join(f"{float(g['lr']):.4g}" for g in self.optimizer.param_groups)
        name = getattr(self.schedule, "__name__", repr(self.schedule))
        return f"Scheduler({type(self.optimizer).__name__}, {name}, step {self.steps}, lr {rates})"


class ReduceOnPlateau:
    """Lowers the learning rate by `factor` when a metric has not improved for more than `patience` steps.

    An improvement is more than `threshold`, relative to the best so far. After a reduction, `cooldown` steps do not count.

    >>> import wengert as wg
    >>> opt = wg.optim.SGD([wg.Parameter.ones((1,))], lr=1.0)
    >>> plateau = ReduceOnPlateau(opt, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     plateau.step(loss)
    >>> opt.param_groups[0]["lr"]
    0.5
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        *,
        threshold: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        if mode not in ("min", "max") or not 0.0 < factor < 1.0:
            raise ArgumentError(
                f"ReduceOnPlateau: mode must be 'min' or 'max', and factor between 0 and 1, got {mode!r} and {factor}"
            )
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.cooldown, self.min_lr = threshold, cooldown, min_lr
        self.best = math.inf if mode == "min" else -math.inf
        self.bad_steps = self.cooling = 0

    def step(self, metric: Any) -> None:
        """Look at the newest value of the metric."""
        value = float(metric)
        margin = self.threshold if self.mode == "max" else -self.threshold
        limit = self.best * (1.0 + margin) if math.isfinite(self.best) else self.best
        if value < limit if self.mode == "min" else value > limit:
            self.best, self.bad_steps = value, 0
        else:
            self.bad_steps += 1
        if self.cooling > 0:
            self.cooling -= 1
            self.bad_steps = 0
        if self.bad_steps > self.patience:
            for group in self.optimizer.param_groups:
                group["lr"] = max(float(group["lr"]) * self.factor, self.min_lr)
            self.cooling, self.bad_steps = self.cooldown, 0

    def state_dict(self) -> dict[str, Any]:
        """The best value, and how long ago it was."""
        return {"best": self.best, "bad_steps": self.bad_steps, "cooling": self.cooling}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        self.best = float(state["best"])
        self.bad_steps, self.cooling = int(state["bad_steps"]), int(state["cooling"])

    def __repr__(self) -> str:
        rates = ", ".join(f"{float(g['lr']):.4g}" for g in self.optimizer.param_groups)
        return (
            f"ReduceOnPlateau({type(self.optimizer).__name__}, {self.mode}, factor={self.factor}, "
            f"patience={self.patience}, best {self.best:.4g}, {self.bad_steps} steps ago, lr {rates})"
        )


def __dir__() -> list[str]:
    return __all__
