"""Sums, means and extrema of rows by id: a loop in NumPy is the judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check
from tests.tolerances import SECOND_ORDER

RNG = np.random.default_rng(11)
IDS = np.array([2, 0, 2, 4, 0, 0, 4])
N = 5
X = RNG.standard_normal((7, 2, 3))
EMPTY = {"segment_sum": 0.0, "segment_mean": 0.0, "segment_max": -np.inf, "segment_min": np.inf}
REDUCE: dict[str, Callable[..., Any]] = {
    "segment_sum": np.sum,
    "segment_mean": np.mean,
    "segment_max": np.max,
    "segment_min": np.min,
}


def by_loop(name: str, x: Any, ids: Any = IDS, n: int = N) -> Any:
    rows = [x[ids == k] for k in range(n)]
    return np.stack([REDUCE[name](r, axis=0) if len(r) else np.full(x.shape[1:], EMPTY[name]) for r in rows])


@pytest.mark.parametrize("name", REDUCE)
@pytest.mark.parametrize(
    "x", [X, X[:, 0, 0], X[:, :0], X.transpose(0, 2, 1)[:, ::-1]], ids=["3-d", "1-d", "empty", "view"]
)
def test_values(name: str, x: Any) -> None:
    f = getattr(wg, name)
    expected = by_loop(name, x)
    np.testing.assert_allclose(f(wg.asarray(x), IDS, num_segments=N).numpy(), expected, rtol=1e-14)
    compiled = wg.compile(lambda t, i: f(t, i, num_segments=N))
    np.testing.assert_allclose(compiled(wg.asarray(x), wg.asarray(IDS)).numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("name", REDUCE)
def test_derivatives(name: str) -> None:
    def f(x: Any) -> Any:
        y = getattr(wg, name)(x, IDS, num_segments=N)
        return wg.where(wg.isfinite(y), y, 0.0)  # ids without rows

    def slope(x: Any) -> Any:
        return wg.grad(lambda z: (wg.sin(f(z)) * wg.arange(1.0, 4.0)).sum())(x)

    check(f, X)
    check(wg.compile(f), X)
    check(slope, X, tolerance=SECOND_ORDER)
    x_dot = RNG.standard_normal(X.shape)
    y_dot = wg.jvp(f, (wg.asarray(X),), (wg.asarray(x_dot),))[1].numpy()
    step = 1e-6
    finite = (f(wg.asarray(X + step * x_dot)).numpy() - f(wg.asarray(X - step * x_dot)).numpy()) / (2 * step)
    np.testing.assert_allclose(y_dot, finite, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", ["segment_max", "segment_min"])
def test_ties_share_evenly_and_the_value_is_not_rounded(name: str) -> None:
    v = 0.1 if name == "segment_max" else -0.1
    x = wg.tensor(np.array([v, v, v, -v, 7.0]), requires_grad=True)
    y = getattr(wg, name)(x, [0, 0, 0, 0, 1], num_segments=2)
    assert y.tolist() == [v, 7.0]  # a third of 0.1, three times, is another number
    np.testing.assert_allclose(y.backward(wg.tensor([3.0, 5.0], dtype="float64"))[x].numpy(), [1.0, 1.0, 1.0, 0.0, 5.0])


@pytest.mark.parametrize("name", ["segment_max", "segment_min"])
def test_infinities_and_nan(name: str) -> None:
    x = wg.tensor(np.array([np.inf, 1.0, -np.inf, 2.0, np.nan, 3.0]), requires_grad=True)
    y = getattr(wg, name)(x, [0, 0, 1, 1, 2, 2], num_segments=3)
    expected = [np.inf, 2.0, np.nan] if name == "segment_max" else [1.0, -np.inf, np.nan]
    np.testing.assert_array_equal(y.detach().numpy(), expected)
    g = wg.grad_of((y[:2] * wg.tensor([2.0, 3.0], dtype="float64")).sum(), x)[0].tolist()
    assert g == ([2.0, 0.0, 0.0, 3.0, 0.0, 0.0] if name == "segment_max" else [0.0, 2.0, 3.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint64", "float16", "bfloat16", "float32"])
def test_dtypes(dtype: str) -> None:
    x = wg.tensor([1, 5, 3, 2]).astype(dtype)
    high, low = (f(x, [0, 0, 1, 1], num_segments=3) for f in (wg.segment_max, wg.segment_min))
    assert high.dtype == low.dtype == x.dtype
    assert high[:2].tolist() == [5, 3] and low[:2].tolist() == [1, 2]
    if x.dtype.is_integer:
        limits = wg.iinfo(dtype)
        assert high[2].item() == limits.min and low[2].item() == limits.max
    assert wg.segment_mean(x, [0, 0, 1, 1], num_segments=2).astype("float32").tolist() == [3.0, 2.5]


def test_a_mean_of_many_in_half_precision() -> None:
    x = wg.full((70_001,), 3.0, dtype="float16")
    assert wg.segment_mean(x, np.zeros(70_001, int), num_segments=1).tolist() == [3.0]


@pytest.mark.parametrize("name", REDUCE)
def test_no_rows_and_no_segments(name: str) -> None:
    f = getattr(wg, name)
    assert f(wg.zeros((0, 2)), wg.zeros((0,), dtype="int64"), num_segments=2).tolist() == [[EMPTY[name]] * 2] * 2
    assert f(wg.zeros((0, 2)), [], num_segments=0).shape == (0, 2)


@pytest.mark.parametrize("name", REDUCE)
def test_errors(name: str) -> None:
    f, x = getattr(wg, name), wg.ones((3,))
    with pytest.raises(wg.ShapeError, match=rf"{name}: needs one id for each row of x, got float32\(3,\) and ids"):
        f(x, [0, 1], num_segments=2)
    with pytest.raises(wg.ShapeError, match=name):
        f(wg.tensor(1.0), [0], num_segments=2)
    with pytest.raises(wg.IndexRangeError, match=f"{name}: id 5 is out of range for 5 segments"):
        f(x, [0, 5, 0], num_segments=5)
    with pytest.raises(wg.IndexRangeError, match=f"{name}: id -1 is negative"):
        f(x, [0, -1, 0], num_segments=5)
    with pytest.raises(wg.ArgumentError, match=f"{name}: num_segments must not be negative"):
        f(x, [0, 0, 0], num_segments=-1)
    with pytest.raises(TypeError, match=f"{name}: num_segments must be an integer, got 1.5"):
        f(x, [0, 0, 0], num_segments=1.5)
    with pytest.raises(wg.DTypeError, match=f"{name}: indices must be integers"):
        f(x, [0.0, 0.0, 0.0], num_segments=1)
    if name != "segment_sum":
        with pytest.raises(wg.DTypeError, match=name):
            f(wg.ones((1,), dtype="complex64"), [0], num_segments=1)


def test_errors_of_bincount() -> None:
    with pytest.raises(wg.IndexRangeError, match="bincount: x must not be negative, got -1"):
        wg.bincount([0, -1])
    with pytest.raises(wg.ShapeError, match=r"bincount: weights float32\(1,\) must have the shape of x int64\(2,\)"):
        wg.bincount([0, 1], weights=[1.0])
    with pytest.raises(wg.ArgumentError, match="bincount: minlength must not be negative, got -3"):
        wg.bincount([0, 1], minlength=-3)


def test_a_histogram_tells_large_integers_apart() -> None:
    x = [2**24, 2**24 + 1, 2**24 + 2]
    assert wg.histogram(wg.tensor(x), 3)[0].tolist() == [1, 1, 1]
    counts, edges = wg.histogram(wg.tensor(x), [*x, 2**24 + 3])
    assert counts.tolist() == [1, 1, 1] and edges.tolist() == [*x, 2**24 + 3]
