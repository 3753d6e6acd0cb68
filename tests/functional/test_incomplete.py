"""The incomplete gamma and beta functions against mpmath: values, tails, derivatives by the parameters, inverses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check

special: Any = pytest.importorskip("scipy.special")

# Every region of the algorithms and both sides of the limits between them.
GAMMA_POINTS = [
    (1e-8, 1e-12), (1e-8, 0.3), (0.01, 0.4), (0.3, 0.49), (0.3, 0.51), (0.9, 1.09), (0.5, 1.11), (3.2, 0.01), (3.2, 3.1),
    (3.2, 3.3), (3.2, 40.0), (12.0, 0.3), (12.0, 90.0), (39.9, 41.0), (40.1, 41.0), (40.1, 39.0), (55.0, 34.0), (55.0, 76.0),
    (150.0, 150.0), (1e3, 650.0), (1e3, 1100.0), (2e4, 2.02e4), (1e6, 1.002e6), (65.0, 0.003), (5.0, 600.0),
]  # fmt: skip
BETA_POINTS = [
    (0.01, 0.02, 0.3), (0.3, 0.7, 1e-9), (0.3, 0.7, 0.999), (1.0, 1.0, 0.25), (3.0, 5.0, 0.2), (3.0, 5.0, 0.8),
    (9.9, 0.4, 0.9), (12.0, 30.0, 0.28), (12.0, 30.0, 0.3), (30.0, 0.2, 0.5), (200.0, 3.0, 0.97), (400.0, 900.0, 0.3),
    (400.0, 900.0, 0.33), (168.0, 42.0, 0.1),
]  # fmt: skip


def _p(a: Any, x: Any) -> Any:
    return 1 - _q(a, x) if x > a else mpmath.gammainc(a, 0, x, regularized=True)


def _q(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)


def _i(a: Any, b: Any, x: Any) -> Any:
    return mpmath.betainc(a, b, 0, x, regularized=True)


def _ours(f: Callable[..., Any], *columns: Any, dtype: str = "float64") -> Any:
    return f(*(wg.asarray(np.array(c, dtype)) for c in columns)).numpy()


def _exact(f: Callable[..., Any], points: Any, digits: int = 50) -> Any:
    with mpmath.workdps(digits):
        return np.array([float(f(*(mpmath.mpf(v) for v in p))) for p in points])


@pytest.mark.parametrize(("ours", "exact"), [(wg.gammainc, _p), (wg.gammaincc, _q)])
def test_gammainc_over_all_regions(ours: Any, exact: Any) -> None:
    a, x = zip(*GAMMA_POINTS)
    np.testing.assert_allclose(_ours(ours, a, x), _exact(exact, GAMMA_POINTS), rtol=4e-14, atol=1e-300)
    narrow = [(float(np.float32(s)), float(np.float32(t))) for s, t in GAMMA_POINTS]
    got = _ours(ours, a, x, dtype="float32")
    np.testing.assert_allclose(got, _exact(exact, narrow), rtol=1e-7, atol=1e-44)


def test_betainc_over_all_regions() -> None:
    a, b, x = zip(*BETA_POINTS)
    np.testing.assert_allclose(_ours(wg.betainc, a, b, x), _exact(_i, BETA_POINTS, 80), rtol=1e-13)
    large = [np.array(c) for c in ((0.5, 5e4, 1e5), (1e4, 5e4, 3e4), (1e-4, 0.501, 0.77))]  # mpmath takes minutes
    np.testing.assert_allclose(_ours(wg.betainc, *large), special.betainc(*large), rtol=1e-12)
    # the mirror image: I_x(a, b) + I_{1 − x}(b, a) = 1, but where 1 − x is rounded too much
    a, b, x = zip(*(p for p in BETA_POINTS if p[2] > 1e-3))
    np.testing.assert_allclose(_ours(wg.betainc, a, b, x) + _ours(wg.betainc, b, a, 1 - np.array(x)), 1.0, rtol=1e-12)


def _by_parameter(f: Any, argument: int, *columns: Any) -> Any:
    def one(z: Any) -> Any:
        xs = [wg.asarray(np.array(c)) for c in columns]
        xs[argument] = z
        return wg.sum(f(*xs))

    return wg.grad(one)(wg.asarray(np.array(columns[argument]))).numpy()


def test_gammainc_by_its_parameter() -> None:
    """∂P/∂a, which has no closed form: as accurate as P."""
    points = [p for p in GAMMA_POINTS if 1e-3 < p[0] < 2e3 and p[1] > 0.005 * p[0]]
    a, x = zip(*points)
    exact = _exact(lambda s, t: -mpmath.diff(lambda u: _q(u, t), s), points, 220)  # what differences lose of the digits
    np.testing.assert_allclose(_by_parameter(wg.gammainc, 0, a, x), exact, rtol=2e-12)
    np.testing.assert_array_equal(_by_parameter(wg.gammaincc, 0, a, x), -_by_parameter(wg.gammainc, 0, a, x))


@pytest.mark.parametrize("argument", [0, 1])
def test_betainc_by_its_parameters(argument: int) -> None:
    points = [p for p in BETA_POINTS if max(p[0], p[1]) < 500 and min(p[0], p[1]) > 0.1]
    order = (1, 0) if argument == 0 else (0, 1)
    exact = _exact(lambda s, t, u: mpmath.diff(lambda c, d: _i(c, d, u), (s, t), order), points, 200)
    np.testing.assert_allclose(_by_parameter(wg.betainc, argument, *zip(*points)), exact, rtol=1e-12)


def test_inverses_undo_the_functions() -> None:
    """The error of x, from that of p and the slope."""
    rng = np.random.default_rng(5)
    a = 10.0 ** rng.uniform(-1, 4, 200)
    p = np.where(rng.random(200) < 0.5, rng.uniform(0.0, 1.0, 200), 10.0 ** rng.uniform(-30, -1, 200))
    with mpmath.workdps(40):
        for f, exact in ((wg.gammaincinv, _p), (wg.gammainccinv, _q)):
            for s, u, x in zip(a, p, _ours(f, a, p)):
                slope = mpmath.exp((s - 1) * mpmath.log(x) - x - mpmath.loggamma(s))
                assert abs(exact(mpmath.mpf(s), mpmath.mpf(x)) - u) / (slope * x) < 2e-14, (f, s, u)
    b = 10.0 ** rng.uniform(-1, 2.5, 200)
    a = np.minimum(a, 300.0)
    x = _ours(wg.betaincinv, a, b, p)
    inside = (x > 1e-280) & (x < 1 - 1e-9)
    back, density = _ours(wg.betainc, a, b, x), special.beta(a, b)
    with np.errstate(all="ignore"):
        slope = np.exp((a - 1) * np.log(x) + (b - 1) * np.log1p(-x)) / density
    assert np.all(np.abs(back - p)[inside] <= 1e-12 * (slope * x)[inside] + 1e-15 * p[inside])


def test_ends_as_scipy_has_them() -> None:
    inf, nan = math.inf, math.nan
    grid = np.array([-inf, -1.0, 0.0, 0.5, 1.0, 2.0, inf, nan])
    a, x = (m.ravel() for m in np.meshgrid(grid, grid))
    for name in ("gammainc", "gammaincc", "gammaincinv", "gammainccinv"):
        ours, theirs = _ours(getattr(wg, name), a, x), getattr(special, name)(a, x)
        differ = ~((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) | np.isclose(ours, theirs, rtol=1e-14))
        # SciPy gives inf for the inverses at a = ∞ or 0, where there is no such x
        allowed = (np.isinf(a) | (a == 0)) & ("inv" in name)
        assert not np.any(differ & ~allowed), (name, a[differ], x[differ], ours[differ], theirs[differ])
    triple = [m.ravel() for m in np.meshgrid(grid, grid, grid)]
    ours, theirs = _ours(wg.betainc, *triple), special.betainc(*triple)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) | np.isclose(ours, theirs, rtol=1e-14)
    assert same.all(), [m[~same] for m in (*triple, ours, theirs)]


def test_broadcasting_literals_and_dispatch() -> None:
    x = wg.asarray(np.array([[0.5], [2.0]]))
    a = wg.asarray(np.array([1.0, 3.0]))
    np.testing.assert_allclose(wg.gammainc(a, x).numpy(), special.gammainc(a.numpy(), x.numpy()))
    np.testing.assert_allclose(special.gammainc(a, x).numpy(), special.gammainc(a.numpy(), x.numpy()))
    np.testing.assert_allclose(special.betainc(a, 2.0, 0.3).numpy(), special.betainc(a.numpy(), 2.0, 0.3))
    for argument in range(3):
        numbers = [2.5, 1.5, 0.3]

        def f(z: Any, argument: int = argument, numbers: list[float] = numbers) -> Any:
            return wg.betainc(*(z if k == argument else v for k, v in enumerate(numbers)))

        check(f, np.array([numbers[argument], numbers[argument] * 1.2]))


def test_log_ndtr_and_its_slope() -> None:
    x = np.array([-1e5, -300.0, -40.0, -5.0, -1.0001, -0.9999, -1e-9, 0.0, 0.5, 3.0, 9.0, 38.0])
    with mpmath.workdps(60):
        exact = np.array(
            [float(mpmath.log(mpmath.ncdf(v)) if v < 5 else mpmath.log1p(-mpmath.ncdf(-v))) for v in x[2:]]
        )
        slope = np.array([float(mpmath.npdf(v) / mpmath.ncdf(v)) for v in x[2:]])
    np.testing.assert_allclose(_ours(wg.log_ndtr, x)[2:], exact, rtol=3e-15)
    np.testing.assert_allclose(_ours(wg.log_ndtr, x)[:2], special.log_ndtr(x[:2]), rtol=1e-14)
    got = wg.grad(lambda z: wg.sum(wg.log_ndtr(z)))(wg.asarray(x)).numpy()
    np.testing.assert_allclose(got[2:], slope, rtol=1e-13)
    np.testing.assert_allclose(got[:2], -x[:2], rtol=1e-4)  # |x| + 1/|x| − …
    np.testing.assert_array_equal(_ours(wg.log_ndtr, [-math.inf, math.inf]), [-math.inf, 0.0])


def test_erfcinv() -> None:
    y = np.array([1e-300, 1e-30, 1e-3, 0.5, 1.0, 1.5, 1.999999])
    np.testing.assert_allclose(_ours(wg.erfcinv, y), special.erfcinv(y), rtol=1e-14, atol=1e-17)
    np.testing.assert_array_equal(_ours(wg.erfcinv, [0.0, 2.0, -0.1, 2.1]), special.erfcinv([0.0, 2.0, -0.1, 2.1]))
    check(wg.erfcinv, np.array([0.4, 1.3]))
