import mpmath
import numpy as np
import pytest
from scipy import special

import wengert as wg
from tests.finite_differences import check, pulled

X = np.array([[-7.0, -2.5, -0.3, 0.2], [0.9, 2.9, 3.3, 6.5]])
ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805


def softplus(x):
    return np.logaddexp(x, 0)


CASES = {
    "leaky_relu": (wg.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
    "leaky_relu slope": (lambda x: wg.leaky_relu(x, 0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    "elu": (wg.elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    "elu alpha": (
        lambda x: wg.elu(x, 2.0),
        lambda x: np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0))),
    ),
    "selu": (wg.selu, lambda x: SCALE * np.where(x > 0, x, ALPHA * np.expm1(np.minimum(x, 0)))),
    "silu": (wg.silu, lambda x: x * special.expit(x)),
    "gelu": (wg.gelu, lambda x: x * special.ndtr(x)),
    "gelu tanh": (
        lambda x: wg.gelu(x, approximate="tanh"),
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    "mish": (wg.mish, lambda x: x * np.tanh(softplus(x))),
    "hard_tanh": (wg.hard_tanh, lambda x: np.clip(x, -1, 1)),
    "hard_tanh bounds": (lambda x: wg.hard_tanh(x, -3.0, 2.0), lambda x: np.clip(x, -3, 2)),
    "relu6": (wg.relu6, lambda x: np.clip(x, 0, 6)),
    "hard_sigmoid": (wg.hard_sigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "hard_swish": (wg.hard_swish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "softmax": (wg.softmax, lambda x: special.softmax(x, -1)),
    "softmax 0": (lambda x: wg.softmax(x, 0), lambda x: special.softmax(x, 0)),
    "log_softmax": (wg.log_softmax, lambda x: special.log_softmax(x, -1)),
    "log_softmax 0": (lambda x: wg.log_softmax(x, axis=0), lambda x: special.log_softmax(x, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    ours, reference = CASES[name]
    np.testing.assert_allclose(ours(wg.asarray(X)).numpy(), reference(X), rtol=1e-12, atol=1e-14)
    turned = np.asfortranarray(X)
    np.testing.assert_allclose(ours(wg.asarray(turned)).numpy(), reference(X), rtol=1e-12, atol=1e-14)
    single = ours(wg.asarray(X.astype(np.float32)))
    assert single.dtype == wg.float32
    np.testing.assert_allclose(single.numpy(), reference(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    check(CASES[name][0], X)


@pytest.mark.parametrize("name", CASES)
def test_extremes_stay_finite(name):
    extreme = np.array([[-1e4, 1e4, 0.0, 1.0]])
    assert np.isfinite(CASES[name][0](wg.asarray(extreme)).numpy()).all()
    assert np.isfinite(pulled(CASES[name][0], extreme)[0]).all()


@pytest.mark.parametrize("name", CASES)
def test_empty(name):
    assert CASES[name][0](wg.zeros((0, 4))).shape == (0, 4)


@pytest.mark.parametrize(("dtype", "lowest"), [("float32", -13.0), ("float64", -37.0)])
def test_gelu_and_its_slope_have_digits_in_the_left_tail(dtype, lowest):
    """1 + erf would have none, and SciPy's float64 is no reference there: its Φ(−35) is wrong in the thirteenth digit."""
    x = np.concatenate([np.linspace(lowest, 6.0, 1001), [-1e-30, 0.0, 1e-30]]).astype(dtype)
    t = wg.tensor(x, requires_grad=True)
    y = wg.gelu(t)
    (slope,) = wg.grad_of(y.sum(), [t])
    with mpmath.workdps(40):
        for at, got, pulled in zip(x.tolist(), y.tolist(), slope.tolist()):
            z = mpmath.mpf(at)
            below, density = mpmath.ncdf(z), mpmath.npdf(z)
            allowed = 4 * np.finfo(dtype).eps
            assert abs(got - z * below) <= allowed * abs(z * below), at
            assert abs(pulled - (below + z * density)) <= allowed * (below + abs(z) * density), (
                at
            )  # they cancel at −0.75


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("copies", [1, 16], ids=["scalar", "vector"])
def test_gelu_at_the_ends_of_its_range(dtype, copies):
    """NaN of every sign and payload, zeros, infinities, and numbers so small that x/2 has few bits or none."""
    bits = np.uint32 if dtype == "float32" else np.uint64
    nan = np.array([np.nan, -np.nan], dtype).view(bits)
    nans = np.concatenate([nan, nan | bits(0x155)]).view(dtype)
    assert np.isnan(wg.gelu(wg.asarray(np.repeat(nans, copies))).numpy()).all()
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.finfo(dtype).max, -np.finfo(dtype).max], dtype)
    y = wg.gelu(wg.asarray(np.repeat(x, copies))).numpy()[::copies]
    np.testing.assert_array_equal(y, [0.0, -0.0, np.inf, 0.0, np.finfo(dtype).max, 0.0])
    assert np.signbit(y).tolist()[:2] == [False, True]
    small = np.finfo(dtype).smallest_subnormal * np.array([1, 2, 3, 1000, 2**20 + 1, 2**24 - 1, 2**26 + 4], dtype)
    small = np.concatenate([small, -small])
    y = wg.gelu(wg.asarray(np.repeat(small, copies))).numpy()[::copies]
    assert (np.abs(y - small / 2) <= np.spacing(np.abs(small / 2))).all()


def test_prelu():
    w = np.array([0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(wg.prelu(wg.asarray(X), wg.asarray(w)).numpy(), np.where(X > 0, X, w * X))
    check(wg.prelu, X, w)
    check(wg.prelu, X, np.array([0.25]))
    check(wg.prelu, np.stack([X, -X]).reshape(2, 4, 2) + 0.01, w)
    with pytest.raises(wg.ShapeError, match="channels"):
        wg.prelu(wg.asarray(X), [0.1, 0.2])


def test_softmax_of_a_distribution():
    y = wg.softmax(wg.randn(100, 7))
    np.testing.assert_allclose(y.sum(1).numpy(), 1.0, rtol=1e-6)
    assert wg.softmax(wg.tensor([1, 2, 3])).dtype == wg.float32
    masked = wg.softmax(wg.tensor([[-float("inf"), 0.0, 0.0]]))
    assert masked.tolist() == [[0.0, 0.5, 0.5]]
    with pytest.raises(wg.ShapeError, match="softmax: axis"):
        wg.softmax(wg.ones((2, 2)), 2)


def test_methods_and_errors():
    x = wg.asarray(X)
    np.testing.assert_array_equal(x.softmax(0).numpy(), wg.softmax(x, 0).numpy())
    np.testing.assert_array_equal(x.silu().numpy(), wg.silu(x).numpy())
    with pytest.raises(TypeError, match="axis"):
        x.softmax(dim=0)
    with pytest.raises(wg.ArgumentError, match="approximate"):
        x.gelu(approximate="no")
    with pytest.raises(wg.ArgumentError, match="min_val"):
        x.hard_tanh(1.0, -1.0)
