"""The public function `root`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from wengert import functional as F
from wengert.compiling.compile import compile
from wengert.errors import ArgumentError, LinAlgError
from wengert.linalg.solving import inv, solve
from wengert.modes import no_grad
from wengert.numerics.implicit import dense
from wengert.optimize.descent import largest
from wengert.optimize.problem import Problem, default, known, positive
from wengert.optimize.result import CONVERGED, NOT_A_NUMBER, OUT_OF_ITERATIONS, STALLED, STOPPED, OptimizeResult
from wengert.optimize.trust_region import Goals, Iterate, search

_METHODS = ("hybr", "lm", "newton", "broyden")
_HALVINGS = 30


def root(
    f: Callable[..., Any],
    x0: Any,
    args: Any = (),
    method: str = "hybr",
    *,
    tol: float | None = None,
    maxiter: int | None = None,
    callback: Callable[[Any], Any] | None = None,
) -> OptimizeResult:
    """Find a zero of f(x, *args) near x0, with as many equations as unknowns, using the exact Jacobian.

    - `x0`: a tensor, an array, a number, or nested containers of them; `result.x` has its structure.
    - `method`: "hybr" (Powell's dogleg), "lm" (Levenberg and Marquardt), "newton" (with a line search), or "broyden",
      which usually forms the Jacobian only once.
    - `tol`: `result.success` is True if no element of f is above it.
    - `callback`: `callback(x)` is called after each iteration, and stops it by returning True.

    `result.x` is differentiable with respect to args and what f closes over: x' = −(∂f/∂x)⁻¹ ∂f/∂p.

    >>> import wengert as wg
    >>> result = root(lambda x: (x[0] + x[1] - 3.0, x[0] * x[1] - 2.0), (0.0, 5.0))
    >>> round(result.x[0].item(), 6), round(result.x[1].item(), 6)
    (1.0, 2.0)
    """
    problem = Problem("root", f, x0, args, scalar=False)
    layout = problem.layout
    name = known("root", method, _METHODS)
    positive("root", tol=tol, maxiter=maxiter)
    tolerance = default(layout, 1e-10, 1e-5) if tol is None else float(tol)
    most = 500 if maxiter is None else int(maxiter)
    watch = None if callback is None else lambda x: callback(layout.tree(x))
    with no_grad():
        n = int(problem.value(problem.x).shape[0])
        if n != layout.size:
            raise ArgumentError(f"root: {n} equations for {layout.size} unknowns; least_squares takes other numbers")
        if name in ("newton", "broyden"):
            found = _line_search(problem, tolerance, most, watch, exact=name == "newton")
        else:
            found = _trust_region(problem, tolerance, most, watch, "lm" if name == "lm" else "dogleg")
        jacobian = problem.jacobian(found.x)
    x = found.x
    if found.status == CONVERGED:  # elsewhere f is not zero, and what x depends on is unknown
        x = problem.differentiable(x, problem.derivatives.value, dense(problem.who, problem.derivatives.jacobian))
    return OptimizeResult(
        x=layout.tree(x),
        fun=problem.value(found.x),
        jac=jacobian,
        success=found.status == CONVERGED,
        status=found.status,
        message=found.message,
        nit=found.iterations,
        nfev=problem.nfev,
        njev=problem.njev,
    )


class _Found(NamedTuple):
    x: Any
    iterations: int
    status: int
    message: str


def _message(size: float, tolerance: float) -> str:
    return f"no element of f is above {tolerance:g} (the largest is {size:.3g})"


def _trust_region(problem: Problem, tolerance: float, most: int, callback: Any, method: str) -> _Found:
    def cost(x: Any) -> float:
        y = problem.value(x)
        found: float = 0.5 * F.sum(y * y).item()
        return found

    def look(x: Any) -> Iterate:
        y, jacobian = problem.value(x), problem.jacobian(x)
        return Iterate(x, 0.5 * F.sum(y * y).item(), y, jacobian, F.matrix_transpose(jacobian) @ y)

    def done(iterate: Iterate) -> str | None:
        size = largest(iterate.residuals)
        return _message(size, tolerance) if size <= tolerance else None

    tiny = float(default(problem.layout, 1e-15, 1e-7))
    goals = Goals(ftol=1e-300, xtol=tiny, gtol=1e-300, most=most, done=done, callback=callback)
    ended = search(cost, look, problem.x, goals, method)
    size = largest(ended.iterate.residuals)
    if size <= tolerance:
        return _Found(ended.iterate.x, ended.iterations, CONVERGED, _message(size, tolerance))
    if ended.status == CONVERGED:  # the sum of squares has a minimum there that is not zero
        return _Found(ended.iterate.x, ended.iterations, STALLED, f"no step helps any more, but f is still {size:.3g}")
    return _Found(ended.iterate.x, ended.iterations, ended.status, ended.message)


def _line_search(problem: Problem, tolerance: float, most: int, callback: Any, exact: bool) -> _Found:
    """Newton's steps, or Broyden's, shortened until |f| falls (Dennis & Schnabel, 1983, chapters 6 and 8)."""
    x, y = problem.x, problem.value(problem.x)
    inverse: Any = None
    for k in range(most):
        size = largest(y)
        if not math.isfinite(size):
            return _Found(x, k, NOT_A_NUMBER, f"f gave NaN or infinity after {k} iterations")
        if size <= tolerance:
            return _Found(x, k, CONVERGED, _message(size, tolerance))
        fresh = exact or inverse is None
        try:
            if exact:
                step = solve(problem.jacobian(x), -y)
            else:
                inverse = inv(problem.jacobian(x)) if fresh else inverse
                step = -(inverse @ y)
        except LinAlgError:
            return _Found(x, k, STALLED, "the Jacobian is singular; method='lm' or 'hybr' can go on from such places")
        moved = _shortened(problem, x, y, step)
        if moved is None and fresh:
            return _Found(x, k, STALLED, f"no step helps any more, but f is still {size:.3g}")
        if moved is None:
            inverse = None  # it has become a bad one: once more from here with the Jacobian itself
            continue
        if not exact:
            inverse = _broyden_update(inverse, moved[0] - x, moved[1] - y)
        x, y = moved
        if callback is not None and callback(x) is True:
            return _Found(x, k + 1, STOPPED, "the callback returned True")
    size = largest(y)
    if size <= tolerance:
        return _Found(x, most, CONVERGED, _message(size, tolerance))
    return _Found(x, most, OUT_OF_ITERATIONS, f"maxiter={most} iterations were used up, and f is still {size:.3g}")


def _shortened(problem: Problem, x: Any, y: Any, step: Any) -> tuple[Any, Any] | None:
    before, t = F.sum(y * y).item(), 1.0
    for _ in range(_HALVINGS):
        moved = x + step * t
        value = problem.value(moved)
        after = F.sum(value * value).item()
        if after <= (1.0 - 2e-4 * t) * before:
            return moved, value
        t *= 0.5
    return None


@compile
def _broyden_update(inverse: Any, s: Any, y: Any) -> Any:
    """J⁻¹ after a step s that changed f by y, by Sherman and Morrison's formula."""
    hy = inverse @ y
    return inverse + F.reshape(s - hy, (-1, 1)) * (s @ inverse) / F.sum(s * hy)
