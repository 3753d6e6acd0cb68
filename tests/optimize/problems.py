"""Test problems of Moré, Garbow & Hillstrom, "Testing unconstrained optimization software" (1981), written with NumPy's
functions: they run on arrays and on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import wengert as wg


class Squares(NamedTuple):
    """Residuals, where to start, and the smallest sum of squares."""

    residuals: Callable[[Any], Any]
    start: list[float]
    least: float


def _stack(rows: list[Any]) -> Any:
    return wg.stack(rows) if isinstance(rows[0], wg.Tensor) else np.stack(rows)


def _rosenbrock(x: Any) -> Any:
    return _stack([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


def _powell_singular(x: Any) -> Any:
    return _stack([x[0] + 10.0 * x[1], 5**0.5 * (x[2] - x[3]), (x[1] - 2.0 * x[2]) ** 2, 10**0.5 * (x[0] - x[3]) ** 2])


def _helical_valley(x: Any) -> Any:
    turn = np.arctan2(x[1], x[0]) / (2.0 * np.pi)
    return _stack([10.0 * (x[2] - 10.0 * turn), 10.0 * (np.sqrt(x[0] ** 2 + x[1] ** 2) - 1.0), x[2]])


def _beale(x: Any) -> Any:
    return _stack([y - x[0] * (1.0 - x[1] ** k) for k, y in ((1, 1.5), (2, 2.25), (3, 2.625))])


_BARD = np.array([0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.1, 4.39])


def _bard(x: Any) -> Any:
    u = np.arange(1.0, 16.0)
    v = 16.0 - u
    return _BARD - (x[0] + u / (v * x[1] + np.minimum(u, v) * x[2]))


_KOWALIK = np.array([0.1957, 0.1947, 0.1735, 0.16, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246])


def _kowalik_osborne(x: Any) -> Any:
    u = np.array([4.0, 2.0, 1.0, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625])
    return _KOWALIK - x[0] * (u * u + u * x[1]) / (u * u + u * x[2] + x[3])


_MEYER = np.array(
    [34780.0, 28610, 23650, 19630, 16370, 13720, 11540, 9744, 8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872]
)


def _meyer(x: Any) -> Any:
    return x[0] * np.exp(x[1] / (45.0 + 5.0 * np.arange(1.0, 17.0) + x[2])) - _MEYER


def _jennrich_sampson(x: Any) -> Any:
    i = np.arange(1.0, 11.0)
    return 2.0 + 2.0 * i - (np.exp(i * x[0]) + np.exp(i * x[1]))


def _brown_dennis(x: Any) -> Any:
    t = np.arange(1.0, 21.0) / 5.0
    return (x[0] + t * x[1] - np.exp(t)) ** 2 + (x[2] + x[3] * np.sin(t) - np.cos(t)) ** 2


def _box(x: Any) -> Any:
    t = np.arange(1.0, 11.0) / 10.0
    return np.exp(-t * x[0]) - np.exp(-t * x[1]) - x[2] * (np.exp(-t) - np.exp(-10.0 * t))


SQUARES = {
    "rosenbrock": Squares(_rosenbrock, [-1.2, 1.0], 0.0),
    "powell singular": Squares(_powell_singular, [3.0, -1.0, 0.0, 1.0], 0.0),
    "helical valley": Squares(_helical_valley, [-1.0, 0.0, 0.0], 0.0),
    "beale": Squares(_beale, [1.0, 1.0], 0.0),
    "bard": Squares(_bard, [1.0, 1.0, 1.0], 8.21487e-3),
    "kowalik and osborne": Squares(_kowalik_osborne, [0.25, 0.39, 0.415, 0.39], 3.07505e-4),
    "meyer": Squares(_meyer, [0.02, 4000.0, 250.0], 87.9458),
    "jennrich and sampson": Squares(_jennrich_sampson, [0.3, 0.4], 124.362),
    "brown and dennis": Squares(_brown_dennis, [25.0, 5.0, -5.0, -1.0], 85822.2),
    "box": Squares(_box, [0.0, 10.0, 20.0], 0.0),
}


def rosenbrock(x: Any) -> Any:
    """Of any number of unknowns."""
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def wood(x: Any) -> Any:
    """Four unknowns, with a saddle on the way."""
    return (
        100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2 + 90.0 * (x[3] - x[2] ** 2) ** 2 + (1.0 - x[2]) ** 2
        + 10.1 * ((x[1] - 1.0) ** 2 + (x[3] - 1.0) ** 2) + 19.8 * (x[1] - 1.0) * (x[3] - 1.0)
    )  # fmt: skip
