"""Sorting and what is read off the order: values as NumPy's, ties, NaN, both modes, traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check
from wengert.errors import ArgumentError, DTypeError, ShapeError, TraceError

DTYPES = ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def shuffled(*shape: int) -> Any:
    """Distinct numbers, a difference quotient apart."""
    n = int(np.prod(shape))
    return np.random.default_rng(5).permutation(n).reshape(shape) * 0.25 - n / 8


def ordered(x: Any, descending: bool) -> Any:
    """The stable order along the last axis."""
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")
    return (x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable"))[..., ::-1]


# Lengths on both sides of every change of method: insertion, one chunk, several, and so long that all bits are sorted.
@pytest.mark.parametrize("n", [0, 1, 2, 24, 25, 100, 1000, 32768, 32769, 300_000])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["spread", "few", "zeros", "clusters", "sorted"])
def test_sort_orders_as_numpy(n: int, dtype: str, kind: str) -> None:
    rng = np.random.default_rng([n, len(kind)])
    x = rng.standard_normal(n) * 50
    if kind == "few":
        x = np.round(x / 40)
    elif kind == "zeros":
        x = np.where(rng.random(n) < 0.5, 0.0, -0.0)
    elif kind == "clusters":  # the high bits decide nothing
        x = np.where(rng.random(n) < 0.5, -100.0, 100.0) + rng.integers(0, 20, n)
    elif kind == "sorted":
        x = np.sort(x)
    x = np.abs(x) if dtype.startswith("u") else x
    x = x.astype(dtype)
    for descending in (False, True):
        places = ordered(x, descending)
        t = wg.asarray(x)
        np.testing.assert_array_equal(wg.argsort(t, descending=descending).numpy(), places)
        values = wg.sort(t, descending=descending).numpy()
        assert values.dtype == x.dtype
        np.testing.assert_array_equal(values.view(np.uint8), x[places].view(np.uint8))  # signs of zeros too
        for k in {0, min(n, 3), n // 2, n}:
            got, where = wg.topk(t, k, largest=descending)
            np.testing.assert_array_equal(where.numpy(), places[:k])
            np.testing.assert_array_equal(got.numpy().view(np.uint8), x[places[:k]].view(np.uint8))


def test_wide_integers_differ_in_any_bit() -> None:
    rng = np.random.default_rng(1)
    for x in (
        rng.integers(-(2**63), 2**63 - 1, 2000),
        rng.integers(0, 2**63, 2000, dtype=np.uint64) << np.uint64(1),
        rng.integers(-5, 5, 2000) * 2**40 + rng.integers(-3, 3, 2000),
        np.array([2**63 - 1, -(2**63), 0, -1, 1]),
    ):
        np.testing.assert_array_equal(wg.argsort(wg.asarray(x)).numpy(), np.argsort(x, kind="stable"))
        np.testing.assert_array_equal(wg.sort(wg.asarray(x)).numpy(), np.sort(x))


def test_bfloat16() -> None:
    x = wg.asarray(shuffled(300)).astype(wg.bfloat16)
    np.testing.assert_array_equal(wg.argsort(x).numpy(), np.argsort(np.asarray(x).astype(np.float64), kind="stable"))


@pytest.mark.parametrize("axis", [0, 1, -1, -3])
def test_any_axis_and_layout(axis: int) -> None:
    a = shuffled(4, 5, 6)
    for x in (a, a[::-1, ::2], a.transpose(2, 0, 1), np.broadcast_to(a[:, :1], (4, 3, 6))):
        t = wg.asarray(x)
        np.testing.assert_array_equal(wg.sort(t, axis=axis).numpy(), np.sort(x, axis=axis))
        np.testing.assert_array_equal(wg.argsort(t, axis=axis).numpy(), np.argsort(x, axis=axis, kind="stable"))
        values, where = wg.topk(t, 2, axis=axis)
        np.testing.assert_array_equal(values.numpy(), np.flip(np.sort(x, axis), axis).take([0, 1], axis))
        np.testing.assert_array_equal(np.take_along_axis(x, where.numpy(), axis), values.numpy())


def test_empty() -> None:
    assert wg.sort(wg.zeros((3, 0))).shape == (3, 0)
    assert wg.argsort(wg.zeros((0, 3)), axis=1).shape == (0, 3)
    assert wg.topk(wg.zeros((2, 0)), 0)[0].shape == (2, 0)


def test_gradients() -> None:
    a = shuffled(3, 5)
    check(lambda x: wg.sort(x, axis=0, descending=True), a)
    check(lambda x: wg.topk(x, 3)[0], a)
    check(lambda x: wg.topk(x * x * x, 2, axis=0, largest=False)[0], a)
    check(lambda x: wg.median(x, axis=1), a)
    check(lambda x: wg.median(x, axis=0, keepdims=True), shuffled(4, 3))
    check(lambda x: wg.median(x), shuffled(2, 3, 2))
    check(lambda x: wg.quantile(x, 0.3, axis=1), a)
    check(lambda x: wg.quantile(x * x, [0.1, 0.5, 0.9], axis=(0, 1)), a + 20)
    check(lambda x, q: wg.quantile(x, q, axis=0), a, np.array([0.21, 0.7]))
    check(lambda x: wg.unique_values(x), a)


def test_ties_pick_the_first() -> None:
    x = wg.tensor([2.0, 1.0, 2.0, 1.0], requires_grad=True)
    weights = wg.tensor([1.0, 10.0, 100.0, 1000.0])
    assert (wg.sort(x) * weights).sum().backward()[x].tolist() == [100.0, 1.0, 1000.0, 10.0]
    x = wg.tensor([2.0, 1.0, 2.0, 1.0], requires_grad=True)
    assert (wg.sort(x, descending=True) * weights).sum().backward()[x].tolist() == [1.0, 100.0, 10.0, 1000.0]
    x = wg.tensor([2.0, 1.0, 2.0, 1.0], requires_grad=True)
    assert wg.topk(x, 1)[0].sum().backward()[x].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_inside_compiled_functions() -> None:
    @wg.compile
    def f(x: Any) -> Any:
        y = wg.sort(x, axis=1)
        values, where = wg.topk(x, 2)
        return y * 2.0, values, where, wg.median(x, axis=1), wg.quantile(x, 0.25)

    for shape in ((3, 4), (2, 7)):  # other sizes, odd and even
        a = shuffled(*shape)
        y, values, where, middle, low = f(wg.asarray(a))
        np.testing.assert_array_equal(y.numpy(), 2 * np.sort(a, 1))
        np.testing.assert_array_equal(values.numpy(), np.sort(a, 1)[:, :-3:-1])
        np.testing.assert_array_equal(where.numpy(), np.argsort(-a, 1)[:, :2])
        np.testing.assert_allclose(middle.numpy(), np.median(a, 1))
        np.testing.assert_allclose(low.numpy(), np.quantile(a, 0.25))


NAN = np.array([[1.0, 2.0], [np.nan, 4.0]])


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("sort", lambda x: wg.sort(x)),
        ("sort", lambda x: wg.sort(x.requires_grad_())),
        ("argsort", lambda x: wg.argsort(x)),
        ("topk", lambda x: wg.topk(x, 1)),
        ("median", lambda x: wg.median(x, axis=1)),
        ("quantile", lambda x: wg.quantile(x, 0.5, axis=1)),
        ("searchsorted", lambda x: wg.searchsorted(wg.tensor([1.0, 2.0], dtype=wg.float64), x)),
    ],
)
def test_nan_is_refused_by_name_and_place(name: str, call: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"^{name}: .*NaN at \[1, 0\]"):
        call(wg.asarray(NAN.copy()))


def test_nan_of_either_sign_and_far_away() -> None:
    for dtype in ("float16", "float32", "float64"):
        x = np.ones(50_000, dtype)
        x[40_123] = -np.nan
        for f in (wg.sort, wg.argsort, lambda t: wg.topk(t, 4), lambda t: wg.topk(t, 49_000)):
            with pytest.raises(ArgumentError, match="40123"):
                f(wg.asarray(x))


def test_errors() -> None:
    x = wg.zeros((2, 3))
    for f in (wg.sort, wg.argsort):
        with pytest.raises(ShapeError, match=f"{f.__name__}: axis 2"):
            f(x, axis=2)
        with pytest.raises(DTypeError, match=f"{f.__name__}: bools are not ordered"):
            f(x == 0)
        with pytest.raises(DTypeError, match="complex"):
            f(wg.zeros(3, dtype=wg.complex64))
        with pytest.raises(TypeError, match="axis"):
            f(x, dim=1)
    with pytest.raises(ArgumentError, match=r"topk: k .*got k = 4"):
        wg.topk(x, 4)
    with pytest.raises(ArgumentError, match="topk: k"):
        wg.topk(x, -1)
    with pytest.raises(ArgumentError, match=r"quantile: q must be in \[0, 1\], got 1.5"):
        wg.quantile(x, 1.5)
    with pytest.raises(ShapeError, match="quantile: q"):
        wg.quantile(x, [[0.5]])
    for g in (wg.median, lambda t: wg.quantile(t, 0.5)):
        with pytest.raises(ArgumentError, match="empty"):
            g(wg.zeros((0,)))
    with pytest.raises(ArgumentError, match="side"):
        wg.searchsorted([1.0], [1.0], side="middle")
    with pytest.raises(ShapeError, match="searchsorted"):
        wg.searchsorted(x, [1.0])
    with pytest.raises(ShapeError, match="sorter"):
        wg.searchsorted([1.0, 2.0], [1.0], sorter=[0])


@pytest.mark.parametrize("shape", [(1,), (2,), (7,), (3, 4), (5, 1, 2)])
def test_median_and_quantile_as_numpy(shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(3).standard_normal(shape)
    t = wg.asarray(a)
    for axis in (None, 0, -1, tuple(range(len(shape)))):
        for keepdims in (False, True):
            np.testing.assert_allclose(
                wg.median(t, axis, keepdims=keepdims).numpy(), np.median(a, axis, keepdims=keepdims)
            )
            for q in (0.0, 0.37, 1.0, [0.0, 0.5, 0.9, 1.0]):
                got = wg.quantile(t, q, axis=axis, keepdims=keepdims)
                np.testing.assert_allclose(got.numpy(), np.quantile(a, q, axis, keepdims=keepdims), rtol=1e-13)


def test_quantile_between_infinities() -> None:
    assert wg.quantile([np.inf, np.inf, np.inf], 0.3).item() == np.inf
    assert wg.median([1, 2, 3, 10]).item() == 2.5  # integers become floating


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(side: Any) -> None:
    rng = np.random.default_rng(0)
    for dtype in ("float64", "float32", "int32", "uint8"):
        x = np.sort(rng.integers(0, 50, 40)).astype(dtype)
        v = rng.integers(0, 60, (3, 5)).astype(dtype)
        got = wg.searchsorted(wg.asarray(x), wg.asarray(v), side=side)
        assert got.dtype == wg.int64
        np.testing.assert_array_equal(got.numpy(), np.searchsorted(x, v, side))
    x = rng.standard_normal(30)
    order = np.argsort(x)
    v = rng.standard_normal(20)
    got = wg.searchsorted(wg.asarray(x), wg.asarray(v), side=side, sorter=wg.asarray(order))
    np.testing.assert_array_equal(got.numpy(), np.searchsorted(x, v, side, order))
    assert wg.searchsorted(wg.zeros((0,)), wg.ones((2,)), side=side).tolist() == [0, 0]
    assert wg.searchsorted(wg.asarray(x[order]), 0.0, side=side).item() == np.searchsorted(x[order], 0.0, side)


def test_unique() -> None:
    rng = np.random.default_rng(2)
    for a in (
        rng.integers(-3, 4, (4, 5)),
        np.array([0.0, -0.0, 1.5, np.inf, 0.0, -np.inf]),
        np.array([True, False, True]),
        np.array(3.0),
        np.zeros((0, 2)),
        np.array([1 + 2j, 1 - 2j, 1 + 2j]),
    ):
        u = wg.unique_all(wg.asarray(a))
        values, indices, inverse, counts = np.unique(a, True, True, True)
        np.testing.assert_array_equal(u.values.numpy(), values)
        np.testing.assert_array_equal(u.counts.numpy(), counts)
        np.testing.assert_array_equal(u.inverse_indices.numpy(), inverse.reshape(a.shape))
        np.testing.assert_array_equal(u.indices.numpy(), indices)
        assert u.indices.dtype == u.inverse_indices.dtype == u.counts.dtype == wg.int64
        np.testing.assert_array_equal(wg.unique_counts(wg.asarray(a)).counts.numpy(), counts)
        np.testing.assert_array_equal(wg.unique_inverse(wg.asarray(a)).inverse_indices.numpy(), u.inverse_indices)
        np.testing.assert_array_equal(wg.unique_values(wg.asarray(a)).numpy(), values)


def test_every_nan_is_distinct() -> None:
    u = wg.unique_all(wg.tensor([np.nan, 1.0, np.nan]))
    assert u.counts.tolist() == [1, 1, 1]
    np.testing.assert_array_equal(u.values.numpy(), [1.0, np.nan, np.nan])


def test_unique_needs_data() -> None:
    with pytest.raises(TraceError, match="unique_values"):
        wg.compile(wg.unique_values)(wg.ones((3,)))


def test_isin() -> None:
    a, b = np.array([[1, 5], [2, 7]]), np.array([7, 1, 1])
    np.testing.assert_array_equal(wg.isin(wg.asarray(a), wg.asarray(b)).numpy(), np.isin(a, b))
    np.testing.assert_array_equal(wg.isin(wg.asarray(a), wg.asarray(b), invert=True).numpy(), ~np.isin(a, b))
    assert wg.isin(wg.asarray(a), 5).tolist() == [[False, True], [False, False]]
    assert wg.isin([1.0, np.nan], [np.nan, 2.0]).tolist() == [False, False]
    assert wg.isin([0.0, 1.0], [-0.0]).tolist() == [True, False]
    assert wg.isin([True, False], [True]).tolist() == [True, False]
    assert wg.isin([1, 2], wg.zeros((0,))).tolist() == [False, False]
    assert wg.compile(wg.isin)(wg.asarray(a), wg.asarray(b)).tolist() == np.isin(a, b).tolist()


@pytest.mark.parametrize("f", [lambda x: wg.topk(x, 2), wg.cummax, wg.cummin])
def test_results_with_positions_are_named(f):
    for g in (f, wg.compile(f)):
        found = g(wg.tensor([1.0, 3.0, 2.0]))
        values, indices = found
        assert found.values is values and found.indices is indices
