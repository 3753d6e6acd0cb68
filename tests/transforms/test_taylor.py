"""Taylor mode: containers, other transformations around it, loops, long series. Every op: tests/ops/test_taylor.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.transforms.hybrid import TracedFunction

RNG = np.random.default_rng(0)
W = wg.asarray(RNG.normal(size=(3, 3)))
X, V = (wg.asarray(RNG.uniform(0.2, 0.8, size=3)) for _ in range(2))
ZERO = wg.zeros((3,), dtype=wg.float64)


def f(x: Any) -> Any:
    return wg.tanh(x @ W) * x / (1.0 + x * x)


def test_derivatives_along_a_line() -> None:
    y, (first, second, third) = wg.taylor(f, X, [V, ZERO, ZERO])
    np.testing.assert_array_equal(y.numpy(), f(X).numpy())
    slope = lambda x: wg.jvp(f, (x,), (V,))[1]
    curvature = lambda x: wg.jvp(slope, (x,), (V,))[1]
    np.testing.assert_allclose(first.numpy(), slope(X).numpy(), rtol=1e-12)
    np.testing.assert_allclose(second.numpy(), curvature(X).numpy(), rtol=1e-12)
    np.testing.assert_allclose(third.numpy(), wg.jvp(curvature, (X,), (V,))[1].numpy(), rtol=1e-12)


def test_a_long_series_is_that_of_the_function() -> None:
    one, zero = wg.asarray(1.0, dtype=wg.float64), wg.asarray(0.0, dtype=wg.float64)
    for g, coefficients in (
        (wg.exp, [1.0 / math.factorial(k) for k in range(21)]),
        (lambda x: 1.0 / (1.0 - x), [1.0] * 21),
        (lambda x: x**3 + x**2, [0.0, 0.0, 1.0, 1.0, *[0.0] * 17]),  # also at zero
        (lambda x: wg.log(1.0 + x), [0.0, *((-1.0) ** (k + 1) / k for k in range(1, 21))]),
    ):
        y, derivatives = wg.taylor(g, zero, [one, *[zero] * 19])
        found = [c.item() / math.factorial(k) for k, c in enumerate([y, *derivatives])]
        np.testing.assert_allclose(found, coefficients[:21], rtol=1e-10, atol=1e-12)


def test_containers_and_paths_that_bend() -> None:
    def g(p: Any) -> Any:
        return {"y": p["a"] * wg.sin(p["b"]), "z": p["a"].sum()}

    p = {"a": X, "b": wg.asarray(0.3, dtype=wg.float64)}
    path = [{"a": V, "b": wg.asarray(1.0, dtype=wg.float64)}, {"a": X * V, "b": wg.asarray(-2.0, dtype=wg.float64)}]
    y, (first, second) = wg.taylor(g, p, path)
    assert y["z"].item() == X.sum().item()

    def along(t: Any) -> Any:
        return g({k: p[k] + path[0][k] * t + path[1][k] * t * t / 2 for k in p})["y"]

    t = wg.asarray(0.0, dtype=wg.float64)
    slope = lambda t: wg.jvp(along, (t,), (wg.ones_like(t),))[1]
    np.testing.assert_allclose(first["y"].numpy(), slope(t).numpy(), rtol=1e-12)
    np.testing.assert_allclose(second["y"].numpy(), wg.jvp(slope, (t,), (wg.ones_like(t),))[1].numpy(), rtol=1e-12)


def test_nests_with_the_other_transformations() -> None:
    def second(x: Any) -> Any:
        return wg.taylor(f, x, [V, ZERO])[1][1]

    def by_nesting(x: Any) -> Any:
        return wg.jvp(lambda x: wg.jvp(f, (x,), (V,))[1], (x,), (V,))[1]

    for transform in (
        lambda g: g,
        wg.compile,
        wg.jacfwd,
        wg.jacrev,
        lambda g: wg.compile(wg.jacobian(g)),
        lambda g: wg.grad(lambda x: g(x).sum()),
    ):
        np.testing.assert_allclose(transform(second)(X).numpy(), transform(by_nesting)(X).numpy(), rtol=1e-10)
    xs = wg.stack([X, V])
    np.testing.assert_allclose(wg.vmap(second)(xs).numpy(), wg.vmap(by_nesting)(xs).numpy(), rtol=1e-10)
    of_taylor = wg.taylor(second, X, [V])[1][0]
    np.testing.assert_allclose(of_taylor.numpy(), wg.jvp(by_nesting, (X,), (V,))[1].numpy(), rtol=1e-10)


def test_loops_and_branches() -> None:
    def g(x: Any) -> Any:
        y = wg.fori_loop(0, 3, lambda _, c: wg.sin(c) * 2.0, x)
        return wg.cond(y.sum() > 0, lambda y: y * y, lambda y: y, y)

    def unrolled(x: Any) -> Any:
        for _ in range(3):
            x = wg.sin(x) * 2.0
        return x * x

    for a, b in zip(wg.taylor(g, X, [V, X, V])[1], wg.taylor(unrolled, X, [V, X, V])[1], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-11)


def test_programs_grow_as_the_square_of_the_order() -> None:
    def instructions(order: int) -> int:
        path = [V, *[ZERO] * (order - 1)]
        return len(
            TracedFunction(
                lambda x: wg.taylor(lambda x: wg.tanh(x @ W) * x, x, path)[1][-1], [X], ""
            ).program.instructions
        )

    assert instructions(16) < 5 * instructions(8) < 25 * instructions(4)


def test_custom_ops_by_their_rules() -> None:
    cube = wg.custom_op(lambda x: wg.asarray(x.numpy() ** 3))
    cube.defjvp(lambda x_dot, y, x: 3 * x**2 * x_dot)
    np.testing.assert_allclose(wg.taylor(cube, X, [V, ZERO])[1][1].numpy(), (6 * X * V * V).numpy(), rtol=1e-12)


def test_bad_arguments() -> None:
    with pytest.raises(
        wg.ArgumentError, match=r"takes the derivatives of the path, \[x1, x2, …\], at least one, got Tensor"
    ):
        wg.taylor(f, X, V)  # type: ignore[arg-type]
    with pytest.raises(wg.ShapeError, match=r"derivative 2 of the path has shape \(2,\), expected \(3,\)"):
        wg.taylor(f, X, [V, V[:2]])
    with pytest.raises(wg.DTypeError, match="only floating tensors have derivatives"):
        wg.taylor(lambda x: x, wg.asarray([1, 2]), [wg.asarray([1, 2])])
    with pytest.raises(wg.TraceError, match="taylor: the function.*branches on|branches on the data"):
        wg.taylor(lambda x: x if x.sum() > 0 else -x, X, [V])
    with pytest.raises(wg.GradientError, match="the function returned None"):
        wg.taylor(lambda x: None, X, [V])
