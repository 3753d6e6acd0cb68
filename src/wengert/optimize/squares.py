"""The public function `least_squares`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wengert import functional as F
from wengert.compiling.compile import compile
from wengert.errors import ArgumentError, ShapeError
from wengert.modes import no_grad
from wengert.numerics.implicit import dense
from wengert.numerics.scalars import number
from wengert.optimize.problem import Problem, default, known, positive
from wengert.optimize.result import CONVERGED, OptimizeResult
from wengert.optimize.trust_region import Goals, Iterate, search
from wengert.transforms.functional import grad
from wengert.transforms.jacobian import hessian

_METHODS = ("lm", "dogleg")
# ρ(z) of squares z, and its first two derivatives
_LOSSES: dict[str, Callable[[Any], tuple[Any, Any, Any]]] = {
    "linear": lambda z: (z, z * 0.0 + 1.0, z * 0.0),
    "soft_l1": lambda z: (2.0 * (F.sqrt(1.0 + z) - 1.0), (1.0 + z) ** -0.5, -0.5 * (1.0 + z) ** -1.5),
    "huber": lambda z: (
        F.where(z <= 1.0, z, 2.0 * F.sqrt(F.maximum(z, z * 0.0 + 1.0)) - 1.0),
        F.where(z <= 1.0, z * 0.0 + 1.0, F.maximum(z, z * 0.0 + 1.0) ** -0.5),
        F.where(z <= 1.0, z * 0.0, -0.5 * F.maximum(z, z * 0.0 + 1.0) ** -1.5),
    ),
    "cauchy": lambda z: (F.log1p(z), 1.0 / (1.0 + z), -1.0 / (1.0 + z) ** 2),
    "arctan": lambda z: (F.atan(z), 1.0 / (1.0 + z * z), -2.0 * z / (1.0 + z * z) ** 2),
}


def least_squares(
    f: Callable[..., Any],
    x0: Any,
    args: Any = (),
    *,
    method: str = "lm",
    loss: str = "linear",
    f_scale: float = 1.0,
    ftol: float | None = None,
    xtol: float | None = None,
    gtol: float | None = None,
    maxiter: int | None = None,
    callback: Callable[[Any], Any] | None = None,
) -> OptimizeResult:
    """Find a minimum of ½ Σ C² ρ(rᵢ² / C²) near x0, where the residuals r = f(x, *args) are a tensor or containers of
    them.

    - `method`: "lm" (Levenberg and Marquardt) or "dogleg" (Powell). Both use the exact Jacobian.
    - `loss`: ρ: "linear" (the sum of squares), or "soft_l1", "huber", "cauchy" or "arctan", which reduce the weight
      of residuals above C = `f_scale`.
    - `ftol`, `xtol`, `gtol`: stop when the cost changes by less than `ftol`, x by less than `xtol`, or no element of
      the gradient is above `gtol`.
    - `callback`: `callback(x)` is called after each iteration, and stops it by returning True.

    `result.x` is differentiable with respect to args and what f closes over, by the implicit function theorem;
    `result.cost` is the minimum.

    >>> import wengert as wg
    >>> t = wg.linspace(0.0, 1.0, 20, dtype=wg.float64)
    >>> y = 2.0 * wg.exp(-3.0 * t)
    >>> result = least_squares(lambda p: p["a"] * wg.exp(-p["k"] * t) - y, {"a": 1.0, "k": 1.0})
    >>> round(result.x["a"].item(), 6), round(result.x["k"].item(), 6)
    (2.0, 3.0)
    """
    problem = Problem("least_squares", f, x0, args, scalar=False)
    name = known("least_squares", method, _METHODS)
    if loss not in _LOSSES:
        raise ArgumentError(f"least_squares: loss {loss!r} is unknown; there are {', '.join(_LOSSES)}")
    positive("least_squares", f_scale=f_scale, ftol=ftol, xtol=xtol, gtol=gtol, maxiter=maxiter)
    layout = problem.layout
    goals = Goals(
        ftol=default(layout, 1e-15, 1e-7) if ftol is None else ftol,
        xtol=default(layout, 1e-12, 1e-6) if xtol is None else xtol,
        gtol=default(layout, 1e-10, 1e-5) if gtol is None else gtol,
        most=1000 if maxiter is None else int(maxiter),
        callback=None if callback is None else lambda x: callback(layout.tree(x)),
    )
    with no_grad():
        first = problem.value(problem.x)
        _require_enough(first, layout.size)
        found = search(*_views(problem, loss, float(f_scale)), problem.x, goals, name)
    x, cost = _differentiable(problem, found.iterate, loss, float(f_scale))
    return OptimizeResult(
        x=layout.tree(x),
        fun=problem.derivatives.value(x, *problem.params),
        jac=problem.jacobian(found.iterate.x),
        success=found.status == CONVERGED,
        status=found.status,
        message=found.message,
        nit=found.iterations,
        nfev=problem.nfev,
        njev=problem.njev,
        cost=cost,
        optimality=F.max(F.abs(found.iterate.gradient)).item(),
    )


def _require_enough(residuals: Any, n: int) -> None:
    if int(residuals.shape[0]) < n:
        raise ShapeError(
            f"least_squares: {int(residuals.shape[0])} residuals for {n} unknowns; there must be at least as many residuals"
        )


def total(residuals: Any, scale: Any, loss: str) -> Any:
    """½ Σ C² ρ(r² / C²)."""
    if loss == "linear":
        return 0.5 * F.sum(residuals * residuals)
    ratio = residuals / scale
    return 0.5 * scale * scale * F.sum(_LOSSES[loss](ratio * ratio)[0])


@compile
def _robust(residuals: Any, jacobian: Any, scale: Any, loss: str) -> tuple[Any, Any]:
    """Residuals and Jacobian whose squares have the gradient of the loss, and nearly its curvature (Triggs et al., "Bundle
    adjustment – a modern synthesis", 1999, section 4.3)."""
    ratio = residuals / scale
    _, slope, curvature = _LOSSES[loss](ratio * ratio)
    bent = slope + 2.0 * curvature * ratio * ratio
    weight = F.sqrt(F.maximum(bent, slope * 1e-8 + 1e-30))
    return residuals * (slope / weight), jacobian * F.reshape(weight, (-1, 1))


@compile
def _slope(jacobian: Any, residuals: Any) -> Any:
    return F.matrix_transpose(jacobian) @ residuals


def _views(problem: Problem, loss: str, f_scale: float) -> tuple[Callable[[Any], float], Callable[[Any], Iterate]]:
    """The cost of an iterate, and all that is known of it."""
    scale = number(f_scale, problem.x.dtype)
    last: list[Any] = []  # the residuals of the iterate that was looked at last: it is looked at again once it is taken

    def cost(x: Any) -> float:
        residuals = problem.value(x)
        last[:] = [x, residuals]
        found: float = total(residuals, scale, loss).item()
        return found

    def look(x: Any) -> Iterate:
        residuals = problem.value(x) if not last else last[1]
        value = total(residuals, scale, loss).item()
        jacobian = problem.jacobian(x)
        if loss != "linear":
            residuals, jacobian = _robust(residuals, jacobian, scale, loss)
        return Iterate(x, value, residuals, jacobian, _slope(jacobian, residuals))

    return cost, look


def _differentiable(problem: Problem, iterate: Iterate, loss: str, f_scale: float) -> tuple[Any, Any]:
    """x and the cost as functions of the parameters: the gradient of the cost is zero."""
    scale = number(f_scale, iterate.x.dtype)

    def cost(x: Any, *params: Any) -> Any:
        return total(problem.derivatives.value(x, *params), scale, loss)

    x = problem.differentiable(iterate.x, grad(cost), dense(problem.who, hessian(cost)))
    return x, cost(x, *problem.params)
