"""Functions of NumPy that are more than another name: against NumPy, through its dispatch, and differentiated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check
from wengert.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(4)
X = RNG.uniform(-2, 2, (4, 5, 6))


def _same(got: Any, expected: Any, rtol: float = 1e-13) -> None:
    if isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected):
            _same(a, b, rtol)
        return
    assert isinstance(got, wg.Tensor)
    np.testing.assert_allclose(got.numpy(), expected, rtol=rtol, atol=1e-14)
    assert got.shape == expected.shape


CALLS: dict[str, Any] = {
    "hsplit": lambda np_, x: np_.hsplit(x, [1, 3]),
    "vsplit": lambda np_, x: np_.vsplit(x, 2),
    "dsplit": lambda np_, x: np_.dsplit(x, 3),
    "rollaxis": lambda np_, x: [
        np_.rollaxis(x, 2),
        np_.rollaxis(x, 0, 3),
        np_.rollaxis(x, -1, 1),
        np_.rollaxis(x, 1, -1),
    ],
    "atleast_1d": lambda np_, x: [np_.atleast_1d(x[0, 0, 0]), *np_.atleast_1d(x, x[0])],
    "atleast_2d": lambda np_, x: [np_.atleast_2d(x[0, 0, 0]), np_.atleast_2d(x[0, 0]), np_.atleast_2d(x)],
    "atleast_3d": lambda np_, x: [np_.atleast_3d(x[0, 0, 0]), np_.atleast_3d(x[0, 0]), np_.atleast_3d(x[0])],
    "gradient": lambda np_, x: np_.gradient(x),
    "gradient along an axis": lambda np_, x: np_.gradient(x, 0.5, axis=1, edge_order=2),
    "gradient of uneven samples": lambda np_, x: np_.gradient(x, np.array([0.0, 0.3, 1.0, 1.2, 2.0]), axis=1),
    "gradient of uneven samples, second order": lambda np_, x: np_.gradient(
        x, np.array([0.0, 0.3, 1.0, 1.2, 2.0]), axis=1, edge_order=2
    ),
    "gradient with several spacings": lambda np_, x: np_.gradient(x, 2.0, np.arange(6.0) ** 2, axis=(0, 2)),
    "select": lambda np_, x: np_.select([X < -1, X > 0], [x * 2, x * x], 0.5),
    "fmod": lambda np_, x: np_.fmod(x, 0.7),
    "partition": lambda np_, x: np_.partition(x, 5, axis=-1)[..., 5],
}


@pytest.mark.parametrize("name", CALLS)
def test_as_numpy_under_both_names(name: str) -> None:
    f = CALLS[name]
    _same(f(wg, wg.asarray(X)), f(np, X))
    _same(f(np, wg.asarray(X)), f(np, X))


@pytest.mark.parametrize("name", CALLS)
def test_derivatives(name: str) -> None:
    def f(z: Any) -> Any:
        made = CALLS[name](wg, z)
        parts = made if isinstance(made, (list, tuple)) else [made]
        return wg.concat([wg.flatten(p) for p in parts])

    check(f, X)


def test_gradient_by_its_spacing() -> None:
    check(lambda y, h: wg.gradient(y, h), np.array([1.0, 3.0, 2.0, 5.0]), np.array(0.4))
    check(lambda y, t: wg.gradient(y, t, edge_order=2), np.array([1.0, 3.0, 2.0, 5.0]), np.array([0.0, 1.0, 1.5, 3.0]))
    with pytest.raises(ShapeError, match="needs 3 samples"):
        wg.gradient(wg.ones((2,)), edge_order=2)
    with pytest.raises(ArgumentError, match="edge_order must be 1 or 2"):
        wg.gradient(wg.ones((4,)), edge_order=3)


def test_partition_keeps_its_promise() -> None:
    x = RNG.integers(0, 50, (3, 20))
    for kth in (0, 7, -1):
        y = wg.partition(wg.asarray(x), kth).numpy()
        assert (y == np.sort(x)).all() and np.partition(wg.asarray(x), kth).shape == (3, 20)
        i = wg.argpartition(wg.asarray(x), kth).numpy()
        np.testing.assert_array_equal(np.take_along_axis(x, i, -1), y)
        assert isinstance(np.argpartition(wg.asarray(x), kth), wg.Tensor)
    assert (np.partition(wg.asarray(x), 7, axis=None).numpy() == np.sort(x, axis=None)).all()
    with pytest.raises(ArgumentError, match="kth = 20 is out of range"):
        wg.partition(wg.asarray(x), 20)


def test_select_refuses_what_numpy_refuses() -> None:
    with pytest.raises(DTypeError, match="must be bool"):
        wg.select([wg.tensor([1, 0])], [wg.tensor([1.0, 2.0])])
    with pytest.raises(ArgumentError, match="as many choices as conditions"):
        wg.select([wg.tensor([True])], [])


def test_fmod_has_the_sign_of_the_first_and_is_exact() -> None:
    a, b = np.array([-7.5, 7.5, -7.5, 1e300, 0.0, math.inf, 5.0]), np.array([2.0, -2.0, -2.0, 0.1, 3.0, 2.0, math.inf])
    with np.errstate(invalid="ignore"):
        expected = np.fmod(a, b)
    np.testing.assert_array_equal(wg.fmod(wg.asarray(a), wg.asarray(b)).numpy(), expected)
    i, j = np.array([-7, 7, -7, 8], np.int32), np.array([2, -2, -3, 4], np.int32)
    got = wg.fmod(wg.asarray(i), wg.asarray(j)).numpy()
    np.testing.assert_array_equal(got, np.fmod(i, j))
    assert got.dtype == np.int32
    check(wg.fmod, np.array([-7.3, 7.1]), np.array([2.0, -1.9]))


def test_bitcast() -> None:
    x = RNG.normal(size=7).astype(np.float32)
    np.testing.assert_array_equal(wg.bitcast(wg.asarray(x), wg.int32).numpy(), x.view(np.int32))
    turned = wg.asarray(X).mT  # strided
    np.testing.assert_array_equal(wg.bitcast(turned, "uint64").numpy(), np.swapaxes(X, 1, 2).copy().view(np.uint64))
    with pytest.raises(DTypeError, match="sizes of the elements differ"):
        wg.bitcast(wg.asarray(x), wg.float64)


def test_real_if_close() -> None:
    near, far = np.array([1 + 1e-15j, 2 - 3e-16j]), np.array([1 + 1e-3j])
    for f in (wg.real_if_close, np.real_if_close):
        assert f(wg.asarray(near)).dtype == wg.float64 and f(wg.asarray(far)).dtype == wg.complex128
    assert wg.real_if_close(wg.asarray(far), tol=0.1).dtype == wg.float64


def test_linspace_of_tensors() -> None:
    a, b = np.array([0.0, 1.0]), np.array([[2.0], [5.0]])
    for endpoint in (True, False):
        got = wg.linspace(wg.asarray(a), wg.asarray(b), 5, endpoint=endpoint)
        np.testing.assert_allclose(got.numpy(), np.linspace(a, b, 5, endpoint=endpoint), rtol=1e-15)
    assert wg.linspace(wg.tensor(1.0), 2.0, 1).tolist() == [1.0] and wg.linspace(wg.tensor(1.0), 2.0, 0).shape == (0,)
    through, step = np.linspace(wg.asarray(a), wg.asarray(b), 5, retstep=True, axis=-1)
    expected, length = np.linspace(a, b, 5, retstep=True, axis=-1)
    np.testing.assert_allclose(through.numpy(), expected, rtol=1e-15)
    np.testing.assert_allclose(step.numpy(), length, rtol=1e-15)
    check(lambda x, y: wg.linspace(x, y, 4), np.array([0.3, 2.0]), np.array([1.0, -1.0]))


def test_einsum_with_labels_behind_operands() -> None:
    a, b = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 5))
    for f in (wg.einsum, np.einsum):
        _same(f(wg.asarray(a), [0, 1], wg.asarray(b), [1, 2], [2, 0]), np.einsum(a, [0, 1], b, [1, 2], [2, 0]))
        _same(f(wg.asarray(a), [30, 2], wg.asarray(b), [2, 1]), np.einsum(a, [30, 2], b, [2, 1]))
        _same(f(wg.asarray(X), [..., 1], [1, ...]), np.einsum(X, [..., 1], [1, ...]))
    with pytest.raises(ArgumentError, match="labels must be integers from 0 to 51"):
        wg.einsum(wg.asarray(a), [0, 99])
    with pytest.raises(TypeError, match="equation comes first"):
        wg.einsum(wg.asarray(a), wg.asarray(b))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_values(reverse: bool, exclusive: bool) -> None:
    def expected(f: Any, start: float) -> Any:
        x = np.flip(X, 1) if reverse else X
        y = f(x, 1)
        if exclusive:
            y = np.concatenate([np.full((4, 1, 6), start), y[:, :-1]], 1)
        return np.flip(y, 1) if reverse else y

    for f, theirs, start in (
        (wg.cumulative_sum, np.cumsum, 0.0),
        (wg.cumulative_prod, np.cumprod, 1.0),
        (wg.logcumsumexp, np.logaddexp.accumulate, -math.inf),
    ):

        def run(z: Any, f: Any = f) -> Any:
            return f(z, axis=1, reverse=reverse, exclusive=exclusive)

        np.testing.assert_allclose(run(wg.asarray(X)).numpy(), expected(theirs, start), rtol=1e-12)
        finite = (slice(None), slice(0, -1) if reverse else slice(1, None)) if exclusive else ...
        check(lambda z, run=run, finite=finite: run(z)[finite], X)
    assert wg.cumsum(wg.zeros((0,)), exclusive=True, reverse=reverse).shape == (0,)


def test_running_extrema_from_the_end() -> None:
    values, places = wg.cummax([3.0, 1.0, 2.0, 2.0], reverse=True)
    assert values.tolist() == [3.0, 2.0, 2.0, 2.0] and places.tolist() == [0, 3, 3, 3]
    values, places = wg.cummin([1.0, 3.0, 2.0], reverse=True)
    assert values.tolist() == [1.0, 2.0, 2.0] and places.tolist() == [0, 2, 2]
    with pytest.raises(ArgumentError, match="not both"):
        wg.cumsum([1.0], include_initial=True, exclusive=True)


def test_extrema_of_truth_values() -> None:
    a, b = wg.tensor([True, True, False, False]), wg.tensor([True, False, True, False])
    assert wg.maximum(a, b).tolist() == [True, True, True, False]
    assert np.minimum(a, b).tolist() == [True, False, False, False]
    assert wg.maximum(a, b).dtype == wg.bool_


def test_the_limit_of_axes_is_said() -> None:
    with pytest.raises(ShapeError, match="at most 12 axes"):
        wg.zeros((1,) * 13)
    with pytest.raises(ShapeError, match="at most 12 axes"):
        wg.asarray(np.zeros((1,) * 13))
    with pytest.raises(ShapeError, match="at most 12 axes"):
        wg.zeros((1,) * 12)[None]
