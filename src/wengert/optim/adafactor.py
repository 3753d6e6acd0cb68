"""Adafactor."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wengert import functional as F
from wengert.dtypes import DType, bfloat16
from wengert.optim.optimizer import Optimizer, Options, check_positive
from wengert.optim.scalars import minimum, power
from wengert.optim.update import Rule
from wengert.tensors.arguments import native

_square, _maximum, _rsqrt, _sqrt = native("square"), native("maximum"), native("rsqrt"), native("sqrt")


@dataclass(frozen=True, slots=True)
class AdafactorConfig:
    """Options of Adafactor. `eps` are the floors of the variance (None: the dtype's epsilon) and of the scale of p.

    >>> AdafactorConfig().beta2_decay
    -0.8
    """

    lr: float = 1e-2
    beta2_decay: float = -0.8
    eps: tuple[float | None, float] = (None, 1e-3)
    d: float = 1.0
    weight_decay: float = 0.0
    maximize: bool = field(default=False, kw_only=True)


def _epsilon(dtype: DType) -> float:
    return 2.0**-7 if dtype.code == bfloat16.code else float(np.finfo(dtype.to_numpy()).eps)


def _mean_square(x: Any) -> Any:
    return F.mean(_square(x))


@functools.cache
def _rule(eps: tuple[float | None, float], d: float, maximize: bool) -> Rule:
    def adafactor(p: Any, g: Any, row: Any, column: Any, gain: Any, rate: Any, keep: Any) -> tuple[Any, ...]:
        g = -g if maximize else g
        floor = _epsilon(p.dtype) if eps[0] is None else eps[0]
        rate = rate * _maximum(_sqrt(_mean_square(p)), eps[1])
        p = p * keep
        if g.ndim > 1:
            row = row + (F.mean(_square(g), axis=-1, keepdims=True) - row) * gain
            column = column + (F.mean(_square(g), axis=-2, keepdims=True) - column) * gain
            variance = row * column / _maximum(F.mean(row, axis=-2, keepdims=True), floor)
        else:
            row = row + (_square(g) - row) * gain
            variance = row
        direction = g * _rsqrt(_maximum(variance, floor * floor))
        excess = _maximum(_sqrt(_mean_square(direction)) * (1.0 / d), 1.0)
        return p - direction * (rate / excess), row, column

    return adafactor


class Adafactor(Optimizer):
    """Adam's second moment kept as one row and one column per matrix, and no first moment (Shazeer & Stern, 2018).

    With R and C the running means of g² over the columns and rows (weight tᵞ for the newest, γ = `beta2_decay`), and
    V = R Cᵀ / mean(R): u = g / √V, p ← p − ρ max(eps₂, rms(p)) u / max(1, rms(u)/d), where ρ = min(lr, 1/√t). Vectors
    keep the whole V. The last two axes are factored. PyTorch's variant.

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((2, 3))
    >>> opt = Adafactor([p], lr=0.5)
    >>> p.set_grad(wg.ones((2, 3)))
    >>> opt.step()
    >>> p.tolist()[0]
    [0.5, 0.5, 0.5]
    """

    Config = AdafactorConfig
    elementwise = False

    @classmethod
    def check(cls, options: Options) -> None:
        """Raise if an option makes no sense."""
        super().check(options)
        floor, scale = options["eps"]
        check_positive("Adafactor", eps=scale if floor is None else min(floor, scale), d=options["d"])

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """R and C."""
        return {"row": 0.0, "column": 0.0}

    @classmethod
    def state_shapes(cls, options: Options, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """A column and a row of the last two axes; for vectors the whole V as R, and an empty C."""
        if len(shape) < 2:
            return shape, (0,)
        return (*shape[:-1], 1), (*shape[:-2], 1, shape[-1])

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """Adafactor."""
        return _rule(tuple(options["eps"]), options["d"], options["maximize"])

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """The weight of the newest gradient, ρ, and 1 − lr λ."""
        lr = options["lr"]
        return power(step, options["beta2_decay"]), minimum(lr, power(step, -0.5)), 1.0 - lr * options["weight_decay"]
