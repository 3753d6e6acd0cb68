"""Jacobians and Hessians, exact, column by column or row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.autograd.creation import asarray
from wengert.errors import ArgumentError, DTypeError
from wengert.ops.elementwise import conj, make_complex
from wengert.ops.registry import OPS
from wengert.transforms.functional import jvp, vjp


def _reject_complex(x: Any, what: str) -> None:
    if x.dtype.kind == "c":
        raise DTypeError(
            f"{what}: the argument is {x.dtype.name}{_shape(x)}; the second derivative by a complex number has four parts. "
            "Write the function of real and imaginary parts, or use hvp"
        )


def _along_parts(push: Callable[[Any], Any], x: Any, e: Tensor) -> Any:
    """The column of one element: of a real result by a complex element, d/dRe + i d/dIm, as `grad` has it."""
    column = push(e)
    return column if x.dtype.kind != "c" or column.dtype.kind == "c" else make_complex(column, push(e * 1j))


def _basis(x: Any) -> list[Tensor]:
    """The unit vectors of x's space."""
    n = int(x.size)
    units = []
    for k in range(n):
        e = np.zeros(n, x.dtype.to_numpy())
        e[k] = 1
        units.append(asarray(e.reshape(tuple(int(s) for s in x.shape))))
    return units


def _assemble(parts: list[Any], lead: tuple[int, ...], rest: tuple[int, ...]) -> Any:
    flat = OPS["concat"]([OPS["reshape"](p, (1, *rest)) for p in parts], 0)
    return OPS["reshape"](flat, (*lead, *rest))


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(int(s) for s in x.shape)


def _restrict(f: Callable[..., Any], args: tuple[Any, ...], argnum: int) -> Callable[[Any], Any]:
    return lambda x: f(*args[:argnum], x, *args[argnum + 1 :])


def jacfwd(f: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """The Jacobian ∂yᵢ/∂xⱼ in forward mode, one pass per input element: shape y.shape + x.shape.

    >>> import wengert as wg
    >>> jacfwd(lambda x: x * x)(wg.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    def jacobian_of(*args: Any) -> Any:
        x = args[argnum] if isinstance(args[argnum], Tensor) else asarray(args[argnum])
        g = _restrict(f, args, argnum)
        columns = [_along_parts(lambda v: jvp(g, (x,), (v,))[1], x, e) for e in _basis(x)]
        if not columns:
            y = g(x)
            return OPS["full"]((*_shape(y), *_shape(x)), _core.promote(y.dtype.code, x.dtype.code), 0.0)
        y_shape = _shape(columns[0])
        stacked = _assemble(columns, _shape(x), y_shape)
        n, m = x.ndim, len(y_shape)
        return OPS["permute"](stacked, (*range(n, n + m), *range(n)))

    return jacobian_of


def _row(pull_back: Callable[[Any], Any], y: Any, x: Any, e: Tensor) -> Any:
    """The row of one element. Pulling back conjugates: ȳ ↦ conj(f') ȳ."""
    row = pull_back(e)[0]
    if y.dtype.kind != "c":
        return row
    return conj(row) if x.dtype.kind == "c" else make_complex(row, pull_back(e * 1j)[0])


def jacrev(f: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """The Jacobian ∂yᵢ/∂xⱼ in reverse mode, one pass per output element: shape y.shape + x.shape.

    >>> import wengert as wg
    >>> jacrev(lambda x: x * x)(wg.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    def jacobian_of(*args: Any) -> Any:
        x = args[argnum] if isinstance(args[argnum], Tensor) else asarray(args[argnum])
        y, pull_back = vjp(_restrict(f, args, argnum), x)
        rows = [_row(pull_back, y, x, e) for e in _basis(y)]
        if not rows:
            return OPS["full"]((*_shape(y), *_shape(x)), _core.promote(y.dtype.code, x.dtype.code), 0.0)
        return _assemble(rows, _shape(y), _shape(x))

    return jacobian_of


def jacobian(f: Callable[..., Any], argnum: int = 0, mode: str = "auto") -> Callable[..., Any]:
    """The Jacobian, in the mode that needs fewer passes: forward if the outputs are more than the inputs.

    A complex function of complex numbers must be holomorphic; a real one has ∂y/∂Re x + i ∂y/∂Im x, as in `grad`.

    >>> import wengert as wg
    >>> jacobian(lambda x: x * x)(wg.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    if mode not in ("auto", "forward", "reverse"):
        raise ArgumentError(f"jacobian: mode is 'auto', 'forward' or 'reverse', got {mode!r}")

    def jacobian_of(*args: Any) -> Any:
        chosen = mode
        if chosen == "auto":
            from wengert.autograd.modes import no_grad

            with no_grad():
                y = f(*args)
            x = args[argnum] if isinstance(args[argnum], Tensor) else asarray(args[argnum])
            chosen = "forward" if y.size >= x.size else "reverse"
        return (jacfwd if chosen == "forward" else jacrev)(f, argnum)(*args)

    return jacobian_of


def hessian(f: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """The matrix of second derivatives of a scalar function, forward over reverse: shape x.shape + x.shape.

    >>> import wengert as wg
    >>> hessian(lambda x: (x * x * x).sum())(wg.tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    from wengert.transforms.functional import grad

    def hessian_of(*args: Any) -> Any:
        if isinstance(args[argnum], Tensor):
            _reject_complex(args[argnum], "hessian")
        return jacfwd(grad(_restrict(f, args, argnum)))(args[argnum])

    return hessian_of
