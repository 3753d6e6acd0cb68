"""Distributions: densities, probabilities, quantiles, moments and samples, batched and differentiable.

>>> import wengert as wg
>>> d = wg.stats.Normal(loc=[0.0, 1.0], scale=2.0)
>>> d.batch_shape, d.log_prob(0.0).shape, d.sample((3,)).shape
((2,), (2,), (3, 2))
"""

from wengert.stats import divergence_table as _divergence_table  # fills the table of kl
from wengert.stats import transforms
from wengert.stats.bernoulli import Bernoulli, Geometric
from wengert.stats.beta import Beta, Dirichlet
from wengert.stats.categorical import Categorical, Multinomial
from wengert.stats.counts import Binomial, NegativeBinomial, Poisson
from wengert.stats.distribution import Distribution
from wengert.stats.divergence import kl, register_kl
from wengert.stats.gamma import Chi2, Exponential, Gamma
from wengert.stats.independent import Independent
from wengert.stats.location_scale import Cauchy, Gumbel, Laplace, Logistic
from wengert.stats.mixture import Mixture
from wengert.stats.multivariate_normal import MultivariateNormal
from wengert.stats.normal import LogNormal, Normal
from wengert.stats.student import StudentT
from wengert.stats.transformed import Transformed
from wengert.stats.uniform import Uniform
from wengert.stats.von_mises import VonMises
from wengert.stats.weibull import Weibull

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "Dirichlet", "Distribution", "Exponential", "Gamma",
    "Geometric", "Gumbel", "Independent", "Laplace", "LogNormal", "Logistic", "Mixture", "Multinomial",
    "MultivariateNormal", "NegativeBinomial", "Normal", "Poisson", "StudentT", "Transformed", "Uniform", "VonMises",
    "Weibull", "kl", "register_kl", "transforms",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
