"""RMSprop."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from wengert.optim.optimizer import Optimizer, Options
from wengert.optim.update import Rule
from wengert.tensors.arguments import native

_sqrt, _square = native("sqrt"), native("square")


@dataclass(frozen=True, slots=True)
class RMSpropConfig:
    """Options of RMSprop.

    >>> RMSpropConfig(centered=True).alpha
    0.99
    """

    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False
    maximize: bool = field(default=False, kw_only=True)


@functools.cache
def _rule(momentum: bool, centered: bool, maximize: bool) -> Rule:
    def rmsprop(p: Any, g: Any, v: Any, *others: Any) -> tuple[Any, ...]:
        *state, rate, keep, gain, eps, decay, mu = others
        g = (-g if maximize else g) + p * decay
        v = v * keep + _square(g) * gain
        new, spread = [v], v
        if centered:
            mean = state[0] + (g - state[0]) * gain
            new.append(mean)
            spread = v - _square(mean)
        direction = g / (_sqrt(spread) + eps)
        if momentum:
            direction = state[-1] * mu + direction
            new.append(direction)
        return p - direction * rate, *new

    return rmsprop


class RMSprop(Optimizer):
    """Steps scaled by a running average of squared gradients (Tieleman & Hinton, 2012).

        v ← α v + (1 − α) g²
        p ← p − lr g / (√v + eps)

    `centered` divides by √(v − m²) instead, with m the running mean of g (Graves, 2013). `momentum` μ moves by b ← μ
    b + g / (√v + eps).

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = RMSprop([p], lr=0.1, alpha=0.75)
    >>> p.set_grad([1.0, 2.0])
    >>> opt.step()
    >>> p.tolist()
    [0.8000..., 0.8000...]
    """

    Config = RMSpropConfig

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """v, m if centered, b if there is momentum."""
        chosen = {"v": True, "mean": options["centered"], "momentum": bool(options["momentum"])}
        return {name: 0.0 for name, used in chosen.items() if used}

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """With or without mean and momentum."""
        return _rule(bool(options["momentum"]), options["centered"], options["maximize"])

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """lr, α, 1 − α, eps, λ, μ."""
        alpha = options["alpha"]
        return options["lr"], alpha, 1.0 - alpha, options["eps"], options["weight_decay"], options["momentum"]
