"""Running sums, products and extrema: values, derivatives at zeros and infinities, both modes and second order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check
from wengert.errors import ArgumentError, DTypeError, ShapeError


def data(*shape: int) -> Any:
    return np.random.default_rng(4).standard_normal(shape)


def test_values_as_numpy() -> None:
    a = data(3, 4, 5)
    for axis in (0, 1, -1):
        t = wg.asarray(a)
        np.testing.assert_allclose(wg.cumulative_sum(t, axis=axis).numpy(), np.cumsum(a, axis), rtol=1e-13)
        np.testing.assert_allclose(wg.cumulative_prod(t, axis=axis).numpy(), np.cumprod(a, axis), rtol=1e-13)
        np.testing.assert_array_equal(wg.cummax(t, axis=axis)[0].numpy(), np.maximum.accumulate(a, axis))
        np.testing.assert_array_equal(wg.cummin(t, axis=axis)[0].numpy(), np.minimum.accumulate(a, axis))
        expected = np.logaddexp.accumulate(a, axis)
        np.testing.assert_allclose(wg.logcumsumexp(t, axis=axis).numpy(), expected, rtol=1e-13)
        for f, places in ((wg.cummax, wg.cummax(t, axis=axis)[1]), (wg.cummin, wg.cummin(t, axis=axis)[1])):
            values = f(t, axis=axis)[0].numpy()
            np.testing.assert_array_equal(np.take_along_axis(a, places.numpy(), axis), values)


def test_include_initial() -> None:
    assert wg.cumulative_sum([1.0, 2.0], include_initial=True).tolist() == [0.0, 1.0, 3.0]
    assert wg.cumulative_prod([[2, 3], [4, 5]], axis=0, include_initial=True).tolist() == [[1, 1], [2, 3], [8, 15]]
    assert wg.cumulative_sum(wg.ones((0,)), include_initial=True).tolist() == [0.0]
    assert wg.cumulative_sum([True, True]).dtype == wg.int64
    assert wg.cumulative_sum([1, 2], dtype=wg.float64).dtype == wg.float64


def test_gradients() -> None:
    a = data(3, 5)
    check(lambda x: wg.cumulative_sum(x, axis=1, include_initial=True), a)
    check(lambda x: wg.cumulative_prod(x, axis=0, include_initial=True), a)
    check(lambda x: wg.logcumsumexp(x * 3.0, axis=1), a)
    check(lambda x: wg.cummax(x, axis=1)[0], a)
    check(lambda x: wg.cummin(x, axis=0)[0], a)
    check(lambda x: wg.diff(x * x, axis=1), a)


@pytest.mark.parametrize("values", [[0.0, 2.0, 3.0], [2.0, 0.0, 3.0], [2.0, 0.0, 0.0, 5.0], [0.0], [0.0, 0.0]])
def test_cumprod_at_zeros(values: list[float]) -> None:
    x = np.array(values)
    check(lambda t: wg.cumulative_prod(t), x)
    jacobian = wg.jacfwd(lambda t: wg.cumulative_prod(t))(wg.asarray(x)).numpy()
    np.testing.assert_array_equal(jacobian, wg.jacrev(lambda t: wg.cumulative_prod(t))(wg.asarray(x)).numpy())
    # ∂²/∂xᵢ∂xⱼ of x₀x₁x₂… is the product of the others: no zero is divided by.
    hessian = wg.hessian(lambda t: wg.cumulative_prod(t)[-1])(wg.asarray(x)).numpy()
    n = len(x)
    others = [[0.0 if i == j else np.prod(np.delete(x, [i, j])) for j in range(n)] for i in range(n)]
    np.testing.assert_allclose(hessian, others, atol=1e-14)


def test_logcumsumexp_never_overflows() -> None:
    x = wg.tensor([1e4, -1e4, 1e4, 1.0001e4], dtype=wg.float64)
    y = wg.logcumsumexp(x)
    np.testing.assert_allclose(y.numpy(), [1e4, 1e4, 1e4 + math.log(2), np.logaddexp(1e4 + math.log(2), 1.0001e4)])
    gradient = wg.grad(lambda t: wg.logcumsumexp(t)[-1])(x).numpy()
    np.testing.assert_allclose(gradient, np.exp(x.numpy() - y.numpy()[-1]), rtol=1e-12)
    assert np.isfinite(wg.jacrev(wg.logcumsumexp)(x).numpy()).all()


def test_logcumsumexp_of_nothing_and_of_infinities() -> None:
    x = wg.tensor([-math.inf, -math.inf, 1.0, -math.inf], dtype=wg.float64)
    assert wg.logcumsumexp(x).tolist() == [-math.inf, -math.inf, 1.0, 1.0]
    jacobian = wg.jacrev(wg.logcumsumexp)(x).numpy()
    np.testing.assert_array_equal(jacobian, [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]])
    assert wg.logcumsumexp([1.0, math.inf, 0.0]).tolist()[1:] == [math.inf, math.inf]
    assert math.isnan(wg.logcumsumexp([math.nan, 0.0])[1].item())


def test_long_float32_sums_keep_their_digits() -> None:
    x = np.full(200_000, 0.1, np.float32)
    exact = np.cumsum(x.astype(np.float64))
    np.testing.assert_allclose(wg.cumsum(wg.asarray(x)).numpy(), exact, rtol=1e-7)


def test_extrema_ties_and_nan() -> None:
    values, places = wg.cummax([1.0, 2.0, 2.0, math.nan, 5.0])
    np.testing.assert_array_equal(values.numpy(), [1.0, 2.0, 2.0, math.nan, math.nan])
    assert places.tolist() == [0, 1, 1, 3, 3]
    assert places.dtype == wg.int64
    assert wg.cummin([3, 1, 1, 2])[1].tolist() == [0, 1, 1, 1]
    assert wg.cummax(wg.asarray(np.array([-5, -7, -3], np.int8)))[0].tolist() == [-5, -5, -3]
    x = wg.tensor([1.0, 1.0, 0.0], requires_grad=True)
    assert wg.cummax(x)[0].sum().backward()[x].tolist() == [3.0, 0.0, 0.0]  # the first of a tie has it all


def test_second_order_and_compiled() -> None:
    a = wg.asarray(data(2, 4))

    def f(x: Any) -> Any:
        return (wg.logcumsumexp(x, axis=1) * wg.cumulative_prod(x, axis=1) * wg.cummax(x, axis=0)[0]).sum()

    v = wg.asarray(data(2, 4)[::-1].copy())
    direct = wg.hvp(f, a, v)
    step = 1e-5
    numeric = (wg.grad(f)(a + step * v).numpy() - wg.grad(f)(a - step * v).numpy()) / (2 * step)
    np.testing.assert_allclose(direct.numpy(), numeric, rtol=1e-6, atol=1e-8)
    compiled = wg.compile(f)
    np.testing.assert_allclose(wg.grad(compiled)(a).numpy(), wg.grad(f)(a).numpy(), rtol=1e-13)
    wide = wg.asarray(data(2, 9))  # another length: nothing was fixed by the trace
    np.testing.assert_allclose(wg.grad(compiled)(wide).numpy(), wg.grad(f)(wide).numpy(), rtol=1e-13)


def test_diff() -> None:
    a = data(3, 6)
    for axis in (0, 1, -1):
        for n in (0, 1, 2, 7):
            np.testing.assert_allclose(wg.diff(wg.asarray(a), axis=axis, n=n).numpy(), np.diff(a, n, axis), atol=1e-14)
    ends = dict(prepend=data(3, 1), append=data(3, 2))
    given = {k: wg.asarray(v) for k, v in ends.items()}
    np.testing.assert_allclose(wg.diff(wg.asarray(a), n=2, **given).numpy(), np.diff(a, 2, **ends), atol=1e-14)
    assert wg.diff([1, 4, 9]).dtype == wg.int64


def test_errors() -> None:
    x = wg.ones((2, 3))
    for f in (wg.cumulative_sum, wg.cumulative_prod, wg.logcumsumexp, wg.cummax, wg.cummin):
        with pytest.raises(ShapeError, match=f"{f.__name__}: axis is required"):
            f(x)
        with pytest.raises(ShapeError, match=f"{f.__name__}: axis 2"):
            f(x, axis=2)
    with pytest.raises(DTypeError, match="cummax"):
        wg.cummax([True, False])
    with pytest.raises(DTypeError, match="cummax: complex"):
        wg.cummax(wg.zeros(2, dtype=wg.complex64))
    with pytest.raises(ArgumentError, match="diff: n"):
        wg.diff(x, n=-1)
    with pytest.raises(ShapeError, match="diff: axis"):
        wg.diff(x, axis=3)


# Along the last axis several rows are scanned together, those that are left over one by one.
@pytest.mark.parametrize("rows", [1, 15, 16, 19, 70])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int16, np.complex64])
def test_rows_together_are_as_rows_alone(rows: int, dtype: Any) -> None:
    rng = np.random.default_rng(8)
    a = (rng.integers(-3, 4, (rows, 301)) / (1 if dtype is np.int16 else 4)).astype(dtype)
    functions = [wg.cumsum, wg.cumprod]
    if dtype is not np.complex64:
        functions += [lambda x, axis: wg.cummax(x, axis=axis)[0], lambda x, axis: wg.cummin(x, axis=axis)[1]]
    if dtype in (np.float32, np.float16):
        functions.append(wg.logcumsumexp)
    for f in functions:
        for whole in (wg.asarray(a), wg.asarray(np.asfortranarray(a)), wg.asarray(a)[:, ::-1]):
            alone = [f(wg.asarray(np.ascontiguousarray(row)), axis=0).numpy() for row in whole.numpy()]
            np.testing.assert_array_equal(f(whole, axis=1).numpy(), np.stack(alone))
            np.testing.assert_array_equal(f(whole.T, axis=0).numpy(), np.stack(alone, 1))


@pytest.mark.parametrize("shift", [0.0, 100.0, 1000.0, -1e5])
@pytest.mark.parametrize("n", [10, 1000])
def test_logcumsumexp_has_digits_in_float32(shift, n):
    """Its weights are differences of large numbers: their roundings must not become the derivative's."""
    rng = np.random.default_rng(1)
    x, x_dot, y_bar = (rng.standard_normal(n).astype(np.float32) for _ in range(3))
    x += np.float32(shift)

    def derivatives(dtype):
        t, t_dot, bar = (wg.asarray(a.astype(dtype)) for a in (x, x_dot, y_bar))
        pushed = wg.jvp(wg.logcumsumexp, (t,), (t_dot,))[1]
        pulled = wg.grad(lambda z: (wg.logcumsumexp(z) * bar).sum())
        return [d.numpy() for d in (pushed, pulled(t), wg.grad(lambda z: (pulled(z) * t_dot).sum())(t))]

    for narrow, exact in zip(derivatives("float32"), derivatives("float64")):
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, exact, atol=1e-6 * np.abs(exact).max(), rtol=0)
