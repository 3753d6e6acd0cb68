"""Adamax."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from wengert.optim.optimizer import Optimizer, Options
from wengert.optim.scalars import one_minus_power
from wengert.optim.update import Rule
from wengert.tensors.arguments import native

_abs, _maximum = native("abs"), native("maximum")


@dataclass(frozen=True, slots=True)
class AdamaxConfig:
    """Options of Adamax.

    >>> AdamaxConfig().lr
    0.002
    """

    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    maximize: bool = field(default=False, kw_only=True)


@functools.cache
def _rule(maximize: bool) -> Rule:
    def adamax(p: Any, g: Any, m: Any, u: Any, gain1: Any, keep2: Any, rate: Any, eps: Any, decay: Any) -> Any:
        g = (-g if maximize else g) + p * decay
        m = m + (g - m) * gain1
        u = _maximum(u * keep2, _abs(g) + eps)
        return p - m * rate / u, m, u

    return adamax


class Adamax(Optimizer):
    """Adam with the largest gradient in place of the root mean square: u ← max(β₂ u, |g| + eps), p ← p − lr m̂ / u.

    Reference: Kingma & Ba (2015), section 7.

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = Adamax([p], lr=0.25)
    >>> p.set_grad([1.0, -2.0])
    >>> opt.step()
    >>> p.tolist()
    [0.75..., 1.25...]
    """

    Config = AdamaxConfig

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """m and u."""
        return {"m": 0.0, "u": 0.0}

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """Adamax."""
        return _rule(options["maximize"])

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """1 − β₁, β₂, lr / (1 − β₁ᵗ), eps, λ."""
        b1, b2 = options["betas"]
        rate = options["lr"] / one_minus_power(b1, step)
        return 1.0 - b1, b2, rate, options["eps"], options["weight_decay"]
