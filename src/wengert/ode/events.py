"""Events: where a function of time and state is zero on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wengert import functional as F
from wengert._core import Tensor
from wengert.errors import ArgumentError, ShapeError
from wengert.numerics.brent import brent
from wengert.numerics.functions import numbers_of
from wengert.ode.methods import METHODS
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import ones_like
from wengert.transforms.functional import jvp

_NEWTON = 2  # steps from the root that was found: derivatives of its time are then exact up to third order


@dataclass(frozen=True, slots=True)
class Event:
    """A function `g(t, y, *args)` whose zeros are looked for: `direction` 1 where it rises, -1 where it falls, 0 both; with
    `terminal` the first one ends the solution.

    >>> Event(lambda t, y: y[0], direction=-1).terminal
    True
    """

    g: Callable[..., Any]
    direction: int = 0
    terminal: bool = True

    def __post_init__(self) -> None:
        if not callable(self.g):
            raise ArgumentError(f"Event: g must be a function g(t, y, *args), got {type(self.g).__name__}")
        if self.direction not in (-1, 0, 1):
            raise ArgumentError(f"Event: direction must be -1, 0 or 1, got {self.direction!r}")


@dataclass(frozen=True, slots=True)
class Crossing:
    """A zero that was found."""

    index: int
    t: float


def as_events(events: Any) -> list[Event]:
    """Events, or functions, which then end the solution; one of them or several."""
    listed = [events] if isinstance(events, Event) or callable(events) else list(events or ())
    return [e if isinstance(e, Event) else Event(e) for e in listed]


def scalar(value: Any, k: int) -> Any:
    """What the function of event k returned, as a tensor without axes."""
    t = value if isinstance(value, Tensor) else asarray(value)
    if t.size != 1 or not t.dtype.is_floating:
        raise ShapeError(
            f"odeint: the function of event {k} must return one real number, got {t.dtype.name}{tuple(t.shape)}"
        )
    return F.reshape(t, ())


class Detector:
    """Watches the signs of all events from step to step."""

    def __init__(self, events: Sequence[Event], values: Callable[[Any, Any], Any]) -> None:
        """`values(t, y)`: all events at once, a vector."""
        self.events, self._values = events, values
        self._before: Any = None

    def begin(self, t: Any, y: Any) -> None:
        """Where the solution starts."""
        self._before = self._at(t, y)

    def found(
        self, t: float, h: float, state: Callable[[float], tuple[Any, Any]], end: tuple[Any, Any]
    ) -> tuple[list[Crossing], bool]:
        """The zeros in a step, up to the first that ends the solution, and whether there is one.

        `state(theta)` are time and state inside of the step, and `end` those at its end.
        """
        before, after = self._before, self._at(*end)
        self._before = after
        crossed = [k for k in range(len(self.events)) if self._crosses(k, before, after)]
        crossings = []
        for theta, k in sorted((self._root(k, state, before[k], after[k]), k) for k in crossed):
            crossings.append(Crossing(k, t + theta * h))
            if self.events[k].terminal:
                return crossings, True
        return crossings, False

    def _at(self, t: Any, y: Any) -> Any:
        return np.array(numbers_of(self._values(t, y)).numpy(), np.float64)

    def _crosses(self, k: int, before: Any, after: Any) -> bool:
        """A zero at the beginning of a step belongs to the step before: a ball that starts on the ground has not hit it."""
        a, b = float(before[k]), float(after[k])
        if a == 0.0 or ((a < 0.0) == (b < 0.0) and b != 0.0):
            return False
        return self.events[k].direction != (-1 if a < 0.0 else 1)

    def _root(self, k: int, state: Callable[[float], tuple[Any, Any]], at_start: float, at_end: float) -> float:
        return brent(lambda theta: float(self._at(*state(theta))[k]), (0.0, 1.0), (float(at_start), float(at_end)))


def differentiable_crossing(
    g: Callable[[Any, Any], Any], flow: Callable[[Any, Any], Any], t: Any, y: Any
) -> tuple[Any, Any]:
    """Time and state of an event as functions of what the state at the time t that was found depends on.

    g(t*, y(t*)) = 0 makes t* a function of y: dt* = −(∂g/∂y · dy) / (∂g/∂t + ∂g/∂y · f), the implicit function theorem. Two
    steps of Newton's method from t* change no number, and have these derivatives, those of second and third order, too. What
    y does near t* is a step of Runge and Kutta, whose length is zero.
    """
    rk4 = METHODS["rk4"]

    def moved(delta: Any) -> Any:
        return rk4.step(flow, t, delta, (y,)).carry[0]

    delta = t * 0.0
    for _ in range(_NEWTON):
        value, slope = jvp(lambda d: g(t + d, moved(d)), (delta,), (ones_like(delta),))
        delta = delta - value / slope
    return t + delta, moved(delta)
