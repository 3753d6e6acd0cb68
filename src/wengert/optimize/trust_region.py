"""Sums of squares: Levenberg and Marquardt's method, and Powell's dogleg, with the exact Jacobian."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from wengert import functional as F
from wengert.compiling.compile import compile
from wengert.linalg.factorizations import qr
from wengert.linalg.solving import solve_triangular
from wengert.numerics.scalars import number
from wengert.optimize.result import CONVERGED, NOT_A_NUMBER, OUT_OF_ITERATIONS, STALLED, STOPPED

_TRIES = 40  # of steps from one iterate


class Iterate(NamedTuple):
    """Residuals and their Jacobian, scaled where the loss is not linear; half the sum of what the loss makes of them."""

    x: Any
    cost: float
    residuals: Any
    jacobian: Any
    gradient: Any


@dataclass(slots=True)
class Goals:
    """When to stop. `done(iterate)`: something else that is enough."""

    ftol: float
    xtol: float
    gtol: float
    most: int
    done: Callable[[Iterate], str | None] = lambda iterate: None
    callback: Callable[[Any], Any] | None = None


class Ended(NamedTuple):
    """Where a method ended, and why."""

    iterate: Iterate
    iterations: int
    status: int
    message: str


def search(cost: Callable[[Any], float], look: Callable[[Any], Iterate], x: Any, goals: Goals, method: str) -> Ended:
    """Steps within a region that grows while the model of the residuals, r + J p, predicts what happens.

    `cost(x)` is half the sum of squares, `look(x)` all that is known of an iterate.
    """
    here = look(x)
    if not math.isfinite(here.cost):
        return Ended(here, 0, NOT_A_NUMBER, "the function gave NaN or infinity at x0")
    scale = _scaled(here.jacobian, here.jacobian[0] * 0.0)
    region: Any = (_Damping if method == "lm" else _Radius)(here, scale)
    for k in range(goals.most):
        reason = _is_flat(here, goals) or goals.done(here)
        if reason:
            return Ended(here, k, CONVERGED, reason)
        scale = _scaled(here.jacobian, scale)
        for _ in range(_TRIES):
            step, promised, length = region.step(here, scale)
            new = cost(here.x + step)
            ratio = (here.cost - new) / promised if promised > 0.0 and math.isfinite(new) else -1.0
            region.learn(ratio, length)
            small = length <= goals.xtol * (goals.xtol + math.sqrt(F.sum((scale * here.x) ** 2).item()))
            level = promised <= goals.ftol * here.cost and abs(here.cost - new) <= goals.ftol * here.cost
            if ratio > 1e-4 or small or level:
                break
        else:
            return Ended(here, k, STALLED, "no step decreases the sum of squares any more")
        if ratio > 1e-4:
            here = look(here.x + step)
        if goals.callback is not None and goals.callback(here.x) is True:
            return Ended(here, k + 1, STOPPED, "the callback returned True")
        if small or level:
            why = (
                f"the step is below xtol={goals.xtol:g}"
                if small
                else f"the cost changes by less than ftol={goals.ftol:g}"
            )
            return Ended(here, k + 1, CONVERGED, _is_flat(here, goals) or goals.done(here) or why)
    return Ended(here, goals.most, OUT_OF_ITERATIONS, f"{goals.most} iterations were used up")


def _is_flat(here: Iterate, goals: Goals) -> str | None:
    size = F.max(F.abs(here.gradient)).item()
    return f"no element of the gradient is above gtol={goals.gtol:g}" if size <= goals.gtol else None


@compile
def _scaled(jacobian: Any, before: Any) -> Any:
    """Lengths of the columns, the largest so far: unknowns of different size count alike (Moré, 1978)."""
    norms = F.maximum(F.sqrt(F.sum(jacobian * jacobian, axis=0)), before)
    return F.where(norms > 0.0, norms, norms + 1.0)


# ------------------------------------------------------------------------------------------------------------ regions


class _Damping:
    """(JᵀJ + λD²) p = −Jᵀr, with λ as Nielsen ("Damping parameter in Marquardt's method", 1999) changes it."""

    def __init__(self, here: Iterate, scale: Any) -> None:
        self._damping, self._growth = 1e-3, 2.0

    def step(self, here: Iterate, scale: Any) -> tuple[Any, float, float]:
        """The step, the decrease that the model promises, and the scaled length."""
        root = number(math.sqrt(self._damping), here.x.dtype)
        p, promised, length = _damped(here.jacobian, here.residuals, here.gradient, scale, root)
        return p, promised.item(), length.item()

    def learn(self, ratio: float, length: float) -> None:
        """Less damping if the model was right, more if not."""
        if ratio > 1e-4:
            self._damping *= max(1.0 / 3.0, 1.0 - (2.0 * ratio - 1.0) ** 3)
            self._damping, self._growth = max(self._damping, 1e-15), 2.0
        else:
            self._damping *= self._growth
            self._growth *= 2.0


@compile
def _damped(jacobian: Any, residuals: Any, gradient: Any, scale: Any, root: Any) -> tuple[Any, Any, Any]:
    """By QR of J over √λ D, which does not square the condition number, as the normal equations would."""
    q, r = qr(F.concat([jacobian, root * F.diag(scale)]))
    p = solve_triangular(r, -(F.matrix_transpose(q[: residuals.shape[0]]) @ residuals))
    moved = jacobian @ p
    promised = -(F.sum(gradient * p) + 0.5 * F.sum(moved * moved))
    return p, promised, F.sqrt(F.sum((scale * p) ** 2))


class _Radius:
    """Powell's dogleg: towards the steepest descent, then towards Gauss and Newton's step, within a radius."""

    def __init__(self, here: Iterate, scale: Any) -> None:
        size = math.sqrt(F.sum((scale * here.x) ** 2).item())
        self._radius = 100.0 * size if size > 0.0 else 100.0

    def step(self, here: Iterate, scale: Any) -> tuple[Any, float, float]:
        """The step, the decrease that the model promises, and the scaled length."""
        radius = number(self._radius, here.x.dtype)
        p, promised, length = _dogleg(here.jacobian, here.residuals, here.gradient, scale, radius)
        return p, promised.item(), length.item()

    def learn(self, ratio: float, length: float) -> None:
        """A larger region if the model was right at its border, a smaller one if it was wrong."""
        if ratio < 0.25:
            self._radius = 0.25 * min(self._radius, length)
        elif ratio > 0.75:
            self._radius = max(self._radius, 2.0 * length)


@compile
def _dogleg(jacobian: Any, residuals: Any, gradient: Any, scale: Any, radius: Any) -> tuple[Any, Any, Any]:
    """In scaled unknowns D p (Nocedal & Wright, 2006, section 4.1). Directions without curvature are damped a little."""
    scaled = jacobian / scale
    q, r = qr(F.concat([scaled, 1e-10 * F.diag(scale * 0.0 + 1.0)]))
    newton = solve_triangular(r, -(F.matrix_transpose(q[: residuals.shape[0]]) @ residuals))
    g = gradient / scale
    bent = scaled @ g
    steepest = -g * (F.sum(g * g) / F.maximum(F.sum(bent * bent), F.sum(g * g) * 1e-300))
    far, near = F.sqrt(F.sum(newton * newton)), F.sqrt(F.sum(steepest * steepest))
    difference = newton - steepest
    a, b, c = F.sum(difference * difference), F.sum(steepest * difference), near * near - radius * radius
    t = (-b + F.sqrt(F.maximum(b * b - a * c, a * 0.0))) / F.maximum(a, a * 0.0 + 1e-300)
    bend = F.where(near >= radius, steepest * (radius / near), steepest + t * difference)
    p = F.where(far <= radius, newton, bend)
    moved = scaled @ p
    promised = -(F.sum(g * p) + 0.5 * F.sum(moved * moved))
    return p / scale, promised, F.sqrt(F.sum(p * p))
