"""Finite differences in float64: the judge of every derivative, and never the same algebra."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray[Any, Any]]

# f'(0) = (f(-2h) - 8 f(-h) + 8 f(h) - f(2h)) / 12h + O(h^4): at h = 1e-3 truncation and rounding are both near 1e-12.
STEP = 1e-3
_STENCIL = ((-2, 1.0), (-1, -8.0), (1, 8.0), (2, -1.0))


def along(f: Callable[[float], Any], step: float = STEP) -> Any:
    """The derivative at 0 of a function of one number, whose values are arrays."""
    return sum(weight * np.asarray(f(k * step), np.float64) for k, weight in _STENCIL) / (12 * step)


def directional(f: Callable[..., Any], xs: Arrays, x_dots: Arrays, step: float = STEP) -> Any:
    """The derivative of f at xs along x_dots."""
    return along(lambda t: f(*(x + t * d for x, d in zip(xs, x_dots))), step)


def gradient(f: Callable[..., Any], xs: Arrays, step: float = STEP) -> list[np.ndarray[Any, Any]]:
    """The gradient of a scalar function by every element of every argument."""
    gradients = []
    for k, x in enumerate(xs):
        g = np.zeros(x.shape, np.float64)
        for i in np.ndindex(*x.shape):

            def shifted(t: float, k: int = k, i: Any = i) -> Any:
                moved = [np.array(a, np.float64) for a in xs]
                moved[k][i] += t
                return f(*moved)

            g[i] = along(shifted, step)
        gradients.append(g)
    return gradients


def seeds(shapes: Sequence[tuple[int, ...]], number: int = 0) -> list[np.ndarray[Any, Any]]:
    """Non-uniform directions: all-ones hides wrong broadcasting."""
    rng = np.random.default_rng([7, number])
    return [rng.uniform(0.3, 1.7, s) * rng.choice([-1.0, 1.0], s) for s in shapes]


def inner(a: Arrays, b: Arrays) -> float:
    """The inner product of two lists of arrays."""
    return float(sum(np.sum(np.asarray(x, np.float64) * np.asarray(y, np.float64)) for x, y in zip(a, b)))
