"""Solvers beside SciPy's: `python -m benchmarks.optimize`.

SciPy is given derivatives written by hand in NumPy, and the tolerances at which both end at the same place. `wg.scipy`
is SciPy with our derivatives. Prints a table with goals, and writes benchmarks/results/optimize.json and optimize.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("WENGERT_NUM_THREADS", "2")

from collections.abc import Callable
from typing import Any

import numpy as np

import wengert as wg
from benchmarks import command_line, measure
from benchmarks.measure import Row, interleave, timed_row

SCIPY, WRAPPED = "SciPy", "wg.scipy"
Calls = dict[str, Callable[[], Any]]  # by contender; each returns the place that it found


def rosenbrock(x: Any) -> Any:
    """The banana function of many variables."""
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def minimum(n: int, ours: str, theirs: str) -> Calls:
    """Rosenbrock's function of n unknowns, from afar for few of them; from there many would take thousands of steps."""
    from scipy import optimize

    x0 = np.tile([-1.2, 1.0] if n < 100 else [0.8, 1.1], n // 2)
    more = {"hess": optimize.rosen_hess} if theirs == "Newton-CG" else {}
    tight = {"xtol": 1e-8} if theirs == "Newton-CG" else {"gtol": 1e-6}
    if theirs == "L-BFGS-B":
        tight |= {"ftol": 1e-15, "maxiter": 10_000, "maxfun": 100_000}
    return {
        "wengert": lambda: wg.optimize.minimize(rosenbrock, x0, method=ours, tol=1e-6, maxiter=10_000).x.numpy(),
        SCIPY: lambda: (
            optimize.minimize(optimize.rosen, x0, jac=optimize.rosen_der, method=theirs, options=tight, **more).x
        ),
        WRAPPED: lambda: wg.scipy.minimize(rosenbrock, x0, method=theirs, options=tight).x.numpy(),
    }


def decay() -> Calls:
    """Two exponentials through a thousand points."""
    from scipy import optimize

    t = np.linspace(0.0, 4.0, 1000)
    y = 2.0 * np.exp(-3.0 * t) + np.exp(-0.5 * t) + 0.01 * np.cos(50.0 * t)
    start = np.array([1.0, 2.0, 0.5, 0.1])
    f = lambda p: p[0] * np.exp(-p[1] * t) + p[2] * np.exp(-p[3] * t) - y

    def jacobian(p: Any) -> Any:
        a, b = np.exp(-p[1] * t), np.exp(-p[3] * t)
        return np.stack([a, -p[0] * t * a, b, -p[2] * t * b], axis=1)

    tight = {"ftol": 1e-12, "xtol": 1e-12, "gtol": 1e-12}
    return {
        "wengert": lambda: wg.optimize.least_squares(f, start).x.numpy(),
        SCIPY: lambda: optimize.least_squares(f, start, jac=jacobian, method="lm", **tight).x,
        WRAPPED: lambda: wg.scipy.least_squares(f, start, method="lm", **tight).x.numpy(),
    }


def system() -> Calls:
    """Broyden's tridiagonal system of fifty equations."""
    from scipy import optimize

    n = 50

    def f(x: Any) -> Any:
        padded = wg.pad(x, ((1, 1),)) if isinstance(x, wg.Tensor) else np.pad(x, 1)
        return (3.0 - 2.0 * x) * x - padded[:-2] - 2.0 * padded[2:] + 1.0

    jacobian = lambda x: np.diag(3.0 - 4.0 * x) - np.eye(n, k=-1) - 2.0 * np.eye(n, k=1)
    start = np.full(n, -1.0)
    return {
        "wengert": lambda: wg.optimize.root(f, start).x.numpy(),
        SCIPY: lambda: optimize.root(f, start, jac=jacobian, tol=1e-12).x,
        WRAPPED: lambda: wg.scipy.root(f, start, tol=1e-12).x.numpy(),
    }


ROWS: dict[str, tuple[Callable[[], Calls], dict[str, float]]] = {
    "Rosenbrock-20, BFGS": (lambda: minimum(20, "bfgs", "BFGS"), {SCIPY: 1.0, WRAPPED: 2.0}),
    "Rosenbrock-20, Newton-CG": (lambda: minimum(20, "newton-cg", "Newton-CG"), {SCIPY: 1.0, WRAPPED: 2.0}),
    "Rosenbrock-1000, L-BFGS": (lambda: minimum(1000, "l-bfgs", "L-BFGS-B"), {SCIPY: 1.0, WRAPPED: 2.0}),
    "two exponentials, 1000 points, LM": (decay, {SCIPY: 1.0, WRAPPED: 2.0}),
    "tridiagonal system of 50, hybrid": (system, {SCIPY: 1.0, WRAPPED: 2.0}),
}


def timed(name: str, rounds: int) -> Row:
    """One row, after all contenders have found the same place."""
    make, goals = ROWS[name]
    calls = make()
    places = {k: np.asarray(call()) for k, call in calls.items()}
    for k, x in places.items():
        np.testing.assert_allclose(x, places["wengert"], rtol=1e-4, err_msg=k)
    timings, load = interleave({k: measure.statement("call()", {"call": c}) for k, c in calls.items()}, rounds, 0.1)
    return timed_row(name, timings, load, goals=goals)


def main() -> None:
    """Run the rows that were asked for; all by default."""
    options = command_line.parse("benchmarks.optimize", __doc__, ROWS, rounds=5)
    rows = []
    for name in options.rows:
        rows.append(timed(name, options.rounds))
        shown = ", ".join(f"{k} {r:.2f}x" for k, r in rows[-1].ratios.items())
        print(f"{name}: {rows[-1].values['wengert']:,.4g} {rows[-1].unit} ({shown})", flush=True)
    measure.show(rows)
    if not options.dry:
        measure.write("optimize", "Solvers beside SciPy's", rows, measure.machine(measure.versions()))


if __name__ == "__main__":
    main()
