"""RAdam."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from wengert.optim.optimizer import Optimizer, Options
from wengert.optim.scalars import choose, maximum, one_minus_power, sqrt
from wengert.optim.update import Rule
from wengert.tensors.arguments import native

_sqrt, _square = native("sqrt"), native("square")


@dataclass(frozen=True, slots=True)
class RAdamConfig:
    """Options of RAdam. `decoupled_weight_decay` is that of AdamW.

    >>> RAdamConfig().betas
    (0.9, 0.999)
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled_weight_decay: bool = False
    maximize: bool = field(default=False, kw_only=True)


@functools.cache
def _rule(decoupled: bool, maximize: bool) -> Rule:
    def radam(p: Any, g: Any, m: Any, v: Any, *scalars: Any) -> tuple[Any, ...]:
        gain1, keep2, gain2, plain, adaptive, eps, decay = scalars
        g = -g if maximize else g
        if decoupled:
            p = p * decay
        else:
            g = g + p * decay
        m = m + (g - m) * gain1
        v = v * keep2 + _square(g) * gain2
        return p - m * (plain + adaptive / (_sqrt(v) + eps)), m, v

    return radam


class RAdam(Optimizer):
    """Adam whose adaptive part waits until its variance is known, and is rectified by it (Liu et al., 2020).

    With ρ∞ = 2/(1 − β₂) − 1 and ρₜ = ρ∞ − 2 t β₂ᵗ/(1 − β₂ᵗ): while ρₜ ≤ 5, p ← p − lr m̂; from then on
    p ← p − lr r m̂ / √v̂, r² = (ρₜ − 4)(ρₜ − 2) ρ∞ / ((ρ∞ − 4)(ρ∞ − 2) ρₜ).

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = RAdam([p], lr=0.25)
    >>> p.set_grad([1.0, 2.0])
    >>> opt.step()
    >>> p.tolist()
    [0.75, 0.5]
    """

    Config = RAdamConfig

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """m and v."""
        return {"m": 0.0, "v": 0.0}

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """RAdam."""
        return _rule(options["decoupled_weight_decay"], options["maximize"])

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """1 − β₁, β₂, 1 − β₂, the rates of the plain and of the adaptive step, of which one is 0, eps, and the decay."""
        (b1, b2), lr, decay = options["betas"], options["lr"], options["weight_decay"]
        unknown = one_minus_power(b2, step)
        limit = 2.0 / (1.0 - b2) - 1.0
        known = limit - 2.0 * step * (1.0 - unknown) / unknown
        safe = maximum(known, 5.0)  # where it is not used, the root is still one of a positive number
        ratio = (safe - 4.0) * (safe - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * safe)
        rate = lr / one_minus_power(b1, step)
        plain = choose(known > 5.0, 0.0, rate)
        adaptive = choose(known > 5.0, rate * sqrt(ratio * unknown), 0.0)
        kept = 1.0 - lr * decay if options["decoupled_weight_decay"] else decay
        return 1.0 - b1, b2, 1.0 - b2, plain, adaptive, options["eps"], kept
