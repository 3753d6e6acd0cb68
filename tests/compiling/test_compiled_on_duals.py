"""Compiled functions on dual tensors: the push of their program, or the function itself where that says more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg

F64: Any = wg.float64
CAPTURED = wg.asarray([0.5, -1.0, 2.0], dtype=F64)
COUNTER = wg.zeros((), dtype=F64)


def several(x: Any, w: Any) -> Any:
    return {"y": wg.tanh(x * w), "same": x, "apart": w + 1.0, "whole": (wg.round(x), 2.0)}


def writes(x: Any, w: Any) -> Any:
    y = x * 2.0
    y[0] = w[0] * w[1]
    return y * y


def counts(x: Any, w: Any) -> Any:
    COUNTER.add_(1.0)
    return wg.sin(x) * w


def without_gradients(x: Any, w: Any) -> Any:
    with wg.no_grad():
        scale = wg.exp(x)
    return scale * x * w


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "one": lambda x, w: wg.tanh(x * w) + x,
    "several": several,
    "captured": lambda x, w: wg.cumsum(x * CAPTURED) * w,
    "identity": lambda x, w: x,
    "constant": lambda x, w: wg.ones((3,), dtype=F64) * 2.0,
    "detached": lambda x, w: x.detach() * x * w,
    "under no_grad": without_gradients,
    "writes inside": writes,
    "writes outside": counts,
    "branch": lambda x, w: wg.cond(x.sum() > 0.0, lambda x: wg.sin(x), lambda x: wg.cos(x) * 2.0, x) * w,
    "gradient inside": lambda x, w: wg.grad(lambda x: (wg.sin(x) * w * w).sum())(x),
    "pushed inside": lambda x, w: wg.jvp(lambda w: x * x * wg.exp(w), (w,), (x,))[1],
}


def vectors() -> list[Any]:
    rng = np.random.default_rng(3)
    return [wg.asarray(rng.normal(size=3)) for _ in range(6)]


def same(a: Any, b: Any) -> None:
    left, right = wg.tree.leaves(a), wg.tree.leaves(b)
    assert wg.tree.structure(a) == wg.tree.structure(b)
    for u, v in zip(left, right):
        np.testing.assert_allclose(np.asarray(u), np.asarray(v), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents_are_those_of_the_function(name: str) -> None:
    f, compiled = FUNCTIONS[name], wg.compile(FUNCTIONS[name])
    x, w, a, b, c, d = vectors()
    for _ in range(2):
        same(wg.jvp(compiled, (x, w), (a, b)), wg.jvp(f, (x, w), (a, b)))
        same(wg.jvp(lambda x: compiled(x, w), (x,), (a,)), wg.jvp(lambda x: f(x, w), (x,), (a,)))

        def twice(g: Any) -> Any:
            return wg.jvp(lambda x, w: wg.jvp(g, (x, w), (a, b))[1], (x, w), (c, d))

        same(twice(compiled), twice(f))


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "several"])
def test_recorded_and_mixed(name: str) -> None:
    f, compiled = FUNCTIONS[name], wg.compile(FUNCTIONS[name])
    x, w, a, b, _, _ = vectors()

    def forward_over_reverse(g: Any) -> Any:
        return wg.jvp(wg.grad(lambda x, w: (g(x, w) * w).sum(), argnums=(0, 1)), (x, w), (a, b))

    def reverse_over_forward(g: Any) -> Any:
        return wg.grad(lambda x, w: (wg.jvp(g, (x, w), (a, b))[1] * w).sum(), argnums=(0, 1))(x, w)

    for mode in (forward_over_reverse, reverse_over_forward):
        same(mode(compiled), mode(f))


def test_containers_and_numbers() -> None:
    def f(p: dict[str, Any], n: float, *, flag: bool = False) -> Any:
        return {"out": wg.sin(p["x"]) * p["w"] * n + (1.0 if flag else 0.0)}

    compiled = wg.compile(f)
    x, w, a, b, _, _ = vectors()
    for n in (0.5, 1.5, 2.5):
        for flag in (False, True):
            call: Any = lambda g: wg.jvp(lambda p: g(p, n, flag=flag), ({"x": x, "w": w},), ({"x": a, "w": b},))
            same(call(compiled), call(f))


def test_other_sizes_and_dtypes() -> None:
    f: Any = lambda x: wg.tanh(x[1:] * x[:-1]).sum(axis=0)
    compiled = wg.compile(f)
    for shape in ((3, 2), (5, 2), (2, 1), (4,), (3, 2)):
        for dtype in (wg.float32, F64):
            x, a = wg.randn(*shape, dtype=dtype), wg.randn(*shape, dtype=dtype)
            for u, v in zip(wg.jvp(compiled, (x,), (a,)), wg.jvp(f, (x,), (a,))):
                assert u.dtype == v.dtype
                np.testing.assert_allclose(u.numpy(), v.numpy(), rtol=1e-5)


def test_more_operands_than_a_mask_has_bits() -> None:
    f: Any = lambda *xs: sum(x * float(k) for k, x in enumerate(xs))
    compiled = wg.compile(f)
    xs, dots = [wg.randn(2) for _ in range(70)], [wg.randn(2) for _ in range(70)]
    same(wg.jvp(compiled, xs, dots), wg.jvp(f, xs, dots))


def test_random_numbers_are_new_in_every_call() -> None:
    compiled = wg.compile(lambda x: x * wg.rand(3))
    x, a = wg.ones((3,)), wg.ones((3,))
    (y, y_dot), (z, _) = wg.jvp(compiled, (x,), (a,)), wg.jvp(compiled, (x,), (a,))
    np.testing.assert_array_equal(y.numpy(), y_dot.numpy())
    assert not np.array_equal(y.numpy(), z.numpy())


def test_closures_over_duals() -> None:
    def f(x: Any, a: Any) -> Any:
        inner = wg.compile(lambda y: y * x)
        return inner(x) + inner(a)

    x, a, _, _, _, _ = vectors()
    same(wg.jvp(f, (x, a), (a, x)), (x * x + a * x, 2.0 * x * a + x * x + a * a))


def test_errors_are_those_of_the_function() -> None:
    compiled = wg.compile(lambda x, w: x @ w)
    x, a = wg.ones((2, 3)), wg.ones((2, 3))
    with pytest.raises(wg.ShapeError, match="(?s)matmul.*n0_0 = 2, n0_1 = 3"):
        wg.jvp(compiled, (x, x), (a, a))
