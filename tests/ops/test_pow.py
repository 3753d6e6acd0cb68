"""The kernel of pow: C's corner cases, exact powers, and errors in units of the last place over all of the range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg

DTYPES = [np.float32, np.float64]
WORST = 1.0  # units in the last place


def power(a: Any, b: Any) -> Any:
    return wg.pow(wg.asarray(a), wg.asarray(b)).numpy()


def misses(a: Any, b: Any) -> Any:
    """The errors in units of the last place of the result, which is subnormal at the end of the range."""
    with np.errstate(all="ignore"):
        exact = np.power(a.astype(np.longdouble), b.astype(np.longdouble))
        rounded = exact.astype(a.dtype)
        got = power(a, b)
        finite = np.isfinite(rounded)
        np.testing.assert_array_equal(got[~finite], rounded[~finite])
        error = np.abs(got[finite].astype(np.longdouble) - exact[finite])
        return (error / np.spacing(np.abs(rounded[finite])).astype(np.longdouble)).astype(np.float64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_corners(dtype: Any) -> None:
    info = np.finfo(dtype)
    whole = 2.0**info.nmant  # from here on every number is whole, from twice that on every number is even
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.inf, np.nan, info.max, info.smallest_subnormal, info.eps]
    values += [whole - 0.5, whole + 1.0, 2 * whole - 1.0, 2 * whole, 1.0 - info.eps, 1.0 + info.eps]
    x = np.array(values + [-v for v in values], dtype=dtype)
    a, b = (g.reshape(-1) for g in np.meshgrid(x, x))
    with np.errstate(all="ignore"):
        expected = np.power(a, b)
    got = power(a, b)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), ~number)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(expected)[number])
    np.testing.assert_allclose(got, expected, rtol=2 * float(info.eps), atol=float(info.smallest_subnormal))


@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_powers(dtype: Any) -> None:
    digits = np.finfo(dtype).nmant + 1
    for exponent in range(-3, 12):
        a = np.arange(-200.0, 201.0)
        a = a[a != 0]
        if exponent < 0:
            a = np.sign(a) * 2.0 ** (np.abs(a) % 30)  # of the others no reciprocal is exact
        fits = np.log2(np.abs(a)) * exponent <= digits
        a = a[fits].astype(dtype)
        expected = np.array([float(v) ** exponent for v in a], dtype=dtype)
        np.testing.assert_array_equal(power(a, np.full_like(a, exponent)), expected)
    assert power(np.full(3, 9.0, dtype), np.full(3, 0.5, dtype)).tolist() == [3.0] * 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_over_the_range(dtype: Any) -> None:
    rng, n, info = np.random.default_rng(11), 20_000, np.finfo(dtype)
    low, high = float(info.minexp), float(info.maxexp) - 1
    sign = rng.choice([-1.0, 1.0], n)

    def worst(a: Any, b: Any) -> float:
        return float(misses(a.astype(dtype), b.astype(dtype)).max())

    ordinary = rng.uniform(0.0, 10.0, n), rng.uniform(-10.0, 10.0, n)
    wide = 2.0 ** rng.uniform(low, high, n), sign * 2.0 ** rng.uniform(-20.0, 10.0, n)
    subnormal = 2.0 ** rng.uniform(low - info.nmant, low, n), rng.uniform(-1.0, 1.0, n)
    for a, b in (ordinary, wide, subnormal):
        assert worst(a, b) <= WORST
    near_one = (1.0 + rng.uniform(-1.0, 1.0, n) * 2.0 ** -rng.uniform(0.0, info.nmant, n)).astype(dtype)
    near_one = near_one[(near_one != 1.0) & (near_one > 0)].astype(np.float64)
    # Results from overflow to the smallest subnormal number.
    target = rng.uniform(low - info.nmant - 1, high, near_one.size)
    assert worst(near_one, target / np.log2(near_one)) <= WORST


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_element_does_not_depend_on_its_neighbours(dtype: Any) -> None:
    rng = np.random.default_rng(12)
    a, b = rng.uniform(0.1, 9.0, 37).astype(dtype), rng.uniform(-5.0, 5.0, 37).astype(dtype)
    whole = power(a, b)
    for k in range(37):
        np.testing.assert_array_equal(power(a[k:], b[k:]), whole[k:])
        assert power(a[k], b[k]) == whole[k]


def test_a_cube_is_a_product() -> None:
    a = np.linspace(-3.0, 3.0, 13)
    for exponent in (3, 3.0):
        np.testing.assert_array_equal((wg.asarray(a) ** exponent).numpy(), a * a * a)
        assert (wg.tensor([2, -3]) ** 3).tolist() == [8, -27]
        half = wg.tensor([1.1, 3.3], dtype=wg.float16)
        np.testing.assert_array_equal((half**exponent).numpy(), np.power(half.numpy(), np.float16(3)))
