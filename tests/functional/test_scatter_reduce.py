"""Scattering with a reduction, against PyTorch's definition written as a loop; derivatives at ties and at zeros."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check
from wengert.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError

REDUCE = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min}


def _loop(x: Any, i: Any, v: Any, axis: int, reduce: str, include_self: bool) -> Any:
    fallen: dict[tuple[int, ...], list[Any]] = {}
    for place in np.ndindex(i.shape):
        to = list(place)
        to[axis] = i[place] % x.shape[axis]
        fallen.setdefault(tuple(to), []).append(v[place])
    y = x.copy()
    for to, values in fallen.items():
        y[to] = REDUCE[reduce]([x[to], *values] if include_self else values)
    return y


@pytest.mark.parametrize("reduce", REDUCE)
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_values_and_derivatives(reduce: str, include_self: bool, axis: int) -> None:
    rng = np.random.default_rng(2)
    x, v = rng.uniform(0.5, 2.0, (4, 5)), rng.uniform(0.5, 2.0, (3, 6))
    i = rng.integers(-3, 3, (3, 4))  # smaller than both

    def f(a: Any, b: Any) -> Any:
        return wg.scatter_reduce(a, wg.asarray(i), b, axis=axis, reduce=reduce, include_self=include_self)

    got = f(wg.asarray(x), wg.asarray(v)).numpy()
    np.testing.assert_allclose(got, _loop(x, i, v, axis, reduce, include_self), rtol=1e-14)
    check(f, x, v)
    compiled = wg.compile(f)(wg.asarray(x), wg.asarray(v)).numpy()
    np.testing.assert_array_equal(compiled, got)


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
def test_integers(reduce: str) -> None:
    x, v, i = np.array([3, -7, 100], np.int8), np.array([5, -2, 9, 1], np.int8), np.array([0, 0, 2, 0])
    got = wg.scatter_reduce(wg.asarray(x), wg.asarray(i), wg.asarray(v), axis=0, reduce=reduce).numpy()
    assert got.dtype == np.int8
    np.testing.assert_array_equal(got, _loop(x.astype(int), i, v, 0, reduce, True).astype(np.int8))


def test_products_with_zeros_have_their_derivatives() -> None:
    """One zero: only it has a derivative. Two: the mixed second derivative is the product of the others."""
    i = wg.tensor([0, 0, 0])

    def f(v: Any) -> Any:
        return wg.sum(wg.scatter_reduce(wg.tensor([2.0], dtype=wg.float64), i, v, axis=0, reduce="prod"))

    one = wg.tensor([3.0, 0.0, 5.0], dtype=wg.float64)
    np.testing.assert_array_equal(wg.grad(f)(one).numpy(), [0.0, 30.0, 0.0])
    two = wg.tensor([0.0, 4.0, 0.0], dtype=wg.float64)
    np.testing.assert_array_equal(wg.grad(f)(two).numpy(), [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(wg.hessian(f)(two).numpy(), [[0.0, 0.0, 8.0], [0.0, 0.0, 0.0], [8.0, 0.0, 0.0]])


def test_ties_share_the_derivative() -> None:
    def f(x: Any, v: Any) -> Any:
        return wg.sum(wg.scatter_reduce(x, wg.tensor([0, 0, 1]), v, axis=0, reduce="amax"))

    g_x, g_v = wg.grad(f, argnums=(0, 1))(wg.tensor([2.0, 9.0]), wg.tensor([2.0, 2.0, 1.0]))
    np.testing.assert_allclose(g_x.numpy(), [1 / 3, 1.0], rtol=1e-6)
    np.testing.assert_allclose(g_v.numpy(), [1 / 3, 1 / 3, 0.0], rtol=1e-6)


def test_nan_and_infinity() -> None:
    x, v = wg.tensor([0.0, 1.0, -math.inf]), wg.tensor([math.nan, math.inf, -math.inf])
    y = wg.scatter_reduce(x, wg.tensor([0, 1, 2]), v, axis=0, reduce="amax").tolist()
    assert math.isnan(y[0]) and y[1:] == [math.inf, -math.inf]


def test_errors() -> None:
    x, i = wg.zeros((3,)), wg.tensor([0, 5])
    with pytest.raises(ArgumentError, match="reduce must be one of sum, prod, mean, amax, amin, got 'median'"):
        wg.scatter_reduce(x, i, wg.ones((2,)), axis=0, reduce="median")
    with pytest.raises(IndexRangeError, match="scatter_reduce"):
        wg.scatter_reduce(x, i, wg.ones((2,)), axis=0, reduce="sum")
    with pytest.raises(ShapeError, match="scatter_reduce"):
        wg.scatter_reduce(x, wg.tensor([0, 1]), wg.ones((1,)), axis=0, reduce="sum")
    with pytest.raises(DTypeError, match="mean"):
        wg.scatter_reduce(wg.tensor([1]), wg.tensor([0]), wg.tensor([1]), axis=0, reduce="mean")
