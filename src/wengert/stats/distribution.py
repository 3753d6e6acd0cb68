"""The common base of all distributions: shapes, checks, and the public methods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import DType
from wengert.stats.domains import Domain
from wengert.stats.parameters import Shape, as_python, common_shape, read, sample_shape, spread, value
from wengert.tensors.arguments import native
from wengert.tensors.random import Generator

_exp, _log, _sqrt, _where, _and = (native(n) for n in ("exp", "log", "sqrt", "where", "logical_and"))


@composite(precision="full")
def _probability(p: Tensor) -> Tensor:
    """p, or NaN where it is none."""
    return _where(_and(p >= 0.0, p <= 1.0), p, math.nan)


_FOREIGN = {
    "rsample": "sample, which is reparametrised where `reparametrised` is True",
    "has_rsample": "reparametrised",
    "sample_n": "sample((n,))",
    "rvs": "sample(shape)",
    "pdf": "prob",
    "pmf": "prob",
    "logpdf": "log_prob",
    "logpmf": "log_prob",
    "ppf": "icdf",
    "logcdf": "log_cdf",
    "sf": "survival",
    "logsf": "log_survival",
    "var": "variance",
    "std": "stddev",
    "arg_constraints": "domains",
}


class Distribution:
    """A distribution, or a batch of them: parameters broadcast to `batch_shape`, one draw has the shape `event_shape`.

    Outside of `support` a density is 0 and its logarithm −∞. `sample` lets gradients flow to the parameters where
    `reparametrised` is True; elsewhere a sample is a constant.

    >>> from wengert.stats import Normal
    >>> isinstance(Normal(0.0, 1.0), Distribution)
    True
    """

    domains: ClassVar[Mapping[str, Domain]] = {}  # of the parameters, by name
    support: Domain
    reparametrised: bool = False
    batch_shape: Shape
    event_shape: Shape = ()
    dtype: DType

    def _read(self, **given: Any) -> list[Tensor]:
        """Read parameters whose events are single numbers, and set the shapes."""
        found = read(type(self).__name__, given, self.domains)
        self.batch_shape = common_shape(type(self).__name__, *(tuple(t.shape) for t in found))
        self.dtype = found[0].dtype
        return found

    def _value(self, x: Any, method: str) -> Tensor:
        return value(f"{type(self).__name__}.{method}", x, self.batch_shape, self.event_shape, self.dtype)

    def _batch(self, x: Tensor) -> Tensor:
        """A statistic, one for each distribution of the batch."""
        return spread(x, self.batch_shape)

    def _shape(self, shape: Any) -> Shape:
        """The shape of a sample."""
        return (*sample_shape(shape), *self.batch_shape, *self.event_shape)

    # -------------------------------------------------------------------------------------------- probabilities

    def log_prob(self, x: Any) -> Tensor:
        """ln p(x): of the density, or of the probability of a value; −∞ outside of the support."""
        return self._log_prob(self._value(x, "log_prob"))

    def prob(self, x: Any) -> Tensor:
        """p(x): the density, or the probability of a value."""
        return _exp(self.log_prob(x))

    def cdf(self, x: Any) -> Tensor:
        """P(X <= x)."""
        return self._cdf(self._value(x, "cdf"))

    def log_cdf(self, x: Any) -> Tensor:
        """ln P(X <= x)."""
        return _log(self.cdf(x))

    def survival(self, x: Any) -> Tensor:
        """P(X > x)."""
        return self._survival(self._value(x, "survival"))

    def log_survival(self, x: Any) -> Tensor:
        """ln P(X > x)."""
        return _log(self.survival(x))

    def icdf(self, p: Any) -> Tensor:
        """The x with P(X <= x) = p, the quantile; NaN where p is not between 0 and 1."""
        return self._icdf(_probability(self._value(p, "icdf")))

    def _log_prob(self, x: Tensor) -> Tensor:
        self._missing("log_prob")

    def _cdf(self, x: Tensor) -> Tensor:
        self._missing("cdf")

    def _survival(self, x: Tensor) -> Tensor:
        return 1.0 - self._cdf(x)

    def _icdf(self, p: Tensor) -> Tensor:
        self._missing("icdf")

    # ---------------------------------------------------------------------------------------------------- draws

    def sample(self, shape: Any = (), *, generator: Generator | None = None) -> Tensor:
        """Independent draws: of shape `shape + batch_shape + event_shape`.

        Gradients flow to the parameters where `reparametrised` is True.
        """
        return self._sample(self._shape(shape), generator)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        self._missing("sample")

    # ----------------------------------------------------------------------------------------------- statistics

    @property
    def mean(self) -> Tensor:
        """The expectation; NaN where there is none."""
        self._missing("mean")

    @property
    def variance(self) -> Tensor:
        """The expectation of (X − mean)²; infinite or NaN where there is none."""
        self._missing("variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return _sqrt(self.variance)

    @property
    def mode(self) -> Tensor:
        """The point of largest density."""
        self._missing("mode")

    def entropy(self) -> Tensor:
        """−E[ln p(X)], in nats."""
        self._missing("entropy")

    # --------------------------------------------------------------------------------------------------- others

    def _missing(self, what: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} has no {what}: there is no closed form")

    def __getattr__(self, name: str) -> Any:
        ours = _FOREIGN.get(name)
        if ours is not None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}; it is called {ours}")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def _described(self) -> Mapping[str, Tensor]:
        return {k: v for k in self.domains if isinstance(v := self.__dict__.get(k), Tensor)}

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={as_python(v)}" for k, v in self._described().items())
        return f"{type(self).__name__}({shown})"


def require_kind(given: Any, kind: type, what: str) -> None:
    """Raise unless this is an object of the kind."""
    if not isinstance(given, kind):
        raise TypeError(f"{what} must be a {kind.__name__}, got {type(given).__name__}")
