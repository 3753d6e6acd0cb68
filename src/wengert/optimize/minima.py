"""The public function `minimize`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert import functional as F
from wengert.errors import ArgumentError
from wengert.modes import no_grad
from wengert.numerics.implicit import dense, symmetric
from wengert.optim.curvature import conjugate_gradients
from wengert.optimize import descent
from wengert.optimize.problem import Problem, default, known, positive
from wengert.optimize.result import CONVERGED, OptimizeResult
from wengert.optimize.simplex import nelder_mead
from wengert.tensors.conversion import asarray

_METHODS = ("bfgs", "l-bfgs", "l-bfgs-b", "newton-cg", "gd", "nelder-mead")
_DENSE = 400  # unknowns up to which matrices of second derivatives are formed


def minimize(
    f: Callable[..., Any],
    x0: Any,
    args: Any = (),
    method: str | None = None,
    *,
    bounds: Any = None,
    tol: float | None = None,
    maxiter: int | None = None,
    callback: Callable[[Any], Any] | None = None,
) -> OptimizeResult:
    """Find a minimum of f(x, *args) near x0, using the exact gradient.

    - `x0`: a tensor, an array, a number, a list of numbers, or nested containers of them; `result.x` and `result.jac`
      have its structure.
    - `method`: "bfgs" (the default up to 400 unknowns), "l-bfgs" (the default above), "l-bfgs-b" (with bounds),
      "newton-cg", "gd" (gradient descent with a line search) or "nelder-mead" (no gradient).
    - `bounds`: a pair (lower, upper) of numbers, None, or containers like x0.
    - `tol`: stop when no element of the gradient (at bounds: of what may still move) is above it.
    - `callback`: `callback(x)` is called after each iteration, and stops it by returning True.

    The gradient is zero at `result.x`, so it is differentiable with respect to args and what f closes over: x' = −H⁻¹
    ∂²f/∂x∂p.

    >>> import wengert as wg
    >>> closest = lambda a: minimize(lambda x, a: ((x - a) ** 2).sum() + (x**4).sum(), [0.0, 0.0], (a,)).x
    >>> wg.jacobian(closest)(wg.tensor([1.0, 2.0], dtype=wg.float64)).diagonal().round(decimals=3).tolist()
    [0.324, 0.193]
    """
    problem = Problem("minimize", f, x0, args, scalar=True)
    layout = problem.layout
    positive("minimize", tol=tol, maxiter=maxiter)
    lower, upper = _bounds(problem, bounds)
    if method is None:
        method = "l-bfgs-b" if bounds is not None else "bfgs" if layout.size <= _DENSE else "l-bfgs"
    name = known("minimize", method, _METHODS)
    if bounds is not None and name != "l-bfgs-b":
        raise ArgumentError(f"minimize: method {method!r} takes no bounds; 'l-bfgs-b' does")
    search = descent.Search(
        problem,
        tolerance=default(layout, 1e-8, 1e-4) if tol is None else float(tol),
        most=(200 * layout.size if name == "nelder-mead" else 1000) if maxiter is None else int(maxiter),
        callback=None if callback is None else lambda x: callback(layout.tree(x)),
    )
    run: Callable[..., descent.Outcome] = {
        "bfgs": descent.bfgs, "l-bfgs": descent.lbfgs, "newton-cg": descent.newton_cg, "gd": descent.gradient_descent,
        "l-bfgs-b": lambda search: descent.projected(search, lower, upper), "nelder-mead": nelder_mead,
    }[name]  # fmt: skip
    with no_grad():
        found = run(search)
    x = _differentiable(problem, found.x) if bounds is None else _differentiable_within(problem, found.x, lower, upper)
    value = found.value if x is found.x else problem.derivatives.value(x, *problem.params)
    return OptimizeResult(
        x=layout.tree(x),
        fun=asarray(value, dtype=layout.dtype) if isinstance(value, float) else value,
        jac=None if found.gradient is None else layout.tree(found.gradient),
        success=found.status == CONVERGED,
        status=found.status,
        message=found.message,
        nit=found.iterations,
        nfev=problem.nfev,
        njev=problem.njev,
    )


def _bounds(problem: Problem, bounds: Any) -> tuple[Any, Any]:
    layout = problem.layout
    if bounds is None:
        bounds = (None, None)
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        raise ArgumentError(
            "minimize: bounds must be a pair (lower, upper), each a number, None, or containers like x0"
        )
    lower, upper = (
        np.full(layout.size, fill) if b is None else layout.filled(b, "bounds")
        for b, fill in zip(bounds, (-np.inf, np.inf))
    )
    if not (lower <= upper).all():
        k = int(np.argmin(lower <= upper))
        raise ArgumentError(
            f"minimize: the lower bound {lower[k]:g} is above the upper bound {upper[k]:g}, at element {k}"
        )
    return tuple(asarray(np.asarray(b, layout.dtype.to_numpy())) for b in (lower, upper))  # type: ignore[return-value]


def _differentiable(problem: Problem, x: Any) -> Any:
    """x as a function of the parameters: the gradient is zero there."""
    derivatives = problem.derivatives
    if problem.layout.size <= _DENSE:
        return problem.differentiable(x, derivatives.gradient, dense(problem.who, derivatives.hessian))
    tolerance = default(problem.layout, 1e-10, 1e-5)
    solve = lambda product, b: conjugate_gradients(product, b, tolerance, 10 * len(b))[0]
    return problem.differentiable(x, derivatives.gradient, symmetric(derivatives.product, solve))


def _differentiable_within(problem: Problem, x: Any, lower: Any, upper: Any) -> Any:
    """The same within bounds: unknowns at a bound stay there."""
    derivatives = problem.derivatives
    free = F.astype(F.logical_and(x > lower, x < upper), x.dtype)

    def residual(at: Any, *params: Any) -> Any:
        return free * derivatives.gradient(at, *params) + (1.0 - free) * (at - x)

    def jacobian(at: Any, *params: Any) -> Any:
        return F.reshape(free, (-1, 1)) * derivatives.hessian(at, *params) + F.diag(1.0 - free)

    return problem.differentiable(x, residual, dense(problem.who, jacobian))
