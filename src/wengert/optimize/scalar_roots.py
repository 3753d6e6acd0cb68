"""The public function `root_scalar`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert import functional as F
from wengert._core import Tensor
from wengert.compiling.compile import compile
from wengert.dtypes import float64, result_type
from wengert.errors import ArgumentError, ShapeError
from wengert.modes import no_grad
from wengert.numerics.brent import brent
from wengert.numerics.functions import numbers_of
from wengert.numerics.implicit import diagonal
from wengert.numerics.scalars import vector
from wengert.optimize.descent import largest
from wengert.optimize.problem import Problem, default, known, positive
from wengert.optimize.result import CONVERGED, NOT_A_NUMBER, OUT_OF_ITERATIONS, OptimizeResult
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import ones_like
from wengert.transforms.functional import jvp

_METHODS = ("brentq", "bisect", "newton")


def root_scalar(
    f: Callable[..., Any],
    args: Any = (),
    method: str | None = None,
    *,
    bracket: tuple[Any, Any] | None = None,
    x0: Any = None,
    xtol: float | None = None,
    rtol: float | None = None,
    maxiter: int | None = None,
) -> OptimizeResult:
    """A zero of a function of one number, f(x, *args), or of many such functions at once.

    `bracket` is a pair of places where f has different signs: `brentq` (Brent's method) finds the zero between them, or
    `bisect` (halving), which is the default for arrays. `x0` is a place to start from, for `newton`. Where bracket, x0
    or args are arrays, f must act on each element by itself. The error of x is at most `xtol` + `rtol`·|x|.

    `result.x` is differentiable with respect to args and what f closes over: x' = −(∂f/∂p) / (∂f/∂x).

    >>> import wengert as wg
    >>> cube_root = lambda a: root_scalar(lambda x, a: x**3 - a, (a,), bracket=(0.0, 10.0)).x
    >>> a = wg.tensor(8.0, dtype=wg.float64)
    >>> round(cube_root(a).item(), 6), round(wg.grad(cube_root)(a).item(), 6)
    (2.0, 0.083333)
    """
    if (bracket is None) == (x0 is None):
        raise ArgumentError("root_scalar: takes a bracket (a, b), or x0 to start from")
    ends = None if bracket is None else _ends(bracket)
    problem = Problem("root_scalar", f, x0 if ends is None else ends[0], args, scalar=False)
    layout = problem.layout
    if method is None:
        method = "newton" if ends is None else "brentq" if layout.size == 1 else "bisect"
    name = known("root_scalar", method, _METHODS)
    if (name == "newton") != (ends is None):
        raise ArgumentError(f"root_scalar: method {method!r} takes {'x0' if name == 'newton' else 'a bracket'}")
    if name == "brentq" and layout.size > 1:
        raise ArgumentError(f"root_scalar: 'brentq' finds one zero, and the bracket has {layout.size}; use 'bisect'")
    positive("root_scalar", xtol=xtol, rtol=rtol, maxiter=maxiter)
    absolute, relative = (default(layout, 4e-16, 2e-7) if tol is None else float(tol) for tol in (xtol, rtol))
    with no_grad():
        _require_elements(problem)
        if ends is None:
            x, status, k = _newton(problem, absolute, relative, 100 if maxiter is None else int(maxiter))
        else:
            low, high = (F.reshape(e, (-1,)) for e in ends)
            values = _signs(problem, low, high)
            most = 200 if maxiter is None else int(maxiter)
            run = _bisect if name == "bisect" else _brent
            x, status, k = run(problem, low, high, values, absolute, relative, most)
        value = problem.value(x)
    message = {
        CONVERGED: "the place is known to the tolerances",
        OUT_OF_ITERATIONS: f"{k} iterations were used up",
        NOT_A_NUMBER: f"f gave NaN or infinity, or its slope is zero, after {k} iterations",
    }[status]
    if status == CONVERGED:
        x = problem.differentiable(x, problem.derivatives.value, diagonal(problem.derivatives.value))
    return OptimizeResult(
        x=layout.tree(x), fun=layout.tree(value), success=status == CONVERGED, status=status, message=message,
        nit=k, nfev=problem.nfev,
    )  # fmt: skip


def _ends(bracket: Any) -> tuple[Any, Any]:
    if not isinstance(bracket, (tuple, list)) or len(bracket) != 2:
        raise ArgumentError("root_scalar: the bracket must be a pair (a, b) of numbers or arrays")
    given = [numbers_of(e) if isinstance(e, Tensor) else asarray(np.asarray(e, np.float64)) for e in bracket]
    typed = [e.dtype for e, b in zip(given, bracket) if isinstance(b, Tensor)]
    dtype = result_type(*typed) if typed else float64
    shape = np.broadcast_shapes(*(tuple(e.shape) for e in given))
    low, high = (F.broadcast_to(F.astype(e, dtype), shape) for e in given)
    return low, high


def _require_elements(problem: Problem) -> None:
    n = int(problem.value(problem.x).shape[0])
    if n != problem.layout.size:
        raise ShapeError(
            f"root_scalar: f returned {n} numbers for {problem.layout.size}; it must act on each by itself"
        )


def _signs(problem: Problem, low: Any, high: Any) -> tuple[Any, Any]:
    at_low, at_high = problem.value(low), problem.value(high)
    same = np.asarray((at_low * at_high).numpy()) > 0.0
    if same.any():
        k = int(np.argmax(same))
        a, b, fa, fb = (float(v[k]) for v in (low, high, at_low, at_high))
        which = f" of element {k}" if problem.layout.size > 1 else ""
        raise ArgumentError(
            f"root_scalar: f must have different signs at both ends of the bracket{which}, got f({a:g}) = {fa:g} and "
            f"f({b:g}) = {fb:g}"
        )
    return at_low, at_high


def _brent(
    problem: Problem, low: Any, high: Any, values: tuple[Any, Any], xtol: float, rtol: float, most: int
) -> tuple[Any, int, int]:
    before = problem.nfev

    def value(x: float) -> float:
        found: float = problem.value(vector((x,), low.dtype))[0].item()
        return found

    at = (values[0][0].item(), values[1][0].item())
    x = vector((brent(value, (low[0].item(), high[0].item()), at, xtol, rtol, most),), low.dtype)
    used = problem.nfev - before
    return x, CONVERGED if used < most else OUT_OF_ITERATIONS, used


def _bisect(
    problem: Problem, low: Any, high: Any, values: tuple[Any, Any], xtol: float, rtol: float, most: int
) -> tuple[Any, int, int]:
    at_low = values[0]
    for k in range(most):
        middle = 0.5 * (low + high)
        if _width(low, high, middle, xtol, rtol):
            return middle, CONVERGED, k
        low, high, at_low = _halved(low, high, at_low, middle, problem.value(middle))
    return 0.5 * (low + high), OUT_OF_ITERATIONS, most


def _width(low: Any, high: Any, middle: Any, xtol: float, rtol: float) -> bool:
    return bool(F.all(F.abs(high - low) <= xtol + 4.0 * rtol * F.abs(middle)))


@compile
def _halved(low: Any, high: Any, at_low: Any, middle: Any, value: Any) -> tuple[Any, Any, Any]:
    """The half in which the sign changes; both ends at the middle where that is a zero."""
    left = at_low * value <= 0.0
    exact = value == 0.0
    return (
        F.where(F.logical_and(left, F.logical_not(exact)), low, middle),
        F.where(left, middle, high),
        F.where(left, at_low, value),
    )


def _newton(problem: Problem, xtol: float, rtol: float, most: int) -> tuple[Any, int, int]:
    x = problem.x
    for k in range(most):
        problem.nfev += 1
        value, slope = jvp(lambda x: problem.derivatives.value(x, *problem.plain), (x,), (ones_like(x),))
        value, slope = numbers_of(value), numbers_of(slope)
        step = F.where(value == 0.0, value, value / slope)
        if not np.isfinite(step.numpy()).all():
            return x, NOT_A_NUMBER, k
        x = x - step
        if largest(F.abs(step) / (xtol + 4.0 * rtol * F.abs(x))) <= 1.0:
            return x, CONVERGED, k + 1
    return x, OUT_OF_ITERATIONS, most
