"""Ordinary differential equations: `odeint`, with gradients by the discrete or the continuous adjoint.

>>> import wengert as wg
>>> solution = odeint(lambda t, y, rate: -rate * y, 1.0, [0.0, 1.0], 2.0)
>>> round(solution.y[-1].item(), 6)
0.135335
"""

from typing import Any

from wengert.foreign_names import MissingName
from wengert.ode.events import Event
from wengert.ode.integrate import odeint
from wengert.ode.solution import EventPoint, Solution, Statistics

__all__ = ["Event", "EventPoint", "Solution", "Statistics", "odeint"]


def __dir__() -> list[str]:
    return [*__all__, *(n for n in globals() if n.startswith("__"))]


def __getattr__(name: str) -> Any:
    raise MissingName(__name__, name)
