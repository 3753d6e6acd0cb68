"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from wengert.errors import ArgumentError
from wengert.optim.optimizer import Group, Optimizer, Parameters, _check_positive
from wengert.optim.update import Rule


def _plain(p: Any, g: Any, rate: Any, decay: Any) -> tuple[Any, ...]:
    return (p - (g + p * decay) * rate,)


def _heavy_ball(p: Any, g: Any, b: Any, rate: Any, decay: Any, momentum: Any, gain: Any) -> tuple[Any, ...]:
    b = b * momentum + (g + p * decay) * gain
    return p - b * rate, b


def _nesterov(p: Any, g: Any, b: Any, rate: Any, decay: Any, momentum: Any, gain: Any) -> tuple[Any, ...]:
    g = g + p * decay
    b = b * momentum + g * gain
    return p - (g + b * momentum) * rate, b


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

    def __init__(
        self,
        params: Parameters | None = None,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        self.slots = ("momentum",) if momentum else ()  # type: ignore[misc]
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
        )

    def check(self, group: Group) -> None:
        """Raise if an option of the group makes no sense."""
        super().check(group)
        _check_positive("SGD", momentum=group["momentum"])
        if bool(group["momentum"]) != bool(self.slots):
            raise ArgumentError("SGD: either all groups have momentum, or none has")
        if group["nesterov"] and (not group["momentum"] or group["dampening"]):
            raise ArgumentError("SGD: nesterov needs a momentum and no dampening")

    def rule(self, group: Group) -> Rule:
        """Plain, heavy ball, or Nesterov's."""
        if not self.slots:
            return _plain
        return _nesterov if group["nesterov"] else _heavy_ball

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """η, λ, and with momentum μ and 1 − τ."""
        if not self.slots:
            return group["lr"], group["weight_decay"]
        gain = 1.0 if step == 1 else 1.0 - group["dampening"]
        return group["lr"], group["weight_decay"], group["momentum"], gain
