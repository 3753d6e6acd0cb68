"""Stochastic gradient descent."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from wengert.errors import ArgumentError
from wengert.optim.optimizer import Optimizer, Options
from wengert.optim.scalars import at_first
from wengert.optim.update import Rule


@dataclass(frozen=True, slots=True)
class SGDConfig:
    """Options of SGD.

    >>> SGDConfig(momentum=0.9).lr
    0.001
    """

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    maximize: bool = field(default=False, kw_only=True)


@functools.cache
def _rule(momentum: bool, nesterov: bool, maximize: bool) -> Rule:
    def sgd(p: Any, g: Any, *others: Any) -> tuple[Any, ...]:
        *buffer, rate, decay, mu, gain = others
        g = (-g if maximize else g) + p * decay
        if not momentum:
            return (p - g * rate,)
        b = buffer[0] * mu + g * gain
        return p - (g + b * mu if nesterov else b) * rate, b

    return sgd


class SGD(Optimizer):
    """Gradient descent, with momentum: b ← μ b + (1 − τ)(g + λ p), p ← p − η b (Sutskever et al., 2013).

    η is `lr`, μ `momentum`, τ `dampening`, λ `weight_decay`. The first b is g itself. With `nesterov`,
    p ← p − η (g + λ p + μ b).

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = SGD([p], lr=0.1, momentum=0.9)
    >>> _ = (p * p).sum().backward()
    >>> opt.step()
    >>> p.tolist()
    [0.800000..., 0.800000...]
    """

    Config = SGDConfig

    @classmethod
    def check(cls, options: Options) -> None:
        """Raise if an option makes no sense."""
        super().check(options)
        if options["nesterov"] and (not options["momentum"] or options["dampening"]):
            raise ArgumentError("SGD: nesterov needs a momentum and no dampening")

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """b, if there is momentum."""
        return {"momentum": 0.0} if options["momentum"] else {}

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """Plain, heavy ball, or Nesterov's."""
        return _rule(bool(options["momentum"]), options["nesterov"], options["maximize"])

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """η, λ, μ and 1 − τ."""
        gain = at_first(step, 1.0, 1.0 - options["dampening"])
        return options["lr"], options["weight_decay"], options["momentum"], gain
