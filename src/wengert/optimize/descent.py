"""Minimisation by descent: quasi-Newton methods, Newton's by conjugate gradients, and the gradient alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wengert import functional as F
from wengert.compiling.compile import compile
from wengert.numerics.scalars import number
from wengert.optim.curvature import conjugate_gradients
from wengert.optim.line_search import Point, strong_wolfe
from wengert.optimize.problem import Problem
from wengert.optimize.result import CONVERGED, NOT_A_NUMBER, OUT_OF_ITERATIONS, STALLED, STOPPED
from wengert.tensors.creation import eye, zeros

HISTORY = 10  # steps that L-BFGS remembers
_EVALUATIONS = 40  # of one line search
_SUFFICIENT = 1e-4  # of the decrease that the slope promises


class Outcome(NamedTuple):
    """Where a method ended, and why."""

    x: Any
    value: float
    gradient: Any
    iterations: int
    status: int
    message: str


class Search:
    """What all methods share: evaluating, stopping, and saying why."""

    def __init__(self, problem: Problem, tolerance: float, most: int, callback: Callable[[Any], Any] | None) -> None:
        self.problem, self.tolerance, self.most, self.callback = problem, tolerance, most, callback
        self._eps = float(np.finfo(problem.layout.dtype.to_numpy()).eps)

    def stops(self, x: Any) -> bool:
        """Whether the callback asks for it."""
        return self.callback is not None and self.callback(x) is True

    def stopped(self, x: Any, value: float, gradient: Any, k: int) -> Outcome:
        """The outcome then."""
        return Outcome(x, value, gradient, k, STOPPED, "the callback returned True")

    def start(self) -> Point:
        """The first place; a `Point` holds (x, gradient) beside its value."""
        x = self.problem.x
        value, gradient = self.problem.value_and_gradient(x)
        return Point(0.0, value, (x, gradient), 0.0)

    def run(self, direction: Callable[[Point, Point | None], tuple[Any, float]]) -> Outcome:
        """Go along `direction(here, before)`, which also says how far to go first, until the gradient is small."""
        here, before = self.start(), None
        for k in range(self.most):
            ended = self.ended(here, k, largest(here.gradient[1]))
            if ended is not None:
                return ended
            d, t = direction(here, before)
            new = self._moved(here, d, t)
            if new is None and before is not None:  # what was learnt may mislead: once more from the gradient alone
                d, t = direction(here, None)
                new = self._moved(here, d, t)
            if new is None:
                return self.stalled(here, k, largest(here.gradient[1]))
            before, here = here, new
            if self.stops(here.gradient[0]):
                return self.stopped(*_parts(here), k + 1)
        return self.ended(here, self.most, largest(here.gradient[1])) or self.exhausted(here)

    def _moved(self, here: Point, d: Any, t: float) -> Point | None:
        """A point with a lower value along d, by a line search; None if there is none."""
        x, gradient = here.gradient
        slope = F.sum(gradient * d).item()
        if not slope < 0.0:
            return None

        def at(t: float) -> Point:
            moved, value, g, s = self.problem.along(number(t, x.dtype), x, d)
            return Point(t, value, (moved, g), s)

        origin = here._replace(t=0.0, slope=slope)
        found, _ = strong_wolfe(
            at, origin, t, width=largest(d), tolerance=self._eps * (1.0 + largest(x)), most=_EVALUATIONS
        )
        return found if found.value < here.value else None

    def ended(self, here: Point, k: int, size: float) -> Outcome | None:
        """The outcome if the gradient is small enough, or the value no number."""
        if not math.isfinite(here.value):
            what = "NaN" if math.isnan(here.value) else "infinity"
            return Outcome(*_parts(here), k, NOT_A_NUMBER, f"the function gave {what} after {k} iterations")
        if size <= self.tolerance:
            return Outcome(*_parts(here), k, CONVERGED, f"no element of the gradient is above {self.tolerance:g}")
        return None

    def stalled(self, here: Point, k: int, size: float) -> Outcome:
        """No step decreases the value: at the minimum as far as the dtype can tell, or not."""
        # Where the value changes by less than its last digits, |g| is about √(ε |f| · curvature).
        if size <= 10.0 * math.sqrt(self._eps) * max(1.0, abs(here.value)):
            message = f"the value cannot be decreased in this precision; the gradient is at most {size:.3g}"
            return Outcome(*_parts(here), k, CONVERGED, message)
        message = f"no step decreases the value any more, but the gradient is still {size:.3g}"
        return Outcome(*_parts(here), k, STALLED, message)

    def exhausted(self, here: Point) -> Outcome:
        """Too many iterations."""
        message = f"maxiter={self.most} iterations were used up"
        return Outcome(*_parts(here), self.most, OUT_OF_ITERATIONS, message)


def _parts(here: Point) -> tuple[Any, float, Any]:
    return here.gradient[0], here.value, here.gradient[1]


def largest(x: Any) -> float:
    """The largest element by absolute value; NaN if one is."""
    return float(F.max(F.abs(x)).item())


def _first_length(gradient: Any) -> float:
    return float(min(1.0, 1.0 / max(F.sum(F.abs(gradient)).item(), 1e-300)))


# ----------------------------------------------------------------------------------------------------------- methods


def gradient_descent(search: Search) -> Outcome:
    """Along −g, first as far as the change of the gradient suggests (Barzilai & Borwein, 1988)."""

    def direction(here: Point, before: Point | None) -> tuple[Any, float]:
        g = here.gradient[1]
        if before is None:
            return -g, _first_length(g)
        s, y = here.gradient[0] - before.gradient[0], g - before.gradient[1]
        curvature = F.sum(s * y).item()
        return -g, F.sum(s * s).item() / curvature if curvature > 0.0 else _first_length(g)

    return search.run(direction)


def bfgs(search: Search) -> Outcome:
    """Broyden, Fletcher, Goldfarb and Shanno's update of the inverse Hessian (Nocedal & Wright, 2006, algorithm 6.1)."""
    n, dtype = search.problem.layout.size, search.problem.x.dtype
    inverse: Any = None

    def direction(here: Point, before: Point | None) -> tuple[Any, float]:
        nonlocal inverse
        g = here.gradient[1]
        if before is None:
            inverse = None
            return -g, _first_length(g)
        first = inverse is None
        matrix = eye(n, dtype=dtype) if first else inverse
        (x0, g0), (x1, g1) = before.gradient, here.gradient
        inverse, d = _bfgs_update(matrix, x0, g0, x1, g1, first)
        return d, 1.0

    return search.run(direction)


@compile
def _bfgs_update(inverse: Any, x0: Any, g0: Any, x1: Any, g1: Any, first: bool) -> tuple[Any, Any]:
    """The inverse Hessian after a step, and the direction −H⁻¹ g; as it was where the step shows no curvature."""
    s, y = x1 - x0, g1 - g0
    sy, yy = F.sum(s * y), F.sum(y * y)
    if first:
        inverse = inverse * (sy / yy)
    left = F.reshape(s, (-1, 1))
    hy = inverse @ y
    updated = inverse + (sy + F.sum(y * hy)) / (sy * sy) * (left * s) - (F.reshape(hy, (-1, 1)) * s + left * hy) / sy
    inverse = F.where(sy > 1e-14 * F.sqrt(F.sum(s * s) * yy), updated, inverse)
    return inverse, -(inverse @ g1)


class _Memory:
    """The last steps and changes of the gradient, and the directions that they give."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        n, dtype = self._search.problem.layout.size, self._search.problem.x.dtype
        empty, none = zeros((HISTORY, n), dtype=dtype), zeros((HISTORY,), dtype=dtype)
        self._kept: tuple[Any, ...] = (empty, empty, none, zeros((), dtype=dtype) + 1.0)

    def direction(self, before: Point, here: Point, free: Any) -> Any:
        """−H⁻¹ g over the unknowns in `free`, after the step from `before` to `here`."""
        (x0, g0), (x1, g1), (s, y, w, scale) = before.gradient, here.gradient, self._kept
        *kept, d = _lbfgs_update(s, y, w, scale, x0, g0, x1, g1, free)
        self._kept = tuple(kept)
        return d


@compile
def _lbfgs_update(
    steps: Any, changes: Any, weights: Any, scale: Any, x0: Any, g0: Any, x1: Any, g1: Any, free: Any
) -> tuple[Any, ...]:
    """The history with one more step, if it shows curvature, and the direction (Nocedal & Wright, algorithm 7.4).

    `weights` are 1 / yᵀs; of places that are empty, zero, which makes them do nothing.
    """
    s, y = x1 - x0, g1 - g0
    sy, yy = F.sum(s * y), F.sum(y * y)
    curved = sy > 1e-10 * yy
    pushed = [
        F.concat([steps[1:], s[None]]), F.concat([changes[1:], y[None]]), F.concat([weights[1:], (1.0 / sy)[None]]),
        sy / yy,
    ]  # fmt: skip
    steps, changes, weights, scale = (F.where(curved, a, b) for a, b in zip(pushed, (steps, changes, weights, scale)))
    q, factors = -g1 * free, []
    for k in reversed(range(HISTORY)):
        factors.append(weights[k] * F.sum(steps[k] * q))
        q = q - factors[-1] * changes[k]
    q = q * scale
    for k, factor in enumerate(reversed(factors)):
        q = q + (factor - weights[k] * F.sum(changes[k] * q)) * steps[k]
    return steps, changes, weights, scale, q * free


def lbfgs(search: Search) -> Outcome:
    """BFGS by its last ten steps alone (Liu & Nocedal, 1989)."""
    memory, everything = _Memory(search), search.problem.x * 0.0 + 1.0

    def direction(here: Point, before: Point | None) -> tuple[Any, float]:
        if before is None:
            memory.clear()
            return -here.gradient[1], _first_length(here.gradient[1])
        return memory.direction(before, here, everything), 1.0

    return search.run(direction)


def newton_cg(search: Search) -> Outcome:
    """Newton's method, with H⁻¹ g by conjugate gradients, to min(½, √|g|) of the gradient (Nocedal & Wright, 7.1)."""

    def direction(here: Point, before: Point | None) -> tuple[Any, float]:
        x, g = here.gradient
        tolerance = min(0.5, math.sqrt(F.sqrt(F.sum(g * g)).item()))
        d, _ = conjugate_gradients(lambda v: search.problem.product(x, v), -g, tolerance, 20 * len(g))
        return d, 1.0

    return search.run(direction)


def projected(search: Search, lower: Any, upper: Any) -> Outcome:
    """L-BFGS within bounds: quasi-Newton steps of the unknowns that are not held at a bound, projected onto the bounds
    (Bertsekas, "Projected Newton methods", 1982), and shortened until the value falls enough."""
    problem, memory = search.problem, _Memory(search)
    problem.x = _clipped(problem.x, lower, upper)
    here, before = search.start(), None
    for k in range(search.most):
        x, g = here.gradient
        size = largest(_clipped(x - g, lower, upper) - x)
        ended = search.ended(here, k, size)
        if ended is not None:
            return ended
        free = _free(x, g, lower, upper)
        d, t = (-g * free, _first_length(g)) if before is None else (memory.direction(before, here, free), 1.0)
        new = _projected_step(search, here, d, t, lower, upper)
        if new is None and before is not None:
            memory.clear()
            new = _projected_step(search, here, -g * free, _first_length(g), lower, upper)
        if new is None:
            return search.stalled(here, k, size)
        before, here = here, new
        if search.stops(here.gradient[0]):
            return search.stopped(*_parts(here), k + 1)
    return search.exhausted(here)


@compile
def _clipped(x: Any, lower: Any, upper: Any) -> Any:
    return F.minimum(F.maximum(x, lower), upper)


@compile
def _free(x: Any, g: Any, lower: Any, upper: Any) -> Any:
    """1 for unknowns that may move, 0 for those that are at a bound and would leave it."""
    held = F.logical_or(F.logical_and(x <= lower, g > 0.0), F.logical_and(x >= upper, g < 0.0))
    return F.where(held, x * 0.0, x * 0.0 + 1.0)


def _projected_step(search: Search, here: Point, d: Any, t: float, lower: Any, upper: Any) -> Point | None:
    x, g = here.gradient
    if not F.sum(g * d).item() < 0.0:
        return None
    for _ in range(_EVALUATIONS):
        moved = _clipped(x + d * t, lower, upper)
        promised = F.sum(g * (moved - x)).item()
        value, gradient = search.problem.value_and_gradient(moved)
        if value <= here.value + _SUFFICIENT * promised and value < here.value:
            return Point(t, value, (moved, gradient), 0.0)
        t *= 0.5 if not math.isfinite(value) else _interpolated(here.value, promised, value)
    return None


def _interpolated(value: float, slope: float, new: float) -> float:
    """By what to shorten a step, to the minimum of the parabola, within [0.1, 0.5]."""
    curvature = new - value - slope
    return min(0.5, max(0.1, -0.5 * slope / curvature)) if curvature > 0.0 else 0.5
