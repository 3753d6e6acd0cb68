"""How accurate the special functions are: `python -m benchmarks.special [--points N] [names …]`.

Each function is evaluated in float64 and in float32 at random points of its domain and compared with mpmath. The table has
the median and the largest error in units in the last place (ulp) of the exact result, and where the largest is. Results
that are subnormal or infinite are left out. The table in docs/special.md is its output.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np

import wengert as wg

Draw = Callable[[np.random.Generator], float]


def uniform(low: float, high: float) -> Draw:
    """Evenly between two numbers."""
    return lambda rng: float(rng.uniform(low, high))


def powers(low: float, high: float) -> Draw:
    """10ᵘ for u evenly between two numbers."""
    return lambda rng: float(10.0 ** rng.uniform(low, high))


class Case(NamedTuple):
    """A function, what it is exactly, and where it is asked."""

    name: str
    ours: Callable[..., Any]
    exact: Callable[..., Any]
    domain: str
    draws: tuple[Draw, ...]
    digits: int = 40


def _slope(f: Callable[..., Any], argument: int) -> Callable[..., Any]:
    """The derivative of a function of tensors by one of its arguments."""

    def call(*xs: Any) -> Any:
        return wg.grad(lambda *z: wg.sum(f(*z)), argnums=argument)(*xs)

    return call


def _quantile(f: Callable[..., Any], guess: Callable[..., Any]) -> Callable[..., Any]:
    """The root of f(*a, x) = p, from a guess in double precision."""

    def call(*given: Any) -> Any:
        *a, p = given
        x = mpmath.mpf(float(guess(*(np.float64(v) for v in given))))
        return mpmath.findroot(lambda t: f(*a, t) / p - 1, (x, x * (1 + mpmath.mpf(10) ** -9)))

    return call


def _lower(a: Any, x: Any) -> Any:
    return 1 - _upper(a, x) if x > a else mpmath.gammainc(a, 0, x, regularized=True)


def _upper(a: Any, x: Any) -> Any:
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)


def _incomplete_beta(a: Any, b: Any, x: Any) -> Any:
    return mpmath.betainc(a, b, 0, x, regularized=True)


def _scipy(name: str) -> Callable[..., Any]:
    from scipy import special

    function: Callable[..., Any] = getattr(special, name)
    return function


_A, _X = powers(-1.0, 2.5), powers(-1.5, 2.5)
_SHAPE, _UNIT = powers(-1.0, 1.7), uniform(0.02, 0.98)

CASES = [
    Case("gammainc", wg.gammainc, _lower, "a, x from 0.1 and 0.03 to 316", (_A, _X)),
    Case("gammaincc", wg.gammaincc, _upper, "a, x from 0.1 and 0.03 to 316", (_A, _X)),
    Case(
        "∂ gammainc/∂a",
        _slope(wg.gammainc, 0),
        lambda a, x: -mpmath.diff(lambda t: _upper(t, x), a),
        "a, x from 0.1 and 0.03 to 316",
        (_A, _X),
        120,
    ),
    Case(
        "gammaincinv",
        wg.gammaincinv,
        _quantile(_lower, lambda a, p: _scipy("gammaincinv")(a, p)),
        "a from 0.1 to 316, p from 0.02 to 0.98",
        (_A, _UNIT),
    ),
    Case("betainc", wg.betainc, _incomplete_beta, "a, b from 0.1 to 50", (_SHAPE, _SHAPE, _UNIT), 60),
    Case(
        "∂ betainc/∂a",
        _slope(wg.betainc, 0),
        lambda a, b, x: mpmath.diff(lambda t: _incomplete_beta(t, b, x), a),
        "a, b from 0.1 to 50",
        (_SHAPE, _SHAPE, _UNIT),
        120,
    ),
    Case(
        "betaincinv",
        wg.betaincinv,
        _quantile(_incomplete_beta, lambda a, b, p: _scipy("betaincinv")(a, b, p)),
        "a, b from 0.1 to 50, p from 0.02 to 0.98",
        (_SHAPE, _SHAPE, _UNIT),
        60,
    ),
    Case("ndtr", wg.ndtr, mpmath.ncdf, "−12 to 8", (uniform(-12.0, 8.0),)),
    Case("log_ndtr", wg.log_ndtr, lambda x: mpmath.log(mpmath.ncdf(x)), "−30 to 8", (uniform(-30.0, 8.0),)),
    Case(
        "ndtri",
        wg.ndtri,
        lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1),
        "1e-30 to 1",
        (powers(-30.0, 0.0),),
        90,
    ),
    Case("erfcx", wg.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), "−5 to 30", (uniform(-5.0, 30.0),)),
    Case(
        "erfcinv",
        wg.erfcinv,
        lambda y: mpmath.erfinv(1 - y),
        "1e-30 to 1",
        (powers(-30.0, 0.0),),
        90,
    ),
    Case("gamma", wg.gamma, mpmath.gamma, "−20 to 33", (uniform(-20.0, 33.0),)),
    Case("rgamma", wg.rgamma, mpmath.rgamma, "−20 to 33", (uniform(-20.0, 33.0),)),
    Case("beta", wg.beta, mpmath.beta, "1e-3 to 30", (powers(-3.0, 1.5), powers(-3.0, 1.5))),
    Case("zeta", wg.zeta, mpmath.zeta, "s from 1.1 to 12, q from 0.1 to 30", (uniform(1.1, 12.0), powers(-1.0, 1.5))),
    Case("j0", wg.j0, lambda x: mpmath.besselj(0, x), "0 to 30", (uniform(0.0, 30.0),)),
    Case("j1", wg.j1, lambda x: mpmath.besselj(1, x), "0 to 30", (uniform(0.0, 30.0),)),
    Case("y0", wg.y0, lambda x: mpmath.bessely(0, x), "0 to 30", (uniform(0.0, 30.0),)),
    Case("y1", wg.y1, lambda x: mpmath.bessely(1, x), "0 to 30", (uniform(0.0, 30.0),)),
    Case("iv", wg.iv, mpmath.besseli, "v from 0 to 20, x from 0.1 to 80", (uniform(0.0, 20.0), powers(-1.0, 1.9))),
    Case(
        "∂ iv/∂v",
        _slope(wg.iv, 0),
        lambda v, x: mpmath.diff(lambda t: mpmath.besseli(t, x), v),
        "v from 0 to 20, x from 0.1 to 80",
        (uniform(0.0, 20.0), powers(-1.0, 1.9)),
        80,
    ),
    Case("kv", wg.kv, mpmath.besselk, "v from 0 to 20, x from 0.1 to 80", (uniform(0.0, 20.0), powers(-1.0, 1.9))),
    Case(
        "∂ kv/∂v",
        _slope(wg.kv, 0),
        lambda v, x: mpmath.diff(lambda t: mpmath.besselk(t, x), v),
        "v from 0 to 20, x from 0.1 to 80",
        (uniform(0.0, 20.0), powers(-1.0, 1.9)),
        80,
    ),
    Case("digamma", wg.digamma, mpmath.digamma, "0.1 to 100", (powers(-1.0, 2.0),)),
    Case("lgamma", wg.lgamma, mpmath.loggamma, "0.1 to 100", (powers(-1.0, 2.0),)),
]


def errors(case: Case, dtype: type[np.floating[Any]], points: int) -> tuple[list[float], tuple[float, ...]]:
    """Errors in ulp, ascending, and the point of the largest."""
    rng = np.random.default_rng(20)
    at = [tuple(float(dtype(d(rng))) for d in case.draws) for _ in range(points)]
    ours = case.ours(*(wg.asarray(np.array(column, dtype)) for column in zip(*at))).numpy()
    info, found = np.finfo(dtype), []
    for point, got in zip(at, ours):
        with mpmath.workdps(case.digits):
            exact = mpmath.re(case.exact(*(mpmath.mpf(v) for v in point)))
            if not float(info.tiny) < abs(exact) < float(info.max):
                continue
            ulp = mpmath.mpf(2) ** (mpmath.floor(mpmath.log(abs(exact), 2)) - info.nmant)
            found.append((float(abs(mpmath.mpf(float(got)) - exact) / ulp), point))
    found.sort()
    return [e for e, _ in found], found[-1][1]


def row(case: Case, points: int) -> str:
    """One row of the table."""
    cells = [f"`{case.name}`" if case.name.isidentifier() else case.name, case.domain]
    for dtype in (np.float64, np.float32):
        units, worst = errors(case, dtype, points)
        where = ", ".join(f"{v:.3g}" for v in worst)
        cells.append(f"{units[len(units) // 2]:.2g}")
        cells.append(f"{units[-1]:.2g} at ({where})" if math.isfinite(units[-1]) else f"wrong at ({where})")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="functions (default: all)")
    parser.add_argument("--points", type=int, default=200, help="random points of each function")
    arguments = parser.parse_args()
    print("| function | domain | median | largest error | median, float32 | largest error, float32 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        if not arguments.names or case.name in arguments.names:
            print(row(case, arguments.points), flush=True)


if __name__ == "__main__":
    main()
