"""Special functions against SciPy over wide ranges: poles, branch limits, overflow, and derivatives of any order."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check
from wengert.errors import ArgumentError

special: Any = pytest.importorskip("scipy.special")

WIDE = np.concatenate([-np.logspace(2, -12, 57), [0.0], np.logspace(-12, 4, 65), np.linspace(-12.05, 12.05, 242)])
UNIT = np.concatenate([np.logspace(-300, -1, 50), np.linspace(0.05, 0.95, 91), 1 - np.logspace(-1, -15, 30)])
POSITIVE = np.concatenate([np.logspace(-10, 12, 111), np.linspace(0.05, 30, 200)])
NEGATIVE = np.linspace(-30.3, -0.013, 151)

# name: (ours, SciPy's, arguments, relative tolerance in float64)
CASES: dict[str, tuple[Any, Any, Any, float]] = {
    "erf": (wg.erf, special.erf, WIDE, 1e-15),
    "erfc": (wg.erfc, special.erfc, WIDE[WIDE < 26], 1e-14),
    "erfinv": (wg.erfinv, special.erfinv, np.concatenate([UNIT, -UNIT]), 1e-14),
    "lgamma": (wg.lgamma, special.gammaln, POSITIVE, 1e-14),
    "lgamma of negative": (wg.lgamma, special.gammaln, NEGATIVE, 1e-13),
    "digamma": (wg.digamma, special.digamma, POSITIVE, 1e-14),
    "digamma of negative": (wg.digamma, special.digamma, NEGATIVE, 1e-12),
    "trigamma": (wg.trigamma, lambda x: special.polygamma(1, x), POSITIVE, 1e-14),
    "trigamma of negative": (wg.trigamma, lambda x: special.polygamma(1, x), NEGATIVE, 1e-12),
    "polygamma 2": (lambda x: wg.polygamma(2, x), lambda x: special.polygamma(2, x), POSITIVE, 1e-13),
    "polygamma 3": (lambda x: wg.polygamma(3, x), lambda x: special.polygamma(3, x), NEGATIVE, 1e-12),
    "polygamma 9": (lambda x: wg.polygamma(9, x), lambda x: special.polygamma(9, x), POSITIVE, 1e-13),
    "i0": (wg.i0, special.i0, WIDE[WIDE < 700], 1e-13),
    "i1": (wg.i1, special.i1, WIDE[WIDE < 700], 1e-13),
    "i0e": (wg.i0e, special.i0e, WIDE, 1e-13),
    "i1e": (wg.i1e, special.i1e, WIDE, 1e-13),
    "expit": (wg.expit, special.expit, WIDE, 1e-15),
    "logit": (wg.logit, special.logit, UNIT, 1e-14),
    "softplus": (wg.softplus, lambda x: np.logaddexp(0, x), WIDE, 1e-14),
    "log1p": (wg.log1p, np.log1p, WIDE[WIDE > -1], 1e-15),
    "expm1": (wg.expm1, np.expm1, WIDE[WIDE < 700], 1e-15),
    "sinc": (wg.sinc, np.sinc, np.linspace(-3.2, 3.2, 129), 1e-14),
}


def _trigamma(x: Any) -> Any:
    return special.polygamma(1, x)


@pytest.mark.parametrize("name", CASES)
def test_values_over_wide_ranges(name: str) -> None:
    ours, theirs, x, tolerance = CASES[name]
    expected = theirs(x)
    np.testing.assert_allclose(ours(wg.asarray(x)).numpy(), expected, rtol=tolerance, atol=tolerance * 1e-2)
    with np.errstate(over="ignore", under="ignore"):
        narrow = x.astype(np.float32)
        expected = theirs(narrow.astype(np.float64)).astype(np.float32)
    got = ours(wg.asarray(narrow)).numpy()
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("ours", "theirs"), [(wg.lgamma, special.gammaln), (wg.digamma, special.digamma), (wg.trigamma, _trigamma)]
)
def test_gamma_functions_in_single_precision(ours: Any, theirs: Any) -> None:
    """Within six units in the last place, with fused products or without: around the zeros, at the limits of the ranges."""
    ends = np.concatenate([k * (1 + np.linspace(-1e-3, 1e-3, 201)) for k in (0.5, 1, 1.4616321449683623, 2, 2.5, 8)])
    x = np.concatenate([ends, np.linspace(0.01, 12, 2001), np.logspace(-18, 30, 501)]).astype(np.float32)
    for stride in (1, 3):  # a tail shorter than a vector runs the same operations
        expected, got = theirs(x[::stride].astype(np.float64)), ours(wg.asarray(x[::stride].copy())).numpy()
        units = np.abs(got - expected) / np.spacing(np.abs(expected).astype(np.float32))
        assert units.max() <= 6, (x[::stride][units.argmax()], units.max())
    mixed = np.array([-1.5, 2.25, -0.0, 1e-40, math.inf, -3.7, math.nan], np.float32)  # in one block with negative ones
    np.testing.assert_array_equal(ours(wg.asarray(mixed)).numpy(), [ours(wg.asarray(v)).item() for v in mixed])


def test_poles_and_ends() -> None:
    inf, nan = math.inf, math.nan
    for ours, theirs, values in (
        (wg.erf, special.erf, [-inf, inf, nan, -0.0]),
        (wg.erfc, special.erfc, [-inf, inf, nan, 30.0]),
        (wg.erfinv, special.erfinv, [-1.0, 1.0, 1.5, nan, 0.0]),
        (wg.lgamma, special.gammaln, [0.0, -1.0, -3.0, inf, nan, 1.0, 2.0]),
        (wg.digamma, special.digamma, [0.0, -0.0, inf, nan, -1.0]),
        (wg.i0, special.i0, [nan, 0.0, 800.0]),
        (wg.i1, special.i1, [nan, 0.0, 800.0, -800.0]),
        (wg.i0e, special.i0e, [nan, 0.0]),
        (wg.logit, special.logit, [0.0, 1.0, 1.5, nan]),
        (wg.expit, special.expit, [-inf, inf, nan, -800.0]),
        (lambda x: wg.polygamma(2, x), lambda x: special.polygamma(2, x), [inf, nan]),
    ):
        x = np.array(values)
        np.testing.assert_array_equal(ours(wg.asarray(x)).numpy(), theirs(x))
    # SciPy has NaN for I₀(∞).
    assert wg.i0([inf, -inf]).tolist() == [inf, inf] and wg.i0e([inf]).tolist() == [0.0]
    assert wg.i1([inf, -inf]).tolist() == [inf, -inf] and wg.i1e([inf, -inf]).tolist() == [0.0, -0.0]
    assert wg.polygamma(3, wg.tensor([0.0, -1.0, -2.0])).tolist() == [inf, inf, inf]  # even poles


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scaled_bessel_function_far_out(dtype: Any) -> None:
    x = np.array([-6e4, 5e4, 6.1e4], dtype)
    if dtype != np.float16:
        x = np.concatenate([x, np.array([1e8, -1e16, 2e17, 1e30, -3e38], dtype)])
    expected = special.i1e(x.astype(np.float64)).astype(dtype)
    np.testing.assert_allclose(wg.i1e(wg.asarray(x)).numpy(), expected, rtol=4 * np.finfo(dtype).eps)


def test_slopes_at_ends() -> None:
    assert wg.grad(lambda x: wg.logit(x).sum())(wg.tensor([0.0, 1.0, 0.5])).tolist() == [math.inf, math.inf, 4.0]


def test_two_arguments() -> None:
    a, b = (m.ravel() for m in np.meshgrid([1e-8, 0.3, 1.0, 4.5, 9.9, 10.1, 77.0], [0.5, 3.0, 12.0, 60.0]))
    np.testing.assert_allclose(
        wg.betaln(wg.asarray(a), wg.asarray(b)).numpy(), special.betaln(a, b), rtol=2e-14, atol=3e-14
    )
    # SciPy loses digits where an argument is large; for an integer n, B(a, n) = (n − 1)! / (a (a + 1) … (a + n − 1)).
    for n in (1, 3, 9, 12):
        a = np.array([1e-6, 0.5, 20.0, 1e5, 1e10, 1e15])
        exact = math.lgamma(n) - sum(np.log(a + k) for k in range(n))
        np.testing.assert_allclose(
            wg.betaln(wg.asarray(a), wg.full(a.shape, n, dtype=wg.float64)).numpy(), exact, rtol=1e-13
        )
    np.testing.assert_array_equal(wg.betaln([2.0], [3.0]).numpy(), wg.betaln([3.0], [2.0]).numpy())
    x, y = np.array([0.0, 0.0, 0.0, 2.0, 2.0, 0.0]), np.array([0.0, -1.0, 2.0, 3.0, 0.0, math.inf])
    np.testing.assert_allclose(wg.xlogy(wg.asarray(x[[0, 2, 3, 4]]), wg.asarray(y[[0, 2, 3, 4]])).numpy(),
                               special.xlogy(x[[0, 2, 3, 4]], y[[0, 2, 3, 4]]))  # fmt: skip
    got = wg.xlog1py(wg.tensor([0.0, 2.0, 3.0]), wg.tensor([-1.0, 1e-9, -1.0])).numpy()
    np.testing.assert_allclose(got, [0.0, 2e-9, -math.inf], rtol=1e-6)
    big = np.array([1e4, -1e4, 0.0, -math.inf, math.inf])
    got = wg.logaddexp(wg.asarray(big), wg.asarray(big[::-1].copy())).numpy()
    np.testing.assert_allclose(got, np.logaddexp(big, big[::-1]))


def test_gradients() -> None:
    x = np.array([0.3, 1.2, 2.7, 5.1])
    for f in (wg.i0, wg.i1, wg.i0e, wg.i1e, wg.sinc, wg.trigamma, lambda t: wg.polygamma(4, t), wg.lgamma, wg.erfc):
        check(f, x)
    check(wg.logit, np.array([0.01, 0.3, 0.5, 0.7, 0.99]), tolerance=1e-4)  # a difference quotient of slope 100
    check(wg.erfinv, np.array([-0.9, 0.1, 0.8]))
    check(wg.betaln, x, x[::-1] + 0.1)
    check(wg.betaln, x + 10, x)
    check(wg.xlog1py, x, x - 0.5)
    check(wg.xlogy, x, x)


def _derivative(f: Any, order: int) -> Any:
    for _ in range(order):
        f = (lambda g: lambda t: wg.jvp(g, (t,), (wg.ones_like(t),))[1])(f)
    return f


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_high_orders(order: int) -> None:
    x = np.array([0.0, 1e-7, 0.02, 0.4, 3.0])
    t = wg.asarray(x)
    # Iᵥ' = (Iᵥ₋₁ + Iᵥ₊₁) / 2, and the derivatives of lnΓ are polygammas.
    weights = [math.comb(order, k) / 2**order for k in range(order + 1)]
    for f, v in ((wg.i0, 0), (wg.i1, 1)):
        expected = sum(w * special.iv(abs(v - order + 2 * k), x) for k, w in enumerate(weights))
        np.testing.assert_allclose(_derivative(f, order)(t).numpy(), expected, rtol=1e-12, atol=1e-13)
    gamma = _derivative(wg.lgamma, order)(t[2:]).numpy()
    np.testing.assert_allclose(gamma, special.polygamma(order - 1, x[2:]), rtol=1e-12)
    # sinc has the Taylor coefficients (−1)ᵏ π²ᵏ / (2k + 1)!.
    at_zero = _derivative(wg.sinc, order)(wg.tensor(0.0, dtype=wg.float64)).item()
    k, odd = divmod(order, 2)
    expected = 0.0 if odd else (-1.0) ** k * math.pi ** (2 * k) / (2 * k + 1)
    assert at_zero == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_sinc_is_smooth_where_the_series_ends() -> None:
    x = np.array([0.5 / math.pi - 1e-9, 0.5 / math.pi + 1e-9])
    for order in range(6):
        a, b = _derivative(wg.sinc, order)(wg.asarray(x)).numpy()
        assert a == pytest.approx(b, rel=1e-6)


def test_reverse_over_reverse_of_trigamma() -> None:
    x = wg.tensor([0.7, 2.5], dtype=wg.float64)
    second = wg.grad(lambda t: wg.grad(lambda u: wg.trigamma(u).sum())(t).sum())(x)
    np.testing.assert_allclose(second.numpy(), special.polygamma(3, x.numpy()), rtol=1e-13)


def test_inside_compiled_functions() -> None:
    @wg.compile
    def f(x: Any) -> Any:
        return wg.i0(x) + wg.polygamma(2, x) * wg.sinc(x) + wg.logit(x * 0.1)

    for n in (3, 5):
        x = np.linspace(0.5, 3.0, n)
        expected = special.i0(x) + special.polygamma(2, x) * np.sinc(x) + special.logit(x * 0.1)
        np.testing.assert_allclose(f(wg.asarray(x)).numpy(), expected, rtol=1e-12)


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="polygamma: the order n must not be negative, got -1"):
        wg.polygamma(-1, 1.0)
    with pytest.raises(TypeError, match="polygamma: the order n must be an integer"):
        wg.polygamma(0.5, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="polygamma: the order"):
        wg.polygamma(171, 1.0)
    with pytest.raises(TypeError, match="polygamma"):
        wg.polygamma(2, wg.zeros(2, dtype=wg.complex64))
    assert wg.i0([1, 2]).dtype == wg.float32  # integers become floating


def test_inverse_error_function_where_its_methods_meet() -> None:
    ends = np.array([0.5, 0.9999, 1 - 2e-11])  # erf and erfc, vector and scalar code, two ranges of the latter
    y = np.concatenate([e + np.linspace(-1e-12, 1e-12, 41) for e in ends])
    y = np.concatenate([y, -y, np.linspace(-1, 1, 999)[1:-1], [5e-324, -1e-310]])
    np.testing.assert_allclose(wg.erfinv(wg.asarray(y)).numpy(), special.erfinv(y), rtol=2e-15, atol=0)


GAMMA_ARGUMENTS = np.concatenate([np.linspace(-20.3, 170.4, 400), np.logspace(-300, 0, 40)])


def test_gamma_and_its_reciprocal() -> None:
    x = GAMMA_ARGUMENTS
    np.testing.assert_allclose(wg.gamma(wg.asarray(x)).numpy(), special.gamma(x), rtol=1e-13)
    np.testing.assert_allclose(wg.rgamma(wg.asarray(x)).numpy(), special.rgamma(x), rtol=1e-12, atol=1e-300)
    poles = wg.tensor([0.0, -1.0, -2.0, -5.0], dtype=wg.float64)
    np.testing.assert_array_equal(wg.rgamma(poles).numpy(), np.zeros(4))
    slopes = wg.grad(lambda z: wg.sum(wg.rgamma(z)))(poles).numpy()  # (−1)ⁿ n!
    np.testing.assert_allclose(slopes, [1.0, -1.0, 2.0, -120.0], rtol=1e-13)
    check(wg.rgamma, np.array([0.3, 2.7, -1.4, 120.5]))


def test_beta() -> None:
    a, b = (m.ravel() for m in np.meshgrid([1e-8, 0.3, 4.5, 77.0, 500.0, 1e5], [0.5, 3.0, 12.0, 60.0]))
    exact = np.array([float(mpmath.beta(s, t)) for s, t in zip(a, b)])
    np.testing.assert_allclose(wg.beta(wg.asarray(a), wg.asarray(b)).numpy(), exact, rtol=2e-13, atol=1e-300)
    c, d = np.array([0.5, -0.5, -2.5]), np.array([-0.3, -0.25, 4.0])
    np.testing.assert_allclose(wg.beta(wg.asarray(c), wg.asarray(d)).numpy(), special.beta(c, d), rtol=1e-13)


def test_entropy_terms() -> None:
    x = np.array([-1.0, 0.0, 1e-300, 0.5, 1.0, 3.0, math.inf, math.nan])
    np.testing.assert_allclose(wg.entr(wg.asarray(x)).numpy(), special.entr(x), rtol=1e-15)
    a, b = (m.ravel() for m in np.meshgrid([-1.0, 0.0, 0.5, 2.0, math.nan], [-1.0, 0.0, 0.25, 3.0, math.nan]))
    np.testing.assert_allclose(wg.rel_entr(wg.asarray(a), wg.asarray(b)).numpy(), special.rel_entr(a, b), rtol=1e-15)
    check(wg.entr, np.array([0.2, 1.7]))
    check(wg.rel_entr, np.array([0.2, 1.7]), np.array([0.5, 0.6]))


def test_erf_of_complex_numbers() -> None:
    rng = np.random.default_rng(3)
    z = rng.uniform(-6, 6, 400) + 1j * rng.uniform(-6, 6, 400)
    z = np.concatenate([z, z * 1e-3, z.real * 1e-5 + 1j * z.imag, z.real + 1j * z.imag * 1e-5, [1j, 0j, 5.0 + 0j]])
    ours, theirs = wg.erf(wg.asarray(z)).numpy(), special.erf(z)
    assert np.max(np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-300)) < 2e-13
    narrow = wg.erf(wg.asarray(z.astype(np.complex64))).numpy()
    assert narrow.dtype == np.complex64


def test_erfc_of_complex_numbers() -> None:
    rng = np.random.default_rng(4)
    z = rng.uniform(-6, 6, 400) + 1j * rng.uniform(-6, 6, 400)
    z = np.concatenate([z, z * 1e-3, z.real + 1j * z.imag * 1e-5, [1j, 0j, 5.0 + 0j, -5.0 - 1e-9j]])
    ours, theirs = wg.erfc(wg.asarray(z)).numpy(), special.erfc(z)
    assert np.max(np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1e-300)) < 2e-13


def test_powers_of_two_with_complex_exponents() -> None:
    z = np.random.default_rng(5).normal(size=(50, 2)) @ [3.0, 3.0j]
    np.testing.assert_allclose(wg.exp2(wg.asarray(z)).numpy(), np.exp2(z), rtol=1e-14)
    assert wg.exp2(wg.asarray(2000.0 + 0j)).item() == complex(math.inf, 0.0)


def test_multivariate_gamma() -> None:
    a = np.array([[1.6, 2.5], [4.0, 30.0]])
    for d in (1, 2, 4):
        np.testing.assert_allclose(wg.multigammaln(wg.asarray(a), d).numpy(), special.multigammaln(a, d), rtol=1e-14)
    check(lambda x: wg.multigammaln(x, 3), a)
    with pytest.raises(ArgumentError, match="d must be positive, got 0"):
        wg.multigammaln(1.0, 0)


def test_logarithm_of_beta_in_every_range() -> None:
    """Both small, one large, both large: beside 40 digits, since SciPy's own has seven where the result is near 0."""
    rng = np.random.default_rng(6)
    a, b = np.exp(rng.uniform(-6.0, 12.0, (2, 300)))
    with mpmath.workdps(40):
        exact = [float(mpmath.log(mpmath.beta(x, y))) for x, y in zip(a.tolist(), b.tolist())]
    size = np.maximum(1.0, np.abs(exact))
    np.testing.assert_allclose(wg.betaln(wg.asarray(a), wg.asarray(b)).numpy() / size, exact / size, atol=4e-15)
    narrow = wg.betaln(*(wg.asarray(v.astype(np.float32)) for v in (a, b))).numpy()
    np.testing.assert_allclose(narrow / size, exact / size, atol=2e-6)  # of arguments that are rounded


def test_scaled_bessel_function_across_its_ranges() -> None:
    x = np.concatenate([np.linspace(0.0, 30.0, 301), [7.9999, 8.0, 1e3, 1e8], [-3.0, -9.0]])
    np.testing.assert_allclose(wg.i0e(wg.asarray(x)).numpy(), special.i0e(x), rtol=1e-15)
    narrow = x.astype(np.float32)
    np.testing.assert_allclose(wg.i0e(wg.asarray(narrow)).numpy(), special.i0e(narrow.astype(float)), rtol=1e-7)


def test_logsumexp_with_signs() -> None:
    x = np.array([[0.3, -2.0, 700.0], [1.0, 2.0, -math.inf]])
    b = np.array([[1.0, -4.0, 0.0], [-1.0, 0.5, 3.0]])
    scipy_value, scipy_sign = special.logsumexp(x, b=b, axis=1, return_sign=True)
    value, sign = wg.logsumexp(wg.asarray(x), 1, b=wg.asarray(b), return_sign=True)
    np.testing.assert_allclose(value.numpy(), scipy_value, rtol=1e-14)
    np.testing.assert_array_equal(sign.numpy(), scipy_sign)
    unsigned = wg.logsumexp(wg.asarray(x), 1, b=wg.asarray(np.abs(b)), keepdims=True)
    np.testing.assert_allclose(unsigned.numpy(), special.logsumexp(x, b=np.abs(b), axis=1, keepdims=True), rtol=1e-14)
    assert math.isnan(wg.logsumexp([0.0, 0.0], b=[1.0, -2.0]).item())
    assert wg.logsumexp([0.0, 0.0], b=[1.0, -1.0]).item() == -math.inf
    check(lambda u, w: wg.logsumexp(u, b=w, return_sign=True)[0], np.array([0.3, -0.7]), np.array([1.5, -0.4]))
    check(lambda u, w: wg.logsumexp(u, 0, b=w), np.array([[0.3, -0.7], [1.0, 0.2]]), np.array([[1.5], [0.4]]))


def test_names_of_scipy_special() -> None:
    """Functions of scipy.special that are given tensors are ours, with gradients."""
    a = np.array([-2.5, -0.5, 0.3, 1.7, 4.0])
    p = np.array([0.1, 0.3, 0.45, 0.7, 0.9])
    calls: dict[str, Any] = {
        "jn": lambda s, x: s.jn(2, x),
        "jv": lambda s, x: s.jv(1.0, x),
        "eval_legendre": lambda s, x: s.eval_legendre(3, x),
        "gammasgn": lambda s, x: s.gammasgn(x),
        "gamma": lambda s, x: s.gamma(x),
        "rgamma": lambda s, x: s.rgamma(x),
        "kl_div": lambda s, x: s.kl_div(p, abs(x)),
        "rel_entr": lambda s, x: s.rel_entr(abs(x), p),
        "xlog1py": lambda s, x: s.xlog1py(p, abs(x)),
        "zeta": lambda s, x: s.zeta(1.5 + abs(x), 2.0),
        "iv": lambda s, x: s.iv(0.5, abs(x)),
        "kve": lambda s, x: s.kve(1.5, abs(x)),
        "yn": lambda s, x: s.yn(2, abs(x)),
        "erfcx": lambda s, x: s.erfcx(x),
    }
    for name, f in calls.items():
        got = f(special, wg.asarray(a))
        assert isinstance(got, wg.Tensor), name
        np.testing.assert_allclose(got.numpy(), f(special, a), rtol=1e-12, err_msg=name)
    assert special.gammasgn(wg.tensor([0.0, -1.0])).tolist()[0] == 1.0
    with pytest.raises(TypeError, match="the order must be an integer"):
        special.jv(0.5, wg.tensor([1.0]))
