"""Second derivatives of what a closure records, as products with vectors; and conjugate gradients over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.autograd.reverse import grad_of
from wengert.errors import ArgumentError, GradientError
from wengert.modes import enable_grad, no_grad
from wengert.tensors.creation import zeros, zeros_like

Product = Callable[[Any], Any]


def joined(tensors: Sequence[Any]) -> Any:
    """All elements in one vector."""
    return F.concat([F.reshape(t, (-1,)) for t in tensors])


def parted(vector: Any, like: Sequence[Any]) -> list[Any]:
    """A vector in the shapes of tensors."""
    parts, start = [], 0
    for p in like:
        size = int(p.size)
        parts.append(F.reshape(vector[start : start + size], tuple(p.shape)))
        start += size
    return parts


def gradients(value: Any, parameters: Sequence[Tensor], who: str, seed: Any = None) -> Any:
    """The gradient of all parameters as one vector, recorded; zeros where the value does not depend on one."""
    try:
        found = grad_of(value, list(parameters), seed, create_graph=True, allow_unused=True)
    except GradientError as e:
        raise GradientError(
            f"{who}.step: the function must return what it computed, and not call backward(); {e}"
        ) from e
    if all(g is None for g in found):
        raise GradientError(f"{who}.step: what the function returned does not depend on any of the parameters")
    return joined([zeros_like(p.detach()) if g is None else g for g, p in zip(found, parameters)])


def hessian_product(gradient: Any, parameters: Sequence[Tensor]) -> Product:
    """v ↦ H v, of a recorded gradient."""

    def product(v: Any) -> Any:
        if not gradient.requires_grad:
            return v * 0.0  # a linear function
        with enable_grad():
            found = grad_of(F.sum(gradient * v), list(parameters), retain_graph=True, allow_unused=True)
        return joined([zeros_like(p.detach()) if h is None else h.detach() for h, p in zip(found, parameters)])

    return product


def hessian_product_by(loss: Any, outputs: Any, who: str) -> Product:
    """u ↦ H u, of a recorded loss by the outputs that it was computed of."""
    with enable_grad():
        try:
            (slope,) = grad_of(loss, [outputs], create_graph=True)
        except GradientError as e:
            raise GradientError(f"{who}.step: the loss must be computed of the outputs; {e}") from e

    def product(u: Any) -> Any:
        if not slope.requires_grad:
            return u * 0.0  # a linear function
        with enable_grad():
            (found,) = grad_of(F.sum(slope * u), [outputs], retain_graph=True, allow_unused=True)
        return u * 0.0 if found is None else found.detach()

    return product


def gauss_newton_product(
    residuals: Any, parameters: Sequence[Tensor], who: str, curvature: Product | None = None
) -> Product:
    """v ↦ Jᵀ H J v of recorded residuals, where H is `curvature`, or 1: J v is the derivative of u ↦ Jᵀ u, which is linear,
    along v."""
    u = zeros(tuple(residuals.shape), dtype=residuals.dtype, requires_grad=True)
    with enable_grad():
        pulled = gradients(residuals, parameters, who, u)

    def product(v: Any) -> Any:
        with enable_grad():
            (pushed,) = grad_of(F.sum(pulled * v), [u], retain_graph=True)
            weighted = pushed.detach() if curvature is None else curvature(pushed.detach())
            found = grad_of(residuals, list(parameters), weighted, retain_graph=True, allow_unused=True)
        return joined([zeros_like(p.detach()) if g is None else g.detach() for g, p in zip(found, parameters)])

    return product


def conjugate_gradients(product: Product, b: Any, tolerance: float, most: int) -> tuple[Any, int]:
    """x with A x ≈ b, and the number of products; it stops at a direction of negative curvature, which −b would descend."""
    with no_grad():
        x, r = b * 0.0, b
        d, square = r, float(F.sum(r * r))
        goal = tolerance * tolerance * square
        for k in range(most):
            if square <= goal or square == 0.0:
                return x, k
            q = product(d)
            curvature = float(F.sum(d * q))
            if curvature <= 1e-14 * float(F.sum(d * d)):
                return (b if k == 0 else x), k + 1
            step = square / curvature
            x, r = x + d * step, r - q * step
            new = float(F.sum(r * r))
            d, square = r + d * (new / square), new
        return x, most


def moved(parameters: Sequence[Tensor], start: Any, step: Any) -> None:
    """Write start + step into the parameters."""
    with no_grad():
        for p, value in zip(parameters, parted(start + step, parameters)):
            p._assign(value if value.dtype == p.dtype else value.astype(p.dtype), "step")


def evaluated(function: Any, who: str, scalar: bool) -> Any:
    """What the function gives, recorded."""
    if not callable(function):
        what = "the loss" if scalar else "the residuals"
        raise ArgumentError(
            f"{who}.step: takes a function that computes {what} and returns it, without calling backward()"
        )
    with enable_grad():
        y = function()
    if not isinstance(y, Tensor) or not y.dtype.is_floating or (scalar and y.size != 1):
        kind = f"{y.dtype.name}{tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        wanted = "a real number" if scalar else "real numbers"
        raise ArgumentError(f"{who}.step: the function must return {wanted}, got {kind}")
    return F.reshape(y, () if scalar else (-1,))
