"""Lion."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from wengert.optim.optimizer import Optimizer, Options
from wengert.optim.update import Rule
from wengert.tensors.arguments import native

_sign = native("sign")


@dataclass(frozen=True, slots=True)
class LionConfig:
    """Options of Lion.

    >>> LionConfig().betas
    (0.9, 0.99)
    """

    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    maximize: bool = field(default=False, kw_only=True)


@functools.cache
def _rule(maximize: bool) -> Rule:
    def lion(p: Any, g: Any, m: Any, rate: Any, keep: Any, gain1: Any, gain2: Any) -> tuple[Any, ...]:
        g = -g if maximize else g
        direction = _sign(m + (g - m) * gain1)
        return p * keep - direction * rate, m + (g - m) * gain2

    return lion


class Lion(Optimizer):
    """Momentum of which only the sign counts, with decoupled weight decay (Chen et al., 2023).

        p ← (1 − lr λ) p − lr sign(β₁ m + (1 − β₁) g)
        m ← β₂ m + (1 − β₂) g

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = Lion([p], lr=0.25)
    >>> p.set_grad([1.0, -2.0])
    >>> opt.step()
    >>> p.tolist()
    [0.75, 1.25]
    """

    Config = LionConfig

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """m."""
        return {"m": 0.0}

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """Lion."""
        return _rule(options["maximize"])

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """lr, 1 − lr λ, 1 − β₁, 1 − β₂."""
        (b1, b2), lr = options["betas"], options["lr"]
        return lr, 1.0 - lr * options["weight_decay"], 1.0 - b1, 1.0 - b2
