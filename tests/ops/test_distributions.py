"""Draws of distributions with parameters: the right distribution, the same numbers again, and implicit derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from tests.ops.sampling import array
from wengert.ops import OPS
from wengert.tensors.conversion import asarray
from wengert.threads import get_num_threads, set_num_threads

N = 100_000
KEY, START = (1, 2), (0,)
gamma, slope, tail = OPS["random_gamma"], OPS["gamma_slope"], OPS["gamma_tail"]
poisson, binomial, von_mises = OPS["random_poisson"], OPS["random_binomial"], OPS["random_von_mises"]
multinomial, categorical = OPS["random_multinomial"], OPS["random_categorical"]


def filled(value: float, n: int = N, dtype: Any = np.float64) -> Any:
    return asarray(np.full(n, value, dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("a", [0.05, 0.4, 0.99, 1.0, 1.7, 12.0, 1e4])
def test_gamma(a: float, dtype: Any) -> None:
    x = array(gamma(filled(a, dtype=dtype), 0, KEY, START)).astype(np.float64)
    logs = array(gamma(filled(a, dtype=dtype), 1, KEY, START)).astype(np.float64)
    if dtype is np.float64 or a > 0.05:  # one in a hundred is less than the least float32
        assert stats.kstest(x, stats.gamma(a).cdf).pvalue > 1e-3
    assert stats.kstest(logs, stats.loggamma(a).cdf).pvalue > 1e-3
    seen = x > 1e-30
    np.testing.assert_allclose(logs[seen], np.log(x[seen]), rtol=1e-5, atol=1e-5)
    assert abs(np.corrcoef(logs[:-1], logs[1:])[0, 1]) < 0.015


def test_small_shapes_underflow_to_the_least_number_and_their_logarithms_do_not() -> None:
    x = array(gamma(filled(1e-4, 1000, np.float32), 0, KEY, START))
    logs = array(gamma(filled(1e-4, 1000, np.float32), 1, KEY, START))
    assert x.min() == np.finfo(np.float32).tiny and np.isfinite(logs).all()
    assert stats.kstest(logs, stats.loggamma(1e-4).cdf).pvalue > 1e-3


def test_parameters_outside_of_their_domain_give_nan() -> None:
    a = asarray(np.array([0.0, -1.0, np.nan, 1.0]))
    assert np.isnan(array(gamma(a, 0, KEY, START))).tolist() == [True, True, True, False]
    rate = asarray(np.array([-1.0, np.nan, 0.0, 3.0]))
    assert np.isnan(array(poisson(rate, KEY, START))).tolist() == [True, True, False, False]
    n, p = asarray(np.array([1.5, -2.0, 4.0, 4.0])), asarray(np.array([0.5, 0.5, 1.5, 0.5]))
    assert np.isnan(array(binomial(n, p, KEY, START))).tolist() == [True, True, True, False]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("concentration", [1e-9, 1e-3, 0.5, 1.0, 7.0, 1e3, 1e9])
def test_von_mises(concentration: float, dtype: Any) -> None:
    x = array(von_mises(filled(concentration, dtype=dtype), KEY, START)).astype(np.float64)
    assert abs(x).max() <= np.float32(np.pi)
    assert stats.kstest(x, stats.vonmises(concentration).cdf).pvalue > 1e-3


def fits(x: Any, distribution: Any) -> None:
    """A chi-squared test of counts, with bins of 20 expected ones or more."""
    low, high = int(distribution.ppf(1e-3)), int(distribution.ppf(1 - 1e-3))
    edges = np.unique(np.linspace(low, high + 1, min(high - low + 2, 40)).round()) - 0.5
    expected = np.diff(np.concatenate([[0.0], distribution.cdf(edges), [1.0]])) * x.size
    observed = np.histogram(x, np.concatenate([[-np.inf], edges, [np.inf]]))[0]
    kept = expected >= 20
    chi2 = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    assert stats.chi2(kept.sum() - 1).sf(chi2) > 1e-3
    assert observed[~kept].sum() <= 20 * (~kept).sum() + 40


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rate", [0.1, 1.0, 5.5, 9.99, 10.01, 30.0, 1000.0])
def test_poisson(rate: float, dtype: Any) -> None:
    x = array(poisson(filled(rate, dtype=dtype), KEY, START)).astype(np.float64)
    fits(x, stats.poisson(rate))
    assert x.mean() == pytest.approx(rate, abs=5 * np.sqrt(rate / N))


@pytest.mark.parametrize("n, p", [(1, 0.3), (10, 0.5), (19, 0.5), (40, 0.5), (100, 0.9), (1000, 0.01), (5000, 0.3)])
def test_binomial(n: int, p: float) -> None:
    x = array(binomial(filled(n), filled(p), KEY, START))
    assert x.min() >= 0 and x.max() <= n
    fits(x, stats.binom(n, p))
    assert x.mean() == pytest.approx(n * p, abs=5 * np.sqrt(n * p * (1 - p) / N))


def test_binomials_at_the_edges() -> None:
    n, p = np.array([0.0, 7.0, 7.0, 1.0, 1.0]), np.array([0.5, 0.0, 1.0, 0.0, 1.0])
    assert array(binomial(asarray(n), asarray(p), KEY, START)).tolist() == [0.0, 0.0, 7.0, 0.0, 1.0]


def test_multinomial() -> None:
    weights = np.array([0.2, 0.0, 1.0, 0.8])
    x = array(multinomial(filled(12.0, 20_000), asarray(np.tile(weights, (20_000, 1))), KEY, START))
    assert (x.sum(1) == 12).all() and (x[:, 1] == 0).all()
    for k in (0, 2, 3):
        fits(x[:, k], stats.binom(12, weights[k] / 2))
    assert np.cov(x[:, 0], x[:, 2])[0, 1] == pytest.approx(-12 * 0.1 * 0.5, abs=0.03)


def test_categorical() -> None:
    weights = np.array([[0.2, 0.0, 1.0, 0.8, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]])
    x = array(categorical(asarray(weights), (N,), KEY, START))
    assert x.shape == (N, 2) and (x[:, 1] == 0).all()
    counts = np.bincount(x[:, 0], minlength=5)
    assert counts[1] == counts[4] == 0
    np.testing.assert_allclose(counts / N, weights[0] / 2, atol=5 * 0.5 / np.sqrt(N))


DRAWS: dict[str, Any] = {
    "gamma": lambda n, start: gamma(filled(0.7, n), 0, KEY, start),
    "gamma float32": lambda n, start: gamma(filled(0.7, n, np.float32), 1, KEY, start),
    "von_mises": lambda n, start: von_mises(filled(0.7, n), KEY, start),
    "poisson": lambda n, start: poisson(filled(11.0, n), KEY, start),
    "binomial": lambda n, start: binomial(filled(50.0, n), filled(0.4, n), KEY, start),
    "multinomial": lambda n, start: multinomial(filled(50.0, n), asarray(np.full((n, 3), 0.4)), KEY, start),
    "categorical": lambda n, start: categorical(asarray(np.full((1, 3), 0.4)), (n,), KEY, start),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_numbers_for_any_number_of_threads_and_elements(name: str) -> None:
    before, draw = get_num_threads(), DRAWS[name]
    try:
        found = []
        for n in (1, 2, 3):
            set_num_threads(n)
            found.append(array(draw(30_001, (5,))))
    finally:
        set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[0][:77], array(draw(77, (5,))))  # a prefix is a prefix
    assert not np.array_equal(found[0], array(draw(30_001, (40_000,))))


@pytest.mark.parametrize("a", [1e-3, 0.05, 0.5, 1.0, 3.0, 15.9, 16.1, 80.0, 1e3, 1e5])
def test_slopes_keep_the_probability(a: float) -> None:
    """d ln z/da by differences of SciPy's quantiles."""
    p = np.array([1e-4, 0.05, 0.3, 0.5, 0.7, 0.95, 1 - 1e-4])
    step = 1e-3 * min(1.0, a)
    p = p[special.gammaincinv(a - 2 * step, p) > 1e-300]
    logs = [np.log(special.gammaincinv(a + k * step, p)) for k in (-2, -1, 0, 1, 2)]
    numeric = (logs[0] - 8 * logs[1] + 8 * logs[3] - logs[4]) / (12 * step)
    got = array(slope(asarray(np.full(p.size, a)), asarray(logs[2])))
    assert p.size > 2
    np.testing.assert_allclose(got, numeric, rtol=2e-7)


def test_slopes_at_the_ends() -> None:
    a, l = np.array([0.5, 0.5, 0.0, np.nan, 2.0]), np.array([-2000.0, 800.0, 0.0, 0.0, -np.inf])
    got = array(slope(asarray(a), asarray(l)))
    assert got[0] == pytest.approx((2000.0 + special.digamma(1.5)) / 0.5, rel=1e-12)  # U^(1/a) alone
    assert got[1] == 0.0 and np.isnan(got[2:4]).all() and got[4] == np.inf


def test_the_upper_tail_of_a_small_shape_is_an_exponential_integral() -> None:
    a, z = np.array([1e-9, 1e-9, 1e-9]), np.array([1e-6, 1e-2, 3.0])
    got = array(tail(asarray(a), asarray(np.log(z)), 0))
    np.testing.assert_allclose(got, special.exp1(z) * np.exp(z), rtol=1e-7)
