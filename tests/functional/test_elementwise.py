from typing import Any

import numpy as np
import pytest
from scipy import special

import wengert as wg
from tests.finite_differences import check, pulled

inf, nan = np.inf, np.nan


def data(*shape):
    return np.random.default_rng(4).standard_normal(shape)


def quiet(f):
    """NumPy warns of NaN, which is what these tests are about."""

    def call(*args):
        with np.errstate(invalid="ignore"):
            return f(*args)

    return call


@pytest.mark.parametrize("exponent", [2, 1, 0, 3, -1, 0.5, -0.5, 1.5, 2.0, -2])
def test_powers(exponent):
    a = np.abs(data(3, 4)) + 0.1
    np.testing.assert_allclose((wg.asarray(a) ** exponent).numpy(), a**exponent, rtol=1e-12)
    check(lambda x: x**exponent, a)


def test_power_operands():
    a = np.abs(data(3)) + 0.1
    np.testing.assert_allclose((2.0 ** wg.asarray(a)).numpy(), 2.0**a)
    np.testing.assert_allclose((a ** wg.asarray(a)).numpy(), a**a)
    check(lambda x, y: x**y, a, a[::-1])
    assert (wg.tensor([2, 3]) ** 2).tolist() == [4, 9]
    assert (wg.tensor([2, 3]) ** 2).dtype == wg.int64
    assert (wg.tensor([4, 9]) ** 0.5).tolist() == [2.0, 3.0]
    assert pulled(lambda x: x**0, np.zeros(2))[0].tolist() == [0.0, 0.0]
    with pytest.raises(TypeError):
        wg.ones((2,)) ** "a"
    with pytest.raises(TypeError):
        "a" ** wg.ones((2,))


def test_clip():
    a = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, nan])
    x = wg.asarray(a)
    np.testing.assert_array_equal(wg.clip(x, -1.0, 1.0).numpy(), np.clip(a, -1.0, 1.0))
    np.testing.assert_array_equal(x.clip(min=0.0).numpy(), np.clip(a, 0.0, None))
    np.testing.assert_array_equal(x.clip(max=0.0).numpy(), np.clip(a, None, 0.0))
    np.testing.assert_array_equal(x.clip(1.0, -1.0).numpy(), np.clip(a, 1.0, -1.0))
    np.testing.assert_array_equal(x.clip().numpy(), a)
    g = pulled(lambda x: wg.clip(x, -1.0, 1.0), a[:5], seed=np.ones(5))[0]
    assert g.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]  # the bounds belong to the inside
    check(
        lambda x, low, high: wg.clip(x, low, high),
        data(4, 3) * 2,
        np.full(3, -1.0),
        np.full(3, 1.0),
    )
    assert wg.tensor([1, 5, 9]).clip(2, 6).dtype == wg.int64
    with pytest.raises(TypeError, match="min"):
        x.clip(a_min=0)


@pytest.mark.parametrize(
    ("ours", "reference"),
    [(wg.softplus, lambda x: quiet(np.logaddexp)(x, 0)), (wg.log_sigmoid, special.log_expit)],
)
def test_softplus(ours, reference):
    a = np.array([-1e4, -50.0, -1.0, 0.0, 1.0, 50.0, 1e4, inf, -inf, nan])
    np.testing.assert_allclose(ours(wg.asarray(a)).numpy(), reference(a), rtol=1e-13)
    check(ours, np.array([-30.0, -1.0, 0.0, 1.0, 30.0]))
    assert np.isfinite(pulled(ours, np.array([-1e4, 1e4]))[0]).all()


def test_logaddexp():
    a = np.array([0.0, 1e4, -1e4, -inf, -inf, inf, 1.0, inf, nan])
    b = np.array([0.0, 1e4, -1e4, -inf, 2.0, 3.0, 1.5, -inf, 0.0])
    np.testing.assert_allclose(wg.logaddexp(wg.asarray(a), wg.asarray(b)).numpy(), quiet(np.logaddexp)(a, b))
    check(wg.logaddexp, data(3, 4), data(4))
    check(wg.logaddexp, np.ones(2), np.ones(2))


def test_xlogy():
    a = np.array([0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 0.0, nan])
    b = np.array([0.0, 1.0, inf, -1.0, 3.0, 0.0, nan, 1.0])
    np.testing.assert_allclose(wg.xlogy(wg.asarray(a), wg.asarray(b)).numpy(), special.xlogy(a, b))
    check(wg.xlogy, data(3), np.abs(data(3)) + 0.1)
    assert np.isfinite(pulled(wg.xlogy, np.zeros(2), np.array([0.0, 2.0]))[0]).all()


def test_closeness():
    a = np.array([1.0, 2.0, inf, -inf, nan, 0.0])
    b = np.array([1.0 + 1e-7, 2.1, inf, inf, nan, 1e-9])
    for equal_nan in (False, True):
        y = wg.isclose(wg.asarray(a), wg.asarray(b), equal_nan=equal_nan)
        np.testing.assert_array_equal(y.numpy(), np.isclose(a, b, equal_nan=equal_nan))
    assert wg.allclose([1, 2], [1, 2])
    assert not wg.allclose([1.0], [1.1])
    assert wg.allclose([1.0], [1.1], atol=0.2)


def test_array_api_names():
    x, y = wg.tensor([1.0, 4.0]), wg.tensor([2.0, 2.0])
    assert wg.subtract(x, y).tolist() == [-1.0, 2.0]
    assert wg.multiply(x, y).tolist() == [2.0, 8.0]
    assert wg.divide(x, y).tolist() == [0.5, 2.0]
    assert wg.negative(x).tolist() == [-1.0, -4.0]
    assert (+x).tolist() == [1.0, 4.0]


def test_operands_of_one_layout_are_passed_in_the_order_of_memory():
    a, b = data(5, 6, 7), data(5, 6, 7)
    x, y = wg.tensor(a), wg.tensor(b)
    for order in ((2, 1, 0), (1, 0, 2), (0, 2, 1)):
        moved = [wg.permute_dims(t, order) for t in (x, y)]
        np.testing.assert_array_equal((moved[0] * moved[1]).numpy(), np.transpose(a * b, order))
        np.testing.assert_array_equal(wg.exp(moved[0]).numpy(), np.transpose(wg.exp(x).numpy(), order))
        assert np.asarray(moved[0] * moved[1]).strides == np.asarray(moved[0]).strides
        np.testing.assert_array_equal((moved[0] > moved[1]).numpy(), np.transpose(a > b, order))
    gaps, backwards = x[:, ::2] + y[:, ::2], wg.flip(x, axis=0) + wg.flip(y, axis=0)
    np.testing.assert_array_equal(gaps.numpy(), a[:, ::2] + b[:, ::2])
    np.testing.assert_array_equal(backwards.numpy(), (a + b)[::-1])
    square, other = wg.tensor(a[:, :5, 0]), wg.tensor(b[:, :5, 0])
    np.testing.assert_array_equal((square.T + other).numpy(), a[:, :5, 0].T + b[:, :5, 0])
    spread = wg.broadcast_to(wg.tensor(a[:, :1, 0]), (5, 4))
    np.testing.assert_array_equal((spread * spread).numpy(), np.broadcast_to(a[:, :1, 0] ** 2, (5, 4)))


INTEGRAL = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]


@pytest.mark.parametrize("dtype", INTEGRAL)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_with_integers_beyond_the_dtype(name: str, dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.min, 0, 1, limits.max], dtype)
    f = getattr(wg, name)
    compare = {"equal": "__eq__", "not_equal": "__ne__", "less": "__lt__", "less_equal": "__le__",
               "greater": "__gt__", "greater_equal": "__ge__"}[name]  # fmt: skip
    for i in (limits.min - 1, limits.max + 1, -(2**70), 2**70, int(limits.max), int(limits.min)):
        i = int(i)
        expected = [getattr(int(v), compare)(i) for v in x]
        assert f(wg.asarray(x), i).tolist() == expected, i
        assert wg.compile(lambda t, i=i: f(t, i))(wg.asarray(x)).tolist() == expected, i
        swapped = [getattr(i, compare)(int(v)) for v in x]
        assert f(i, wg.asarray(x)).tolist() == swapped, i


@pytest.mark.parametrize("f", [lambda x, i: x + i, lambda x, i: i - x, wg.maximum, lambda x, i: wg.where(x > 1, i, x)])
@pytest.mark.parametrize(("dtype", "i"), [("uint8", 256), ("uint8", -1), ("int64", 2**63), ("int8", -129)])
def test_arithmetic_with_integers_beyond_the_dtype_is_refused(f: Any, dtype: str, i: int) -> None:
    x = wg.tensor([1, 2], dtype=dtype)
    for call in (f, wg.compile(f)):
        with pytest.raises(wg.NumberRangeError, match=rf": the integer {i} does not fit {dtype}; .*astype") as e:
            call(x, i)
        assert isinstance(e.value, OverflowError)


def test_integers_beyond_the_dtype_where_the_result_is_floating() -> None:
    x = wg.tensor([100, 200], dtype="uint8")
    np.testing.assert_allclose((x / 400).numpy(), [0.25, 0.5])
    np.testing.assert_allclose(wg.compile(lambda t: t / 400)(x).numpy(), [0.25, 0.5])
    assert wg.clip(x, -1, 150.5).tolist() == wg.compile(lambda t: wg.clip(t, -1, 150.5))(x).tolist() == [100.0, 150.5]
    for add in (lambda t: t + 2**70, wg.compile(lambda t: t + 2**70)):
        assert add(wg.tensor([1.0])).item() == 2.0**70
