"""Pooling against plain loops; ties, NaN and infinities; derivatives of both modes and orders."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wengert as wg
from tests.finite_differences import check
from wengert.errors import ArgumentError, ShapeError

MAX = {1: wg.max_pool1d, 2: wg.max_pool2d, 3: wg.max_pool3d}
AVG = {1: wg.avg_pool1d, 2: wg.avg_pool2d, 3: wg.avg_pool3d}
ADAPTIVE_MAX = {1: wg.adaptive_max_pool1d, 2: wg.adaptive_max_pool2d, 3: wg.adaptive_max_pool3d}


def distinct(*shape: int, seed: int = 0) -> Any:
    """Numbers no two of which are close: maxima have derivatives."""
    n = int(np.prod(shape))
    return np.random.default_rng([4, seed]).permutation(n).reshape(shape) / max(n, 1) * 4.0 - 2.0


def starts(n: int, span: int, stride: int, padding: int, ceil: bool) -> list[int]:
    """Where windows begin: all that end inside the padding; with `ceil` one more if x is not at its end before it."""
    found = list(range(-padding, n + padding - span + 1, stride))
    after = found[-1] + stride
    return [*found, after] if ceil and found[-1] + span < n + padding and after < n else found


def windows(
    x: Any, kernel: Any, stride: Any, padding: Any, reduce: Any, dilation: Any = (1, 1, 1), ceil: bool = False
) -> Any:
    axes = zip(x.shape[2:], kernel, stride, padding, dilation)
    taps = [
        [[at for at in range(i, i + k * d, d) if 0 <= at < n] for i in starts(n, (k - 1) * d + 1, s, p, ceil)]
        for n, k, s, p, d in axes
    ]
    y = np.zeros((*x.shape[:2], *map(len, taps)))
    for at in np.ndindex(*y.shape[2:]):
        inside = np.ix_(range(x.shape[0]), range(x.shape[1]), *(t[j] for t, j in zip(taps, at)))
        y[(..., *at)] = reduce(x[inside], tuple(range(2, x.ndim)))
    return y


@st.composite
def pools(draw: Any) -> Any:
    rank = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 4)) for _ in range(rank)]
    stride = [draw(st.integers(1, 4)) for _ in range(rank)]
    padding = [draw(st.integers(0, k // 2)) for k in kernel]
    most = 30 if rank == 1 else 20 if rank == 2 else 6
    spatial = [draw(st.integers(k, most)) for k in kernel]
    dilation = [draw(st.integers(1, 1 if k == 1 else (n - 1) // (k - 1))) for k, n in zip(kernel, spatial)]
    shape = (draw(st.integers(0, 2)), draw(st.integers(1, 3)), *spatial)
    return shape, kernel, stride, padding, dilation, draw(st.booleans())


@settings(max_examples=80, deadline=None)
@given(pools(), st.sampled_from(["float64", "float32"]))
def test_every_combination(case: Any, dtype: str) -> None:
    shape, kernel, stride, padding, dilation, ceil = case
    x = distinct(*shape).astype(dtype)
    rank = len(kernel)
    options: Any = {"stride": stride, "padding": padding, "ceil_mode": ceil}
    got = MAX[rank](wg.asarray(x), kernel, dilation=dilation, **options).numpy()
    np.testing.assert_array_equal(got, windows(x, kernel, stride, padding, np.max, dilation, ceil))
    got = AVG[rank](wg.asarray(x), kernel, **options).numpy()
    sides = [(0, 0), (0, 0), *((p, p) for p in padding)]
    around = windows(np.pad(x, sides), kernel, stride, [0] * rank, np.mean, ceil=ceil)
    around = around[(..., *(slice(n) for n in got.shape[2:]))]  # ceil_mode: none begins in the padding behind x
    np.testing.assert_allclose(got, around, rtol=1e-5, atol=1e-6)
    got = AVG[rank](wg.asarray(x), kernel, count_include_pad=False, **options).numpy()
    np.testing.assert_allclose(got, windows(x, kernel, stride, padding, np.mean, ceil=ceil), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rank", "options"), [(1, {}), (2, {"stride": 1}), (2, {"stride": 2, "padding": 1}), (3, {})])
@pytest.mark.parametrize("pool", [MAX, AVG])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_derivatives(pool: Any, rank: int, options: Any, ceil_mode: bool) -> None:
    x = distinct(2, 2, *((7, 6, 5)[:rank] if rank < 3 else (4, 5, 4)))
    f = lambda x: pool[rank](x, 2, ceil_mode=ceil_mode, **options)
    check(f, x)
    v = np.random.default_rng(1).standard_normal(x.shape)
    y, y_dot = wg.jvp(f, (wg.asarray(x),), (wg.asarray(v),))
    bar = np.random.default_rng(2).standard_normal(y.shape)
    x_bar = wg.vjp(f, wg.asarray(x))[1](wg.asarray(bar))[0]
    assert float((y_dot.numpy() * bar).sum()) == pytest.approx(float((x_bar.numpy() * v).sum()), rel=1e-12)


@pytest.mark.parametrize("options", [{}, {"dilation": 2, "padding": 1}, {"stride": 4, "ceil_mode": True}])
def test_second_order(options: Any) -> None:
    x = distinct(1, 2, 6, 6)
    f = lambda z: (wg.max_pool2d(z * z * z, 3, **{"stride": 1, **options}) ** 2).sum()
    check(lambda x: wg.grad(f)(x), x, tolerance=1e-5)


@pytest.mark.parametrize("dilation", [2, (1, 3)])
def test_derivatives_of_dilated_windows(dilation: Any) -> None:
    check(lambda x: wg.max_pool2d(x, 2, stride=1, padding=1, dilation=dilation), distinct(1, 2, 5, 6))


def test_the_first_of_equal_elements_gets_the_gradient() -> None:
    x = np.zeros((1, 1, 4, 4))
    x[0, 0, 2:, 2:] = [[0.0, 1.0], [1.0, 1.0]]
    grads = wg.grad(lambda x: wg.max_pool2d(x, 2).sum())(wg.asarray(x)).numpy()[0, 0]
    expected = np.zeros((4, 4))
    expected[0, 0] = expected[0, 2] = expected[2, 0] = expected[2, 3] = 1.0
    np.testing.assert_array_equal(grads, expected)
    wide = wg.grad(lambda x: wg.max_pool2d(x, (2, 3), stride=2).sum())(wg.zeros((1, 1, 2, 5))).numpy()[0, 0]
    np.testing.assert_array_equal(wide, [[1, 0, 1, 0, 0], [0, 0, 0, 0, 0]])


@pytest.mark.parametrize("kernel", [2, 3])
@pytest.mark.parametrize("size", [9, 24, 41])
def test_nan_and_infinities(kernel: int, size: int) -> None:
    """NaN is largest; -inf wins where there is nothing else; padding never wins."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((1, 2, size, size)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    x[rng.random(x.shape) < 0.2] = -np.inf
    x[0, 1] = -np.inf
    for padding in (0, 1):
        got = wg.max_pool2d(wg.asarray(x), kernel, stride=2, padding=padding)
        pair = lambda v: (v, v)
        with np.errstate(invalid="ignore"):
            expected = windows(x, pair(kernel), pair(2), pair(padding), np.max)
        np.testing.assert_array_equal(got.numpy(), expected)
        grads = wg.grad(lambda x: wg.max_pool2d(x, kernel, stride=2, padding=padding)[0, 1].sum())(wg.asarray(x))
        assert float(grads.numpy()[0, 1].sum()) == got.shape[2] * got.shape[3]


def test_saves_a_byte_per_window() -> None:
    x = wg.tensor(distinct(4, 8, 16, 16).astype(np.float32), requires_grad=True)
    before = wg.memory_stats().saved_bytes
    y = wg.max_pool2d(x, 2)
    assert wg.memory_stats().saved_bytes - before == y.size


@pytest.mark.parametrize(("n", "size"), [(7, 3), (5, 5), (8, 2), (3, 7), (6, 1)])
def test_adaptive(n: int, size: int) -> None:
    x = distinct(2, 3, n, n + 1)
    expected = np.zeros((2, 3, size, 2))
    for i in range(size):
        for j in range(2):
            rows = slice(i * n // size, -(-(i + 1) * n // size))
            columns = slice(j * (n + 1) // 2, -(-(j + 1) * (n + 1) // 2))
            expected[:, :, i, j] = x[:, :, rows, columns].mean((2, 3))
    np.testing.assert_allclose(
        wg.adaptive_avg_pool2d(wg.asarray(x), (size, 2)).numpy(), expected, rtol=1e-12, atol=1e-14
    )
    check(lambda x: wg.adaptive_avg_pool2d(x, (size, 2)), x[:1, :1])
    assert wg.adaptive_avg_pool2d(wg.asarray(x), (None, 1)).shape == (2, 3, n, 1)
    assert wg.adaptive_avg_pool1d(wg.asarray(x[0]), 2).shape == (3, n, 2)
    assert wg.adaptive_avg_pool3d(wg.ones((1, 2, 4, 5, 6)), 2).shape == (1, 2, 2, 2, 2)


@pytest.mark.parametrize("sizes", [(3, 2), (5, 5), (1, 1), (2, 9), (7, 4), (1, 3)])
def test_adaptive_maxima(sizes: Any) -> None:
    x = distinct(2, 3, 7, 8)
    expected = np.zeros((2, 3, *sizes))
    for i, j in np.ndindex(*sizes):
        rows = slice(i * 7 // sizes[0], -(-(i + 1) * 7 // sizes[0]))
        columns = slice(j * 8 // sizes[1], -(-(j + 1) * 8 // sizes[1]))
        expected[:, :, i, j] = x[:, :, rows, columns].max((2, 3))
    f = lambda x: wg.adaptive_max_pool2d(x, sizes)
    np.testing.assert_array_equal(f(wg.asarray(x)).numpy(), expected)
    np.testing.assert_array_equal(wg.compile(f)(wg.asarray(x)).numpy(), expected)
    check(f, x[:1, :2])
    check(lambda x: wg.grad(lambda z: (f(z * z * z) ** 2).sum())(x), x[:1, :1], tolerance=1e-5)
    assert wg.adaptive_max_pool2d(wg.asarray(x), (None, 3)).shape == (2, 3, 7, 3)
    for rank, pool in ADAPTIVE_MAX.items():
        t = wg.asarray(distinct(2, *(5, 6, 7)[:rank]))
        np.testing.assert_array_equal(pool(t, 4).numpy(), pool(t[None], 4).numpy()[0])


def test_adaptive_maxima_of_equal_elements_and_nan() -> None:
    """The first of equal elements has the gradient, also where a shorter window is filled up with its last element."""
    f = lambda x: wg.adaptive_max_pool1d(x, 4).sum()
    np.testing.assert_array_equal(wg.grad(f)(wg.zeros((1, 1, 7))).numpy()[0, 0], [1, 1, 0, 1, 0, 1, 0])
    x = np.array([[[0.0, np.nan, 1.0, 2.0, -np.inf, -np.inf, -np.inf]]])
    np.testing.assert_array_equal(wg.adaptive_max_pool1d(wg.asarray(x), 4).numpy()[0, 0], [np.nan, np.nan, 2, -np.inf])


def test_without_batch_strides_and_compiled() -> None:
    x = distinct(5, 6, 3)
    t = wg.asarray(x).permute_dims((2, 1, 0))
    np.testing.assert_array_equal(wg.max_pool2d(t, 2).numpy(), wg.max_pool2d(t[None], 2).numpy()[0])
    f = lambda x: wg.max_pool2d(x, 2, stride=1, dilation=2).sum() + wg.avg_pool2d(x, 3, ceil_mode=True).sum()
    g = wg.compile(f)
    for n in (6, 9, 10):
        z = wg.asarray(distinct(2, 2, n, n))
        np.testing.assert_array_equal(wg.grad(g)(z).numpy(), wg.grad(f)(z).numpy())


def test_bits_do_not_depend_on_threads() -> None:
    x = wg.asarray(distinct(16, 8, 33, 33).astype(np.float32))
    before, results = wg.get_num_threads(), []
    try:
        for threads in (1, 3):
            wg.set_num_threads(threads)
            f = lambda x: (wg.avg_pool2d(wg.max_pool2d(x, 3, stride=1), 2, stride=1) ** 2).sum()
            results.append(wg.grad(f)(x).numpy().copy())
    finally:
        wg.set_num_threads(before)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16])
@pytest.mark.parametrize("options", [{}, {"padding": 5}, {"padding": 5, "count_include_pad": False}])
def test_sums_of_sixteen_bit_numbers_are_not_rounded_before_the_division(dtype: Any, options: Any) -> None:
    x = wg.asarray(np.linspace(900.0, 1100.0, 400).reshape(1, 1, 20, 20), dtype=dtype)  # a window sums up to 100000
    expected = wg.avg_pool2d(wg.astype(x, wg.float64), 10, **options)
    np.testing.assert_array_equal(wg.avg_pool2d(x, 10, **options).numpy(), wg.astype(expected, dtype).numpy())
    expected = wg.adaptive_avg_pool2d(wg.astype(x, wg.float64), 2)
    np.testing.assert_array_equal(wg.adaptive_avg_pool2d(x, 2).numpy(), wg.astype(expected, dtype).numpy())
    assert wg.vjp(lambda x: wg.avg_pool2d(x, 10, **options), x)[0].dtype == dtype


X = wg.ones((2, 3, 4, 4))
BAD: list[Any] = [
    (lambda: wg.max_pool2d(X, 5), ShapeError, "max_pool2d: a window of (5, 5) is larger than the padded input"),
    (lambda: wg.max_pool2d(X, 6, stride=2, ceil_mode=True), ShapeError, "a window of (6, 6) is larger than the padded"),
    (lambda: wg.max_pool1d(wg.ones((1, 1, 0)), 2, stride=4, ceil_mode=True), ShapeError, "a window of (2,) is larger"),
    (lambda: wg.max_pool2d(X, 0), ArgumentError, "kernel_size must be positive"),
    (lambda: wg.max_pool2d(X, 2, stride=0), ArgumentError, "stride must be positive"),
    (lambda: wg.avg_pool2d(X, 2, padding=2), ArgumentError, "at most half of kernel_size (2, 2)"),
    (lambda: wg.max_pool2d(X, 2, padding=-1), ArgumentError, "padding must be at least 0"),
    (lambda: wg.max_pool2d(X, 2, dilation=0), ArgumentError, "max_pool2d: dilation must be positive"),
    (lambda: wg.max_pool2d(X, 3, dilation=2), ShapeError, "max_pool2d: a window of (5, 5) is larger than the padded"),
    (lambda: wg.max_pool2d(X, 2, dilation=2, padding=2), ArgumentError, "kernel_size (2, 2) with dilation (2, 2)"),
    (lambda: wg.max_pool1d(wg.ones((1, 1, 2)), 2, dilation=3, padding=1), ShapeError, "no element of x"),
    (lambda: wg.adaptive_max_pool2d(X, 0), ArgumentError, "adaptive_max_pool2d: output_size 0"),
    (lambda: wg.max_pool1d(X, 2), ShapeError, "max_pool1d: takes x of shape (batch, channels, 1 spatial)"),
    (lambda: wg.max_pool3d(X, (2, 2)), ArgumentError, "kernel_size must be one integer or 3"),
    (lambda: wg.adaptive_avg_pool2d(X, 0), ArgumentError, "sizes must be positive"),
    (lambda: wg.adaptive_avg_pool2d(X, (1, 2, 3)), ArgumentError, "one integer or 2"),
]


@pytest.mark.parametrize(("call", "error", "match"), BAD)
def test_bad_input(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=re.escape(match)):
        call()
