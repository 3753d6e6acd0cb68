"""Rprop."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from wengert.errors import ArgumentError
from wengert.optim.optimizer import Optimizer, Options
from wengert.optim.update import Rule
from wengert.tensors.arguments import native

_sign, _where, _minimum, _maximum = (native(n) for n in ("sign", "where", "minimum", "maximum"))


@dataclass(frozen=True, slots=True)
class RpropConfig:
    """Options of Rprop. `lr` is the first step of every weight.

    >>> RpropConfig().etas
    (0.5, 1.2)
    """

    lr: float = 1e-2
    etas: tuple[float, float] = (0.5, 1.2)
    step_sizes: tuple[float, float] = (1e-6, 50.0)
    maximize: bool = field(default=False, kw_only=True)


@functools.cache
def _rule(maximize: bool) -> Rule:
    def rprop(p: Any, g: Any, before: Any, size: Any, less: Any, more: Any, least: Any, most: Any) -> Any:
        g = -g if maximize else g
        agree = g * before
        size = _where(agree > 0.0, size * more, _where(agree < 0.0, size * less, size))
        size = _minimum(_maximum(size, least), most)
        g = _where(agree < 0.0, 0.0, g)
        return p - _sign(g) * size, g, size

    return rprop


class Rprop(Optimizer):
    """Steps by the sign of the gradient, whose size grows while the sign stays and shrinks where it turns.

    s ← s η₊ or s η₋, between the `step_sizes`; where the sign has turned, the weight rests for one step (Riedmiller &
    Braun, 1993). For gradients of all data, not of batches.

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2,))
    >>> opt = Rprop([p], lr=0.5)
    >>> p.set_grad([3.0, -0.1])
    >>> opt.step()
    >>> p.tolist()
    [0.5, 1.5]
    """

    Config = RpropConfig

    @classmethod
    def check(cls, options: Options) -> None:
        """Raise if an option makes no sense."""
        super().check(options)
        (less, more), (least, most) = options["etas"], options["step_sizes"]
        if not 0.0 < less < 1.0 < more:
            raise ArgumentError(f"Rprop: etas must be one number below 1 and one above, got {options['etas']}")
        if not 0.0 <= least <= most:
            raise ArgumentError(f"Rprop: step_sizes must be (smallest, largest), got {options['step_sizes']}")

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """The last gradient, and the sizes of the steps."""
        return {"gradient": 0.0, "size": float(options["lr"])}

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """Rprop."""
        return _rule(options["maximize"])

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """η₋, η₊, and the smallest and largest step."""
        return *options["etas"], *options["step_sizes"]
