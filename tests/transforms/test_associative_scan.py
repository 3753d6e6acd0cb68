"""`associative_scan`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 8, 13])
def test_prefixes(n: int, reverse: bool) -> None:
    x = RNG.normal(size=(2, n, 3))
    expected = np.flip(np.cumsum(np.flip(x, 1), 1), 1) if reverse else np.cumsum(x, 1)
    for axis in (1, -2):
        ours = wg.associative_scan(lambda a, b: a + b, wg.tensor(x), reverse=reverse, axis=axis)
        np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-12, atol=1e-14)
    matrices = RNG.normal(size=(n, 2, 2))
    f = wg.compile(lambda m: wg.associative_scan(lambda a, b: a @ b, m, reverse=reverse))
    made = f(wg.tensor(matrices)).numpy()
    product = np.eye(2)
    for k in reversed(range(n)) if reverse else range(n):
        product = product @ matrices[k]
        np.testing.assert_allclose(made[k], product, rtol=1e-10)


def recurrence(a: Any, b: Any) -> Any:
    ys = wg.associative_scan(lambda f, g: {"a": f["a"] * g["a"], "b": g["a"] * f["b"] + g["b"]}, {"a": a, "b": b})["b"]
    return (ys * wg.sin(wg.arange(a.shape[0]) * 1.0)).sum()


def test_derivatives() -> None:
    a, b = wg.tensor(RNG.normal(size=9)), wg.tensor(RNG.normal(size=9))
    expected = fd.gradient(lambda *v: recurrence(*map(wg.asarray, v)).item(), [a.numpy(), b.numpy()])
    for g in (wg.grad(recurrence, (0, 1)), wg.compile(wg.grad(recurrence, (0, 1)))):
        for ours, e in zip(g(a, b), expected):
            np.testing.assert_allclose(ours.numpy(), e, rtol=1e-6, atol=1e-8)
    loop = wg.compile(lambda a, b: (wg.scan(lambda y, x: (x[0] * y + x[1],) * 2, wg.tensor(0.0, dtype=wg.float64), (a, b))[1]
                                    * wg.sin(wg.arange(9) * 1.0)).sum())  # fmt: skip
    np.testing.assert_allclose(
        wg.hessian(recurrence)(a, b).numpy(), wg.hessian(loop)(a, b).numpy(), rtol=1e-9, atol=1e-10
    )
    xs = wg.tensor(RNG.normal(size=(4, 9)))
    each = [recurrence(x, b).item() for x in xs]
    np.testing.assert_allclose(wg.vmap(recurrence, (0, None))(xs, b).numpy(), each, rtol=1e-12)


def test_depth_is_logarithmic() -> None:
    calls = []

    def add(a: Any, b: Any) -> Any:
        calls.append(a.shape[0])
        return a + b

    wg.associative_scan(add, wg.ones(1000))
    assert len(calls) <= 20
    assert sum(calls) <= 2000


def test_bad_input() -> None:
    x = wg.ones((4, 3))
    with pytest.raises(wg.ShapeError, match=r"associative_scan.*float32\[2, 3\].*float32\[2\]"):
        wg.associative_scan(lambda a, b: a.sum(1), x)
    with pytest.raises(wg.DTypeError, match=r"associative_scan.*float32.*float64.*astype"):
        wg.associative_scan(lambda a, b: (a + b).astype(wg.float64), x)
    with pytest.raises(wg.ArgumentError, match="structure"):
        wg.associative_scan(lambda a, b: a[0], (x, x))
    with pytest.raises(wg.AxisError, match="out of range"):
        wg.associative_scan(lambda a, b: a, x, axis=2)
    with pytest.raises(wg.ShapeError, match="same size"):
        wg.associative_scan(lambda a, b: a, (x, wg.ones(5)))
    with pytest.raises(wg.ArgumentError, match="at least one"):
        wg.associative_scan(lambda a, b: a, ())
