"""What a solution holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wengert._core import Tensor
from wengert.numerics.functions import numbers_of


@dataclass(slots=True)
class Statistics:
    """What solving cost.

    >>> Statistics(steps=3, rejected=1, evaluations=25)
    Statistics(steps=3, rejected=1, evaluations=25, jacobians=0)
    """

    steps: int = 0  # that were accepted
    rejected: int = 0  # that were tried, and whose error was too large
    evaluations: int = 0  # of f
    jacobians: int = 0  # of f by the state


@dataclass(frozen=True, slots=True)
class EventPoint:
    """Where the function of an event was zero: the number of the event in `events`, the time, and the state.

    >>> EventPoint(0, 1.5, 0.0)
    EventPoint(index=0, t=1.5, y=0.0)
    """

    index: int
    t: Tensor
    y: Any


@dataclass(slots=True)
class Solution:
    """What `odeint` found.

    `t`: the times that were reached, all of them unless an event ended the solution. `y`: the states at these times, in
    the containers of y0 with the times as first axis. `event`: the event that ended the solution, or None. `events`:
    all that were found, in the order of the solution. `stats`: steps, rejected ones, evaluations.

    >>> import wengert as wg
    >>> solution = wg.ode.odeint(lambda t, y: -y, [1.0, 2.0], [0.0, 1.0])
    >>> solution
    Solution(2 times from 0 to 1, 7 steps, 0 rejected, 46 evaluations)
    """

    t: Tensor
    y: Any
    stats: Statistics
    event: EventPoint | None
    events: list[EventPoint]

    def __repr__(self) -> str:
        s = self.stats
        times = f"{len(self.t)} {'time' if len(self.t) == 1 else 'times'} from {_number(self.t[0])} to {_number(self.t[-1])}"
        event = "" if self.event is None else f", ended by event {self.event.index} at t = {_number(self.event.t)}"
        return f"Solution({times}{event}, {s.steps} steps, {s.rejected} rejected, {s.evaluations} evaluations)"


def _number(t: Any) -> str:
    return f"{numbers_of(t).item():.6g}"
