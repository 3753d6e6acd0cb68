"""How long a step is: the first one, and the next one after each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

SAFETY = 0.9
LEAST, MOST = 0.2, 10.0  # by how much a step may differ from the one before


class Controller:
    """A proportional–integral controller: h ← h · 0.9 · e⁻ᵅ · e₋₁ᵝ, with α = 0.85/q and β = 0.2/q, for errors e of
    order hᵠ (Gustafsson, 1991; the exponents are those of Hairer & Wanner's DOPRI5). After a rejected step the error of
    that one alone counts, and the next step is not longer."""

    def __init__(self, error_order: int) -> None:
        self._q = error_order + 1
        self._previous = 1.0
        self._rejected = False

    def accepted(self, error: float) -> float:
        """By what to multiply the step after one with this error, which was at most 1."""
        factor = SAFETY * float(max(error, 1e-10) ** (-0.85 / self._q) * self._previous ** (0.2 / self._q))
        limit = 1.0 if self._rejected else MOST
        self._previous, self._rejected = max(error, 1e-4), False
        return min(limit, max(LEAST, factor))

    def rejected(self, error: float) -> float:
        """By what to multiply the step after one with this error, which was above 1, or not a number."""
        self._rejected = True
        if not math.isfinite(error):
            return LEAST / 2
        return max(LEAST, SAFETY * float(error ** (-1.0 / self._q)))


def first_step(
    slope: Callable[[float, Any], Any], t: float, y: Any, towards: float, order: int, atol: Any, rtol: float
) -> float:
    """Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, section II.4; `slope` is of NumPy arrays."""
    sign, most = math.copysign(1.0, towards - t), abs(towards - t)

    def norm(x: Any) -> float:
        scaled = np.abs(x) / scale
        return float(np.sqrt(np.mean(scaled * scaled)))

    with np.errstate(all="ignore"):  # where this overflows, the first step is small, and the steps themselves tell
        scale = atol + rtol * np.abs(y)
        first = slope(t, y)
        size, speed = norm(y), norm(first)
        guess = 1e-6 if size < 1e-5 or not 1e-5 <= speed < np.inf else 0.01 * size / speed
        guess = min(guess, most)
        second = slope(t + sign * guess, y + sign * guess * first)
        bend = norm(second - first) / guess
        fastest = max(speed, bend)
        better = max(1e-6, guess * 1e-3) if not 1e-15 < fastest < np.inf else (0.01 / fastest) ** (1.0 / (order + 1))
    return sign * min(100.0 * guess, better, most)
