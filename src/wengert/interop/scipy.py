"""SciPy's optimizers with exact derivatives, over unknowns in nested containers.

Unknowns are computed in float64, in which SciPy works, and come back in float64 in the containers of `x0`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert import functional as F
from wengert._core import Tensor
from wengert.dtypes import float64
from wengert.errors import ArgumentError, DTypeError, GradientError
from wengert.foreign_names import MissingName
from wengert.modes import no_grad
from wengert.tensors.conversion import asarray
from wengert.transforms.colouring import Sparsity
from wengert.transforms.functional import hvp, value_and_grad
from wengert.transforms.jacobian import hessian, jacobian
from wengert.transforms.replay import dependence
from wengert.transforms.sparse import SparseDerivative
from wengert.transforms.sparsity import detect, detect_hessian
from wengert.tree import flatten, leaves_like, unflatten

_TAKE_SPARSE = ("trust-constr", "newton-cg")  # of the methods of `minimize`
# What a method takes beside the gradient; methods that are not here take no derivative.
_BY_METHOD = {
    "cg": "", "bfgs": "", "l-bfgs-b": "", "tnc": "", "slsqp": "",
    "newton-cg": "hvp", "trust-ncg": "hvp", "trust-krylov": "hvp", "trust-constr": "hvp",
    "dogleg": "hessian", "trust-exact": "hessian",
}  # fmt: skip
_WITH_JACOBIAN = ("hybr", "lm")


__all__ = [
    "least_squares",
    "minimize",
    "root",
]


class _Unknowns:
    """Nested containers of numbers as one vector, and back."""

    def __init__(self, x0: Any, who: str) -> None:
        self.who = who
        if type(x0) in (list, tuple) and all(isinstance(x, (int, float, np.number)) for x in x0):
            x0 = np.array(x0, np.float64)  # a vector, as SciPy reads it
        leaves, self.structure = flatten(x0)
        arrays = [np.asarray(x.detach() if isinstance(x, Tensor) else x) for x in leaves]
        for a in arrays:
            if a.dtype.kind not in "biuf" and a.dtype.name != "bfloat16":
                raise DTypeError(f"{who}: unknowns must be real numbers, got {a.dtype}")
        self.shapes = [a.shape for a in arrays]
        self.start = np.concatenate([a.astype(np.float64).ravel() for a in arrays]) if arrays else np.zeros(0)
        self.single = self.structure.is_leaf
        if not self.start.size:
            raise ArgumentError(f"{who}: there are no unknowns in x0")

    def tree(self, vector: Any) -> Any:
        """The containers, filled from a vector; differentiable."""
        v = vector if isinstance(vector, Tensor) else asarray(np.asarray(vector, np.float64).copy())
        parts, at = [], 0
        for shape in self.shapes:
            n = math.prod(shape)
            parts.append(F.reshape(v[at : at + n], shape))
            at += n
        return unflatten(self.structure, parts)

    def vector(self, tree: Any, who: str) -> Any:
        """A vector from containers of this structure, or from one number for all."""
        if isinstance(tree, (int, float)):
            return np.full(self.start.shape, float(tree))
        leaves = [tree] if self.single else leaves_like(tree, self.structure, f"{self.who}: {who}")
        return np.concatenate([np.broadcast_to(np.asarray(x, float), s).ravel() for x, s in zip(leaves, self.shapes)])

    def function(self, f: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
        """f as a function of the vector."""

        def of_vector(v: Tensor) -> Any:
            y = f(self.tree(v), *args)
            if y is None:
                raise ArgumentError(f"{self.who}: the function returned None. Is its `return` missing?")
            return y

        return of_vector


def _point(v: Any) -> Tensor:
    return asarray(np.array(v, np.float64))


def _outputs(y: Any) -> Any:
    """All outputs of a function in one vector of float64."""
    leaves = [x if isinstance(x, Tensor) else asarray(x) for x in flatten(y)[0]]
    return F.concat([F.reshape(F.astype(x, float64), (-1,)) for x in leaves])


def _optimize() -> Any:
    try:
        import scipy.optimize
    except ImportError:
        raise ImportError("wengert.scipy needs SciPy: pip install 'wengert[scipy]'") from None
    return scipy.optimize


def minimize(
    f: Callable[..., Any],
    x0: Any,
    args: Sequence[Any] = (),
    method: str | None = None,
    *,
    bounds: Any = None,
    constraints: Any = (),
    callback: Callable[..., Any] | None = None,
    sparse: bool = False,
    **options: Any,
) -> Any:
    """`scipy.optimize.minimize` with the gradient, and the Hessian or its products where the method takes them, exact.

    f(x, *args) returns a scalar; x0 is a tensor, an array, a number, or nested containers of them, and `result.x` and
    `result.jac` have its structure; a list of numbers is a vector. `bounds`: for containers, a pair (lower, upper) of
    numbers or containers like x0; for a single array, SciPy's own forms. Constraints are SciPy's; their functions take what
    f takes, and their Jacobians are exact too. With `sparse=True` "trust-constr" and "Newton-CG" get the Hessian,
    and "trust-constr" also the derivatives of constraints, as sparse matrices (docs/sparsity.md). Options go to SciPy.

    >>> import wengert as wg
    >>> f = lambda x: 100.0 * (x["b"] - x["a"] ** 2) ** 2 + (1.0 - x["a"]) ** 2
    >>> result = minimize(f, {"a": -1.2, "b": 1.0}, method="trust-ncg")
    >>> round(result.x["a"].item(), 4), round(result.x["b"].item(), 4)
    (1.0, 1.0)
    """
    unknowns = _Unknowns(x0, "minimize")
    flat = unknowns.function(f, args)
    derivatives = _derivatives(flat, method)
    if sparse:
        if str(method).lower() not in _TAKE_SPARSE:
            raise ArgumentError(
                f"minimize: with sparse=True the method must be 'trust-constr' or 'Newton-CG', got {method!r}"
            )
        derivatives.pop("hessp")
        derivatives["hess"] = _sparse("hessian", lambda v: _scalar(flat(v)), f)
    given = {
        "bounds": bounds if bounds is None or unknowns.single else _bounds(unknowns, bounds),
        "constraints": _constraints(unknowns, constraints, args, sparse) if constraints else (),
        "callback": None if callback is None else lambda v, *rest: callback(unknowns.tree(v), *rest),
    }
    result = _optimize().minimize(
        derivatives.pop("fun"), unknowns.start, method=method, **derivatives, **given, **options
    )
    return _finished(result, unknowns, ("x", "jac"))


def _derivatives(flat: Callable[[Tensor], Any], method: str | None) -> dict[str, Any]:
    with_gradient = value_and_grad(lambda v: _scalar(flat(v)))

    def value(v: Any) -> float:
        with no_grad():
            return float(_scalar(flat(_point(v))))

    def both(v: Any) -> tuple[float, Any]:
        y, g = with_gradient(_point(v))
        return float(y), np.array(g.numpy())

    kind = "" if method is None else _BY_METHOD.get(method.lower(), "none")
    if kind == "none":
        return {"fun": value}
    found: dict[str, Any] = {"fun": both, "jac": True}
    if kind == "hvp":
        found["hessp"] = lambda v, d, *_: np.array(hvp(lambda x: _scalar(flat(x)), _point(v), _point(d)).numpy())
    elif kind == "hessian":
        found["hess"] = lambda v, *_: np.array(hessian(lambda x: _scalar(flat(x)))(_point(v)).numpy())
    return found


def _scalar(y: Any) -> Tensor:
    t = y if isinstance(y, Tensor) else asarray(y)
    if t.size != 1 or not t.dtype.is_floating:
        raise GradientError(
            f"minimize: the function must return one real floating number, got {t.dtype.name}{tuple(t.shape)}; reduce it "
            "(sum, mean), or use least_squares for a vector of residuals"
        )
    return F.reshape(F.astype(t, float64), ())


def _bounds(unknowns: _Unknowns, bounds: Any) -> Any:
    """A pair (lower, upper) as SciPy takes it."""
    optimize = _optimize()
    if isinstance(bounds, optimize.Bounds):
        return bounds
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        raise ArgumentError("bounds must be a pair (lower, upper), each a number, None, or containers like x0")
    lower, upper = (
        np.full(unknowns.start.shape, fill) if b is None else unknowns.vector(b, "bounds")
        for b, fill in zip(bounds, (-np.inf, np.inf))
    )
    return optimize.Bounds(lower, upper)


def _constraints(unknowns: _Unknowns, constraints: Any, args: Sequence[Any], sparse: bool) -> list[Any]:
    optimize = _optimize()
    listed = constraints if isinstance(constraints, (list, tuple)) else [constraints]
    made = []
    for c in listed:
        if isinstance(c, dict):
            fun, jac = _with_jacobian(unknowns.function(c["fun"], c.get("args", ())))
            made.append({"type": c["type"], "fun": fun, "jac": c.get("jac", jac)})
        elif isinstance(c, optimize.NonlinearConstraint):
            flat = unknowns.function(c.fun, ())
            fun, jac = _with_jacobian(flat)
            exact: dict[str, Any] = {"jac": jac, "hess": functools.partial(_curvature, flat)}
            if sparse:
                exact = _sparse_constraint(flat, c.fun)
            made.append(optimize.NonlinearConstraint(fun, c.lb, c.ub, **exact, keep_feasible=c.keep_feasible))
        else:
            made.append(c)
    return made


def _with_jacobian(flat: Callable[[Tensor], Any]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    def value(v: Any) -> Any:
        with no_grad():
            return np.array(_outputs(flat(_point(v))).numpy())

    def slope(v: Any) -> Any:
        return np.array(jacobian(lambda x: _outputs(flat(x)))(_point(v)).numpy())

    return value, slope


def _curvature(flat: Callable[[Tensor], Any], v: Any, weights: Any) -> Any:
    """Σ wᵢ ∇²cᵢ."""
    w = _point(weights)
    return np.array(hessian(lambda x: F.sum(_outputs(flat(x)) * w))(_point(v)).numpy())


def _sparse(what: str, flat: Callable[..., Any], f: Any, sparsity: Any = None) -> Callable[..., Any]:
    """A sparse derivative as a function of a vector, and of others that go with it. `flat` only adapts f.

    The pattern of a function that might change between calls is found once: a solver takes it for the same.
    """
    kind = "symmetric" if what == "hessian" else "auto"
    derivative: Any = None

    def at(v: Any, *others: Any) -> Any:
        nonlocal derivative
        given = (_point(v), *map(_point, others))
        if derivative is None:
            pattern = sparsity
            if pattern is None and dependence(f) is None:
                found = (detect_hessian if what == "hessian" else detect)(flat, given, {}, 0, what)
                pattern = Sparsity(found.sets)
            derivative = SparseDerivative(flat, what=what, kind=kind, given=pattern, source=f)
        return derivative(*given)

    return at


def _sparse_constraint(flat: Callable[..., Any], f: Any) -> dict[str, Any]:
    weighted = lambda v, w: F.sum(_outputs(flat(v)) * w)
    return {
        "jac": _sparse("jacobian", lambda v: _outputs(flat(v)), f),
        "hess": _sparse("hessian", weighted, f),
    }


def least_squares(
    f: Callable[..., Any],
    x0: Any,
    args: Sequence[Any] = (),
    *,
    bounds: Any = None,
    sparse: bool = False,
    sparsity: Any = None,
    **options: Any,
) -> Any:
    """`scipy.optimize.least_squares` with the exact Jacobian. f returns residuals: a tensor, or containers of them.

    `bounds`: a pair (lower, upper) of numbers or of containers like x0. With `sparse=True`, or a pattern in `sparsity`, the
    Jacobian is sparse, and the method, "trf" or "dogbox", solves with `lsmr` (docs/sparsity.md). Other options (`method`,
    `loss`) go to SciPy.

    >>> import numpy as np, wengert as wg
    >>> t = wg.linspace(0.0, 1.0, 20)
    >>> y = 2.0 * wg.exp(-3.0 * t)
    >>> result = least_squares(lambda p: p["a"] * wg.exp(-p["k"] * t) - y, {"a": 1.0, "k": 1.0})
    >>> round(result.x["a"].item(), 3), round(result.x["k"].item(), 3)
    (2.0, 3.0)
    """
    unknowns = _Unknowns(x0, "least_squares")
    flat = unknowns.function(f, args)
    fun, jac = _with_jacobian(flat)
    if sparse or sparsity is not None:
        if options.get("method") == "lm":
            raise ArgumentError("least_squares: the method 'lm' takes no sparse Jacobian; use 'trf' or 'dogbox'")
        jac = _sparse("jacobian", lambda v: _outputs(flat(v)), f, sparsity)
    given = {} if bounds is None else {"bounds": _bounds(unknowns, bounds)}
    result = _optimize().least_squares(fun, unknowns.start, jac=jac, **given, **options)
    return _finished(result, unknowns, ("x", "grad"))


def root(
    f: Callable[..., Any],
    x0: Any,
    args: Sequence[Any] = (),
    method: str | None = None,
    *,
    sparse: bool = False,
    sparsity: Any = None,
    **options: Any,
) -> Any:
    """`scipy.optimize.root` with the exact Jacobian where the method takes one: f(x) = 0, as many equations as unknowns.

    The method is "hybr" if none is given. With `sparse=True`, or a pattern in `sparsity`, it is "krylov", which is
    preconditioned by the factors of the exact sparse Jacobian: Newton's method, for many unknowns (docs/sparsity.md).

    >>> import wengert as wg
    >>> result = root(lambda x: (x[0] + x[1] - 3.0, x[0] * x[1] - 2.0), (0.0, 5.0))
    >>> round(result.x[0].item(), 6), round(result.x[1].item(), 6)
    (1.0, 2.0)
    """
    unknowns = _Unknowns(x0, "root")
    fun, jac = _with_jacobian(unknowns.function(f, args))
    n = fun(unknowns.start).size
    if n != unknowns.start.size:
        raise ArgumentError(
            f"root: {n} equations for {unknowns.start.size} unknowns; least_squares takes other numbers"
        )
    given: dict[str, Any] = {}
    if sparse or sparsity is not None:
        if method not in (None, "krylov"):
            raise ArgumentError(f"root: with sparse=True the method must be 'krylov', got {method!r}")
        method, flat = "krylov", unknowns.function(f, args)
        slope = _sparse("jacobian", lambda v: _outputs(flat(v)), f, sparsity)
        asked = options.pop("options", {})
        inner = {"inner_M": _factored(slope, unknowns.start), **asked.get("jac_options", {})}
        given["options"] = {**asked, "jac_options": inner}
    method = method or "hybr"
    if method in _WITH_JACOBIAN:
        given["jac"] = jac
    result = _optimize().root(fun, unknowns.start, method=method, **given, **options)
    return _finished(result, unknowns, ("x",))


def _factored(slope: Callable[[Any], Any], start: Any) -> Any:
    """The inverse of a sparse Jacobian as an operator, which SciPy tells to go to the next point."""
    import scipy.sparse.linalg

    class Factored(scipy.sparse.linalg.LinearOperator):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(np.dtype(np.float64), (start.size, start.size))
            self.update(start, None)

        def update(self, x: Any, _: Any) -> None:
            self.factors = scipy.sparse.linalg.splu(slope(x).tocsc())

        def _matvec(self, v: Any) -> Any:
            return self.factors.solve(np.asarray(v).ravel())

    return Factored()


def _finished(result: Any, unknowns: _Unknowns, names: Sequence[str]) -> Any:
    for name in names:
        value = result.get(name)
        if isinstance(value, np.ndarray) and value.shape == unknowns.start.shape:
            result[name] = unknowns.tree(value)
    return result


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    raise MissingName(__name__, name)
