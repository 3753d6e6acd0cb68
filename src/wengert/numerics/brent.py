"""A zero of a function of one number between two places where its signs differ."""

from __future__ import annotations

from collections.abc import Callable


def brent(
    f: Callable[[float], float],
    ends: tuple[float, float],
    values: tuple[float, float],
    xtol: float = 4e-16,
    rtol: float = 4e-16,
    most: int = 200,
) -> float:
    """Inverse quadratic interpolation and secants, with bisection where they do not help (Brent, 1973, chapter 4).

    `values` are those of f at the ends, and have different signs.

    >>> round(brent(lambda x: x * x - 2.0, (0.0, 2.0), (-2.0, 2.0)), 12)
    1.414213562373
    """
    (a, b), (fa, fb) = ends, values
    c, fc = a, fa
    step = before = b - a
    for _ in range(most):
        if (fb > 0.0) == (fc > 0.0):  # c is always on the other side of the zero
            c, fc = a, fa
            step = before = b - a
        if abs(fc) < abs(fb):  # b is always the better end
            a, b, c = b, c, b
            fa, fb, fc = fb, fc, fb
        tolerance = 0.5 * xtol + 2.0 * rtol * abs(b)
        middle = 0.5 * (c - b)
        if abs(middle) <= tolerance or fb == 0.0:
            return b
        p, q = _interpolated(a, b, c, fa, fb, fc, middle)
        if (
            abs(before) >= tolerance
            and abs(fa) > abs(fb)
            and 2.0 * p < min(3.0 * middle * q - abs(tolerance * q), abs(before * q))
        ):
            before, step = step, p / q
        else:
            before = step = middle
        a, fa = b, fb
        b += step if abs(step) > tolerance else (tolerance if middle > 0.0 else -tolerance)
        fb = f(b)
    return b


def _interpolated(a: float, b: float, c: float, fa: float, fb: float, fc: float, middle: float) -> tuple[float, float]:
    """A step p/q from b, with p ≥ 0: by a parabola through three places, or a line through two."""
    if fa == 0.0:
        return 0.0, 1.0
    s = fb / fa
    if a == c:
        p, q = 2.0 * middle * s, 1.0 - s
    else:
        u, v = fa / fc, fb / fc
        p = s * (2.0 * middle * u * (u - v) - (b - a) * (v - 1.0))
        q = (u - 1.0) * (v - 1.0) * (s - 1.0)
    return (p, -q) if p > 0.0 else (-p, q)
