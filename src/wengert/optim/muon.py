"""Muon."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

from wengert import functional as F
from wengert.errors import ArgumentError
from wengert.optim.optimizer import Optimizer, Options
from wengert.optim.update import Rule
from wengert.tensors.arguments import native

_maximum, _sqrt, _square = native("maximum"), native("sqrt"), native("square")


@dataclass(frozen=True, slots=True)
class MuonConfig:
    """Options of Muon. `adjust_lr` is "original" (√max(1, rows/columns)) or "match_rms_adamw" (0.2 √max(rows, columns)).

    >>> MuonConfig().momentum
    0.95
    """

    lr: float = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    eps: float = 1e-7
    ns_steps: int = 5
    adjust_lr: str = "original"
    maximize: bool = field(default=False, kw_only=True)


def orthogonalized(x: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """A matrix with the singular vectors of x and singular values near 1, by Newton–Schulz iterations of fifth order."""
    a, b, c = coefficients
    turned = int(x.shape[0]) > int(x.shape[1])
    x = F.matrix_transpose(x) if turned else x
    x = x / _maximum(_sqrt(F.sum(_square(x))), eps)
    for _ in range(steps):
        gram = F.matmul(x, F.matrix_transpose(x))
        x = x * a + F.matmul(gram * b + F.matmul(gram, gram) * c, x)
    return F.matrix_transpose(x) if turned else x


@functools.cache
def _rule(
    nesterov: bool, coefficients: tuple[float, float, float], steps: int, eps: float, adjust: str, maximize: bool
) -> Rule:
    def muon(p: Any, g: Any, m: Any, lr: Any, mu: Any, keep: Any) -> tuple[Any, ...]:
        g = -g if maximize else g
        m = m + (g - m) * (1.0 - mu)
        direction = g + (m - g) * mu if nesterov else m
        rows, columns = int(p.shape[0]), math.prod(int(n) for n in p.shape[1:])
        made = F.reshape(orthogonalized(F.reshape(direction, (rows, columns)), coefficients, steps, eps), p.shape)
        scale = math.sqrt(max(1.0, rows / columns)) if adjust == "original" else 0.2 * math.sqrt(max(rows, columns))
        return p * keep - made * (lr * scale), m

    return muon


class Muon(Optimizer):
    """Momentum whose matrix is made orthogonal: all directions of a weight are learned equally fast (Jordan et al., 2024).

    m ← μ m + (1 − μ) g, p ← (1 − lr λ) p − lr s O, where O has the singular vectors of m (or of Nesterov's), and singular
    values near 1. For the matrices of hidden layers; convolutions are taken as matrices of their output channels. Give
    embeddings, output layers and vectors to AdamW.

    >>> import wengert as wg
    >>> p = wg.Parameter.zeros((2, 2))
    >>> opt = Muon([p], lr=0.5)
    >>> p.set_grad([[3.0, 0.0], [0.0, 3.0]])
    >>> opt.step()
    >>> bool(abs(p[0, 0] + 0.5) < 0.2), p[0, 1].item()
    (True, 0.0)
    """

    Config = MuonConfig
    elementwise = False

    @classmethod
    def check(cls, options: Options) -> None:
        """Raise if an option makes no sense."""
        super().check(options)
        if options["adjust_lr"] not in ("original", "match_rms_adamw"):
            raise ArgumentError(
                f"Muon: adjust_lr must be 'original' or 'match_rms_adamw', got {options['adjust_lr']!r}"
            )
        if options["ns_steps"] < 1 or len(options["ns_coefficients"]) != 3:
            raise ArgumentError("Muon: ns_steps must be at least 1, and ns_coefficients three numbers")

    def _add(self, k: int, named: Any) -> None:
        p = named[1] if isinstance(named, tuple) else named
        if getattr(p, "ndim", 2) < 2:
            raise ArgumentError(
                f"Muon: takes matrices and convolutions, got a parameter of shape {tuple(p.shape)}; train vectors by AdamW: "
                "[p for p in net.parameters() if p.ndim < 2]"
            )
        super()._add(k, named)

    @classmethod
    def slots(cls, options: Options) -> dict[str, float]:
        """m."""
        return {"momentum": 0.0}

    @classmethod
    def rule(cls, options: Options) -> Rule:
        """Muon."""
        names = ("nesterov", "ns_coefficients", "ns_steps", "eps", "adjust_lr", "maximize")
        return _rule(*(options[name] for name in names))

    @classmethod
    def scalars(cls, options: Options, step: Any) -> tuple[Any, ...]:
        """lr, μ and 1 − lr λ."""
        lr = options["lr"]
        return lr, options["momentum"], 1.0 - lr * options["weight_decay"]
