"""Zeros between two places, against SciPy's."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import scipy.optimize

from wengert.numerics.brent import brent


@pytest.mark.parametrize(
    ("f", "a", "b"),
    [
        (lambda x: x * x - 2.0, 0.0, 2.0),
        (lambda x: math.cos(x) - x, 0.0, 1.0),
        (lambda x: (x - 1.0) ** 9, 0.0, 3.0),
        (lambda x: math.atan(50.0 * (x - 0.3)), -1.0, 5.0),
        (lambda x: math.exp(-x) - 1e-6, 0.0, 100.0),
        (lambda x: -1.0 if x < 0.7 else 1.0, 0.0, 1.0),
        (lambda x: x, -1.0, 0.0),
    ],
)
def test_against_scipy(f: Callable[[float], float], a: float, b: float) -> None:
    calls = []

    def counted(x: float) -> float:
        calls.append(x)
        return f(x)

    found = brent(counted, (a, b), (f(a), f(b)))
    expected, info = scipy.optimize.brentq(f, a, b, xtol=4e-16, rtol=4 * 2.3e-16, full_output=True, maxiter=1000)
    assert abs(found - expected) < 1e-12 or abs(f(found)) <= abs(f(expected)) + 1e-300
    assert len(calls) <= info.function_calls + 10
    assert all(min(a, b) <= x <= max(a, b) for x in calls)
