"""`x.at[key].op(v)` against NumPy's `ufunc.at`, with every kind of key; x itself is not changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check

X = np.arange(12.0).reshape(3, 4) / 3 - 1.5
MASK = np.array([[True, False, True, False], [False, False, True, True], [False, False, False, True]])
KEYS: list[Any] = [
    1,
    (slice(None), -1),
    (slice(0, 3, 2), slice(1, 3)),
    (..., None, 2),
    [0, 2, 0],
    ([0, 0, 1], [1, 1, 3]),
    (slice(None), [3, 3]),
    MASK,
    (1, [0, 0, 2]),
]
UFUNCS = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("name", UFUNCS)
def test_combining(name: str, key: Any) -> None:
    value = np.random.default_rng(1).uniform(-2, 2, X[key].shape)
    expected = X.copy()
    UFUNCS[name].at(expected, key, value)
    x = wg.asarray(X.copy())
    got = getattr(x.at[key], name)(wg.asarray(value))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-14)
    np.testing.assert_array_equal(x.numpy(), X)
    check(lambda a, v: getattr(a.at[key], name)(v), X, value)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_setting_and_reading(key: Any) -> None:
    value = np.random.default_rng(1).uniform(-2, 2, X[key].shape)
    expected = X.copy()
    expected[key] = value
    x = wg.asarray(X.copy())
    np.testing.assert_array_equal(x.at[key].set(wg.asarray(value)).numpy(), expected)
    np.testing.assert_array_equal(x.at[key].get().numpy(), X[key])
    np.testing.assert_array_equal(x.numpy(), X)
    check(lambda a, v: a.at[key].set(v), X, value)


def test_numbers_broadcast_and_keep_the_dtype() -> None:
    x = wg.tensor([1, 2, 3], dtype=wg.int32)
    assert x.at[[0, 0, 2]].add(10).tolist() == [21, 2, 13]
    assert x.at[1:].mul(5).dtype == wg.int32
    y = wg.zeros((2, 3)).at[[0, 0]].add([1.0, 2.0, 3.0])
    assert y.tolist() == [[2.0, 4.0, 6.0], [0.0, 0.0, 0.0]]


def test_compiled() -> None:
    @wg.compile
    def f(x: Any, i: Any, v: Any) -> Any:
        return x.at[i].add(v).at[0].set(7.0)

    got = f(wg.tensor([1.0, 2.0, 3.0]), wg.tensor([2, 2]), wg.tensor([5.0, 6.0]))
    assert got.tolist() == [7.0, 2.0, 14.0]
