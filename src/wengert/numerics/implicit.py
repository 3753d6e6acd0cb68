"""Derivatives of what an equation determines: the implicit function theorem.

Where F(x, p) = 0 defines x(p), dx = −(∂F/∂x)⁻¹ ∂F/∂p dp, whatever found x. Rules are written in ops, so that derivatives of
every order follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wengert import functional as F
from wengert.autograd.custom import custom_op
from wengert.errors import LinAlgError
from wengert.linalg.solving import solve
from wengert.modes import no_grad
from wengert.numerics.arguments import Floating
from wengert.numerics.functions import numbers_of
from wengert.tensors.creation import ones_like
from wengert.transforms.functional import differentiate_backwards, jvp

Residual = Callable[..., Any]  # F(x, *params)


# solver(b, x, params, transposed): solves with ∂F/∂x at (x, *params), or with its transpose
LinearSolver = Callable[[Any, Any, Sequence[Any], bool], Any]


def implicit(residual: Residual, x: Any, params: Sequence[Any], solver: LinearSolver) -> Any:
    """x, a vector of numbers with residual(x, *params) = 0, as a function of the parameters, in both modes."""
    floating = Floating(params)
    n = len(floating.tensors)
    if not n:
        return x

    def pull(x_bar: Any, x: Any, *given: Any) -> Any:
        w = solver(x_bar, x, floating.filled(given), True)
        _, back = differentiate_backwards(lambda *p: residual(x, *floating.filled(p)), given)
        return [-b for b in back(w)]

    def push(*given: Any) -> Any:
        dots, at, params = given[:n], given[n], given[n + 1 :]
        moved = jvp(lambda *p: residual(at, *floating.filled(p)), params, dots)[1]
        return -solver(moved, at, floating.filled(params), False)

    op = custom_op(lambda *params: x)
    op.defvjp(pull)
    op.defjvp(push)
    return op(*floating.tensors)


def dense(who: str, jacobian: Callable[..., Any]) -> LinearSolver:
    """By LU of the Jacobian, which is formed."""

    def run(b: Any, x: Any, params: Sequence[Any], transposed: bool) -> Any:
        matrix = jacobian(x, *params)
        try:
            return solve(F.matrix_transpose(matrix) if transposed else matrix, b)
        except LinAlgError:
            raise LinAlgError(
                f"{who}: the linear system of the derivative is singular at the solution: the arguments do not determine "
                "how it moves. Add a term that does, such as a small multiple of the distance to x0"
            ) from None

    return run


def diagonal(residual: Residual) -> LinearSolver:
    """For functions that act element by element."""

    def run(b: Any, x: Any, params: Sequence[Any], transposed: bool) -> Any:
        return b / jvp(lambda x: residual(x, *params), (x,), (ones_like(x),))[1]

    return run


# product(v, x, params, transposed): ∂F/∂x at (x, *params), or its transpose, times v
Products = Callable[[Any, Any, Sequence[Any], bool], Any]


def matrix_free(products: Products, find: Callable[[Callable[[Any], Any], Any], Any]) -> LinearSolver:
    """By `find(v ↦ A v, b)`, with a matrix A that is not formed.

    What it finds is itself determined by an equation, A u − b = 0, and has its derivatives from there.
    """

    def run(b: Any, x: Any, params: Sequence[Any], transposed: bool) -> Any:
        with no_grad():
            at, fixed = numbers_of(x), [numbers_of(p) for p in params]
            found = find(lambda v: products(v, at, fixed, transposed), numbers_of(b))

        def inner(b: Any, u: Any, given: Sequence[Any], once_more: bool) -> Any:
            _, x, *rest = given
            return run(b, x, rest, transposed != once_more)

        return implicit(lambda u, b, x, *p: products(u, x, p, transposed) - b, found, [b, x, *params], inner)

    return run


def symmetric(product: Callable[..., Any], find: Callable[[Callable[[Any], Any], Any], Any]) -> LinearSolver:
    """The same for a symmetric matrix: `product(v, x, *params)`."""
    return matrix_free(lambda v, x, params, transposed: product(v, x, *params), find)
