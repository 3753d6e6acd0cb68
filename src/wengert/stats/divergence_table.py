"""The divergences that have a closed form."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import ArgumentError
from wengert.functional.special import i0e, i1e
from wengert.linalg.solving import solve_triangular
from wengert.stats.bernoulli import Bernoulli, Geometric
from wengert.stats.beta import Beta, Dirichlet
from wengert.stats.categorical import Categorical, Multinomial
from wengert.stats.counts import Binomial, NegativeBinomial, Poisson
from wengert.stats.distribution import Distribution
from wengert.stats.divergence import kl, register_kl
from wengert.stats.domains import known
from wengert.stats.gamma import Exponential, Gamma
from wengert.stats.independent import Independent, sum_last
from wengert.stats.location_scale import EULER, Cauchy, Gumbel, Laplace, Logistic
from wengert.stats.multivariate_normal import MultivariateNormal, solved
from wengert.stats.normal import HALF_LOG_TWO_PI, LogNormal, Normal
from wengert.stats.odds import log_odds, times
from wengert.stats.student import StudentT
from wengert.stats.transformed import Transformed
from wengert.stats.uniform import Uniform
from wengert.stats.von_mises import VonMises
from wengert.stats.weibull import Weibull
from wengert.tensors.arguments import native

_exp, _log, _erf, _abs = (native(n) for n in ("exp", "log", "erf", "abs"))
_where, _square, _sum, _lgamma, _digamma = (native(n) for n in ("where", "square", "sum", "lgamma", "digamma"))
_betaln, _and, _cos = (native(n) for n in ("betaln", "logical_and", "cos"))


# ------------------------------------------------------------------------------------------- within one family


@composite(precision="full")
def _normal(m: Tensor, s: Tensor, m2: Tensor, s2: Tensor) -> Tensor:
    return _log(s2 / s) + (_square(s) + _square(m - m2)) / (2.0 * _square(s2)) - 0.5


@register_kl(LogNormal, LogNormal)
@register_kl(Normal, Normal)
def _of_normals(p: Any, q: Any) -> Any:
    return _normal(p.loc, p.scale, q.loc, q.scale)


@composite(precision="full")
def _gamma(a: Tensor, b: Tensor, a2: Tensor, b2: Tensor) -> Tensor:
    shapes = (a - a2) * _digamma(a) - _lgamma(a) + _lgamma(a2)
    return shapes + a2 * _log(b / b2) + a * (b2 - b) / b


@register_kl(Gamma, Gamma)
def _of_gammas(p: Gamma, q: Gamma) -> Any:
    return _gamma(p.concentration, p.rate, q.concentration, q.rate)


@register_kl(Exponential, Exponential)
def _of_exponentials(p: Exponential, q: Exponential) -> Any:
    ratio: Any = q.rate / p.rate
    return ratio - 1.0 - _log(ratio)


@composite(precision="full")
def _beta(a: Tensor, b: Tensor, a2: Tensor, b2: Tensor) -> Tensor:
    by_a, by_b = (a - a2) * _digamma(a), (b - b2) * _digamma(b)
    return _betaln(a2, b2) - _betaln(a, b) + by_a + by_b + (a2 - a + b2 - b) * _digamma(a + b)


@register_kl(Beta, Beta)
def _of_betas(p: Beta, q: Beta) -> Any:
    return _beta(p.concentration1, p.concentration0, q.concentration1, q.concentration0)


@composite(precision="full")
def _dirichlet(c: Tensor, c2: Tensor) -> Tensor:
    last, last2 = (c.ndim - 1,), (c2.ndim - 1,)
    total = _sum(c, last, 0)
    volumes = _lgamma(total) - _sum(_lgamma(c), last, 0) - _lgamma(_sum(c2, last2, 0)) + _sum(_lgamma(c2), last2, 0)
    terms = (c - c2) * (_digamma(c) - _digamma(_sum(c, last, 1)))
    return volumes + _sum(terms, (terms.ndim - 1,), 0)


@register_kl(Dirichlet, Dirichlet)
def _of_dirichlets(p: Dirichlet, q: Dirichlet) -> Any:
    _same("classes", p, q, p.event_shape, q.event_shape)
    return _dirichlet(p.concentration, q.concentration)


@composite(precision="full")
def _laplace(m: Tensor, b: Tensor, m2: Tensor, b2: Tensor) -> Tensor:
    d = _abs(m - m2)
    return _log(b2 / b) + (b * _exp(-d / b) + d) / b2 - 1.0


@register_kl(Laplace, Laplace)
def _of_laplaces(p: Laplace, q: Laplace) -> Any:
    return _laplace(p.loc, p.scale, q.loc, q.scale)


@composite(precision="full")
def _cauchy(m: Tensor, s: Tensor, m2: Tensor, s2: Tensor) -> Tensor:
    return _log((_square(s + s2) + _square(m - m2)) / (4.0 * s * s2))


@register_kl(Cauchy, Cauchy)
def _of_cauchys(p: Cauchy, q: Cauchy) -> Any:
    return _cauchy(p.loc, p.scale, q.loc, q.scale)


@composite(precision="full")
def _gumbel(m: Tensor, s: Tensor, m2: Tensor, s2: Tensor) -> Tensor:
    ratio, shift = s / s2, (m - m2) / s2
    return shift - _log(ratio) + EULER * (ratio - 1.0) + _exp(_lgamma(1.0 + ratio) - shift) - 1.0


@register_kl(Gumbel, Gumbel)
def _of_gumbels(p: Gumbel, q: Gumbel) -> Any:
    return _gumbel(p.loc, p.scale, q.loc, q.scale)


@composite(precision="full")
def _weibull(s: Tensor, k: Tensor, s2: Tensor, k2: Tensor) -> Tensor:
    heights = _log(k / k2) - k * _log(s) + k2 * _log(s2)
    return heights + (k - k2) * (_log(s) - EULER / k) + _exp(k2 * _log(s / s2) + _lgamma(1.0 + k2 / k)) - 1.0


@register_kl(Weibull, Weibull)
def _of_weibulls(p: Weibull, q: Weibull) -> Any:
    return _weibull(p.scale, p.concentration, q.scale, q.concentration)


@register_kl(Uniform, Uniform)
def _of_uniforms(p: Uniform, q: Uniform) -> Any:
    inside = _and(p.low >= q.low, p.high <= q.high)
    return _where(inside, _log((q.high - q.low) / (p.high - p.low)), math.inf)


@register_kl(VonMises, VonMises)
def _of_von_mises(p: VonMises, q: VonMises) -> Any:
    k, k2 = p.concentration, q.concentration
    along: Any = i1e(k) / i0e(k)
    return _log(i0e(k2) / i0e(k)) + (k2 - k) + along * (k - k2 * _cos(p.loc - q.loc))


# -------------------------------------------------------------------------------------------------- of counts


@composite(precision="full")
def _two_classes(odds: Tensor, is_logit: bool, odds2: Tensor, is_logit2: bool) -> Tensor:
    (yes, no), (yes2, no2) = log_odds(odds, is_logit), log_odds(odds2, is_logit2)
    return times(_exp(yes), yes - yes2) + times(_exp(no), no - no2)


@register_kl(Bernoulli, Bernoulli)
def _of_bernoullis(p: Bernoulli, q: Bernoulli) -> Any:
    return _two_classes(p._odds, p._is_logit, q._odds, q._is_logit)


@register_kl(Binomial, Binomial)
def _of_binomials(p: Binomial, q: Binomial) -> Any:
    _same_trials(p, q)
    return p.total_count * _two_classes(p._odds, p._is_logit, q._odds, q._is_logit)


@register_kl(NegativeBinomial, NegativeBinomial)
def _of_negative_binomials(p: NegativeBinomial, q: NegativeBinomial) -> Any:
    _same_trials(p, q)
    return p.total_count / (1.0 - p.probs) * _two_classes(p._odds, p._is_logit, q._odds, q._is_logit)


@register_kl(Geometric, Geometric)
def _of_geometrics(p: Geometric, q: Geometric) -> Any:
    return _two_classes(p._odds, p._is_logit, q._odds, q._is_logit) / p.probs


@composite(precision="full")
def _poisson(rate: Tensor, rate2: Tensor) -> Tensor:
    return times(rate, _log(rate) - _log(rate2)) - (rate - rate2)


@register_kl(Poisson, Poisson)
def _of_poissons(p: Poisson, q: Poisson) -> Any:
    return _poisson(p.rate, q.rate)


@composite(precision="full")
def _classes(p: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
    terms = times(p, log_p - log_q)
    return _sum(terms, (terms.ndim - 1,), 0)


@register_kl(Categorical, Categorical)
def _of_categoricals(p: Categorical, q: Categorical) -> Any:
    _same("classes", p, q, p.classes, q.classes)
    return _classes(p.probs, p.logits, q.logits)


@register_kl(Multinomial, Multinomial)
def _of_multinomials(p: Multinomial, q: Multinomial) -> Any:
    _same("classes", p, q, p.event_shape, q.event_shape)
    _same_trials(p, q)
    return p.total_count * _classes(p.probs, p.logits, q.logits)


def _same(what: str, p: Distribution, q: Distribution, of_p: Any, of_q: Any) -> None:
    if of_p != of_q:
        raise ArgumentError(f"kl: {type(p).__name__} and {type(q).__name__} differ in their {what}: {of_p} and {of_q}")


def _same_trials(p: Any, q: Any) -> None:
    a, b = p.total_count, q.total_count
    if known(a, b) and not (a == b).all():
        raise ArgumentError(
            f"kl: a {type(p).__name__} has a closed form only for equal total_count, got {a.tolist()} and {b.tolist()}"
        )


# ------------------------------------------------------------------------------------- of vectors and of others


@register_kl(MultivariateNormal, MultivariateNormal)
def _of_vectors(p: MultivariateNormal, q: MultivariateNormal) -> Any:
    _same("size", p, q, p.event_shape, q.event_shape)
    mixed = solve_triangular(q.scale_tril, p.scale_tril, upper=False)
    trace = _sum(_square(mixed), (mixed.ndim - 2, mixed.ndim - 1), 0)
    z = solved(q.scale_tril, q.loc - p.loc)
    logs = _log(q._diagonal) - _log(p._diagonal)
    volume = _sum(logs - 0.5, (logs.ndim - 1,), 0)
    return volume + 0.5 * (trace + _sum(_square(z), (z.ndim - 1,), 0))


@register_kl(Independent, Independent)
def _of_independents(p: Independent, q: Independent) -> Any:
    _same("number of event axes", p, q, p.event_ndim, q.event_ndim)
    return sum_last(kl(p.base, q.base), p.event_ndim)


@register_kl(Transformed, Transformed)
def _of_transformed(p: Transformed, q: Transformed) -> Any:
    if p.transform is not q.transform:
        raise NotImplementedError("kl: two Transformed have a closed form only if they share one transform object")
    _same("event shape", p, q, p.event_shape, q.event_shape)
    return sum_last(kl(p.base, q.base), len(p.event_shape) - len(p.base.event_shape))


# ---------------------------------------------------------------------------------------------- between families


def _to_normal(p: Any, q: Normal) -> Any:
    """−H(p) − E[ln q]: a normal density needs a mean and a variance alone."""
    distance = p.variance + _square(p.mean - q.loc)
    return -p.entropy() + _log(q.scale) + HALF_LOG_TWO_PI + distance / (2.0 * _square(q.scale))


for _kind in (Laplace, Gumbel, Logistic, StudentT, Uniform, Exponential, Gamma, Beta, LogNormal, Weibull):
    register_kl(_kind, Normal)(_to_normal)


def _mean_log(p: Any) -> Any:
    """E[ln X]."""
    if isinstance(p, Exponential):
        return -_log(p.rate) - EULER
    if isinstance(p, Gamma):
        return _digamma(p.concentration) - _log(p.rate)
    if isinstance(p, Beta):
        return _digamma(p.concentration1) - _digamma(p.concentration1 + p.concentration0)
    return p.loc if isinstance(p, LogNormal) else _log(p.scale) - EULER / p.concentration


def _to_exponential(p: Any, q: Exponential) -> Any:
    return -p.entropy() - _log(q.rate) + q.rate * p.mean


def _to_gamma(p: Any, q: Gamma) -> Any:
    a, b = q.concentration, q.rate
    return -p.entropy() - a * _log(b) + _lgamma(a) - (a - 1.0) * _mean_log(p) + b * p.mean


for _kind in (Gamma, Beta, LogNormal, Weibull):
    register_kl(_kind, Exponential)(_to_exponential)
for _kind in (Exponential, Beta, LogNormal, Weibull):
    register_kl(_kind, Gamma)(_to_gamma)


@register_kl(Beta, Uniform)
def _beta_to_uniform(p: Beta, q: Uniform) -> Any:
    inside = _and(q.low <= 0.0, q.high >= 1.0)
    return _where(inside, _log(q.high - q.low) - p.entropy(), math.inf)


@composite(precision="full")
def _normal_to_laplace(m: Tensor, s: Tensor, m2: Tensor, b: Tensor) -> Tensor:
    z = (m - m2) / (s * math.sqrt(2.0))
    distance = s * math.sqrt(2.0 / math.pi) * _exp(-_square(z)) + (m - m2) * _erf(z)
    return distance / b + _log(2.0 * b) - _log(s) - (0.5 + HALF_LOG_TWO_PI)


@register_kl(Normal, Laplace)
def _from_normal_to_laplace(p: Normal, q: Laplace) -> Any:
    return _normal_to_laplace(p.loc, p.scale, q.loc, q.scale)


@composite(precision="full")
def _normal_to_gumbel(m: Tensor, s: Tensor, m2: Tensor, b: Tensor) -> Tensor:
    shift, ratio = (m - m2) / b, s / b
    return shift + _exp(0.5 * _square(ratio) - shift) - _log(ratio) - (0.5 + HALF_LOG_TWO_PI)


@register_kl(Normal, Gumbel)
def _from_normal_to_gumbel(p: Normal, q: Gumbel) -> Any:
    return _normal_to_gumbel(p.loc, p.scale, q.loc, q.scale)
