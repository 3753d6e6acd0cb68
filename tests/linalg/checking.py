"""Both modes and second order of a function of tensors, real or complex, against finite differences along directions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import wengert as wg
from tests import finite_differences as fd
from tests.tolerances import AGREEMENT, FIRST_ORDER, SECOND_ORDER, assert_near

STEP = fd.STEP / 4  # directions are longer than 1, and functions of matrices bend


def listed(y: Any) -> list[Any]:
    """Outputs as a list."""
    return list(y) if isinstance(y, (tuple, list)) else [y]


def directions(arrays: Sequence[Any], number: int) -> list[Any]:
    """Non-uniform directions, complex for complex arrays."""
    rng = np.random.default_rng([5, number])

    def like(a: Any) -> Any:
        d = rng.uniform(0.3, 1.7, np.shape(a)) * rng.choice([-1.0, 1.0], np.shape(a))
        return d + 1j * rng.uniform(-1.5, 1.5, np.shape(a)) if np.iscomplexobj(a) else d

    return [like(a) for a in arrays]


def inner(a: Sequence[Any], b: Sequence[Any]) -> float:
    """Re sum conj(a) b."""
    return float(sum(np.real(np.sum(np.conj(x) * y)) for x, y in zip(a, b)))


def tensors(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Tensors of the arrays."""
    return tuple(wg.asarray(np.asarray(a)) for a in arrays)


def check(f: Callable[..., Any], *arrays: Any, second: bool = True) -> None:
    """Assert that forward, reverse and second-order derivatives of f at the arrays are right."""
    xs, v = tensors(arrays), directions(arrays, 0)

    def outputs(*zs: Any) -> tuple[Any, ...]:
        return tuple(listed(f(*zs)))

    def values(t: float) -> list[Any]:
        return [y.numpy() for y in outputs(*tensors([a + t * d for a, d in zip(arrays, v)]))]

    ys, y_dots = wg.jvp(outputs, xs, tensors(v))
    bars = directions([y.numpy() for y in ys], 1)
    for k, y_dot in enumerate(y_dots):
        numeric = fd.along(lambda t, k=k: values(t)[k], STEP)
        assert_near(y_dot.numpy(), numeric, FIRST_ORDER, f"forward mode, output {k}")

    def gradient(*zs: Any) -> tuple[Any, ...]:
        return wg.vjp(outputs, *zs)[1](tensors(bars))

    x_bars = [g.numpy() for g in gradient(*xs)]
    forward, reverse = inner(bars, [d.numpy() for d in y_dots]), inner(x_bars, v)
    np.testing.assert_allclose(reverse, forward, rtol=AGREEMENT, atol=AGREEMENT * max(1.0, abs(forward)))
    if second:
        _check_second(gradient, arrays, xs, v)


def _check_second(gradient: Callable[..., Any], arrays: Sequence[Any], xs: Any, v: Sequence[Any]) -> None:
    pushed = [g.numpy() for g in wg.jvp(gradient, xs, tensors(v))[1]]
    with warnings.catch_warnings():  # the gradient of a linear function is a constant
        warnings.filterwarnings("ignore", ".*does not depend on the argument")
        pulled = [g.numpy() for g in wg.vjp(gradient, *xs)[1](tensors(v))]
    for k, (a, b) in enumerate(zip(pushed, pulled)):
        numeric = fd.along(lambda t, k=k: gradient(*tensors([x + t * d for x, d in zip(arrays, v)]))[k].numpy(), STEP)
        assert_near(a, numeric, SECOND_ORDER, f"forward over reverse, operand {k}")
        assert_near(b, a, 1e-8, f"reverse over reverse, operand {k}")  # of factorisations: conditions near 100


def real_and_complex(*shape: int, number: int = 0) -> list[Any]:
    """A well conditioned array of each kind."""
    rng = np.random.default_rng([9, number, *shape])
    real = rng.uniform(-1, 1, shape)
    return [real, real + 1j * rng.uniform(-1, 1, shape)]


def regular(*shape: int, number: int = 0, complex: bool = False) -> Any:
    """Matrices that are well conditioned, and whose elimination swaps rows."""
    return real_and_complex(*shape, number=number)[complex] + 2 * np.flip(np.eye(*shape[-2:]), -1)


def hermitian(*shape: int, number: int = 0, complex: bool = False) -> Any:
    """Positive definite matrices with eigenvalues that are apart."""
    x = real_and_complex(*shape, number=number)[complex]
    n = shape[-1]
    return (x + np.conj(np.swapaxes(x, -1, -2))) / 6 + np.diag(1.0 + 1.5 * np.arange(n))


def spaced(*shape: int, number: int = 0, complex: bool = False) -> Any:
    """Matrices with singular values (and eigenvalues) that are apart."""
    x = real_and_complex(*shape, number=number)[complex]
    return x / 4 + np.eye(*shape[-2:]) * (1.5 * np.arange(1, shape[-1] + 1))
