"""Solutions of equations as differentiable functions: `root`, `fixed_point`, `argmin`.

What is found depends on the further arguments p of the function by the implicit function theorem: where F(x, p) = 0,
dx = −(∂F/∂x)⁻¹ ∂F/∂p dp. Nothing of the search is recorded. The derivatives exist in both modes and at every order, and need
products with ∂F/∂x only. `wengert.optimize` has the same searches with all that they can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert import tree
from wengert._core import Tensor
from wengert.errors import ArgumentError, LinAlgError, SolverError
from wengert.modes import no_grad
from wengert.numerics.functions import numbers_of
from wengert.numerics.implicit import LinearSolver, dense, matrix_free
from wengert.numerics.krylov import METHODS
from wengert.optimize import descent
from wengert.optimize.problem import Problem, default, known, positive
from wengert.optimize.result import CONVERGED
from wengert.optimize.roots import _trust_region
from wengert.tensors.conversion import asarray

_SOLVERS = ("auto", "dense", *METHODS)
_DENSE = 100  # unknowns up to which "auto" forms matrices
_HISTORY = 5  # steps that Anderson's acceleration looks back
_HALVINGS = 25
_POLISHING = 5  # Newton's steps at most


def root(
    f: Callable[..., Any],
    x0: Any,
    *args: Any,
    solver: str = "auto",
    tol: float | None = None,
    maxiter: int | None = None,
) -> Any:
    """Find a zero x of f(x, *args) near x0, differentiable with respect to args and, in reverse mode, what f closes
    over.

    - `x0`: a tensor or a container; f returns as many numbers as it holds.
    - `solver`: for linear systems with ∂f/∂x, in the search and for derivatives: "dense" (LU), "gmres", "bicgstab" or
      "cg" (symmetric matrices), which only need products, or "auto": dense up to 100 unknowns, "gmres" above.

    Raises SolverError, which reports the residual, if some element of f stays above `tol` or a linear system cannot
    be solved.

    >>> import wengert as wg
    >>> sqrt = lambda a: root(lambda x, a: x * x - a, wg.ones((2,)), a)
    >>> a = wg.tensor([4.0, 9.0])
    >>> sqrt(a).tolist(), wg.grad(lambda a: sqrt(a).sum())(a).tolist()
    ([2.0, 3.0], [0.25, 0.1666...])
    """
    problem = Problem("implicit.root", f, x0, args, scalar=False)
    return _solved(problem, solver, tol, maxiter, _search_root)


def fixed_point(
    f: Callable[..., Any],
    x0: Any,
    *args: Any,
    solver: str = "auto",
    tol: float | None = None,
    maxiter: int | None = None,
) -> Any:
    """A fixed point x = f(x, *args), by iteration from x0, with Anderson's acceleration; differentiable as `root` is.

    f returns what is like x0. The derivative solves with 1 − ∂f/∂x, by `solver`. Raises SolverError, with the residual,
    where no element of f(x) − x comes below `tol` in `maxiter` (500) iterations.

    >>> import wengert as wg
    >>> a = wg.tensor(2.0)
    >>> x, slope = wg.jvp(lambda a: fixed_point(lambda x, a: 0.5 * (x + a / x), 1.0, a), (a,), (1.0,))
    >>> round(x.item(), 6), round(slope.item(), 6)
    (1.414214, 0.353553)
    """

    def residual(x: Any, *rest: Any) -> Any:
        y = f(x, *rest)
        if y is None:
            return None
        leaves, structure = tree.flatten(x)
        made = tree.leaves_like(y, structure, "implicit.fixed_point: what f returns")
        for a, b in zip(made, leaves):
            if isinstance(a, Tensor) and tuple(a.shape) != tuple(b.shape):
                raise ArgumentError(
                    f"implicit.fixed_point: f must return what is like x0, got shape {tuple(a.shape)} for {tuple(b.shape)}"
                )
        return tree.unflatten(structure, [a - b for a, b in zip(made, leaves)])

    problem = Problem("implicit.fixed_point", residual, x0, args, scalar=False)
    return _solved(problem, solver, tol, maxiter, _iterate)


def argmin(
    f: Callable[..., Any],
    x0: Any,
    *args: Any,
    solver: str = "auto",
    tol: float | None = None,
    maxiter: int | None = None,
) -> Any:
    """A minimum x of f(x, *args) near x0, by BFGS (L-BFGS above 400 unknowns); differentiable as `root` is.

    The gradient is zero there, so the derivative solves with the Hessian, by `solver`; "auto" is dense up to 100 unknowns,
    then "cg". Raises SolverError, with the largest element of the gradient, where that does not come below `tol`, and where
    the search ended at a saddle point or a maximum, as it does where it begins on one (above 100 unknowns, that is seen
    along one random direction only).

    >>> import wengert as wg
    >>> nearest = lambda a: argmin(lambda x, a: ((x - a) ** 2).sum() + (x**4).sum(), wg.zeros((2,)), a)
    >>> wg.jacobian(nearest)(wg.tensor([1.0, 2.0])).diagonal().round(decimals=3)
    tensor([0.324, 0.193])
    """
    problem = Problem("implicit.argmin", f, x0, args, scalar=True)
    name = known(problem.who, solver, _SOLVERS)
    positive(problem.who, tol=tol, maxiter=maxiter)
    layout, derivatives = problem.layout, problem.derivatives
    search = descent.Search(
        problem,
        tolerance=default(layout, 1e-8, 1e-4) if tol is None else float(tol),
        most=1000 if maxiter is None else int(maxiter),
        callback=None,
    )
    is_dense = name == "dense" or (name == "auto" and layout.size <= _DENSE)
    if is_dense:
        linear = dense(problem.who, derivatives.hessian)
    else:
        linear = matrix_free(
            lambda v, x, params, transposed: derivatives.product(v, x, *params),
            _finder(problem, "cg" if name == "auto" else name),
        )
    with no_grad():
        found = (descent.bfgs if layout.size <= 400 else descent.lbfgs)(search)
        x, size = _polished(problem, found.x, search.tolerance, linear)
    if not size <= search.tolerance:
        raise SolverError(
            f"implicit.argmin: {found.message}; the largest element of the gradient is {size:.3g}, and tol is "
            f"{search.tolerance:g}. Begin nearer, or raise maxiter or tol"
        )
    with no_grad():
        _require_minimum(problem, x, is_dense)
    return layout.tree(problem.differentiable(x, derivatives.gradient, linear))


def _require_minimum(problem: Problem, x: Any, is_dense: bool) -> None:
    """Raise if the Hessian is seen to have a negative eigenvalue; of a large one only products with it are seen."""
    derivatives, eps = problem.derivatives, float(np.finfo(problem.layout.dtype.to_numpy()).eps)
    if is_dense:
        h = derivatives.hessian(x, *problem.plain).numpy().astype(float)
        eigenvalues = np.linalg.eigvalsh(0.5 * (h + h.T)) if np.isfinite(h).all() else np.zeros(1)
        lowest, scale = float(eigenvalues[0]), float(np.abs(eigenvalues).max())
    else:
        v = np.random.default_rng(0).standard_normal(x.shape)
        v /= np.linalg.norm(v)
        product = derivatives.product(asarray(v).astype(x.dtype), x, *problem.plain).numpy().astype(float)
        lowest, scale = float(v @ product), float(np.linalg.norm(product))
    if lowest < -np.sqrt(eps) * scale:
        raise SolverError(
            f"implicit.argmin: the gradient is zero, but f has no minimum there: its curvature is {lowest:.3g} along a "
            "direction. Begin elsewhere; for a saddle point, or a maximum, use implicit.root of the gradient"
        )


def _polished(problem: Problem, x: Any, tolerance: float, linear: LinearSolver) -> tuple[Any, float]:
    """x after Newton's steps, as long as the gradient falls, and its largest element.

    A search by values ends where they do not change any more, at about the square root of their precision.
    """
    gradient = problem.derivatives.gradient(x, *problem.plain)
    size = _largest(gradient)
    for _ in range(_POLISHING):
        if size <= tolerance or not np.isfinite(size):
            break
        try:
            moved = x - linear(gradient, x, problem.plain, False)
        except (LinAlgError, SolverError):
            break
        new = problem.derivatives.gradient(moved, *problem.plain)
        if not _largest(new) < 0.5 * size:
            break
        x, gradient, size = moved, new, _largest(new)
    return x, size


Search = Callable[[Problem, str, float, int], Any]


def _solved(problem: Problem, solver: str, tol: float | None, maxiter: int | None, search: Search) -> Any:
    """The zero of the problem that a search finds, in its containers, with its derivatives."""
    name = known(problem.who, solver, _SOLVERS)
    positive(problem.who, tol=tol, maxiter=maxiter)
    layout, derivatives = problem.layout, problem.derivatives
    if name == "auto":
        name = "dense" if layout.size <= _DENSE else "gmres"
    tolerance = default(layout, 1e-10, 1e-5) if tol is None else float(tol)
    with no_grad():
        n = int(problem.value(problem.x).shape[0])
        if n != layout.size:
            raise ArgumentError(f"{problem.who}: f returned {n} numbers for {layout.size} unknowns")
        x = search(problem, name, tolerance, 500 if maxiter is None else int(maxiter))
    linear: LinearSolver
    if name == "dense":
        linear = dense(problem.who, derivatives.jacobian)
    else:
        linear = matrix_free(
            lambda v, x, params, transposed: (derivatives.pull if transposed else derivatives.push)(v, x, *params),
            _finder(problem, name),
        )
    return layout.tree(problem.differentiable(x, derivatives.value, linear))


def _finder(problem: Problem, name: str) -> Callable[[Callable[[Any], Any], Any], Any]:
    """The solution of A u = b by products with A, or an error that says how far it came."""
    tolerance = default(problem.layout, 1e-11, 1e-5)

    def find(product: Callable[[Any], Any], b: Any) -> Any:
        found = METHODS[name](lambda v: numbers_of(product(asarray(v))).numpy(), b.numpy(), tolerance, 20 * len(b))
        if found.residual > 100.0 * tolerance:
            raise SolverError(
                f"{problem.who}: {name} did not solve the linear system of the derivative: after {found.products} products "
                f"the residual is {found.residual:.3g} of the right side. The matrix may be singular there, or, for cg, not "
                "positive definite; other solvers are " + ", ".join(s for s in _SOLVERS[1:] if s != name)
            )
        return asarray(found.x)

    return find


def _largest(x: Any) -> float:
    return float(np.abs(x.numpy()).max(initial=0.0))


def _refuse(problem: Problem, what: str, size: float, tolerance: float) -> SolverError:
    return SolverError(
        f"{problem.who}: {what}; the largest residual is {size:.3g}, and tol is {tolerance:g}. Begin nearer, "
        "or raise maxiter or tol"
    )


def _search_root(problem: Problem, name: str, tolerance: float, most: int) -> Any:
    if name != "dense":
        return _newton_krylov(problem, name, tolerance, most)
    found = _trust_region(problem, tolerance, most, None, "dogleg")
    if found.status != CONVERGED:
        raise _refuse(problem, found.message, _largest(problem.value(found.x)), tolerance)
    return found.x


def _newton_krylov(problem: Problem, name: str, tolerance: float, most: int) -> Any:
    """Newton's steps, solved as far as they are worth it, and shortened until |f| falls (Eisenstat & Walker, 1996)."""
    x, y = problem.x, problem.value(problem.x)
    forcing = 0.1
    for _ in range(most):
        size = _largest(y)
        if size <= tolerance:
            return x
        push = problem.derivatives.push
        at = x
        products: Callable[[Any], Any] = lambda v: numbers_of(push(asarray(v), at, *problem.plain)).numpy()  # noqa: B023
        step = asarray(METHODS[name](products, -y.numpy(), forcing, 20 * len(y)).x)
        before, t = float(np.linalg.norm(y.numpy())), 1.0
        for _ in range(_HALVINGS):
            moved = x + step * t
            value = problem.value(moved)
            after = float(np.linalg.norm(value.numpy()))
            if after <= (1.0 - 1e-4 * t) * before:
                break
            t *= 0.5
        else:
            raise _refuse(problem, "no step helps any more", size, tolerance)
        forcing = min(0.1, max(0.9 * (after / before) ** 2, 1e-10))
        x, y = moved, value
    if _largest(y) <= tolerance:
        return x
    raise _refuse(problem, f"maxiter={most} iterations were used up", _largest(y), tolerance)


def _iterate(problem: Problem, name: str, tolerance: float, most: int) -> Any:
    """x ← f(x), mixed with earlier steps so that the residual would be smallest if f were linear (Anderson, 1965)."""
    x = problem.x.numpy().astype(float)
    xs: list[Any] = []
    residuals: list[Any] = []
    size = float("inf")
    for k in range(most):
        r = problem.value(asarray(x.astype(problem.x.numpy().dtype))).numpy().astype(float)
        size = float(np.abs(r).max(initial=0.0))
        if size <= tolerance:
            return asarray(x.astype(problem.x.numpy().dtype))
        if not np.isfinite(size):
            raise _refuse(problem, f"f gave NaN or infinity after {k} iterations", size, tolerance)
        xs, residuals = [*xs[-_HISTORY:], x], [*residuals[-_HISTORY:], r]
        x = x + r
        if len(xs) > 1:
            changes = np.diff(np.array(residuals), axis=0).T
            mix = np.linalg.lstsq(changes, r, rcond=None)[0]
            x = x - (np.diff(np.array(xs), axis=0).T + changes) @ mix
    raise _refuse(problem, f"maxiter={most} iterations were used up", size, tolerance)


__all__ = ["argmin", "fixed_point", "root"]


def __dir__() -> Sequence[str]:
    return __all__
