"""Every distribution beside SciPy's: parameters in float64, points inside of the support, and what SciPy calls it.

Parameters broadcast: the first is a vector, another a column, so that a batch has the shape (2, 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats as scipy_stats

import wengert as wg
from wengert.stats.distribution import Distribution


@dataclass(frozen=True)
class Case:
    """A distribution of single numbers. `scipy` takes the parameters in the order in which they stand here."""

    kind: type[Distribution]
    parameters: dict[str, Any]
    scipy: Callable[..., Any]
    low: float = -3.0  # points at which densities are compared lie between these
    high: float = 3.0
    whole: bool = False  # values are whole numbers
    shift: int = 0  # SciPy's values are larger by this
    lacks: tuple[str, ...] = ()  # what has no closed form
    fixed: tuple[str, ...] = ()  # parameters that are whole numbers, and so have no derivative
    outside: tuple[float, ...] = ()  # values that are not in the support
    sources: int = 1  # random numbers behind a sample: with several, it need not keep its probability

    def make(self, dtype: Any = np.float64, **changed: Any) -> Any:
        """The distribution, of tensors."""
        given = {k: wg.asarray(np.asarray(v, dtype)) for k, v in self.parameters.items()}
        return self.kind(**{**given, **changed})

    def beside(self) -> Any:
        """SciPy's."""
        return self.scipy(*(np.asarray(v, float) for v in self.parameters.values()))

    def points(self) -> Any:
        """Values inside of the support, of shape (5, 2, 3)."""
        x = np.random.default_rng(3).uniform(self.low, self.high, (5, 2, 3))
        return np.floor(x) if self.whole else x


def row(*numbers: float) -> Any:
    """A vector."""
    return np.array(numbers)


def column(*numbers: float) -> Any:
    """A column, which broadcasts with vectors."""
    return np.array(numbers)[:, None]


LOC, SCALE = row(-0.5, 0.3, 1.2), column(0.7, 1.6)
PROBS = np.array([[0.2, 0.5, 0.85], [0.35, 0.6, 0.15]])
LOGITS = np.array([[-1.2, 0.1, 2.0], [0.7, -0.4, -3.0]])


def inverse(logits: Any) -> Any:
    """Probabilities of logits."""
    return 1 / (1 + np.exp(-logits))


def weibull(scale: Any, concentration: Any) -> Any:
    """SciPy's, with its parameters in our order."""
    return scipy_stats.weibull_min(concentration, scale=scale)


CASES: dict[str, Case] = {
    "Normal": Case(wg.stats.Normal, {"loc": LOC, "scale": SCALE}, scipy_stats.norm),
    "LogNormal": Case(
        wg.stats.LogNormal,
        {"loc": LOC, "scale": SCALE},
        lambda loc, scale: scipy_stats.lognorm(scale, scale=np.exp(loc)),
        low=0.1, outside=(-1.0, 0.0),
    ),
    "Uniform": Case(
        wg.stats.Uniform,
        {"low": row(-1.0, -0.5, 0.0), "high": column(2.0, 3.0)},
        lambda low, high: scipy_stats.uniform(low, high - low),
        low=0.1, high=1.9, lacks=("mode",), outside=(-1.5, 3.5),
    ),
    "Gamma": Case(
        wg.stats.Gamma,
        {"concentration": row(0.6, 1.5, 4.0), "rate": column(0.8, 2.0)},
        lambda a, rate: scipy_stats.gamma(a, scale=1 / rate),
        low=0.1, outside=(-1.0,),
    ),
    "Chi2": Case(
        wg.stats.Chi2,
        {"df": np.array([[1.0, 2.5, 4.0], [3.0, 7.0, 1.5]])},
        scipy_stats.chi2,
        low=0.1, outside=(-1.0,),
    ),
    "Exponential": Case(
        wg.stats.Exponential,
        {"rate": np.array([[0.5, 1.0, 4.0], [3.0, 0.7, 1.5]])},
        lambda rate: scipy_stats.expon(scale=1 / rate),
        low=0.1, outside=(-1.0,),
    ),
    "Beta": Case(
        wg.stats.Beta,
        {"concentration1": row(1.3, 2.5, 4.0), "concentration0": column(1.6, 3.0)},
        scipy_stats.beta,
        low=0.05, high=0.95, sources=2, outside=(-0.5, 1.5),
    ),
    "Laplace": Case(wg.stats.Laplace, {"loc": LOC, "scale": SCALE}, scipy_stats.laplace),
    "Cauchy": Case(wg.stats.Cauchy, {"loc": LOC, "scale": SCALE}, scipy_stats.cauchy, lacks=("mean", "variance")),
    "Gumbel": Case(wg.stats.Gumbel, {"loc": LOC, "scale": SCALE}, scipy_stats.gumbel_r),
    "Logistic": Case(wg.stats.Logistic, {"loc": LOC, "scale": SCALE}, scipy_stats.logistic),
    "StudentT": Case(
        wg.stats.StudentT,
        {"df": row(3.5, 4.0, 20.0), "loc": column(-0.4, 0.8), "scale": np.array(1.3)},
        scipy_stats.t,
        sources=2,
    ),
    "Weibull": Case(
        wg.stats.Weibull, {"scale": row(0.7, 1.0, 2.0), "concentration": column(1.4, 3.0)}, weibull, low=0.1, outside=(-1.0,)
    ),
    "VonMises": Case(
        wg.stats.VonMises,
        {"loc": LOC, "concentration": column(0.7, 4.0)},
        lambda loc, concentration: scipy_stats.vonmises(concentration, loc),
        low=-1.9,  # within half a turn of every loc: beyond, `cdf` leaves [0, 1]
        high=2.6,
        lacks=("variance",),
    ),
    "Bernoulli": Case(
        wg.stats.Bernoulli, {"probs": PROBS}, scipy_stats.bernoulli,
        low=0.0, high=2.0, whole=True, outside=(-1.0, 0.5, 2.0),
    ),
    "Bernoulli of logits": Case(
        wg.stats.Bernoulli, {"logits": LOGITS}, lambda logits: scipy_stats.bernoulli(inverse(logits)),
        low=0.0, high=2.0, whole=True, outside=(-1.0, 0.5, 2.0),
    ),
    "Geometric": Case(
        wg.stats.Geometric, {"probs": PROBS}, scipy_stats.geom,
        low=0.0, high=9.0, whole=True, shift=1, outside=(-1.0, 0.5),
    ),
    "Geometric of logits": Case(
        wg.stats.Geometric, {"logits": LOGITS}, lambda logits: scipy_stats.geom(inverse(logits)),
        low=0.0, high=9.0, whole=True, shift=1, outside=(-1.0, 0.5),
    ),
    "Binomial": Case(
        wg.stats.Binomial, {"total_count": row(3.0, 8.0, 20.0), "probs": column(0.3, 0.9)}, scipy_stats.binom,
        low=0.0, high=4.0, whole=True, fixed=("total_count",), outside=(-1.0, 0.5, 21.0),
    ),
    "Binomial of logits": Case(
        wg.stats.Binomial, {"total_count": row(3.0, 8.0, 20.0), "logits": column(-1.0, 2.0)},
        lambda n, logits: scipy_stats.binom(n, inverse(logits)),
        low=0.0, high=4.0, whole=True, fixed=("total_count",), outside=(-1.0, 0.5, 21.0),
    ),
    "NegativeBinomial": Case(
        wg.stats.NegativeBinomial, {"total_count": row(0.7, 3.0, 8.5), "probs": column(0.3, 0.8)},
        lambda n, p: scipy_stats.nbinom(n, 1 - p),
        low=0.0, high=30.0, whole=True, outside=(-1.0, 0.5),
    ),
    "NegativeBinomial of logits": Case(
        wg.stats.NegativeBinomial, {"total_count": row(0.7, 3.0, 8.5), "logits": column(-0.7, 1.5)},
        lambda n, logits: scipy_stats.nbinom(n, 1 - inverse(logits)),
        low=0.0, high=30.0, whole=True, outside=(-1.0, 0.5),
    ),
    "Poisson": Case(
        wg.stats.Poisson, {"rate": np.array([[0.3, 2.0, 7.5], [11.0, 30.0, 1.0]])}, scipy_stats.poisson,
        low=0.0, high=20.0, whole=True, outside=(-1.0, 0.5),
    ),
}  # fmt: skip
