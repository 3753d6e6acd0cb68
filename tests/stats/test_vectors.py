"""Distributions of vectors and of classes beside scipy.stats: batches, derivatives, samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

import wengert as wg
from tests import finite_differences as fd
from tests.stats.checking import check_derivatives

N = 40_000
RNG = np.random.default_rng(2)
LOC = RNG.normal(size=(2, 3))
HALF = RNG.normal(size=(2, 3, 3))
COVARIANCE = HALF @ HALF.swapaxes(-1, -2) + 0.5 * np.eye(3)
LOWER = np.linalg.cholesky(COVARIANCE)
CONCENTRATION = np.array([[0.6, 1.5, 3.0, 1.1], [2.0, 5.0, 1.0, 4.0]])
PROBS = np.array([[0.1, 0.2, 0.3, 0.4], [0.25, 0.05, 0.6, 0.1]])


def near(got: Any, expected: Any, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(got.numpy(), expected, rtol=tolerance, atol=tolerance)
    assert got.shape == np.shape(expected)


# ------------------------------------------------------------------------------------------------ normal vectors

FORMS: dict[str, Any] = {
    "covariance_matrix": COVARIANCE,
    "precision_matrix": np.linalg.inv(COVARIANCE),
    "scale_tril": LOWER,
}


@pytest.mark.parametrize("form", FORMS)
def test_normal_vectors(form: str) -> None:
    d = wg.stats.MultivariateNormal(wg.asarray(LOC), **{form: wg.asarray(FORMS[form])})
    assert d.batch_shape == (2,) and d.event_shape == (3,) and d.dtype == wg.float64
    x = RNG.normal(size=(5, 2, 3))
    theirs = [scipy_stats.multivariate_normal(LOC[i], COVARIANCE[i]) for i in range(2)]
    near(d.log_prob(x), np.stack([theirs[i].logpdf(x[:, i]) for i in range(2)], 1))
    near(d.entropy(), [t.entropy() for t in theirs])
    near(d.mean, LOC)
    near(d.variance, np.diagonal(COVARIANCE, axis1=1, axis2=2))
    near(d.covariance_matrix, COVARIANCE)
    near(d.precision_matrix, np.linalg.inv(COVARIANCE), 1e-8)
    near(d.scale_tril, LOWER, 1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_derivatives_of_normal_vectors(form: str) -> None:
    x = RNG.normal(size=(2, 3))

    def f(loc: Any, half: Any, x: Any) -> Any:
        matrix = half @ half.mT + 0.5 * wg.eye(3, dtype=wg.float64)
        if form == "scale_tril":
            matrix = wg.linalg.cholesky(matrix)
        return wg.stats.MultivariateNormal(loc, **{form: matrix}).log_prob(x)

    check_derivatives(f, LOC, HALF, x)


def test_samples_of_normal_vectors() -> None:
    d = wg.stats.MultivariateNormal(wg.asarray(LOC), wg.asarray(COVARIANCE))
    x = d.sample((N,), generator=wg.Generator(seed=3)).numpy()
    assert x.shape == (N, 2, 3)
    for i in range(2):
        np.testing.assert_allclose(x[:, i].mean(0), LOC[i], atol=0.06)
        np.testing.assert_allclose(np.cov(x[:, i].T), COVARIANCE[i], atol=0.15)

    def sample(loc: Any, lower: Any) -> Any:
        made = wg.stats.MultivariateNormal(loc, scale_tril=lower)
        return made.sample((2,), generator=wg.Generator(seed=3))

    y, y_dot = wg.jvp(sample, (wg.asarray(LOC), wg.asarray(LOWER)), (wg.asarray(np.ones((2, 3))), wg.asarray(LOWER)))
    np.testing.assert_allclose(y_dot.numpy(), 1.0 + y.numpy() - LOC)


def test_one_matrix_for_a_batch_of_means() -> None:
    d = wg.stats.MultivariateNormal(wg.asarray(LOC), wg.asarray(COVARIANCE[0]))
    assert d.batch_shape == (2,) and d.sample((4,)).shape == (4, 2, 3) and d.variance.shape == (2, 3)
    assert d.entropy().shape == (2,) and d.log_prob(np.zeros(3)).shape == (2,)


# ---------------------------------------------------------------------------------------------------- Dirichlet


def test_dirichlet() -> None:
    d = wg.stats.Dirichlet(wg.asarray(CONCENTRATION))
    x = RNG.dirichlet(np.ones(4), size=(5, 2))
    theirs = [scipy_stats.dirichlet(c) for c in CONCENTRATION]
    near(d.log_prob(x), np.stack([theirs[i].logpdf(x[:, i].T) for i in range(2)], 1))
    near(d.mean, np.stack([t.mean() for t in theirs]))
    near(d.variance, np.stack([t.var() for t in theirs]))
    near(d.entropy(), [t.entropy() for t in theirs])
    assert np.isnan(d.mode.numpy()[0]).all()
    near(d.mode[1], (CONCENTRATION[1] - 1) / (CONCENTRATION[1] - 1).sum())
    assert (d.log_prob(np.array([0.5, 0.6, 0.2, -0.3])).numpy() == -np.inf).all()
    check_derivatives(lambda c: wg.stats.Dirichlet(c).log_prob(x), CONCENTRATION)
    check_derivatives(lambda c: wg.stats.Dirichlet(c).entropy(), CONCENTRATION)


def test_samples_of_dirichlet() -> None:
    c = wg.asarray(CONCENTRATION)
    x = wg.stats.Dirichlet(c).sample((N,), generator=wg.Generator(seed=4)).numpy()
    np.testing.assert_allclose(x.sum(-1), 1.0)
    for i, k in np.ndindex(2, 4):
        marginal = scipy_stats.beta(CONCENTRATION[i, k], CONCENTRATION[i].sum() - CONCENTRATION[i, k])
        assert scipy_stats.kstest(x[:, i, k], marginal.cdf).pvalue > 1e-4
    tiny = wg.stats.Dirichlet(wg.full((3,), 1e-3)).sample((1000,), generator=wg.Generator(seed=4)).numpy()
    np.testing.assert_allclose(tiny.sum(-1), 1.0, rtol=1e-5)  # in float32, where every gamma draw underflows


def test_derivatives_of_dirichlet_samples_are_right_on_average() -> None:
    c_dot = np.array([[1.0, 0.0, 0.0, 0.5], [0.3, 1.0, 0.0, 0.0]])

    def sample(c: Any) -> Any:
        return wg.stats.Dirichlet(c).sample((N,), generator=wg.Generator(seed=5)) ** 2

    def moment(c: Any) -> Any:
        total = c.sum(-1, keepdims=True)
        return c * (c + 1) / (total * (total + 1))

    slopes = wg.jvp(sample, (wg.asarray(CONCENTRATION),), (wg.asarray(c_dot),))[1].numpy()
    expected = fd.directional(moment, [CONCENTRATION], [c_dot])
    assert (abs(slopes.mean(0) - expected) < 5 * slopes.std(0) / np.sqrt(N)).all()


# ------------------------------------------------------------------------------------------------------ classes


@pytest.mark.parametrize("given", ["probs", "logits"])
def test_categorical(given: str) -> None:
    value = PROBS if given == "probs" else np.log(PROBS) + 0.7
    d = wg.stats.Categorical(**{given: wg.asarray(value)})
    assert d.batch_shape == (2,) and d.event_shape == () and d.classes == 4
    x = np.array([[0, 1], [3, 2], [2, 2]])
    near(d.log_prob(x), np.log(np.take_along_axis(PROBS[None].repeat(3, 0), x[..., None], -1)[..., 0]))
    near(d.cdf(x), np.take_along_axis(PROBS.cumsum(-1)[None].repeat(3, 0), x[..., None], -1)[..., 0])
    near(d.icdf(d.cdf(x) - 1e-9), x)
    near(d.icdf([[0.0, 1e-9], [1.0, 1.0]]), [[0, 0], [3, 3]])
    assert np.isnan(d.icdf([1.5, np.nan]).numpy()).all()
    near(d.entropy(), -(PROBS * np.log(PROBS)).sum(-1))
    near(d.probs, PROBS)
    near(d.logits, np.log(PROBS))
    assert d.mode.tolist() == [3, 2] and d.log_prob(wg.tensor(2)).shape == (2,)
    assert d.log_prob([-1, 4]).tolist() == [-np.inf, -np.inf] and d.log_prob([0.5, 1.0]).tolist()[0] == -np.inf


def test_more_classes_than_the_dtype_holds() -> None:
    n = 5000
    logits = np.zeros(n, np.float16)
    logits[4999] = 8.0
    d = wg.stats.Categorical(logits=wg.asarray(logits))
    assert d.log_prob([4998, 4999]).numpy().argmax() == 1 and d.log_prob(5000).item() == -np.inf
    assert d.log_prob(wg.tensor(4999, dtype=wg.uint16)).item() == d.log_prob(4999).item()
    assert d.cdf([-1, 4999, 7000]).numpy()[0] == 0.0
    p = np.full((3, n), 1 / n, np.float32)
    x = wg.stats.Categorical(p).sample((1000,)).numpy()
    assert x.max() > 4900 and x.min() < 100
    for dtype in ("float16", "bfloat16", "float32"):
        wg.stats.Categorical(wg.softmax(wg.randn(4, 300).astype(dtype)))  # sums that are 1 but for rounding


@pytest.mark.parametrize("given", ["probs", "logits"])
def test_derivatives_of_categorical(given: str) -> None:
    x = np.array([1, 2])

    def f(z: Any) -> Any:
        d = wg.stats.Categorical(probs=wg.softmax(z)) if given == "probs" else wg.stats.Categorical(logits=z)
        return d.log_prob(x) + d.entropy() + d.cdf(x)

    check_derivatives(f, RNG.normal(size=(2, 4)))


def test_samples_of_categorical() -> None:
    d = wg.stats.Categorical(wg.asarray(PROBS))
    x = d.sample((N,), generator=wg.Generator(seed=6))
    assert (
        x.dtype == wg.int64 and x.shape == (N, 2) and d.sample().shape == (2,) and d.sample((2, 3)).shape == (2, 3, 2)
    )
    for i in range(2):
        frequencies = np.bincount(x.numpy()[:, i], minlength=4) / N
        np.testing.assert_allclose(frequencies, PROBS[i], atol=5 * 0.5 / np.sqrt(N))
    assert wg.stats.Categorical([0.0, 1.0, 0.0]).sample((1000,)).tolist() == [1] * 1000
    score = wg.grad(lambda z: wg.stats.Categorical(logits=z).log_prob(2))(wg.zeros(4))
    np.testing.assert_allclose(score.numpy(), [-0.25, -0.25, 0.75, -0.25], rtol=1e-6)


@pytest.mark.parametrize("given", ["probs", "logits"])
def test_multinomial(given: str) -> None:
    value = PROBS if given == "probs" else np.log(PROBS) - 0.3
    n = np.array([5.0, 9.0])
    d = wg.stats.Multinomial(wg.asarray(n), **{given: wg.asarray(value)})
    assert d.batch_shape == (2,) and d.event_shape == (4,)
    x = d.sample((N,), generator=wg.Generator(seed=7)).numpy()
    assert x.shape == (N, 2, 4) and (x.sum(-1) == n).all()
    for i in range(2):
        theirs = scipy_stats.multinomial(n[i], PROBS[i])
        near(d.log_prob(x[:50])[:, i], theirs.logpmf(x[:50, i]))
        near(d.mean[i], n[i] * PROBS[i])
        near(d.variance[i], np.diagonal(theirs.cov()))
        near(d.entropy()[i], theirs.entropy())
        np.testing.assert_allclose(np.cov(x[:, i].T), theirs.cov(), atol=0.12)
    assert (d.log_prob(np.array([1.0, 1.0, 1.0, 1.0])).numpy() == -np.inf).all()


def test_compiled_vectors() -> None:
    def f(loc: Any, lower: Any, c: Any, p: Any) -> Any:
        parts = [
            wg.stats.MultivariateNormal(loc, scale_tril=lower).sample((3,)),
            wg.stats.Dirichlet(c).sample((3,)),
            wg.stats.Multinomial(5.0, p).sample((3,)),
            wg.stats.Categorical(p).sample((3,)) * 1.0,
        ]
        return [x.sum() for x in parts]

    values = [wg.asarray(a) for a in (LOC, LOWER, CONCENTRATION, PROBS)]
    wg.manual_seed(8)
    expected = [x.item() for x in f(*values)]
    wg.manual_seed(8)
    assert [x.item() for x in wg.compile(f)(*values)] == pytest.approx(expected, rel=1e-12)
