"""Bessel functions, zeta, Legendre polynomials and spherical harmonics against SciPy and mpmath, and their derivatives."""

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

POSITIVE = np.concatenate([np.logspace(-6, 2.8, 60), np.linspace(0.1, 30, 90)])
REAL = np.concatenate([-POSITIVE, [0.0], POSITIVE])


def _ours(f: Any, *xs: Any) -> Any:
    return f(*(wg.asarray(np.asarray(x)) if isinstance(x, np.ndarray) else x for x in xs)).numpy()


# Where a function crosses zero its error is that of its size.
@pytest.mark.parametrize(
    ("name", "x"),
    [
        *((n, REAL) for n in ("j0", "j1")),
        *((n, POSITIVE) for n in ("y0", "y1", "k0", "k1", "k0e", "k1e")),
    ],
)
def test_functions_of_one_argument(name: str, x: Any) -> None:
    ours, theirs = _ours(getattr(wg, name), x), getattr(special, name)(x)
    np.testing.assert_allclose(ours, theirs, rtol=2e-13, atol=1e-15)
    narrow = x.astype(np.float32)
    got = _ours(getattr(wg, name), narrow)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, getattr(special, name)(narrow.astype(np.float64)), rtol=1e-6, atol=1e-7)
    check(getattr(wg, name), np.array([0.4, 2.3, 7.7]))


@pytest.mark.parametrize("n", [-3, -2, 0, 1, 2, 5, 20])
def test_integer_orders(n: int) -> None:
    np.testing.assert_allclose(_ours(wg.jn, n, REAL), special.jv(n, REAL), rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(_ours(wg.yn, n, POSITIVE), special.yn(n, POSITIVE), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(_ours(wg.kn, n, POSITIVE), special.kn(n, POSITIVE), rtol=1e-13)
    with pytest.raises(TypeError, match="the order n must be an integer"):
        wg.jn(0.5, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["iv", "ive", "kv", "kve"])
def test_real_orders(name: str) -> None:
    orders = [0.0, 0.25, 1.0, 2.5, 13.0, 40.5, 150.0] + ([] if name[0] == "k" else [-0.5, -1.0, -3.3])
    v, x = (m.ravel() for m in np.meshgrid(orders, POSITIVE))
    ours, theirs = _ours(getattr(wg, name), v, x), getattr(special, name)(v, x)
    usual = np.isfinite(theirs) & (np.abs(theirs) > 1e-290)
    np.testing.assert_allclose(ours[usual], theirs[usual], rtol=1e-12)
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))


@pytest.mark.parametrize(("ours", "exact"), [(wg.iv, mpmath.besseli), (wg.kv, mpmath.besselk)])
def test_derivatives_by_the_order(ours: Any, exact: Any) -> None:
    points = [(0.3, 0.2), (1.0, 3.0), (2.5, 0.7), (4.0, 20.0), (0.0, 1.5), (7.7, 60.0), (-0.6, 2.0), (-2.0, 1.0)]
    v, x = (np.array(c) for c in zip(*points))
    got = wg.grad(lambda z: wg.sum(ours(z, wg.asarray(x))))(wg.asarray(v)).numpy()
    with mpmath.workdps(50):
        expected = [float(mpmath.diff(lambda t, s=s: exact(t, s), r)) for r, s in points]
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)


def test_ends_of_the_modified_functions() -> None:
    inf = math.inf
    assert wg.iv(0.0, wg.tensor([0.0, inf])).tolist() == [1.0, inf]
    assert wg.kv(0.5, wg.tensor([0.0, inf, -1.0])).tolist()[:2] == [inf, 0.0]
    assert wg.yn(1, wg.tensor([0.0, inf])).tolist() == [-inf, 0.0]
    assert math.isnan(wg.kv(0.5, -1.0).item()) and math.isnan(wg.y0(-1.0).item())


def test_zeta() -> None:
    s = np.array([1.0001, 1.5, 2.0, 3.7, 20.0, 55.0])
    q = np.array([0.2, 1.0, 5.0, 60.0])
    both = [m.ravel() for m in np.meshgrid(s, q)]
    np.testing.assert_allclose(_ours(wg.zeta, *both), special.zeta(*both), rtol=1e-13)
    np.testing.assert_allclose(_ours(wg.zeta, s), special.zeta(s), rtol=1e-14)
    left = np.array([-0.5, -1.0, -2.0, -3.5, -10.2])
    np.testing.assert_allclose(_ours(wg.zeta, left), [float(mpmath.zeta(v)) for v in left], rtol=1e-13, atol=1e-17)
    got = wg.grad(lambda z: wg.sum(wg.zeta(z)))(wg.asarray(np.array([2.0, 1.1, -1.5]))).numpy()
    np.testing.assert_allclose(got, [float(mpmath.zeta(v, 1, 1)) for v in (2.0, 1.1, -1.5)], rtol=1e-11)
    check(lambda z: wg.zeta(2.5, z), np.array([0.7, 3.0]))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 25])
def test_legendre(n: int) -> None:
    x = np.linspace(-1, 1, 41)
    np.testing.assert_allclose(_ours(wg.legendre, n, x), special.eval_legendre(n, x), rtol=1e-12, atol=1e-14)
    check(lambda z: wg.legendre(n, z), np.array([-0.7, 0.3]))
    with pytest.raises(ArgumentError, match="must not be negative"):
        wg.legendre(-1, 0.5)


@pytest.mark.parametrize(("n", "m"), [(0, 0), (1, -1), (1, 1), (2, 0), (3, 2), (5, -3), (9, 9)])
def test_spherical_harmonics(n: int, m: int) -> None:
    theta, phi = np.linspace(0, math.pi, 9)[:, None], np.linspace(-3, 3, 7)
    ours = _ours(wg.sph_harm_y, n, m, theta, phi)
    np.testing.assert_allclose(ours, special.sph_harm_y(n, m, theta, phi), rtol=1e-12, atol=1e-14)

    def real(t: Any, p: Any) -> Any:
        return wg.real(wg.sph_harm_y(n, m, t, p))

    check(real, np.array([0.4, 1.1]), np.array([0.3, -2.0]))


def test_spherical_harmonics_refuse_orders_beyond_the_degree() -> None:
    with pytest.raises(ArgumentError, match="n = 1 and m = 2"):
        wg.sph_harm_y(1, 2, 0.3, 0.4)
