"""Gradients against finite differences in float64, with output gradients that are not uniform."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert import _core
from wengert.autograd.creation import asarray, tensor


def gradients(f: Callable[..., Any], *arrays: np.ndarray[Any, Any], seed: Any = None) -> list[Any]:
    """Gradients of Σ seed·f by every array, by the native backward; None where there is no path."""
    xs = [tensor(a, requires_grad=True) for a in arrays]
    y = f(*xs)
    weights = seed_of(y.shape) if seed is None else seed
    _core.backward([(y, asarray(weights.astype(y.dtype.to_numpy())))], None, False, True, True)
    return [None if x.grad is None else np.array(x.grad.numpy()) for x in xs]


def seed_of(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Weights that differ from element to element."""
    n = int(np.prod(shape))
    return np.cos(1.0 + np.arange(n, dtype=np.float64)).reshape(shape)


def numerical(f: Callable[..., Any], arrays: list[Any], which: int, step: float = 1e-6) -> np.ndarray[Any, Any]:
    """Central differences of Σ seed·f by one array."""

    def value(a: np.ndarray[Any, Any]) -> float:
        y = f(*(tensor(a if k == which else b) for k, b in enumerate(arrays)))
        return float(np.sum(y.numpy() * seed_of(y.shape)))

    x = arrays[which]
    g = np.zeros(x.shape)
    for i in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        g[i] = (value(up) - value(down)) / (2 * step)
    return g


def check(f: Callable[..., Any], *arrays: Any, tolerance: float = 1e-6) -> None:
    """Assert that the gradients of f by every array agree with finite differences."""
    given = [np.array(a, dtype=np.float64) for a in arrays]
    for k, g in enumerate(gradients(f, *given)):
        expected = numerical(f, given, k)
        got = np.zeros_like(expected) if g is None else g
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, err_msg=f"operand {k}")
