"""Numerical derivatives with error bars: of a function of one number, from steps chosen by the noise it has.

The noise of the values is measured by the difference table of Hamming as in ECNoise (J. Moré, S. Wild, *Estimating
computational noise*, SIAM J. Sci. Comput. 33, 2011). Derivatives come from a ladder of steps with Richardson's extrapolation
(C. Ridders, *Advances in Engineering Software* 4, 1982); the rung with the smallest sum of truncation and noise is taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

RATIO = 4.0  # between steps of the ladder
_RUNGS = 16
_POINTS = 7  # of the difference table
_WIDEN = 64.0  # of the step of the table, where its values are equal
_TINY = 1e-290
_NEARER = 4  # times that noise is looked for at smaller steps
_MORE_RUNGS = 12
_FAR = 256.0  # times the largest step, where noise is looked for of what is constant nearer
_REPEATS = 3  # of the measurement of noise, at the step that was chosen
_CONFIDENCE = 4.0  # noise is a typical error; this many of them are not exceeded


@dataclass(frozen=True, slots=True)
class Slope:
    """A derivative at 0, with its error bar and the derivatives of the two sides."""

    value: float
    error: float
    left: float
    right: float
    side_error: float  # of each of them
    noise: float  # typical error of the function's values
    step: float  # that was taken
    flat: float  # up to which distance from 0 the values are constant; 0 if they are not
    spread: float  # how far the function goes from its value at 0
    torn: bool  # it jumps at 0, ends there, or is vertical

    @property
    def jump(self) -> float:
        """By how much the derivative changes at 0."""
        return abs(self.right - self.left)


UNKNOWN = Slope(
    value=math.nan, error=math.nan, left=math.nan, right=math.nan, side_error=math.nan, noise=math.nan, step=math.nan,
    flat=0.0, spread=math.nan, torn=False,
)  # fmt: skip

Function = Callable[[float], float]


def measure_noise(f: Function, step: float, most: float, values: Function | None = None) -> tuple[float, float]:
    """The typical error of f near 0, and up to which distance its values are constant.

    `values` are those that f was computed from, by something exact; f itself by default. Each side of 0 has a table of
    its own: a jump at 0 is no noise.
    """
    values = values or f
    flat, best, nearer = 0.0, math.inf, 0
    while step < most and step > _TINY:
        points = [[sign * k * step for k in range(1, _POINTS + 1)] for sign in (1, -1)]
        known = [t for t in points if all(math.isfinite(f(x)) for x in t)]
        if not known:
            step, most = step / (8 * _WIDEN), step
            continue
        if not any(len(set(map(values, t))) * 2 > _POINTS for t in known):
            if best < math.inf:
                return best, flat
            flat = step * _POINTS
            step *= _WIDEN
            continue
        tables = [_noise_of_table([f(x) for x in t]) for t in known]
        noise = max(n for n, _ in tables)
        if flat:
            return max(noise, 0.3 * max(_quantum(list(map(values, t))) for t in known)), flat
        if all(steady for _, steady in tables) or noise > best / 2 or nearer == _NEARER:
            return min(noise, best), flat
        best, step, nearer = noise, step / 8, nearer + 1  # all of it may be the function
    return (0.0 if best == math.inf and flat else best), flat


def _noise_of_table(values: list[float]) -> tuple[float, bool]:
    """The k-th differences of noise have (2k)!/(k!)² times its variance; those of a smooth function vanish.

    With it, whether the differences have stopped to shrink, so that it is noise indeed.
    """
    levels = []
    row = values
    for k in range(1, len(values)):
        row = [b - a for a, b in itertools.pairwise(row)]
        scale = math.factorial(k) ** 2 / math.factorial(2 * k)
        levels.append(math.hypot(*row) * math.sqrt(scale / len(row)))
    for k in range(1, len(levels) - 1):
        three = levels[k - 1 : k + 2]
        if max(three) <= 4 * min(three):
            return max(three), True
    return levels[-1], levels[-1] == 0.0


def _quantum(values: list[float]) -> float:
    """The unit of values that are multiples of one, as rounded ones are: the smallest difference among them."""
    row, found = values, math.inf
    nothing = 1e-12 * max(map(abs, values))
    for _ in range(3):
        row = [b - a for a, b in itertools.pairwise(row)]
        found = min([found, *(abs(d) for d in row if abs(d) > nothing)])
    return found if found < math.inf else 0.0


def differentiate(
    f: Function,
    *,
    values: Function | None = None,
    first: float = 0.4,
    noise_step: float = 1e-14,
    floor: float = 0.0,
    rungs: int = _RUNGS,
    enough: float = 0.0,
) -> Slope:
    """The derivative of f at 0. f gives NaN where it has no value.

    `values`: as in `measure_noise`. `first`: the largest step. `floor`: noise that the values have at least. `enough`: an
    error bar with which the usual steps are enough; otherwise smaller ones are tried, too.

    >>> import math
    >>> s = differentiate(math.exp)
    >>> abs(s.value - 1.0) < s.error < 1e-9
    True
    >>> s = differentiate(abs)
    >>> round(s.left, 6), round(s.right, 6)
    (-1.0, 1.0)
    """
    measured, flat = measure_noise(f, noise_step, _FAR * first, values)
    noise = max(measured, floor)
    at_zero = f(0.0)
    found = _climb(f, values, first, rungs, at_zero, noise, flat)
    if found.error > enough > 0.0 and math.isfinite(noise):
        finer = _climb(f, values, first, rungs + _MORE_RUNGS, at_zero, noise, flat)
        found = finer if not finer.error > found.error else found
    return found


def _climb(
    f: Function, values: Function | None, first: float, rungs: int, at_zero: float, noise: float, flat: float
) -> Slope:
    """The derivative from a ladder with this many steps."""
    steps = [first / RATIO**k for k in range(rungs)]
    above = [f(h) for h in steps]
    below = [f(-h) for h in steps]
    central = [(a - b) / (2 * h) for a, b, h in zip(above, below, steps)]
    for _ in range(_REPEATS):
        value, error, step = _best(central, steps, noise, RATIO**2)
        wider, _ = measure_noise(
            f, step / _POINTS, step, values
        )  # what is smooth at tiny steps may be rough at this one
        if not noise < wider < math.inf:
            break
        noise = wider
    right, right_error = _side(above, at_zero, steps, noise)
    left, left_error = _side(below, at_zero, [-h for h in steps], noise)
    spread = max((abs(v - at_zero) for v in (*above, *below) if math.isfinite(v)), default=0.0)
    torn = any(_is_torn([v - at_zero for v in side], noise) for side in (above, below))
    return Slope(value, error, left, right, max(left_error, right_error), noise, step, flat, spread, torn)


def _is_torn(moves: list[float], noise: float) -> bool:
    """Whether a function goes from its value at 0 by more than in proportion to the smallest steps."""
    last, before = abs(moves[-1]), abs(moves[-2])
    return not math.isfinite(last) or (last > 16 * noise and last > 0.4 * before)


def _side(values: list[float], at_zero: float, steps: list[float], noise: float) -> tuple[float, float]:
    quotients = [(v - at_zero) / h for v, h in zip(values, steps)]
    value, error, _ = _best(quotients, [abs(h) for h in steps], 2 * noise, RATIO)
    return value, error


def _best(quotients: list[float], steps: list[float], noise: float, order: float) -> tuple[float, float, float]:
    """The extrapolated difference quotient with the smallest error bar, that bar, and its step.

    The truncation of a quotient is divided by `order` from rung to rung. Extrapolated values may agree with each other by
    accident, so that one must also agree with those of all smaller steps, as far as the noise of these allows.
    """
    better = [b + (b - a) / (order - 1) for a, b in itertools.pairwise(quotients)]
    rounding = [_CONFIDENCE * 0.75 * noise / h for h in steps[1:]]
    found = (math.nan, math.inf, steps[-1])
    for k in range(1, len(better)):
        now, one, two = better[k], better[k - 1], better[max(k - 2, 0)]
        error = max(abs(now - one), abs(one - two) / 4) + rounding[k]
        if not (math.isfinite(now) and error < found[1]):
            continue
        if all(not abs(b - now) > 2 * error + r for b, r in zip(better[k + 1 :], rounding[k + 1 :])):
            found = now, error, steps[k + 1]
    return found


__all__ = ["UNKNOWN", "Slope", "differentiate", "measure_noise"]
