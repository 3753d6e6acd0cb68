"""Densities, probabilities, quantiles and moments beside scipy.stats."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats as scipy_stats

import wengert as wg
from tests.stats.cases import CASES, Case
from tests.tolerances import VALUE

TOLERANCE = 1e-10
HAVING = {
    method: [pytest.param(c, id=name) for name, c in CASES.items() if method not in c.lacks]
    for method in ("log_prob", "cdf", "icdf", "mean", "variance", "entropy", "mode", "sample")
}
P = np.array([1e-12, 1e-3, 0.2, 0.5, 0.71, 0.999, 1 - 1e-9])[:, None, None]


def near(got: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(got.numpy(), expected, rtol=tolerance, atol=tolerance)
    assert got.shape == np.shape(expected)


@pytest.mark.parametrize("case", HAVING["log_prob"])
def test_log_prob(case: Case) -> None:
    d, theirs, x = case.make(), case.beside(), case.points()
    expected = (theirs.logpmf if case.whole else theirs.logpdf)(x + case.shift)
    near(d.log_prob(x), expected)
    near(d.prob(x), np.exp(expected))
    assert d.log_prob(wg.asarray(x)).dtype == wg.float64


def test_angles_of_any_concentration_and_turn() -> None:
    """Beside quadrature: SciPy's distribution function has seven digits from a concentration of 50 on."""
    x = np.linspace(-3.0, 3.0, 9)
    for k in (1e-3, 2.0, 29.0, 31.0, 400.0, 1e5):
        d = wg.stats.VonMises(wg.asarray(np.array(0.4)), wg.asarray(np.array(k)))
        ends = [-min(math.pi, 12.0 / math.sqrt(k)), 0.0]
        exact = []
        for v in x:
            nodes = [ends[0], *(e for e in ends[1:] if e < v), v] if v > ends[0] else [v, v]
            whole = 2 * mpmath.pi * mpmath.besseli(0, k) * mpmath.exp(-k)
            exact.append(float(mpmath.quad(lambda t, k=k: mpmath.exp(-2 * k * mpmath.sin(t / 2) ** 2), nodes) / whole))
        near(d.cdf(x + 0.4), exact)
        near(d.cdf(x + 0.4 + 4 * math.pi) - 2.0, exact)
        p = np.array(exact)
        inside = (p > 1e-12) & (p < 1 - 1e-12)
        slope = d.prob(x + 0.4).numpy()[inside]
        assert (abs(d.icdf(p).numpy() - 0.4 - x)[inside] < 1e-14 * (1 + 1 / slope)).all()
    assert d.icdf([0.0, 0.5, 1.0]).numpy().tolist() == pytest.approx([0.4 - math.pi, 0.4, 0.4 + math.pi])
    assert np.isnan(d.icdf([-0.1, 1.1]).numpy()).all()


@pytest.mark.parametrize("case", HAVING["cdf"])
def test_cdf(case: Case) -> None:
    d, theirs, x = case.make(), case.beside(), case.points()
    near(d.cdf(x), theirs.cdf(x + case.shift))
    near(d.survival(x), theirs.sf(x + case.shift))
    with np.errstate(divide="ignore"):
        near(d.log_cdf(x), np.log(theirs.cdf(x + case.shift)))
        near(d.log_survival(x), np.log(theirs.sf(x + case.shift)), 1e-9)


@pytest.mark.parametrize("case", HAVING["icdf"])
def test_icdf(case: Case) -> None:
    d = case.make()
    near(d.icdf(P), case.beside().ppf(P) - case.shift)
    if not case.whole:
        near(d.cdf(d.icdf(P)), np.broadcast_to(P, (7, 2, 3)))
    assert np.isnan(d.icdf(np.array([-0.1, 1.1, np.nan])[:, None, None]).numpy()).all()


def test_quantiles_of_counts_at_the_ends() -> None:
    s = wg.stats
    assert s.Poisson(3.0).icdf([0.0, 1.0]).tolist() == [0.0, np.inf]
    assert s.Binomial(7, 0.5).icdf([0.0, 1.0]).tolist() == [0.0, 7.0]
    assert s.Binomial(7, [0.0, 1.0]).icdf(0.5).tolist() == [0.0, 7.0]
    assert s.Geometric(0.5).icdf([0.0, 0.5, 0.75, 0.76]).tolist() == [0.0, 0.0, 1.0, 2.0]
    assert s.Bernoulli(0.25).icdf([0.75, 0.76]).tolist() == [0.0, 1.0]
    f = wg.compile(lambda p: s.Poisson(wg.ones(3) * 300.0).icdf(p))
    np.testing.assert_array_equal(f(wg.tensor([0.1, 0.5, 0.9])).numpy(), s.Poisson(300.0).icdf([0.1, 0.5, 0.9]).numpy())


@pytest.mark.parametrize("case", HAVING["mean"])
def test_mean(case: Case) -> None:
    near(case.make().mean, np.broadcast_to(case.beside().mean(), (2, 3)) - case.shift)


@pytest.mark.parametrize("case", HAVING["variance"])
def test_variance(case: Case) -> None:
    d, expected = case.make(), np.broadcast_to(case.beside().var(), (2, 3))
    near(d.variance, expected)
    near(d.stddev, np.sqrt(expected))


@pytest.mark.parametrize("case", HAVING["entropy"])
def test_entropy(case: Case) -> None:
    # SciPy integrates some of its entropies numerically.
    near(case.make().entropy(), np.broadcast_to(case.beside().entropy(), (2, 3)), 1e-8)


@pytest.mark.parametrize("case", HAVING["mode"])
def test_mode(case: Case) -> None:
    d = case.make()
    mode = d.mode.numpy()
    assert mode.shape == (2, 3) and d.support.contains(d.mode).numpy().all()
    peak = d.prob(mode).numpy() * (1 + 1e-12)  # two counts may have the same probability
    for step in (1.0,) if case.whole else (1e-2, 0.3):
        assert (d.prob(mode - step).numpy() <= peak).all() and (d.prob(mode + step).numpy() <= peak).all()


@pytest.mark.parametrize("case", [pytest.param(c, id=name) for name, c in CASES.items() if c.outside])
def test_outside_of_the_support(case: Case) -> None:
    d = case.make()
    for x in case.outside:
        assert (d.log_prob(x).numpy() == -np.inf).all(), x
        assert (d.prob(x).numpy() == 0.0).all()
        assert not d.support.contains(x).numpy().any()
        # No gradient comes from there, and none is NaN.
        p = wg.asarray(next(iter(case.parameters.values())).copy()).requires_grad_()
        grads = case.make(**{next(iter(case.parameters)): p}).prob(np.full((2, 3), x)).sum().backward()
        assert grads.get(p) is None or not grads[p].numpy().any()


@pytest.mark.parametrize("case", HAVING["log_prob"])
def test_missing_values_stay_missing(case: Case) -> None:
    assert np.isnan(case.make().log_prob(np.nan).numpy()).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("case", HAVING["log_prob"])
def test_narrow_dtypes(case: Case, dtype: str) -> None:
    x = case.points().astype(np.float32)
    narrow = case.kind(**{k: wg.asarray(np.asarray(v, np.float32)).astype(dtype) for k, v in case.parameters.items()})
    got = narrow.log_prob(wg.asarray(x).astype(dtype))
    assert got.dtype.name == dtype and narrow.dtype.name == dtype
    wide = case.kind(**{k: p.astype("float64") for k, p in narrow._described().items()})
    expected = wide.log_prob(wg.asarray(x).astype(dtype).astype("float64")).numpy()
    np.testing.assert_allclose(got.astype("float64").numpy(), expected, rtol=60 * VALUE[dtype], atol=60 * VALUE[dtype])


def test_far_tails_stay_finite() -> None:
    s = wg.stats
    near(s.Cauchy(w64(0.0), 1.0).log_prob(1e200), -np.log(np.pi) - 400 * np.log(10.0))
    assert np.isfinite(s.Cauchy(wg.zeros((), dtype="float16"), 1.0).log_prob(1000.0).item())
    near(s.Normal(w64(0.0), 1.0).log_cdf(-40.0), -804.6084420137538)
    near(s.Normal(w64(0.0), 1.0).log_survival(40.0), -804.6084420137538)
    near(s.Logistic(w64(0.0), 1.0).log_cdf(-800.0), -800.0)
    assert s.StudentT(w64(3.0)).survival(1e9).item() == pytest.approx(scipy_stats.t(3.0).sf(1e9), rel=1e-10)


def w64(x: float) -> Any:
    return wg.tensor(x, dtype=wg.float64)
