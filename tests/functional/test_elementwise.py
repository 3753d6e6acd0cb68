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


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_clip_with_nan(dtype):
    x = np.array([0.5, -2.0, 3.0, nan], dtype)
    low, high = np.array([nan, -1.0, 0.0, 0.0], dtype), np.array([1.0, nan, 1.0, 1.0], dtype)
    cases = [(nan, 1.0), (0.0, nan), (nan, nan), (nan, None), (None, nan), (low, high), (low, None), (None, high)]
    for a, b in cases:
        expected = np.clip(x, a, b)
        np.testing.assert_array_equal(wg.clip(wg.asarray(x), a, b).numpy(), expected, f"{a}, {b}")
        compiled = wg.compile(lambda t, a=a, b=b: wg.clip(t, a, b))
        np.testing.assert_array_equal(compiled(wg.asarray(x)).numpy(), expected, f"compiled: {a}, {b}")
    gradient = wg.grad(lambda t: wg.clip(t, low, high).sum())(wg.asarray(x))
    assert gradient.tolist() == [0.0, 0.0, 0.0, 0.0], "what does not depend on x, or is not a number"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_angle_of_real_numbers(dtype):
    x = np.array([-1.0, -0.0, 0.0, 2.0, nan, -inf], dtype)
    np.testing.assert_array_equal(wg.angle(wg.asarray(x)).numpy(), np.angle(x))


INTEGERS = ["int8", "int32", "int64", "uint8", "uint64"]


@pytest.mark.parametrize("dtype", [*INTEGERS, "float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 0.5, 1.0, 2.0, 3.0, -1.0, 2.5, np.float32(2), np.int64(2)])
def test_powers_of_numbers_have_one_dtype(dtype, exponent):
    """The shortcuts give what the op gives: a float makes integers floating, an integer does not."""
    x = wg.asarray(np.array([1, 2, 3], dtype))
    expected = wg.asarray(np.array([1, 2, 3], dtype)) * 1 if isinstance(exponent, (int, np.integer)) else x * 1.0
    for y in (x**exponent, wg.pow(x, exponent), wg.compile(lambda t: t**exponent)(x)):
        assert y.dtype == expected.dtype
        exact = np.array([1, 2, 3], "complex128" if dtype[0] == "c" else "float64") ** float(exponent)
        np.testing.assert_allclose(y.numpy(), exact, rtol=2e-3 if dtype == "float16" else 1e-6)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_to_negative_powers_raise(dtype):
    x = wg.asarray(np.array([1, 2], dtype))
    for f in (lambda: x**-1, lambda: wg.pow(x, -2), lambda: wg.compile(lambda t: t**-1)(x), lambda: x.pow_(-1)):
        with pytest.raises(wg.ArgumentError, match=r"negative power -\d .* use a float"):
            f()


def test_powers_by_arrays_and_lists():
    x = np.array([2.0, 3.0])
    for exponent in (np.array([1.0, 2.0]), [1.0, 2.0], (1.0, 2.0), np.array(2.0)):
        for y in (wg.asarray(x) ** exponent, wg.pow(wg.asarray(x), exponent)):
            np.testing.assert_allclose(y.numpy(), x ** np.asarray(exponent), rtol=1e-15)
    np.testing.assert_allclose((np.array([1.0, 2.0]) ** wg.asarray(x)).numpy(), np.array([1.0, 2.0]) ** x)
    np.testing.assert_allclose(([1.0, 2.0] ** wg.asarray(x)).numpy(), np.array([1.0, 2.0]) ** x)
    check(lambda t: t ** np.array([1.0, 2.5]), x)
    y = wg.asarray(x.copy())
    y **= [1.0, 2.0]
    assert y.tolist() == [2.0, 9.0]


def test_nextafter_is_recorded():
    """Its derivative is 1 by what it starts from, and 0 by what it goes to."""
    a, b = wg.tensor([1.0, -2.0], requires_grad=True), wg.tensor([2.0, -2.5], requires_grad=True)
    y = wg.nextafter(a, b)
    np.testing.assert_array_equal(y.detach().numpy(), np.nextafter(np.float32([1, -2]), np.float32([2, -2.5])))
    grads = (y * wg.tensor([3.0, 5.0])).sum().backward()
    assert grads[a].tolist() == [3.0, 5.0]
    assert grads[b].tolist() == [0.0, 0.0]


def test_the_imaginary_part_of_real_numbers_is_a_constant_with_a_path():
    x = wg.tensor([1.0, np.nan], requires_grad=True)
    y = wg.imag(x)
    assert y.tolist() == [0.0, 0.0]
    assert y.sum().backward()[x].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("condition", [True, False, 1, 0.0])
def test_where_with_a_literal_condition(condition):
    def f(a, b):
        return wg.where(condition, a * 2.0, b)

    a, b = wg.tensor([1.0, 2.0]), wg.tensor([[3.0], [4.0]])
    expected = np.where(condition, a.numpy() * 2, b.numpy())
    for g in (f, wg.compile(f)):
        np.testing.assert_array_equal(g(a, b).numpy(), expected)
        assert wg.grad(lambda a, g=g: g(a, b).sum())(a).tolist() == [4.0 * bool(condition)] * 2
