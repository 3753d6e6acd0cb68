"""Divergences: every pair of the table by numerical integration, summation or samples; how the table is extended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import integrate

import wengert as wg
from tests.stats.checking import check_derivatives
from wengert.stats import divergence

s = wg.stats


def w(*numbers: Any) -> Any:
    return wg.asarray(np.array(numbers if len(numbers) > 1 else numbers[0], np.float64))


def make(kind: Any, *arguments: float) -> Any:
    return kind(*(w(a) for a in arguments))


REAL, POSITIVE, UNIT = (-np.inf, np.inf), (0.0, np.inf), (0.0, 1.0)
SMOOTH: dict[tuple[Any, Any], tuple[Any, Any, tuple[float, float]]] = {
    (s.Normal, s.Normal): ((0.3, 1.2), (-0.5, 0.7), REAL),
    (s.LogNormal, s.LogNormal): ((0.3, 0.8), (-0.5, 0.7), POSITIVE),
    (s.Gamma, s.Gamma): ((1.5, 2.0), (3.0, 0.7), POSITIVE),
    (s.Chi2, s.Chi2): ((3.0,), (5.5,), POSITIVE),
    (s.Exponential, s.Exponential): ((1.5,), (0.7,), POSITIVE),
    (s.Beta, s.Beta): ((1.5, 2.0), (3.0, 1.7), UNIT),
    (s.Laplace, s.Laplace): ((0.3, 1.2), (-0.5, 0.7), REAL),
    (s.Cauchy, s.Cauchy): ((0.3, 1.2), (-0.5, 0.7), REAL),
    (s.Gumbel, s.Gumbel): ((0.3, 0.8), (-0.5, 1.1), (-6.0, 60.0)),
    (s.Weibull, s.Weibull): ((1.2, 1.7), (0.8, 2.1), (0.0, 30.0)),
    (s.Uniform, s.Uniform): ((0.2, 0.9), (0.0, 2.0), (0.2, 0.9)),
    (s.VonMises, s.VonMises): ((0.3, 1.2), (-0.5, 3.0), (-np.pi, np.pi)),
    (s.Laplace, s.Normal): ((0.3, 1.2), (-0.5, 0.7), REAL),
    (s.Gumbel, s.Normal): ((0.3, 0.8), (-0.5, 1.1), (-6.0, 60.0)),
    (s.Logistic, s.Normal): ((0.3, 0.8), (-0.5, 1.1), (-60.0, 60.0)),
    (s.StudentT, s.Normal): ((5.0, 0.3, 0.8), (-0.5, 1.1), REAL),
    (s.Uniform, s.Normal): ((0.2, 0.9), (-0.5, 1.1), (0.2, 0.9)),
    (s.Exponential, s.Normal): ((1.5,), (-0.5, 1.1), POSITIVE),
    (s.Gamma, s.Normal): ((1.5, 2.0), (-0.5, 1.1), POSITIVE),
    (s.Beta, s.Normal): ((1.5, 2.0), (-0.5, 1.1), UNIT),
    (s.LogNormal, s.Normal): ((0.1, 0.4), (-0.5, 1.1), POSITIVE),
    (s.Weibull, s.Normal): ((1.2, 1.7), (-0.5, 1.1), (0.0, 30.0)),
    (s.Gamma, s.Exponential): ((1.5, 2.0), (0.7,), POSITIVE),
    (s.Beta, s.Exponential): ((1.5, 2.0), (0.7,), UNIT),
    (s.LogNormal, s.Exponential): ((0.1, 0.4), (0.7,), POSITIVE),
    (s.Weibull, s.Exponential): ((1.2, 1.7), (0.7,), (0.0, 30.0)),
    (s.Exponential, s.Gamma): ((1.5,), (2.5, 0.7), POSITIVE),
    (s.Beta, s.Gamma): ((1.5, 2.0), (2.5, 0.7), UNIT),
    (s.LogNormal, s.Gamma): ((0.1, 0.4), (2.5, 0.7), POSITIVE),
    (s.Weibull, s.Gamma): ((1.2, 1.7), (2.5, 0.7), (0.0, 30.0)),
    (s.Beta, s.Uniform): ((1.5, 2.0), (-1.0, 2.0), UNIT),
    (s.Normal, s.Laplace): ((0.3, 1.2), (-0.5, 0.7), REAL),
    (s.Normal, s.Gumbel): ((0.3, 0.8), (-0.5, 1.1), (-8.0, 8.0)),
}
PAIRS = [pytest.param(p, q, id=f"{p.__name__}-{q.__name__}") for p, q in SMOOTH]


@pytest.mark.parametrize("p, q", PAIRS)
def test_by_integration(p: Any, q: Any) -> None:
    of_p, of_q, (low, high) = SMOOTH[p, q]
    a, b = make(p, *of_p), make(q, *of_q)

    def integrand(x: float) -> float:
        log_p = a.log_prob(x).item()
        return 0.0 if log_p < -700.0 else np.exp(log_p) * (log_p - b.log_prob(x).item())

    expected = integrate.quad(integrand, low, high, epsabs=1e-11, epsrel=1e-11, limit=400)[0]
    assert s.kl(a, b).item() == pytest.approx(expected, rel=1e-7, abs=1e-8)
    assert s.kl(a, b).shape == () and s.kl(a, b).dtype == wg.float64


@pytest.mark.parametrize("p, q", PAIRS)
def test_derivatives(p: Any, q: Any) -> None:
    of_p, of_q, _ = SMOOTH[p, q]
    n = len(of_p)
    check_derivatives(lambda *given: s.kl(p(*given[:n]), q(*given[n:])), *of_p, *of_q)


COUNTS: dict[str, tuple[Any, Any, int]] = {
    "Bernoulli": (s.Bernoulli(w(0.3)), s.Bernoulli(w(0.6)), 2),
    "Bernoulli of logits": (s.Bernoulli(logits=w(-0.4)), s.Bernoulli(w(0.6)), 2),
    "Binomial": (s.Binomial(w(7.0), w(0.3)), s.Binomial(w(7.0), logits=w(0.6)), 8),
    "Geometric": (s.Geometric(w(0.3)), s.Geometric(w(0.6)), 200),
    "NegativeBinomial": (s.NegativeBinomial(w(2.5), w(0.3)), s.NegativeBinomial(w(2.5), logits=w(0.6)), 100),
    "Poisson": (s.Poisson(w(3.0)), s.Poisson(w(5.0)), 60),
    "Categorical": (s.Categorical(w(0.2, 0.3, 0.5)), s.Categorical(logits=w(1.0, 0.5, -0.5)), 3),
}


@pytest.mark.parametrize("name", COUNTS)
def test_by_summation(name: str) -> None:
    p, q, n = COUNTS[name]
    x = np.arange(n)
    expected = (p.prob(x) * (p.log_prob(x) - q.log_prob(x))).sum().item()
    assert s.kl(p, q).item() == pytest.approx(expected, rel=1e-10)


def test_zero_probabilities() -> None:
    never, always, sometimes = s.Bernoulli(w(0.0)), s.Bernoulli(w(1.0)), s.Bernoulli(w(0.5))
    assert s.kl(never, sometimes).item() == pytest.approx(np.log(2.0)) and s.kl(never, never).item() == 0.0
    assert s.kl(sometimes, never).item() == np.inf and s.kl(always, never).item() == np.inf
    assert s.kl(s.Categorical([0.0, 1.0]), s.Categorical([0.5, 0.5])).item() == pytest.approx(np.log(2.0))
    assert s.kl(s.Categorical([0.5, 0.5]), s.Categorical([0.0, 1.0])).item() == np.inf
    assert s.kl(s.Uniform(0.0, 2.0), s.Uniform(0.0, 1.0)).item() == np.inf
    assert s.kl(s.Poisson(0.0), s.Poisson(2.0)).item() == 2.0


def _vectors(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(3, 3))
    return s.MultivariateNormal(wg.asarray(rng.normal(size=3)), wg.asarray(half @ half.T + np.eye(3)))


MORE: dict[str, tuple[Any, Any]] = {
    "MultivariateNormal": (_vectors(1), _vectors(2)),
    "Dirichlet": (s.Dirichlet(w(1.5, 2.0, 4.0)), s.Dirichlet(w(1.0, 3.0, 2.0))),
    "Multinomial": (s.Multinomial(w(6.0), w(0.2, 0.3, 0.5)), s.Multinomial(w(6.0), w(0.4, 0.3, 0.3))),
    "Independent": (s.Independent(s.Normal(w(0.0, 1.0), w(1.0)), 1), s.Independent(s.Normal(w(1.0, 0.0), w(2.0)), 1)),
}


@pytest.mark.parametrize("name", MORE)
def test_by_samples(name: str) -> None:
    p, q = MORE[name]
    x = p.sample((100_000,), generator=wg.Generator(seed=5))
    terms = (p.log_prob(x) - q.log_prob(x)).numpy()
    assert s.kl(p, q).item() == pytest.approx(terms.mean(), abs=5 * terms.std() / np.sqrt(terms.size))
    assert s.kl(p, p).item() == pytest.approx(0.0, abs=1e-12)


def test_transformed_share_their_transform() -> None:
    f = s.transforms.Exp()
    p, q = (s.Transformed(s.Normal(w(m), w(1.0)), f) for m in (0.0, 1.0))
    assert s.kl(p, q).item() == pytest.approx(0.5)
    with pytest.raises(NotImplementedError, match="share one transform"):
        s.kl(p, s.Transformed(s.Normal(w(0.0), w(1.0)), s.transforms.Exp()))


def test_batches_broadcast() -> None:
    p, q = s.Normal(np.zeros((2, 1)), 1.0), s.Normal(np.ones(3), 1.0)
    assert s.kl(p, q).shape == (2, 3)


def test_every_pair_is_tested() -> None:
    tested = {
        *SMOOTH,
        *((type(p), type(q)) for p, q, _ in COUNTS.values()),
        *((type(p), type(q)) for p, q in MORE.values()),
    }
    known = {pair for pair in divergence._TABLE if all(getattr(s, k.__name__, None) is k for k in pair)}  # ours
    assert known - tested == {(s.Transformed, s.Transformed)}


def test_missing_pairs_say_what_to_do() -> None:
    with pytest.raises(NotImplementedError, match=r"StudentT and Cauchy.*register_kl\(StudentT, Cauchy\).*log_prob"):
        s.kl(s.StudentT(3.0), s.Cauchy(0.0, 1.0))
    with pytest.raises(TypeError, match="kl: q must be a Distribution, got float"):
        s.kl(s.Normal(0.0, 1.0), 1.0)
    with pytest.raises(TypeError, match="two classes"):
        s.register_kl(s.Normal, 1.0)
    with pytest.raises(wg.ArgumentError, match="equal total_count"):
        s.kl(s.Binomial(3, 0.5), s.Binomial(4, 0.5))
    with pytest.raises(wg.ArgumentError, match="differ in their classes"):
        s.kl(s.Categorical([0.5, 0.5]), s.Categorical([0.5, 0.25, 0.25]))


def test_the_nearest_class_is_taken() -> None:
    class Special(s.Normal): ...

    assert s.kl(Special(0.0, 1.0), s.Normal(1.0, 1.0)).item() == 0.5

    @s.register_kl(Special, s.Normal)
    def _(p: Any, q: Any) -> Any:
        return p.loc * 0.0 + 7.0

    try:
        assert s.kl(Special(0.0, 1.0), s.Normal(1.0, 1.0)).item() == 7.0
    finally:
        del divergence._TABLE[Special, s.Normal]
