"""What users get wrong: every message names the distribution, the parameter, the number and where it stands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg

s = wg.stats
NOT_SYMMETRIC = [[1.0, 0.5], [0.0, 1.0]]
NOT_DEFINITE = [[1.0, 2.0], [2.0, 1.0]]

PARAMETERS: dict[str, tuple[Any, str]] = {
    "scale": (lambda: s.Normal(0.0, -1.0), r"Normal: scale must be positive, got -1"),
    "scale of 0": (lambda: s.Normal(0.0, [1.0, 0.0]), r"scale must be positive, got 0\.? at \(1,\)"),
    "scale of NaN": (lambda: s.Normal(0.0, np.nan), "scale must be positive, got nan"),
    "loc of NaN": (lambda: s.Normal(np.nan, 1.0), "loc must be a number, got nan"),
    "concentration": (lambda: s.Gamma(0.0, 1.0), "Gamma: concentration must be positive"),
    "rate": (lambda: s.Exponential(-2.0), "Exponential: rate must be positive, got -2"),
    "rate of Poisson": (lambda: s.Poisson(-1.0), "Poisson: rate must be 0 or positive"),
    "low and high": (lambda: s.Uniform(1.0, 1.0), "Uniform: low must be less than high"),
    "df": (lambda: s.StudentT(0.0), "StudentT: df must be positive"),
    "probs": (lambda: s.Bernoulli(1.5), "Bernoulli: probs must be between 0 and 1, got 1.5"),
    "probs of Geometric": (lambda: s.Geometric(0.0), "greater than 0"),
    "probs of NegativeBinomial": (lambda: s.NegativeBinomial(2.0, 1.0), "less than 1"),
    "total_count": (lambda: s.Binomial(2.5, 0.5), "Binomial: total_count must be a whole number, 0 or positive, got 2.5"),
    "unnormalised": (lambda: s.Categorical([0.5, 0.6]), "Categorical: probs must be a vector .* whose sum is 1, got"),
    "unnormalised row": (lambda: s.Categorical([[0.5, 0.5], [0.5, 0.6]]), r"sum is 1, got \[0.5 0.6\] at \(1,\)"),
    "negative class": (lambda: s.Categorical([1.5, -0.5]), "non-negative"),
    "unnormalised counts": (lambda: s.Multinomial(3, [0.5, 0.6]), "Multinomial: probs"),
    "Dirichlet": (lambda: s.Dirichlet([1.0, 0.0]), r"Dirichlet: concentration must be positive, got 0\.? at \(1,\)"),
    "both": (lambda: s.Bernoulli(0.5, logits=0.0), "either probs or logits, got both"),
    "neither": (lambda: s.Categorical(), "either probs or logits, got neither"),
    "not symmetric": (lambda: s.MultivariateNormal([0.0, 0.0], NOT_SYMMETRIC), "covariance_matrix must be symmetric"),
    "no form": (lambda: s.MultivariateNormal([0.0, 0.0]), "one of covariance_matrix, .*scale_tril, got none"),
    "two forms": (lambda: s.MultivariateNormal([0.0], [[1.0]], scale_tril=[[1.0]]), "got covariance_matrix, scale_tril"),
    "not triangular": (lambda: s.MultivariateNormal([0.0, 0.0], scale_tril=NOT_DEFINITE), "must be a lower triangular"),
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_outside_of_their_domain(name: str) -> None:
    make, message = PARAMETERS[name]
    with pytest.raises(wg.ArgumentError, match=message):
        make()


@pytest.mark.parametrize("form", ["covariance_matrix", "precision_matrix"])
def test_matrices_that_are_not_positive_definite(form: str) -> None:
    with pytest.raises(wg.LinAlgError, match=f"{form} .*must be positive definite.*identity"):
        s.MultivariateNormal([0.0, 0.0], **{form: NOT_DEFINITE})


SHAPES: dict[str, tuple[Any, str]] = {
    "parameters": (lambda: s.Normal(np.zeros(2), np.ones(3)), r"Normal.*\(2,\).*\(3,\)"),
    "number for vectors": (lambda: s.MultivariateNormal(0.0, [[1.0]]), "loc must be a vector"),
    "matrix": (lambda: s.MultivariateNormal([0.0, 0.0], np.eye(3)), r"must end with \(2, 2\)"),
    "no classes": (lambda: s.Categorical(0.5), "probs needs 1 axes"),
    "no class": (lambda: s.Categorical(logits=np.zeros((2, 0))), "at least one class"),
    "Dirichlet": (lambda: s.Dirichlet(1.0), "at least one class"),
    "event": (lambda: s.Dirichlet([1.0, 1.0]).log_prob([0.2, 0.3, 0.5]), r"event shape \(2,\)"),
    "sample": (lambda: s.Normal(0.0, 1.0).sample((-1,)), "negative"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    make, message = SHAPES[name]
    with pytest.raises(wg.ShapeError, match=message):
        make()


def test_dtypes() -> None:
    with pytest.raises(wg.DTypeError, match="Normal: parameters must be real"):
        s.Normal(1j * np.ones(2), 1.0)
    with pytest.raises(wg.DTypeError, match="Normal.log_prob: values must be real"):
        s.Normal(0.0, 1.0).log_prob(np.array([1j]))
    with pytest.raises(TypeError, match="Normal: got str"):
        s.Normal("zero", 1.0)
    with pytest.raises(TypeError, match=r"generator must be a wengert.Generator"):
        s.Gamma(1.0).sample(generator=3)
    assert s.Normal(0, 1).dtype == wg.float32 and s.Normal(np.zeros(2), 1).dtype == wg.float64
    assert s.Normal(wg.zeros(2, dtype=wg.float16), 1.0).sample().dtype == wg.float16
    assert s.Normal(wg.zeros(2), np.float64(1.0)).log_prob(np.zeros(2)).dtype == wg.float64
    assert s.Normal(wg.zeros(2), wg.ones(2, dtype=wg.float64)).dtype == wg.float64
    assert s.Poisson([1, 2]).log_prob([1, 2]).dtype == wg.float32


@pytest.mark.parametrize(
    "name, ours",
    [
        ("rsample", "sample"),
        ("logpdf", "log_prob"),
        ("ppf", "icdf"),
        ("rvs", "sample"),
        ("std", "stddev"),
        ("sf", "survival"),
    ],
)
def test_names_of_other_libraries(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=f"Normal has no attribute '{name}'; it is called {ours}"):
        getattr(s.Normal(0.0, 1.0), name)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        s.Normal(0.0, 1.0).nonsense


def test_what_has_no_closed_form() -> None:
    with pytest.raises(NotImplementedError, match="Dirichlet has no cdf"):
        s.Dirichlet([1.0, 1.0]).cdf([0.5, 0.5])
    with pytest.raises(NotImplementedError, match="Categorical has no mean"):
        s.Categorical([0.5, 0.5]).mean


def test_what_is_printed() -> None:
    assert repr(s.Normal(0.0, 1.0)) == "Normal(loc=0., scale=1.)"
    assert repr(s.Bernoulli(logits=np.zeros(9))) == "Bernoulli(logits=float64(9,))"
    inner = "Normal(loc=[0., 1.], scale=1.)"
    assert repr(s.Independent(s.Normal([0.0, 1.0], 1.0), 1)) == f"Independent({inner}, 1)"
    assert repr(s.Transformed(s.Normal(), s.transforms.Exp())) == "Transformed(Normal(loc=0., scale=1.), Exp())"


def test_compiled_functions_check_nothing_and_give_nan() -> None:
    f = wg.compile(lambda scale: s.Normal(0.0, scale).log_prob(0.5))
    assert np.isnan(f(wg.tensor(-1.0)).item()) and f(wg.tensor(1.0)).item() == pytest.approx(-1.043938533)
