"""Distributions beside torch.distributions: densities, probabilities, moments, divergences and gradients of samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
td = torch.distributions

RNG = np.random.default_rng(4)
LOC, SCALE = RNG.normal(size=(2, 3)), RNG.uniform(0.5, 2.0, (2, 3))
X, POSITIVE, UNIT = RNG.normal(size=(2, 3)), RNG.uniform(0.3, 3.0, (2, 3)), RNG.uniform(0.1, 0.9, (2, 3))
COUNTS, LOGITS = np.array([[0.0, 3.0, 7.0], [1.0, 2.0, 4.0]]), RNG.normal(size=(2, 3))
SIMPLEX = RNG.dirichlet(np.ones(3), 2)
HALF = RNG.normal(size=(2, 3, 3))

# name: (names of the parameters, parameters, values)
NUMBERS: dict[str, tuple[list[str], list[Any], Any]] = {
    "Normal": (["loc", "scale"], [LOC, SCALE], X),
    "LogNormal": (["loc", "scale"], [LOC, SCALE], POSITIVE),
    "Laplace": (["loc", "scale"], [LOC, SCALE], X),
    "Cauchy": (["loc", "scale"], [LOC, SCALE], X),
    "Gumbel": (["loc", "scale"], [LOC, SCALE], X),
    "Gamma": (["concentration", "rate"], [POSITIVE, SCALE], POSITIVE[::-1].copy()),
    "Beta": (["concentration1", "concentration0"], [POSITIVE, SCALE], UNIT),
    "Exponential": (["rate"], [SCALE], POSITIVE),
    "Chi2": (["df"], [POSITIVE], SCALE),
    "StudentT": (["df", "loc", "scale"], [POSITIVE + 2.0, LOC, SCALE], X),
    "Weibull": (["scale", "concentration"], [SCALE, POSITIVE], UNIT),
    "VonMises": (["loc", "concentration"], [LOC, SCALE], X),
    "Dirichlet": (["concentration"], [POSITIVE], SIMPLEX),
}
# PyTorch's Bessel functions of von Mises are polynomials of seven digits.
LOOSE = {"VonMises": 1e-6}
# Its trigamma, the derivative of digamma, errs by 4e-10 at 0.6 (against 40 digits), and has no accurate derivative.
TRIGAMMA = 1e-8
COARSE = {"Gamma", "Beta", "Chi2", "StudentT", "Dirichlet"}
TRIALS: dict[str, tuple[dict[str, Any], Any]] = {
    "Bernoulli": ({}, (COUNTS > 2.0) * 1.0),
    "Geometric": ({}, COUNTS),
    "Binomial": ({"total_count": 9.0}, COUNTS),
    "NegativeBinomial": ({"total_count": 4.5}, COUNTS),
}
STATISTICS = ("mean", "variance", "stddev", "entropy")


def made(library: Any, name: str, keys: list[str], values: Any) -> Any:
    return getattr(library, name)(**dict(zip(keys, values)))


@pytest.mark.parametrize("name", NUMBERS)
def test_densities(name: str) -> None:
    keys, values, x = NUMBERS[name]
    by_value = name != "Dirichlet"  # PyTorch checks that vectors that it is given sum to 1
    arrays = [*values, x] if by_value else values

    def density(library: Any, convert: Callable[[Any], Any]) -> Callable[..., Any]:
        def f(*given: Any) -> Any:
            return made(library, name, keys, given).log_prob(given[-1] if by_value else convert(x))

        return f

    compare(
        density(wg.stats, wg.asarray),
        torch=density(td, torch.tensor),
        arrays=arrays,
        lacks={"torch": [*(["second order"] if name in COARSE else []), *(["jvp"] if name == "VonMises" else [])]},
        tolerance=LOOSE.get(name, 1e-10),
    )


@pytest.mark.parametrize("name", TRIALS)
def test_densities_of_counts(name: str) -> None:
    fixed, x = TRIALS[name]

    def density(library: Any, convert: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda logits: getattr(library, name)(**fixed, logits=logits).log_prob(convert(x))

    compare(density(wg.stats, wg.asarray), torch=density(td, torch.tensor), arrays=[LOGITS])


def test_densities_of_classes_and_rates() -> None:
    index = np.array([2, 0])
    compare(
        lambda z: wg.stats.Categorical(logits=z).log_prob(index),
        torch=lambda z: td.Categorical(logits=z).log_prob(torch.tensor(index)),
        arrays=[LOGITS],
    )
    compare(
        lambda z: wg.stats.Multinomial(6, logits=z).log_prob(np.array([1.0, 2.0, 3.0])),
        torch=lambda z: td.Multinomial(6, logits=z).log_prob(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)),
        arrays=[LOGITS],
    )
    compare(
        lambda r: wg.stats.Poisson(r).log_prob(COUNTS),
        torch=lambda r: td.Poisson(r).log_prob(torch.tensor(COUNTS)),
        arrays=[SCALE],
    )


@pytest.mark.parametrize("form", ["covariance_matrix", "precision_matrix", "scale_tril"])
def test_normal_vectors(form: str) -> None:
    def density(library: Any, identity: Any, cholesky: Any) -> Callable[..., Any]:
        def f(loc: Any, half: Any, x: Any) -> Any:
            matrix = half @ half.mT + identity
            return library.MultivariateNormal(
                loc, **{form: cholesky(matrix) if form == "scale_tril" else matrix}
            ).log_prob(x)

        return f

    compare(
        density(wg.stats, wg.eye(3, dtype=wg.float64), wg.linalg.cholesky),
        torch=density(td, torch.eye(3, dtype=torch.float64), torch.linalg.cholesky),
        arrays=[LOC, HALF, X],
        tolerance=1e-9,  # of inverses of matrices
    )


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("name", [n for n in NUMBERS if n not in ("Cauchy", "VonMises")])
def test_statistics(name: str, statistic: str) -> None:
    keys, values, _ = NUMBERS[name]

    def f(library: Any) -> Callable[..., Any]:
        def of(*given: Any) -> Any:
            found = getattr(made(library, name, keys, given), statistic)
            if statistic == "entropy":
                return found()
            return found * found + sum(x * x for x in given)  # depends on all parameters, twice

        return of

    coarse = statistic == "entropy" and name in COARSE
    lacks = {"torch": ["second order"] if coarse else []}
    compare(f(wg.stats), torch=f(td), arrays=values, lacks=lacks, tolerance=TRIGAMMA if coarse else 1e-10)


@pytest.mark.parametrize("method", ["cdf", "icdf"])
@pytest.mark.parametrize("name", ["Normal", "LogNormal", "Laplace", "Cauchy", "Gumbel", "Exponential", "Weibull"])
def test_probabilities(name: str, method: str) -> None:
    keys, values, x = NUMBERS[name]
    at = UNIT if method == "icdf" else x

    def f(library: Any) -> Callable[..., Any]:
        return lambda *given: getattr(made(library, name, keys, given), method)(given[-1])

    compare(f(wg.stats), torch=f(td), arrays=[*values, at])


PAIRS = [
    ("Normal", "Normal"), ("LogNormal", "LogNormal"), ("Laplace", "Laplace"), ("Cauchy", "Cauchy"), ("Gumbel", "Gumbel"),
    ("Gamma", "Gamma"), ("Beta", "Beta"), ("Exponential", "Exponential"), ("Dirichlet", "Dirichlet"),
    ("Laplace", "Normal"), ("Gumbel", "Normal"), ("Exponential", "Normal"), ("Gamma", "Normal"), ("Beta", "Normal"),
    ("Exponential", "Gamma"), ("Gamma", "Exponential"), ("Beta", "Exponential"), ("Beta", "Gamma"), ("Normal", "Laplace"),
    ("Normal", "Gumbel"),
]  # fmt: skip


@pytest.mark.parametrize("p, q", PAIRS)
def test_divergences(p: str, q: str) -> None:
    (keys, values, _), (other_keys, other_values, _) = NUMBERS[p], NUMBERS[q]
    n, moved = len(keys), [v[::-1] + 0.2 for v in other_values]

    def f(library: Any, kl: Any) -> Callable[..., Any]:
        return lambda *given: kl(made(library, p, keys, given[:n]), made(library, q, other_keys, given[n:]))

    coarse = bool({p, q} & COARSE)
    compare(
        f(wg.stats, wg.stats.kl),
        torch=f(td, td.kl_divergence),
        arrays=[*values, *moved],
        lacks={"torch": ["second order"] if coarse else []},
        tolerance=TRIGAMMA if coarse else 1e-10,
    )


def test_gradients_of_gamma_samples() -> None:
    """PyTorch's implicit gradient by polynomials of three digits, at the same samples."""
    a = RNG.uniform(0.2, 9.0, 1000)
    concentration = wg.tensor(a, requires_grad=True)
    x = wg.stats.Gamma(concentration, 1.0).sample(generator=wg.Generator(seed=1))
    slopes = x.backward(wg.ones(1000, dtype=wg.float64))[concentration].numpy()
    theirs = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(x.detach().numpy())).numpy()
    np.testing.assert_allclose(slopes, theirs, rtol=5e-3)


def test_mixtures_and_transforms() -> None:
    weights = SIMPLEX

    def mixture(library: Any, family: Any, convert: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda loc, scale, x: family(library.Categorical(convert(weights)), library.Normal(loc, scale)).log_prob(
            x
        )

    compare(
        mixture(wg.stats, wg.stats.Mixture, wg.asarray),
        torch=mixture(td, td.MixtureSameFamily, torch.tensor),
        arrays=[LOC, SCALE, X[:, 0]],
    )
    ours = [wg.stats.transforms.Affine(0.5, 2.0), wg.stats.transforms.Sigmoid()]
    theirs = [td.AffineTransform(0.5, 2.0), td.SigmoidTransform()]
    compare(
        lambda loc, x: wg.stats.Transformed(wg.stats.Normal(loc, 1.0), ours).log_prob(x),
        torch=lambda loc, x: td.TransformedDistribution(td.Normal(loc, 1.0), theirs).log_prob(x),
        arrays=[LOC, UNIT],
    )
    compare(
        lambda loc: wg.stats.transforms.StickBreaking()(loc),
        torch=lambda loc: td.StickBreakingTransform()(loc),
        arrays=[LOC],
    )
