"""Probabilities that are given as they are or as logits, whichever is more accurate where it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.functional.activations import log_softmax, softmax
from wengert.functional.elementwise import softplus
from wengert.functional.special import logit
from wengert.stats.distribution import Distribution
from wengert.tensors.arguments import native

_log, _log1p, _sigmoid, _where = (native(n) for n in ("log", "log1p", "sigmoid", "where"))


def log_odds(value: Tensor, is_logit: bool) -> tuple[Tensor, Tensor]:
    """ln p and ln(1 − p), as parts of composites."""
    if is_logit:
        return -softplus(-value), -softplus(value)
    return _log(value), _log1p(-value)


def times(count: Tensor, log: Tensor) -> Tensor:
    """count · log, and 0 for a count of 0, which happens with every probability."""
    return _where(count == 0.0, 0.0, count * log)


class Odds(Distribution):
    """The common base of distributions of trials: `probs` or `logits` is given, and the other is computed on demand."""

    _is_logit: bool

    def _given(self, probs: Any, logits: Any) -> Mapping[str, Any]:
        """The one of the two that was given, by name."""
        if (probs is None) == (logits is None):
            found = "both" if logits is not None else "neither"
            raise ArgumentError(f"{type(self).__name__}: give either probs or logits, got {found}")
        self._is_logit = probs is None
        return {"probs": probs} if logits is None else {"logits": logits}

    def _keep(self, value: Tensor) -> None:
        self._odds = value

    @property
    def probs(self) -> Tensor:
        """The probabilities of success."""
        return _sigmoid(self._odds) if self._is_logit else self._odds

    @property
    def logits(self) -> Tensor:
        """ln(p / (1 − p))."""
        return self._odds if self._is_logit else logit(self._odds)

    def _described(self) -> Mapping[str, Tensor]:
        return {**super()._described(), "logits" if self._is_logit else "probs": self._odds}


class ClassOdds(Odds):
    """The same for several classes, along the last axis; `probs` sum to 1, `logits` are shifted so that theirs do."""

    @property
    def probs(self) -> Tensor:
        """The probabilities of the classes."""
        return softmax(self._odds) if self._is_logit else self._odds

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return log_softmax(self._odds) if self._is_logit else _log(self._odds)
