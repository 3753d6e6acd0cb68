"""Adagrad."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from wengert.optim.optimizer import Optimizer, Options
from wengert.optim.update import Rule
from wengert.tensors.arguments import native

_sqrt, _square = native("sqrt"), native("square")


@dataclass(frozen=True, slots=True)
class AdagradConfig:
    """Options of Adagrad.

    >>> AdagradConfig().eps
    1e-10
    """

    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10
    maximize: bool = field(default=False, kw_only=True)


@functools.cache
def _rule(maximize: bool) -> Rule:
    def adagrad(p: Any, g: Any, total: Any, rate: Any, decay: Any, eps: Any) -> tuple[Any, ...]:
        g = (-g if maximize else g) + p * decay
        total = total + _square(g)
        return p - g * rate / (_sqrt(total) + eps), total

    return adagrad


class Adagrad(Optimizer):
    """Steps scaled by the sum of all squared gradients so far (Duchi, Hazan & Singer, 2011).

        s ← s + g²
        p ← p − lr/(1 + (t − 1) lr_decay) · g / (√s + eps)

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = Adagrad([p], lr=0.5)
    >>> p.set_grad([1.0, 2.0])
    >>> opt.step()
    >>> p.tolist()
    [0.5, 0.5]
    """

    Config = AdagradConfig

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """s."""
        return {"sum": options["initial_accumulator_value"]}

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """Adagrad."""
        return _rule(options["maximize"])

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """The decayed rate, λ, eps."""
        rate = options["lr"] / (1.0 + (step - 1.0) * options["lr_decay"])
        return rate, options["weight_decay"], options["eps"]
