"""Adadelta."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from wengert.optim.optimizer import Optimizer, Options
from wengert.optim.update import Rule
from wengert.tensors.arguments import native

_sqrt, _square = native("sqrt"), native("square")


@dataclass(frozen=True, slots=True)
class AdadeltaConfig:
    """Options of Adadelta.

    >>> AdadeltaConfig().rho
    0.9
    """

    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0
    maximize: bool = field(default=False, kw_only=True)


@functools.cache
def _rule(maximize: bool) -> Rule:
    def adadelta(p: Any, g: Any, v: Any, moved: Any, lr: Any, keep: Any, gain: Any, eps: Any, decay: Any) -> Any:
        g = (-g if maximize else g) + p * decay
        v = v * keep + _square(g) * gain
        step = g * _sqrt(moved + eps) / _sqrt(v + eps)
        return p - step * lr, v, moved * keep + _square(step) * gain

    return adadelta


class Adadelta(Optimizer):
    """Steps scaled by running averages of squared gradients and of squared steps (Zeiler, 2012).

        v ← ρ v + (1 − ρ) g²
        d = g √(u + eps) / √(v + eps)
        u ← ρ u + (1 − ρ) d²
        p ← p − lr d

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = Adadelta([p], eps=1.0)
    >>> p.set_grad([1.0, 0.0])
    >>> opt.step()
    >>> p.tolist()
    [0.0465..., 1.0]
    """

    Config = AdadeltaConfig

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """v and u."""
        return {"v": 0.0, "moved": 0.0}

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """Adadelta."""
        return _rule(options["maximize"])

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """lr, ρ, 1 − ρ, eps, λ."""
        rho = options["rho"]
        return options["lr"], rho, 1.0 - rho, options["eps"], options["weight_decay"]
