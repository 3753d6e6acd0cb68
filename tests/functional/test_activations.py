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


def _mp_selu(x):
    scale, alpha = mpmath.mpf("1.0507009873554804934193349852946"), mpmath.mpf("1.6732632423543772848170429916717")
    return scale * x if x > 0 else scale * alpha * mpmath.expm1(x)


def _mp_celu(alpha):
    return lambda x: x if x > 0 else alpha * mpmath.expm1(x / alpha)


def _mp_sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


def _mp_gelu_tanh(x):
    return x * _mp_sigmoid(2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))


# Functions that become flat: ours, the truth, and how many derivatives have all digits in float32.
SATURATING = {
    "elu": (wg.elu, lambda x: x if x > 0 else mpmath.expm1(x), 2),
    "elu, alpha 0.3": (lambda x: wg.elu(x, 0.3), lambda x: x if x > 0 else mpmath.mpf("0.3") * mpmath.expm1(x), 2),
    "selu": (wg.selu, _mp_selu, 2),
    "celu": (wg.celu, _mp_celu(1), 2),
    "celu, alpha 2": (lambda x: wg.celu(x, 2.0), _mp_celu(2), 2),
    "expm1": (wg.expm1, mpmath.expm1, 2),
    "softplus": (wg.softplus, lambda x: mpmath.log1p(mpmath.exp(x)), 2),
    "log_sigmoid": (wg.log_sigmoid, lambda x: -mpmath.log1p(mpmath.exp(-x)), 2),
    "silu": (wg.silu, lambda x: x * _mp_sigmoid(x), 1),
    "mish": (wg.mish, lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))), 1),
    "gelu": (wg.gelu, lambda x: x * mpmath.ncdf(x), 2),
    "gelu, tanh": (lambda x: wg.gelu(x, approximate="tanh"), _mp_gelu_tanh, 1),
    "erf": (wg.erf, mpmath.erf, 2),
    "erfc": (wg.erfc, mpmath.erfc, 2),
    "atan": (wg.atan, mpmath.atan, 2),
}
POINTS = [-80, -40, -20, -15, -8, -5, -3, -1, -0.5, -1e-3, -1e-6, 1e-6, 1e-3, 0.5, 1, 3, 5, 8, 15, 20, 40, 80]


@pytest.mark.parametrize(
    ("name", "order"), [(name, k) for name, (*_, orders) in SATURATING.items() for k in range(orders + 1)]
)
def test_digits_where_the_function_is_flat(name, order):
    f, exact, _ = SATURATING[name]
    g = f
    for _ in range(order):
        g = wg.grad(lambda x, g=g: g(x).sum())
    x = np.array(POINTS, np.float32)
    with mpmath.workdps(80):
        truth = [mpmath.diff(exact, mpmath.mpf(float(v)), order, h=mpmath.mpf(10) ** -20) for v in x]
    truth = np.array([float(t) for t in truth])
    normal = np.abs(truth) > 1e-36  # below it float32 has fewer digits
    got = g(wg.asarray(x)).numpy()
    np.testing.assert_allclose(got[normal], truth[normal], rtol=3e-6)
    np.testing.assert_allclose(got[~normal], truth[~normal], atol=1e-35)


@pytest.mark.parametrize(("f", "exact"), [(wg.tanh, mpmath.tanh), (wg.sigmoid, _mp_sigmoid)], ids=["tanh", "sigmoid"])
def test_slopes_that_are_computed_of_the_value(f, exact):
    """tanh and sigmoid keep their value alone for the derivative: its digits count from 1, not from the slope."""
    x = np.array(POINTS, np.float32)
    with mpmath.workdps(60):
        truth = np.array([float(mpmath.diff(exact, mpmath.mpf(float(v)))) for v in x])
    np.testing.assert_allclose(wg.grad(lambda t: f(t).sum())(wg.asarray(x)).numpy(), truth, atol=1.2e-7)


def test_hard_tanh_between_equal_bounds():
    x = wg.tensor([-1.0, 0.0, 2.0])
    for bound in (0.0, 1.5):
        assert wg.hard_tanh(x, bound, bound).tolist() == [bound] * 3
        assert wg.nn.HardTanh(bound, bound)(x).tolist() == [bound] * 3
        assert wg.grad(lambda t, b=bound: wg.hard_tanh(t, b, b).sum())(x).tolist() == [0.0] * 3
    with pytest.raises(wg.ArgumentError, match="must not be greater"):
        wg.hard_tanh(x, 1.0, 0.0)


@pytest.mark.parametrize("f", [wg.softmax, wg.log_softmax])
@pytest.mark.parametrize("axes", [(0, 2), (-1, 0), (1,), (0, 1, 2)])
def test_softmax_over_several_axes(f, axes):
    x = np.random.default_rng(2).normal(size=(2, 3, 4))
    e = np.exp(x)
    expected = e / e.sum(axes, keepdims=True)
    np.testing.assert_allclose(
        f(wg.asarray(x), axis=axes).numpy(), expected if f is wg.softmax else np.log(expected), rtol=1e-14
    )
    check(lambda t: f(t, axis=axes), x)
    with pytest.raises(wg.ShapeError, match="repeat an axis"):
        f(wg.asarray(x), axis=(0, 0))


def test_softplus_with_beta():
    x = np.array([-800.0, -1.0, 0.0, 2.0, 800.0])
    np.testing.assert_allclose(wg.softplus(wg.asarray(x), beta=3.0).numpy(), np.logaddexp(0, 3 * x) / 3, rtol=1e-15)
    np.testing.assert_array_equal(wg.nn.Softplus(3.0)(wg.asarray(x)).numpy(), wg.softplus(wg.asarray(x), 3.0).numpy())
    with pytest.raises(wg.ArgumentError, match="beta must be positive, got 0"):
        wg.softplus(1.0, beta=0)
