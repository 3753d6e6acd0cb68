"""A line search for the strong Wolfe conditions, by cubic interpolation (Nocedal & Wright, 2006, algorithms 3.5 and 3.6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

ARMIJO, CURVATURE = 1e-4, 0.9


class Point(NamedTuple):
    """A place on the line: how far, the function there, its gradient, and its slope along the line."""

    t: float
    value: float
    gradient: Any
    slope: float


def strong_wolfe(
    evaluate: Callable[[float], Point], origin: Point, t: float, *, width: float, tolerance: float, most: int
) -> tuple[Point, int]:
    """A point where the function has fallen enough and is flat enough, and how often it was evaluated.

    `t` is tried first. `width` is the largest component of the direction: a bracket below `tolerance` ends the search, as
    do `most` evaluations; then the best end of the bracket is returned.

    >>> parabola = lambda t: Point(t, (t - 3.0) ** 2, None, 2.0 * (t - 3.0))
    >>> strong_wolfe(parabola, parabola(0.0), 1.0, width=1.0, tolerance=1e-9, most=25)[0].t
    1.0
    """
    previous, new = origin, evaluate(t)
    for k in range(most):
        if not _falls(origin, new) or (k > 1 and new.value >= previous.value):
            return _zoom(evaluate, origin, previous, new, k, width, tolerance, most)
        if _is_flat(origin, new):
            return new, k + 1
        if new.slope >= 0.0:
            return _zoom(evaluate, origin, previous, new, k, width, tolerance, most)
        t = _cubic(previous, new, new.t + 0.01 * (new.t - previous.t), 10.0 * new.t)
        previous, new = new, evaluate(t)
    return (origin if origin.value <= new.value else new), most + 1


def _falls(origin: Point, p: Point) -> bool:
    """Whether the function has fallen enough; NaN has not."""
    return p.value <= origin.value + ARMIJO * p.t * origin.slope


def _is_flat(origin: Point, p: Point) -> bool:
    return abs(p.slope) <= -CURVATURE * origin.slope


def _zoom(
    evaluate: Callable[[float], Point],
    origin: Point,
    a: Point,
    b: Point,
    used: int,
    width: float,
    tolerance: float,
    most: int,
) -> tuple[Point, int]:
    """Shrink a bracket; `low` is always its better end."""
    low, high = (a, b) if a.value <= b.value or math.isnan(b.value) else (b, a)
    stalled = False
    while used < most and abs(high.t - low.t) * width >= tolerance:
        first, last = (low, high) if low.t <= high.t else (high, low)
        left, right = first.t, last.t
        t = _cubic(first, last, left, right)
        margin = 0.1 * (right - left)
        near = min(right - t, t - left) < margin
        if near and (stalled or t >= right or t <= left):  # twice in a row at an end: step inside
            t = right - margin if abs(t - right) < abs(t - left) else left + margin
            near = False
        stalled = near
        new = evaluate(t)
        used += 1
        if not _falls(origin, new) or new.value >= low.value:
            high = new
            if high.value < low.value:
                low, high = high, low
            continue
        if _is_flat(origin, new):
            return new, used + 1
        if new.slope * (high.t - low.t) >= 0.0:
            high = low
        low = new
    return low, used + 1


def _cubic(a: Point, b: Point, lowest: float, highest: float) -> float:
    """Where the cubic through both values and slopes is least, inside the bounds; their middle if there is no such place."""
    try:
        d1 = a.slope + b.slope - 3.0 * (a.value - b.value) / (a.t - b.t)
        d2 = math.sqrt(d1 * d1 - a.slope * b.slope)
        t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2))
    except (ValueError, ZeroDivisionError, OverflowError):
        t = math.nan
    return min(max(t, lowest), highest) if math.isfinite(t) else 0.5 * (lowest + highest)
