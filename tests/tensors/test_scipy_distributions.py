"""scipy.stats on tensors: numbers where no gradient is wanted, else an error that names the distribution of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import wengert as wg
from wengert.tensors.scipy_distributions import _METHODS, _OURS

LEAF = wg.tensor([0.3, 0.7], dtype=wg.float64, requires_grad=True)

CALLS: dict[str, tuple[Any, str]] = {
    "value": (lambda x: stats.norm.logpdf(x), r"scipy.stats.norm.logpdf.*wg.stats.Normal\(loc, scale\).*log_prob"),
    "parameter": (lambda x: stats.norm.logpdf(0.5, x), r"scipy.stats.norm.logpdf.*wg.stats.Normal\(loc, scale\)"),
    "frozen": (lambda x: stats.gamma(x).cdf(0.5), r"scipy.stats.gamma.cdf.*wg.stats.Gamma\(a, 1 / scale\).*cdf"),
    "counts": (lambda x: stats.binom.pmf(1, 3, x), r"scipy.stats.binom.pmf.*wg.stats.Binomial\(n, p\).*prob"),
    "quantile": (lambda x: stats.t.ppf(x, 3.0), r"scipy.stats.t.ppf.*StudentT.*icdf"),
    "vectors": (
        lambda x: stats.multivariate_normal.logpdf(x, np.zeros(2), np.eye(2)),
        r"scipy.stats.multivariate_normal.logpdf.*MultivariateNormal\(mean, cov\).*log_prob",
    ),
    "others": (lambda x: stats.pareto.logpdf(x, 2.0), r"scipy.stats.pareto.logpdf.*a distribution of wg.stats"),
}


@pytest.mark.parametrize("name", CALLS)
def test_gradients_that_would_be_lost(name: str) -> None:
    call, message = CALLS[name]
    for x in (LEAF, LEAF * 1.0):
        with pytest.raises(wg.GradientError, match=message):
            call(x)
    with pytest.raises(wg.GradientError, match=message):
        wg.grad(lambda x: wg.asarray(call(x)).sum())(LEAF.detach())


@pytest.mark.parametrize("name", CALLS)
def test_numbers_are_numbers(name: str) -> None:
    call, _ = CALLS[name]
    x = LEAF.detach()
    np.testing.assert_array_equal(call(x), call(x.numpy()))


def test_what_is_named_exists() -> None:
    for name, ours in _OURS.items():
        assert hasattr(stats, name) and hasattr(wg.stats, ours.partition("(")[0])
    assert all(hasattr(wg.stats.Distribution, ours) for ours in _METHODS.values())


def test_other_functions_say_what_they_said() -> None:
    with pytest.raises(wg.GradientError, match="numpy: float64.*history of recorded ops"):
        np.asarray(LEAF * 1.0)
    assert np.asarray(LEAF).shape == (2,)
