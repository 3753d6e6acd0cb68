"""Mixtures: one of several distributions of a family, chosen at random."""

from __future__ import annotations

from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.functional.gather import take_along_axis
from wengert.functional.reductions import logsumexp
from wengert.stats.categorical import Categorical
from wengert.stats.distribution import Distribution, require_kind
from wengert.stats.domains import Domain
from wengert.stats.parameters import Shape, spread
from wengert.tensors.arguments import as_dtype_of, native
from wengert.tensors.random import Generator

_reshape, _sum, _square = native("reshape"), native("sum"), native("square")


class Mixture(Distribution):
    """Draws of `components`, whose last batch axis has one for each class of `mixing`; samples have no gradient.

    >>> from wengert.stats import Normal
    >>> d = Mixture(Categorical([0.5, 0.5]), Normal([-1.0, 1.0], 0.1))
    >>> d.mean.item()
    0.0
    """

    def __init__(self, mixing: Categorical, components: Distribution) -> None:
        require_kind(mixing, Categorical, "Mixture: mixing")
        require_kind(components, Distribution, "Mixture: components")
        if not components.batch_shape or components.batch_shape[-1] != mixing.classes:
            raise ArgumentError(
                f"Mixture: the last axis of the components' batch must have one for each of the {mixing.classes} classes, "
                f"got the batch shape {components.batch_shape}"
            )
        if mixing.batch_shape not in ((), components.batch_shape[:-1]):
            raise ArgumentError(
                f"Mixture: mixing has the batch shape {mixing.batch_shape}, and the components without their last axis "
                f"{components.batch_shape[:-1]}; they must be equal, or mixing have none"
            )
        self.mixing, self.components = mixing, components
        self.batch_shape, self.event_shape = components.batch_shape[:-1], components.event_shape
        self.dtype = components.dtype

    @property
    def support(self) -> Domain:  # type: ignore[override]
        """The components'."""
        return self.components.support

    def _apart(self, x: Tensor) -> Tensor:
        """Values with an axis for the components before those of the event."""
        at = x.ndim - len(self.event_shape)
        return _reshape(x, (*x.shape[:at], 1, *x.shape[at:]))

    def _weights(self) -> Tensor:
        """The probabilities of the classes, with the event's axes after them."""
        p = self.mixing.probs
        return _reshape(p, (*p.shape, *([1] * len(self.event_shape))))

    def _average(self, x: Tensor) -> Tensor:
        """Σ p x over the components."""
        weighted = self._weights() * x
        return _sum(weighted, (weighted.ndim - 1 - len(self.event_shape),), 0)

    def _log_prob(self, x: Tensor) -> Tensor:
        return logsumexp(self.components._log_prob(self._apart(x)) + self.mixing.logits, axis=-1)

    def _cdf(self, x: Tensor) -> Tensor:
        return self._average(self.components._cdf(self._apart(x)))

    def _survival(self, x: Tensor) -> Tensor:
        return self._average(self.components._survival(self._apart(x)))

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        k = len(self.event_shape)
        outer = shape[: len(shape) - k]
        free = outer if not self.mixing.batch_shape else outer[: len(outer) - len(self.batch_shape)]
        classes = self.mixing.sample(free, generator=generator)
        drawn = self.components._sample((*outer, self.mixing.classes, *self.event_shape), generator).detach()
        index = _reshape(classes, (*outer, 1, *([1] * k)))
        picked = take_along_axis(drawn, spread(index, (*outer, 1, *self.event_shape)), axis=len(outer))
        return _reshape(as_dtype_of(picked, drawn.dtype), shape)

    @property
    def mean(self) -> Tensor:
        """Σ p mean."""
        return self._average(self.components.mean)

    @property
    def variance(self) -> Tensor:
        """Σ p (variance + mean²) − (Σ p mean)², as squares of distances from the mean."""
        means = self.components.mean
        centre = self._apart(self._average(means))
        return self._average(self.components.variance + _square(means - centre))

    def __repr__(self) -> str:
        return f"Mixture({self.mixing!r}, {self.components!r})"
