"""Levenberg–Marquardt: least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.modes import no_grad
from wengert.optim.curvature import conjugate_gradients, evaluated, gauss_newton_product, gradients, joined, moved
from wengert.optim.newton import SecondOrder
from wengert.optim.optimizer import Options

_MOST_TRIES = 20


@dataclass(frozen=True, slots=True)
class LevenbergMarquardtConfig:
    """Options of LevenbergMarquardt. `damping` is λ now: it is multiplied by `up` or `down` after a step.

    >>> LevenbergMarquardtConfig().damping
    0.001
    """

    lr: float = 1.0
    damping: float = 1e-3
    up: float = 4.0
    down: float = 0.25
    max_cg: int = 200
    cg_tolerance: float = 1e-6


class LevenbergMarquardt(SecondOrder):
    """Least squares, Σ r²: p ← p − (Jᵀ J + λ)⁻¹ Jᵀ r, with λ that falls while steps succeed, and rises until one does.

    The system is solved by conjugate gradients on products with J and Jᵀ; J is never formed, so parameters may be many
    (Levenberg, 1944; Marquardt, 1963). `step(function)` takes a function that returns the residuals, a tensor of any shape,
    and does not call backward(). It returns Σ r² before the step.

    >>> import wengert as wg
    >>> a, x = wg.Parameter([1.0, 0.0]), wg.linspace(0.0, 2.0, 20)
    >>> y = 3.0 * wg.exp(-1.5 * x)
    >>> opt = LevenbergMarquardt([a])
    >>> for _ in range(12):
    ...     loss = opt.step(lambda: a[0] * wg.exp(a[1] * x) - y)
    >>> [round(v, 3) for v in a.tolist()]
    [3.0, -1.5]
    """

    Config = LevenbergMarquardtConfig

    @classmethod
    def check(cls, options: Options) -> None:
        """Raise if an option makes no sense."""
        super().check(options)
        if not options["up"] > 1.0 > options["down"] > 0.0:
            raise ArgumentError("LevenbergMarquardt: up must be above 1, and down between 0 and 1")
        if options["max_cg"] < 1 or not 0.0 < options["cg_tolerance"] < 1.0:
            raise ArgumentError("LevenbergMarquardt: max_cg must be at least 1, and cg_tolerance between 0 and 1")

    def step(self, function: Any = None) -> Tensor:
        """One step that decreases Σ r², or none; returns Σ r² before it."""
        who, options, parameters = type(self).__name__, self.param_groups[0], self._parameters()
        residuals = evaluated(function, who, scalar=False)
        product = gauss_newton_product(residuals, parameters, who)
        g = gradients(residuals, parameters, who, residuals.detach()).detach()
        with no_grad():
            total = F.sum(residuals.detach() * residuals.detach())
            value = float(total)
            start = joined([p.detach() for p in parameters])
        for _ in range(_MOST_TRIES):
            damping = float(options["damping"])
            damped = lambda v, damping=damping: product(v) + v * damping
            step, _ = conjugate_gradients(damped, -g, float(options["cg_tolerance"]), options["max_cg"])
            moved(parameters, start, step * float(options["lr"]))
            with no_grad():
                r = function()
                new = float(F.sum(r * r))
            if new < value:
                options["damping"] = damping * options["down"]
                return total
            options["damping"] = max(damping, 1e-12) * options["up"]
        moved(parameters, start, g * 0.0)  # nothing decreases it: rounding is all that is left
        return total
