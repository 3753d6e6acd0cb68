"""The judge of random programs: the same text run on NumPy arrays, differentiated by a complex step.

`wg` in a program's text is `Model` here, and its tensors are arrays of complex128. A derivative along v is the imaginary
part of f(x + i·h·v) / h at h = 1e-20: no difference is taken, so first derivatives are exact to rounding. The second is a
difference quotient of the first. Nothing here shares an algorithm with wengert.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special

Arrays = Sequence[np.ndarray[Any, Any]]

COMPLEX_STEP = 1e-20


class Array(np.ndarray[Any, Any]):
    """An array with a tensor's methods. It never becomes a scalar: what is written through x[0, 0] must reach x."""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return np.asarray(array).view(Array)

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        return super().__getitem__(keys if any(k is ... for k in keys) else (*keys, ...))

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:  # type: ignore[override]
        return array(np.sum(np.asarray(self), axis=axis, keepdims=keepdims))

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:  # type: ignore[override]
        return array(np.mean(np.asarray(self), axis=axis, keepdims=keepdims))

    def clone(self) -> Any:
        return self.copy()

    def detach(self) -> Any:
        return array(np.array(self.real))

    def copy_(self, other: Any) -> Any:
        self[...] = other
        return self

    fill_ = copy_

    def zero_(self) -> Any:
        return self.copy_(0.0)

    def add_(self, other: Any) -> Any:
        return self.copy_(self + other)

    def sub_(self, other: Any) -> Any:
        return self.copy_(self - other)

    def mul_(self, other: Any) -> Any:
        return self.copy_(self * other)

    def div_(self, other: Any) -> Any:
        return self.copy_(self / other)

    def sin_(self) -> Any:
        return self.copy_(np.sin(self))

    def tanh_(self) -> Any:
        return self.copy_(np.tanh(self))


def array(a: Any) -> Array:
    """An array of the model."""
    return np.asarray(a, np.complex128).view(Array)


def _softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - np.max(x.real, axis=axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=axis, keepdims=True)


def _logsumexp(x: Any, axis: int, keepdims: bool = False) -> Any:
    shift = np.max(x.real, axis=axis, keepdims=True)
    y = np.log(np.exp(x - shift).sum(axis=axis, keepdims=True)) + shift
    return y if keepdims else array(np.squeeze(y, axis))


def _layer_norm(x: Any, normalized_shape: Any, eps: float) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + eps)


def _huber_loss(a: Any, b: Any, delta: float, reduction: str) -> Any:
    assert reduction == "sum"
    d = a - b
    size = np.where(d.real < 0, -d, d)
    return array(np.where(size.real < delta, 0.5 * d * d, delta * (size - 0.5 * delta))).sum()


class Model:
    """What programs call of wengert, for complex numbers; branches look at the real part."""

    sin, tanh, exp, atan, sqrt, log1p = np.sin, np.tanh, np.exp, np.arctan, np.sqrt, np.log1p
    softmax, logsumexp, layer_norm, huber_loss = _softmax, _logsumexp, _layer_norm, _huber_loss

    @staticmethod
    def erf(x: Any) -> Any:
        return array(special.erf(np.asarray(x)))

    @staticmethod
    def sigmoid(x: Any) -> Any:
        return 1.0 / (1.0 + np.exp(-x))

    @staticmethod
    def where(c: Any, a: Any, b: Any) -> Any:
        return array(np.where(c, a, b))

    @staticmethod
    def leaky_relu(x: Any, slope: float) -> Any:
        return array(np.where(x.real > 0, x, slope * x))

    @staticmethod
    def elu(x: Any, alpha: float) -> Any:
        return array(np.where(x.real > 0, x, alpha * np.expm1(x)))

    @staticmethod
    def cumsum(x: Any, axis: int) -> Any:
        return array(np.cumsum(np.asarray(x), axis=axis))

    @staticmethod
    def roll(x: Any, shift: int, axis: int) -> Any:
        return array(np.roll(np.asarray(x), shift, axis=axis))

    @staticmethod
    def concat(xs: Any, axis: int) -> Any:
        return array(np.concatenate([np.asarray(x) for x in xs], axis=axis))

    @staticmethod
    def broadcast_to(x: Any, shape: Any) -> Any:
        return np.broadcast_to(x, shape, subok=True)


def evaluate(f: Callable[..., Any], xs: Arrays) -> list[np.ndarray[Any, Any]]:
    """The results of a program of the model, on copies of the arrays."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        return [np.array(y) for y in f(*(array(np.array(x, np.complex128)) for x in xs))]


def inner(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """Σ a·b over two lists of arrays, without conjugation."""
    return sum((np.sum(np.asarray(x) * np.asarray(y)) for x, y in zip(a, b)), np.float64(0.0))


def value(f: Callable[..., Any], xs: Arrays, cs: Arrays) -> float:
    """⟨c, f(x)⟩."""
    return float(inner(cs, evaluate(f, xs)).real)


def first(f: Callable[..., Any], xs: Arrays, cs: Arrays, vs: Arrays) -> float:
    """⟨c, J v⟩, which is ⟨Jᵀ c, v⟩."""
    moved = [x + 1j * COMPLEX_STEP * v for x, v in zip(xs, vs)]
    return float(inner(cs, evaluate(f, moved)).imag / COMPLEX_STEP)


def second(f: Callable[..., Any], xs: Arrays, cs: Arrays, vs: Arrays, ws: Arrays) -> tuple[float, float]:
    """⟨w, H v⟩ with H the Hessian of ⟨c, f⟩, and how far it can be trusted."""

    def slope(step: float) -> float:
        stencil = ((-2, 1.0), (-1, -8.0), (1, 8.0), (2, -1.0))
        along = lambda t: first(f, [x + t * w for x, w in zip(xs, ws)], cs, vs)
        return sum(weight * along(k * step) for k, weight in stencil) / (12 * step)

    coarse, fine = slope(2e-3), slope(1e-3)
    return fine, abs(fine - coarse)
