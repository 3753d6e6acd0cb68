"""Writing in place in every mode: eager, compiled, dual, batched, and derivatives of second order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd

RNG = np.random.default_rng(0)
X = wg.tensor(RNG.normal(size=(4, 4)))
X_DOT = wg.tensor(RNG.normal(size=(4, 4)))


def rows(y: Any, x: Any) -> None:
    y[1] = x[0] * x[2]
    y[:, 1] = x[0] ** 2
    y[1:3, ::2] += x[0, 0]
    y[-1, ...] = 3.0


def index_arrays(y: Any, x: Any) -> None:
    y[[0, 2]] = x[[1, 3]] ** 2
    y[:, [1, 3]] = x[:, :2]
    i = wg.argmax(x[0])
    y[i] = x[1]
    y[i, i] = 2 * x[0, 0]
    y[wg.tensor([0, 1]), i] = x[1, :2]


def masks(y: Any, x: Any) -> None:
    y[y > 0.5] = x.sum() * 0.1
    y[1, y[1] > 0] = 2.0
    y[:2][y[:2] < 0] = x[0, 0]
    y[..., y[0] < 0.3] = 0.7
    y[2:, None, x[2] > 0] = x[3, 3]


def filled_by_mask(y: Any, x: Any) -> None:
    y.masked_fill_(x > 0.3, 2.0)
    y[1:].masked_fill_(x[1:] < -0.5, 0.25)
    y.clip_(-1, 1.5)
    y.add_(x)


def scattered(y: Any, x: Any) -> None:
    index = wg.tensor([[0, 1, 2, 0]])
    y.scatter_(index, x[:1] ** 2, axis=0)
    y.scatter_add_(index, x[1:2], axis=0)
    y.T.scatter_reduce_(index, x[2:3], axis=0, reduce="sum")


def views(y: Any, x: Any) -> None:
    y.T[1] = x[2]
    y.T.add_(x)
    y.reshape(-1)[3:9] *= x[0, 0]
    z = y[1:]
    z[0] = x[0] * y[2]
    z[1:][0].mul_(x[2])
    wg.diagonal(y).mul_(x[0])
    wg.squeeze(y[None])[1] = x[0]
    wg.flip(y, 0)[0].add_(x[1])
    first, second = wg.split(y, 2)
    first.mul_(2)
    second[0] = x[0]
    for row in y:
        row.add_(x[3])


def operators(y: Any, x: Any) -> None:
    y += x
    y *= x
    y -= 1
    y /= 2
    y **= 2
    y[[0, 1]] = y[[1, 0]]


def into_a_new_tensor(y: Any, x: Any) -> Any:
    out = wg.empty((4, 4), dtype=wg.float64)
    for i in range(4):
        out[i] = wg.sin(x[i]) * i
    out[0] += y[1]
    return out


WRITES = [rows, index_arrays, masks, filled_by_mask, scattered, views, operators, into_a_new_tensor]


@pytest.fixture(params=WRITES, ids=[w.__name__ for w in WRITES])
def f(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    def changed(x: Any) -> Any:
        y = x * 1.0
        made = request.param(y, x)
        return y if made is None else made

    return changed


def weighted(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: (f(x) ** 2 * wg.arange(1, 17).reshape(4, 4)).sum()


def test_values(f: Callable[[Any], Any]) -> None:
    assert wg.compile(f)(X).tolist() == f(X).tolist()
    batch = wg.vmap(f)(wg.stack([X, X * 1.5, -X])).numpy()
    for ours, x in zip(batch, (X, X * 1.5, -X)):
        np.testing.assert_allclose(ours, f(x).numpy(), rtol=1e-13)


def test_gradients(f: Callable[[Any], Any]) -> None:
    loss = weighted(f)
    (expected,) = fd.gradient(lambda x: loss(wg.asarray(x)).item(), [X.numpy()])
    for g in (wg.grad(loss), wg.grad(wg.compile(loss)), wg.compile(wg.grad(loss))):
        np.testing.assert_allclose(g(X).numpy(), expected, rtol=1e-5, atol=1e-5)


def test_tangents(f: Callable[[Any], Any]) -> None:
    expected = wg.jvp(f, (X,), (X_DOT,))[1].numpy()
    h = 1e-6
    slope = (f(X + h * X_DOT).numpy() - f(X - h * X_DOT).numpy()) / (2 * h)
    np.testing.assert_allclose(expected, slope, rtol=1e-5, atol=1e-7)
    inside = wg.compile(lambda x, v: wg.jvp(f, (x,), (v,))[1])(X, X_DOT)
    duals = wg.compile(lambda x, v: f(wg.dual(x, v)).tangent)(X, X_DOT)
    for ours in (wg.jvp(wg.compile(f), (X,), (X_DOT,))[1], inside, duals):
        np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-11, atol=1e-12)


def test_second_order(f: Callable[[Any], Any]) -> None:
    loss = weighted(f)
    expected = wg.jacrev(wg.grad(loss))(X).numpy()
    for hessian in (wg.hessian(loss), wg.compile(wg.hessian(loss))):
        np.testing.assert_allclose(hessian(X).numpy(), expected, rtol=1e-9, atol=1e-9)


def test_masked_values_of_another_shape_are_refused() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        y[x > 0] = x[0]
        return y

    with pytest.raises(wg.TraceError, match=r"mask.*depends on the data.*where"):
        wg.compile(f)(X)
