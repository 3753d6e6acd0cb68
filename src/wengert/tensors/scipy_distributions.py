"""The distributions of scipy.stats compute in NumPy, where no gradient is recorded: an error that names ours."""

from __future__ import annotations

import sys
from typing import Any

from wengert.errors import GradientError
from wengert.user_line import user_line

_OURS = {
    "norm": "Normal(loc, scale)",
    "lognorm": "LogNormal(wg.log(scale), s)",
    "multivariate_normal": "MultivariateNormal(mean, cov)",
    "uniform": "Uniform(loc, loc + scale)",
    "gamma": "Gamma(a, 1 / scale)",
    "expon": "Exponential(1 / scale)",
    "chi2": "Chi2(df)",
    "beta": "Beta(a, b)",
    "dirichlet": "Dirichlet(alpha)",
    "laplace": "Laplace(loc, scale)",
    "cauchy": "Cauchy(loc, scale)",
    "gumbel_r": "Gumbel(loc, scale)",
    "logistic": "Logistic(loc, scale)",
    "t": "StudentT(df, loc, scale)",
    "weibull_min": "Weibull(scale, c)",
    "vonmises": "VonMises(loc, kappa)",
    "bernoulli": "Bernoulli(p)",
    "binom": "Binomial(n, p)",
    "nbinom": "NegativeBinomial(n, 1 - p)",
    "geom": "Geometric(p), which counts from 0",
    "poisson": "Poisson(mu)",
    "multinomial": "Multinomial(n, p)",
}
_FILES = ("_distn_infrastructure.py", "_multivariate.py")  # as core/bind/tensor_buffer.cpp
_METHODS = {
    "pdf": "prob", "pmf": "prob", "logpdf": "log_prob", "logpmf": "log_prob", "cdf": "cdf", "logcdf": "log_cdf",
    "sf": "survival", "logsf": "log_survival", "ppf": "icdf", "rvs": "sample", "mean": "mean", "var": "variance",
    "std": "stddev", "entropy": "entropy",
}  # fmt: skip


def refuse_distributions(x: Any) -> None:
    """Raise if a SciPy distribution asks for the numbers of a tensor that has a gradient."""
    asked = _asked_by()
    if asked is None:
        return
    name, method = asked
    ours = f"wg.stats.{_OURS[name]}" if name in _OURS else "a distribution of wg.stats"
    call = f", whose method is {_METHODS[method]}" if method in _METHODS else ""
    raise GradientError(
        f"scipy.stats.{name}.{method}: computes in NumPy, where the gradient of {x.dtype.name}{tuple(x.shape)}, used at "
        f"{user_line()}, would be lost; use {ours}{call}, or x.detach() first where no derivative is wanted"
    )


def _asked_by() -> tuple[str, str] | None:
    """The SciPy distribution that is computing, and its outermost public method."""
    found, frame = None, sys._getframe(3)
    while frame.f_code.co_filename.endswith(_FILES) and frame.f_back is not None:
        kind, method = type(frame.f_locals.get("self")).__name__, frame.f_code.co_name
        if kind.endswith("_gen") and not method.startswith("_"):
            found = kind.removesuffix("_gen"), method
        frame = frame.f_back
    return found
