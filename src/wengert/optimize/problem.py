"""What is to be solved: a function of one vector, its derivatives as compiled functions, and what its solution depends
on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert import functional as F
from wengert import tree
from wengert._core import Tensor
from wengert.compiling.compile import compile
from wengert.dtypes import float64
from wengert.errors import ArgumentError, GradientError, ShapeError, TraceError
from wengert.modes import no_grad
from wengert.numerics.arguments import Arguments
from wengert.numerics.functions import Cache, as_function, is_differentiated, numbers_of
from wengert.numerics.implicit import LinearSolver, implicit
from wengert.numerics.vectors import Layout
from wengert.program.trace import tracing
from wengert.tensors.conversion import asarray
from wengert.transforms.functional import differentiate_backwards, grad, jvp, value_and_grad
from wengert.transforms.jacobian import hessian, jacfwd

_CACHE = Cache()


class Derivatives:
    """A function of a vector with its derivatives: f(x, *params), of a number or of a vector."""

    def __init__(self, f: Callable[..., Any], wrap: Callable[[Any], Any]) -> None:
        """`wrap` compiles a function, or leaves it."""

        def along(t: Any, x: Any, d: Any, *params: Any) -> Any:
            moved = x + t * d
            value, gradient = value_and_grad(f)(moved, *params)
            return moved, value, gradient, F.sum(gradient * d)

        def product(v: Any, x: Any, *params: Any) -> Any:
            return jvp(lambda x: grad(f)(x, *params), (x,), (v,))[1]

        def push(v: Any, x: Any, *params: Any) -> Any:
            return jvp(lambda x: f(x, *params), (x,), (v,))[1]

        def pull(v: Any, x: Any, *params: Any) -> Any:
            return differentiate_backwards(lambda x: f(x, *params), (x,))[1](v)[0]

        self.value = wrap(lambda x, *params: f(x, *params))
        self.value_and_gradient = wrap(lambda x, *params: value_and_grad(f)(x, *params))
        self.gradient = wrap(lambda x, *params: grad(f)(x, *params))
        self.along = wrap(along)  # of a number: the place at x + t d, and value, gradient and slope there
        self.product = wrap(product)  # of a number: its Hessian times a vector
        self.push, self.pull = wrap(push), wrap(pull)  # of a vector: its Jacobian, or the transpose, times a vector
        self.jacobian = wrap(jacfwd(f))
        self.hessian = wrap(hessian(f))


class Problem:
    """A function of users over unknowns in containers, as a function of a vector."""

    def __init__(self, who: str, f: Callable[..., Any], x0: Any, args: Any, scalar: bool) -> None:
        if not callable(f):
            raise ArgumentError(f"{who}: f must be a function f(x, *args), got {type(f).__name__}")
        self.who = who
        self.layout = layout = Layout(x0, who, "x0")
        if tracing() is not None:
            raise TraceError(
                f"{who}: decides by the numbers when to stop, so it cannot be traced by compile or vmap; call it outside "
                "(it compiles its own steps)"
            )
        self.x = numbers_of(layout.vector())
        if not np.isfinite(self.x.numpy()).all():
            raise ArgumentError(f"{who}: x0 holds NaN or infinity")
        self.arguments = arguments = Arguments(args if isinstance(args, tuple) else (args,), layout.real)

        def flat(x: Any, *tensors: Any) -> Any:
            y = f(layout.tree(x), *arguments.filled(tensors))
            return _number(y, who, layout) if scalar else _vector(y, who, layout)

        self._flat = flat
        self.function = as_function(flat, [self.x, *arguments.tensors])
        captured = [] if self.function is None else self.function.captured
        self.params = [*arguments.tensors, *captured]
        self.plain = [numbers_of(p) for p in self.params]
        self.derivatives = self._derivatives()
        self.nfev = self.njev = 0

    def _derivatives(self) -> Derivatives:
        if self.function is None:
            return Derivatives(self._flat, lambda f: f)
        function = self.function
        found: Derivatives = _CACHE.get(function.key, lambda: Derivatives(function.bare(), compile))
        return found

    # ------------------------------------------------------------------------------------- counted evaluations

    def value(self, x: Any) -> Any:
        """f(x)."""
        self.nfev += 1
        with no_grad():
            return numbers_of(self.derivatives.value(x, *self.plain))

    def value_and_gradient(self, x: Any) -> tuple[float, Any]:
        """f(x) and its gradient."""
        self.nfev += 1
        self.njev += 1
        value, gradient = self.derivatives.value_and_gradient(x, *self.plain)
        return numbers_of(value).item(), numbers_of(gradient)

    def along(self, t: Any, x: Any, d: Any) -> tuple[Any, float, Any, float]:
        """x + t d, and value, gradient and slope along d there."""
        self.nfev += 1
        self.njev += 1
        moved, value, gradient, slope = map(numbers_of, self.derivatives.along(t, x, d, *self.plain))
        return moved, value.item(), gradient, slope.item()

    def product(self, x: Any, v: Any) -> Any:
        """The Hessian at x times v."""
        self.njev += 1
        return numbers_of(self.derivatives.product(v, x, *self.plain))

    def jacobian(self, x: Any) -> Any:
        """∂f/∂x."""
        self.njev += 1
        with no_grad():
            return numbers_of(self.derivatives.jacobian(x, *self.plain))

    # ---------------------------------------------------------------------------------------------- solutions

    def differentiable(self, x: Any, residual: Callable[..., Any], solver: LinearSolver) -> Any:
        """x, where residual(x, *params) is zero, as a function of the parameters."""
        if self.function is None and is_differentiated(self._flat(x, *self.plain)):
            raise GradientError(
                f"{self.who}: f cannot be traced (it branches on numbers, or closes over a dual tensor), and closes over "
                "tensors that are differentiated; pass these in args"
            )
        if not any(map(is_differentiated, self.params)):
            return x
        return implicit(residual, x, self.params, solver)


def _number(y: Any, who: str, layout: Layout) -> Any:
    if y is None:
        raise ArgumentError(f"{who}: the function returned None. Is its `return` missing?")
    t = y if isinstance(y, Tensor) else asarray(y)
    if t.size != 1 or not t.dtype.is_floating:
        raise GradientError(
            f"{who}: the function must return one real floating number, got {t.dtype.name}{tuple(t.shape)}; reduce it "
            "(sum, mean), or use least_squares for a vector of residuals"
        )
    return F.astype(F.reshape(t, ()), layout.dtype)


def _vector(y: Any, who: str, layout: Layout) -> Any:
    if y is None:
        raise ArgumentError(f"{who}: the function returned None. Is its `return` missing?")
    leaves = [x if isinstance(x, Tensor) else asarray(x, dtype=layout.dtype) for x in tree.flatten(y)[0]]
    for t in leaves:
        if not t.dtype.is_floating:
            raise GradientError(
                f"{who}: the function must return real floating numbers, got {t.dtype.name}{tuple(t.shape)}"
            )
    if not sum(math.prod(t.shape) for t in leaves):
        raise ShapeError(f"{who}: the function returned no numbers")
    return F.concat([F.astype(F.reshape(t, (-1,)), layout.dtype) for t in leaves])


def default(layout: Layout, double: float, single: float) -> float:
    """A tolerance that the dtype of the unknowns can reach."""
    return double if layout.dtype == float64 else single


def positive(who: str, **options: Any) -> None:
    """Raise unless all of these are None or positive numbers."""
    for name, value in options.items():
        if value is not None and not (isinstance(value, (int, float, np.number)) and value > 0):
            raise ArgumentError(f"{who}: {name} must be positive, got {value!r}")


def known(who: str, method: Any, methods: Sequence[str]) -> str:
    """The method of this name, in any case of letters."""
    name = method.lower() if isinstance(method, str) else method
    if name not in methods:
        raise ArgumentError(f"{who}: method {method!r} is unknown; there are {', '.join(methods)}")
    return str(name)
