"""NAdam."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from wengert.optim.optimizer import Optimizer, Options
from wengert.optim.scalars import one_minus_power, power_of
from wengert.optim.update import Rule
from wengert.tensors.arguments import native

_sqrt, _square = native("sqrt"), native("square")


@dataclass(frozen=True, slots=True)
class NAdamConfig:
    """Options of NAdam. `decoupled_weight_decay` is that of AdamW.

    >>> NAdamConfig().momentum_decay
    0.004
    """

    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum_decay: float = 4e-3
    decoupled_weight_decay: bool = False
    maximize: bool = field(default=False, kw_only=True)


@functools.cache
def _rule(decoupled: bool, maximize: bool) -> Rule:
    def nadam(p: Any, g: Any, m: Any, v: Any, product: Any, *scalars: Any) -> tuple[Any, ...]:
        lr, gain1, keep2, gain2, mu, mu_next, correction, eps, decay = scalars
        g = -g if maximize else g
        if decoupled:
            p = p * (1.0 - lr * decay)
        else:
            g = g + p * decay
        product = product * mu
        m = m + (g - m) * gain1
        v = v * keep2 + _square(g) * gain2
        scale = _sqrt(v / correction) + eps
        step = g * ((1.0 - mu) / (1.0 - product)) + m * (mu_next / (1.0 - product * mu_next))
        return p - step * lr / scale, m, v, product

    return nadam


class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat, 2016): p ← p − lr (μₜ₊₁ m/(1 − Π μ) + (1 − μₜ) g/(1 − Π μ)) / (√v̂ + eps).

    μₜ = β₁ (1 − ½ 0.96^(t ψ)) with ψ the `momentum_decay`, and Π μ the product of all μ so far. PyTorch's variant.

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = NAdam([p], lr=0.1)
    >>> p.set_grad([1.0, 2.0])
    >>> opt.step()
    >>> p.tolist()
    [0.8943..., 0.8943...]
    """

    Config = NAdamConfig
    elementwise = False  # the product of the μ is one number per parameter

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """m, v and the product of the μ."""
        return {"m": 0.0, "v": 0.0, "mu_product": 1.0}

    @classmethod
    def state_shapes(cls, options: Options, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The product is a number."""
        return shape, shape, ()

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """NAdam."""
        return _rule(options["decoupled_weight_decay"], options["maximize"])

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """lr, 1 − β₁, β₂, 1 − β₂, μₜ, μₜ₊₁, 1 − β₂ᵗ, eps, λ."""
        (b1, b2), decay = options["betas"], options["momentum_decay"]
        mu, mu_next = (b1 * (1.0 - 0.5 * power_of(0.96, t * decay)) for t in (step, step + 1.0))
        correction = one_minus_power(b2, step)
        return options["lr"], 1.0 - b1, b2, 1.0 - b2, mu, mu_next, correction, options["eps"], options["weight_decay"]
