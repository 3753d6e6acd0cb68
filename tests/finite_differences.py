"""Finite differences in float64: the judge of every derivative, and never the same algebra.

Complex numbers are pairs of real ones: the gradient by z is dL/dRe z + i dL/dIm z, and <u, v> = Re sum conj(u) v.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.tolerances import FIRST_ORDER, assert_near
from wengert.tensors.conversion import tensor

Arrays = Sequence[np.ndarray[Any, Any]]

# f'(0) = (f(-2h) - 8 f(-h) + 8 f(h) - f(2h)) / 12h + O(h^4): at h = 1e-3 truncation and rounding are both near 1e-12.
STEP = 1e-3
_STENCIL = ((-2, 1.0), (-1, -8.0), (1, 8.0), (2, -1.0))


def wide(a: Any) -> np.ndarray[Any, Any]:
    """In float64, or complex128."""
    a = np.asarray(a)
    return a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)


def along(f: Callable[[float], Any], step: float = STEP) -> Any:
    """The derivative at 0 of a function of one number, whose values are arrays."""
    return sum(weight * wide(f(k * step)) for k, weight in _STENCIL) / (12 * step)


def directional(f: Callable[..., Any], xs: Arrays, x_dots: Arrays, step: float = STEP) -> Any:
    """The derivative of f at xs along x_dots."""
    return along(lambda t: f(*(x + t * d for x, d in zip(xs, x_dots))), step)


def gradient(f: Callable[..., Any], xs: Arrays, step: float = STEP) -> list[np.ndarray[Any, Any]]:
    """The gradient of a scalar function by every element of every argument."""
    gradients = []
    for k, x in enumerate(xs):
        g = np.zeros_like(wide(x))
        for i in np.ndindex(*x.shape):
            for unit in (1, 1j) if g.dtype.kind == "c" else (1,):

                def shifted(t: float, k: int = k, i: Any = i, unit: complex = unit) -> Any:
                    moved = [wide(a) for a in xs]
                    moved[k][i] += t * unit
                    return f(*moved)

                g[i] += unit * along(shifted, step)
        gradients.append(g)
    return gradients


def seeds(shapes: Sequence[tuple[int, ...]], number: int = 0) -> list[np.ndarray[Any, Any]]:
    """Non-uniform directions: all-ones hides wrong broadcasting."""
    return seeds_like([np.empty(s) for s in shapes], number)


def seeds_like(arrays: Arrays, number: int = 0) -> list[np.ndarray[Any, Any]]:
    """Non-uniform directions of the arrays' shapes, complex where they are."""
    rng = np.random.default_rng([7, number])
    sizes = [(rng.uniform(0.3, 1.7, a.shape), rng.choice([-1.0, 1.0], a.shape)) for a in arrays]
    turns = [np.exp(2j * np.pi * rng.random(a.shape)) if a.dtype.kind == "c" else 1.0 for a in arrays]
    return [np.asarray(size * sign * turn) for (size, sign), turn in zip(sizes, turns)]


def inner(a: Arrays, b: Arrays) -> float:
    """The inner product of two lists of arrays."""
    return float(sum(np.sum(np.conj(wide(x)) * wide(y)).real for x, y in zip(a, b)))


def pulled(f: Callable[..., Any], *arrays: np.ndarray[Any, Any], seed: Any = None) -> list[Any]:
    """What `backward` says of Σ seed·f, for every array; None where there is no path."""
    xs = [tensor(a, requires_grad=True) for a in arrays]
    y = f(*xs)
    y.backward(seeds([tuple(y.shape)])[0] if seed is None else seed)
    return [None if x.grad is None else np.array(x.grad.numpy()) for x in xs]


def check(f: Callable[..., Any], *arrays: Any, tolerance: float = FIRST_ORDER) -> None:
    """Assert that backward through f agrees with finite differences, for every array."""
    given = [np.array(a, dtype=np.float64) for a in arrays]

    def value(*xs: np.ndarray[Any, Any]) -> Any:
        y = f(*(tensor(x) for x in xs)).numpy()
        return np.sum(y * seeds([y.shape])[0])

    for k, (g, expected) in enumerate(zip(pulled(f, *given), gradient(value, given))):
        assert_near(np.zeros_like(expected) if g is None else g, expected, tolerance, f"operand {k}")
