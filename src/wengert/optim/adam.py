"""Adam and AdamW."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from wengert.optim.optimizer import Optimizer, Options
from wengert.optim.scalars import one_minus_power, sqrt
from wengert.optim.update import Rule
from wengert.tensors.arguments import native

_sqrt, _square, _maximum = native("sqrt"), native("square"), native("maximum")


@dataclass(frozen=True, slots=True)
class AdamConfig:
    """Options of Adam: `Adam(params, config=AdamConfig(lr=1e-3))`.

    >>> AdamConfig(lr=3e-4).betas
    (0.9, 0.999)
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    maximize: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class AdamWConfig(AdamConfig):
    """Options of AdamW: those of Adam, with a weight decay of 0.01.

    >>> AdamWConfig().weight_decay
    0.01
    """

    weight_decay: float = 0.01


@functools.cache
def _rule(decay: str, amsgrad: bool, maximize: bool) -> Rule:
    # With ŝ = lr √(1 − β₂ᵗ) / (1 − β₁ᵗ) and ε̂ = eps √(1 − β₂ᵗ), the paper's lr m̂ / (√v̂ + eps) is ŝ m / (√v + ε̂).
    def adam(p: Any, g: Any, m: Any, v: Any, *others: Any) -> tuple[Any, ...]:
        *largest, gain1, keep2, gain2, rate, floor, weight = others
        g = -g if maximize else g
        if decay == "gradient":
            g = g + p * weight
        elif decay == "weights":
            p = p * weight
        m = m + (g - m) * gain1
        v = v * keep2 + _square(g) * gain2
        state = (m, v, _maximum(largest[0], v)) if amsgrad else (m, v)
        return p - m * rate / (_sqrt(state[-1]) + floor), *state

    return adam


class Adam(Optimizer):
    """Momentum, with steps scaled by a running average of squared gradients (Kingma & Ba, 2015).

        m ← β₁ m + (1 − β₁) g
        v ← β₂ v + (1 − β₂) g²
        p ← p − lr m̂ / (√v̂ + eps)

    m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) at step t. `weight_decay` λ adds λ p to the gradient. With `amsgrad`, v̂
    is made of the largest v so far (Reddi et al., 2018).

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = Adam([p], lr=0.1)
    >>> _ = (p * p).sum().backward()
    >>> opt.step()
    >>> p.tolist()
    [0.8999..., 0.8999...]
    """

    Config = AdamConfig

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """m, v, and the largest v."""
        return {"m": 0.0, "v": 0.0, **({"largest_v": 0.0} if options["amsgrad"] else {})}

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """Adam, with weight decay if there is any."""
        return _rule(cls._decay(options)[0], options["amsgrad"], options["maximize"])

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """1 − β₁, β₂, 1 − β₂, ŝ, ε̂, and what weight decay multiplies by."""
        b1, b2 = options["betas"]
        root = sqrt(one_minus_power(b2, step))
        rate = options["lr"] * root / one_minus_power(b1, step)
        return 1.0 - b1, b2, 1.0 - b2, rate, options["eps"] * root, cls._decay(options)[1]

    @classmethod
    def _decay(cls, options: Options) -> tuple[str, Any]:
        return ("gradient" if options["weight_decay"] else "none"), options["weight_decay"]


class AdamW(Adam):
    """Adam with decoupled weight decay: p ← (1 − lr λ) p before the step (Loshchilov & Hutter, 2019). λ is 0.01 by default.

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = AdamW([p], lr=0.1, weight_decay=0.5)
    >>> p.set_grad([0.0, 0.0])
    >>> opt.step()
    >>> p.tolist()
    [0.94999..., 0.94999...]
    """

    Config = AdamWConfig

    @classmethod
    def _decay(cls, options: Options) -> tuple[str, Any]:
        weight_decay = options["weight_decay"]
        return ("weights", 1.0 - options["lr"] * weight_decay) if weight_decay else ("none", 1.0)
