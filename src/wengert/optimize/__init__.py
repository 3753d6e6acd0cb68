"""Minima, least squares and roots, found by compiled steps, and differentiable by what they depend on.

>>> import wengert as wg
>>> result = minimize(lambda x: (x[0] - 1.0) ** 2 + 100.0 * (x[1] - x[0] ** 2) ** 2, [-1.2, 1.0])
>>> result.success, [round(v, 6) for v in result.x.tolist()]
(True, [1.0, 1.0])
"""

from typing import Any

from wengert.foreign_names import MissingName
from wengert.optimize.minima import minimize
from wengert.optimize.result import OptimizeResult
from wengert.optimize.roots import root
from wengert.optimize.scalar_roots import root_scalar
from wengert.optimize.squares import least_squares

__all__ = ["OptimizeResult", "least_squares", "minimize", "root", "root_scalar"]


def __dir__() -> list[str]:
    return [*__all__, *(n for n in globals() if n.startswith("__"))]


def __getattr__(name: str) -> Any:
    raise MissingName(__name__, name)
