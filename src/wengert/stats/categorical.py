"""One class out of several, and how often each of several trials gives it."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import int64
from wengert.errors import ShapeError
from wengert.functional.gather import take_along_axis
from wengert.functional.reductions import argmax
from wengert.functional.scanning import cumulative_sum
from wengert.stats.counts import Binomial
from wengert.stats.domains import Domain, count_vector, counts, integers, named, real_vector, simplex
from wengert.stats.draws import multinomial_counts
from wengert.stats.odds import ClassOdds, times
from wengert.stats.parameters import Shape, common_shape, generator_of, read, spread
from wengert.stats.summing import counts_up_to, largest
from wengert.tensors.arguments import as_dtype_of, as_tensor, describe, native, number, product, signed
from wengert.tensors.random import Generator

_exp, _log, _where, _floor, _sum = (native(n) for n in ("exp", "log", "where", "floor", "sum"))
_lgamma, _all = native("lgamma"), native("all")
_and, _reshape, _maximum = native("logical_and"), native("reshape"), native("maximum")
_categorical = native("random_categorical")


def _weights(owner: str, odds: Tensor) -> Tensor:
    if odds.ndim == 0 or odds.shape[-1] == 0:
        raise ShapeError(f"{owner}: the last axis must hold at least one class, got {describe(odds)}")
    return odds


class Categorical(ClassOdds):
    """One of k classes, 0 … k − 1, whose probabilities are the last axis of `probs`, or the softmax of `logits`.

    Samples are int64.

    >>> Categorical([0.25, 0.75]).log_prob([0, 1]).tolist()
    [-1.386294..., -0.287682...]
    """

    domains = named(probs=simplex, logits=real_vector)

    def __init__(self, probs: Any = None, *, logits: Any = None) -> None:
        (odds,) = read("Categorical", self._given(probs, logits), self.domains)
        self._keep(_weights("Categorical", odds))
        self.batch_shape, self.dtype = tuple(odds.shape[:-1]), odds.dtype

    @property
    def classes(self) -> Any:
        """How many classes there are."""
        return self._odds.shape[-1]

    @property
    def support(self) -> Domain:  # type: ignore[override]
        """0 … k − 1."""
        return integers(0, self.classes - 1)

    def _value(self, x: Any, method: str) -> Tensor:
        """Classes stay integers, since the probabilities' dtype may not hold them all."""
        t = as_tensor(x, "Categorical")
        return signed(t, "Categorical") if t.dtype.is_integer else super()._value(t, method)

    def _log_prob(self, x: Tensor) -> Tensor:
        shape = common_shape("Categorical", tuple(x.shape), self.batch_shape)
        if not self._is_logit:  # one logarithm for each value, not for each class
            return _log(_picked(spread(self._odds, (*shape, self.classes)), spread(x, shape), 0.0))
        return _picked(spread(self.logits, (*shape, self.classes)), spread(x, shape), -math.inf)

    def _cdf(self, x: Tensor) -> Tensor:
        shape = common_shape("Categorical", tuple(x.shape), self.batch_shape)
        whole = x if x.dtype.is_integer else _floor(x)
        last = number(self.classes - 1, x.dtype)
        sums = spread(cumulative_sum(self.probs, axis=-1), (*shape, self.classes))
        return _picked(sums, spread(_where(whole > last, last, whole), shape), 0.0)

    def _icdf(self, p: Tensor) -> Tensor:
        return _least_class(_reshape(p.detach(), (*p.shape, 1)), cumulative_sum(self.probs.detach(), axis=-1))

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        rows = product(self.batch_shape)
        draws = product(shape[: len(shape) - len(self.batch_shape)])
        key, counter = generator_of(generator, "Categorical").place(2 * draws * rows, True)
        drawn = _categorical(_reshape(self.probs.detach(), (rows, self.classes)), (draws,), key, counter)
        return _reshape(drawn, shape)

    @property
    def mode(self) -> Tensor:
        """The most probable class."""
        return argmax(self._odds.detach(), axis=-1)

    def entropy(self) -> Tensor:
        """−Σ p ln p."""
        return _entropy(self.probs, self.logits)


@composite(precision="full")
def _picked(table: Tensor, x: Tensor, otherwise: float) -> Tensor:
    """The entries of a table of classes that the values name; `otherwise` for those that name none, NaN for NaN."""
    classes = number(table.shape[-1], x.dtype)
    whole = x if x.dtype.is_integer else _floor(x)
    named = _and(_and(whole >= 0, whole < classes), whole == x)
    index = _reshape(as_dtype_of(_where(named, whole, 0), int64), (*x.shape, 1))
    found = _reshape(take_along_axis(table, index, axis=-1), x.shape)
    if x.dtype.is_integer:
        return _where(named, found, otherwise)
    return _where(named, found, _where(x == x, otherwise, math.nan))


@composite(precision="full")
def _least_class(p: Tensor, sums: Tensor) -> Tensor:
    """The first class whose sum of probabilities is p or more; the last where rounding leaves none."""
    below = _sum(as_dtype_of(sums < p, p.dtype), (max(p.ndim, sums.ndim) - 1,), 0)
    given = _reshape(p, p.shape[:-1])
    last = number(sums.shape[-1] - 1, p.dtype)
    return _where(given == given, _where(below > last, last, below), math.nan)


@composite(precision="full")
def _entropy(p: Tensor, log_p: Tensor) -> Tensor:
    return -_sum(times(p, log_p), (p.ndim - 1,), 0)


@composite(precision="full")
def _multinomial_log_prob(x: Tensor, n: Tensor, log_p: Tensor) -> Tensor:
    last = (x.ndim - 1,)
    inside = _and(_all(_and(x >= 0.0, _floor(x) == x), last, 0), _sum(x, last, 0) == n)
    terms = times(x, log_p)
    ways = _lgamma(n + 1.0) - _sum(_lgamma(_maximum(x, 0.0) + 1.0), last, 0)
    return _where(inside, ways + _sum(terms, (terms.ndim - 1,), 0), -math.inf)


class Multinomial(ClassOdds):
    """How often each of k classes comes in total_count trials; the classes are the last axis of `probs` or `logits`.

    >>> Multinomial(4, [0.25, 0.75]).mean.tolist()
    [1.0, 3.0]
    """

    domains = named(total_count=counts, probs=simplex, logits=real_vector)
    support = count_vector

    def __init__(self, total_count: Any, probs: Any = None, *, logits: Any = None) -> None:
        given = {"total_count": total_count, **self._given(probs, logits)}
        self.total_count, odds = read("Multinomial", given, self.domains)
        self._keep(_weights("Multinomial", odds))
        self.batch_shape = common_shape("Multinomial", tuple(self.total_count.shape), tuple(odds.shape[:-1]))
        self.event_shape, self.dtype = tuple(odds.shape[-1:]), odds.dtype

    @property
    def _trials(self) -> Tensor:
        return _reshape(self.total_count, (*self.total_count.shape, 1))

    def _log_prob(self, x: Tensor) -> Tensor:
        return _multinomial_log_prob(x, self.total_count, self.logits)

    def _sample(self, shape: Shape, generator: Generator | None) -> Tensor:
        return multinomial_counts(self.total_count, self.probs, shape, generator)

    @property
    def mean(self) -> Tensor:
        """n p."""
        return spread(self._trials * self.probs, (*self.batch_shape, *self.event_shape))

    @property
    def variance(self) -> Tensor:
        """n p (1 − p), class by class."""
        p = self.probs
        return spread(self._trials * p * (1.0 - p), (*self.batch_shape, *self.event_shape))

    def entropy(self) -> Tensor:
        """−ln n! − n Σ p ln p + Σ E[ln x!], the last for counts x of each class, which are binomial."""
        each = Binomial(self._trials, self.probs)
        values = counts_up_to(largest(self.total_count, "Multinomial.entropy"), each)
        expected = _sum(_exp(each._log_prob(values)) * _lgamma(values + 1.0), (0,), 0)
        terms = expected - self._trials * times(self.probs, self.logits)
        return self._batch(_sum(terms, (terms.ndim - 1,), 0) - _lgamma(self.total_count + 1.0))
