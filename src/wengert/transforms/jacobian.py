"""Jacobians and Hessians, exact, column by column or row by row.

Arguments and results may be nested containers: the Jacobian then has the structure of the result, and in each place of it
the structure of the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert import _core, tree
from wengert._core import Tensor
from wengert.autograd.conversion import asarray
from wengert.autograd.creation import zeros_like
from wengert.autograd.modes import no_grad
from wengert.errors import ArgumentError, DTypeError
from wengert.ops.registry import OPS
from wengert.ops.tangents import conj, make_complex
from wengert.transforms.functional import (
    by_arguments,
    differentiate_backwards,
    grad,
    jvp,
    result_leaves,
)
from wengert.transforms.naming import transformed


def _reject_complex(x: Any, what: str) -> None:
    if x.dtype.kind == "c":
        raise DTypeError(
            f"{what}: the argument is {x.dtype.name}{_shape(x)}; the second derivative by a complex number has four parts. "
            "Write the function of real and imaginary parts, or use hvp"
        )


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


def _zero_block(y: Any, x: Any) -> Any:
    return OPS["full"]((*_shape(y), *_shape(x)), _core.promote(y.dtype.code, x.dtype.code), 0.0)


def _tensor_leaves(x: Any) -> tuple[list[Any], Any]:
    leaves, structure = tree.flatten(x)
    return [v if isinstance(v, Tensor) else asarray(v) for v in leaves], structure


def _nest(blocks: list[list[Any]], y_structure: Any, x_structure: Any) -> Any:
    """Blocks [output][input] as a tree of results that holds trees of arguments."""
    return tree.unflatten(y_structure, [tree.unflatten(x_structure, row) for row in blocks])


def _of_one(f: Callable[..., Any], argnums: int | Sequence[int], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """f as a function of one argument, the one that is differentiated (of several: their tuple), and its value."""
    restricted, chosen = by_arguments(f, argnums, args, kwargs, "jacobian")
    return (restricted, chosen[0]) if isinstance(argnums, int) else (lambda xs: restricted(*xs), chosen)


def _columns(g: Callable[[Any], Any], x: Any, e: Tensor) -> list[Any]:
    """What each output does along one element; a real one of a complex element: d/dRe + i d/dIm, as `grad` has it."""

    def push(v: Tensor) -> list[Any]:
        return tree.flatten(jvp(g, (x,), (v,))[1])[0]

    columns = push(e)
    if x.dtype.kind != "c" or all(c.dtype.kind == "c" for c in columns):
        return columns
    return [c if c.dtype.kind == "c" else make_complex(c, i) for c, i in zip(columns, push(e * 1j))]


def _column_blocks(g: Callable[[Any], Any], x: Any) -> list[Any]:
    """The derivative of every output by one tensor."""
    passes = [_columns(g, x, e) for e in _basis(x)]
    if not passes:
        return [_zero_block(y, x) for y in _tensor_leaves(g(x))[0]]
    blocks = []
    for columns in zip(*passes):
        n, m = x.ndim, columns[0].ndim
        stacked = _assemble(list(columns), _shape(x), _shape(columns[0]))
        blocks.append(OPS["permute"](stacked, (*range(n, n + m), *range(n))))
    return blocks


def jacfwd(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The Jacobian ∂yᵢ/∂xⱼ in forward mode, one pass per input element: shape y.shape + x.shape.

    >>> import wengert as wg
    >>> jacfwd(lambda x: x * x)(wg.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        g, point = _of_one(f, argnums, args, kwargs)
        xs, x_structure = _tensor_leaves(point)
        y_structure: Any = None

        def at(k: int) -> Callable[[Any], Any]:
            def of_leaf(leaf: Any) -> Any:
                nonlocal y_structure
                y = g(tree.unflatten(x_structure, [*xs[:k], leaf, *xs[k + 1 :]]))
                _, y_structure = tree.flatten(y)
                return y

            return of_leaf

        by_input = [_column_blocks(at(k), x) for k, x in enumerate(xs)]
        return _nest([list(row) for row in zip(*by_input)], y_structure, x_structure)

    return transformed(jacobian_of, "The Jacobian of {f}.", jacfwd, f, argnums=argnums)


def _row(pull_back: Callable[[Any], list[Any]], y: Any, e: Tensor) -> list[Any]:
    """The row of one element, by input. Pulling back conjugates: ȳ ↦ conj(f') ȳ."""
    rows = pull_back(e)
    if y.dtype.kind != "c":
        return rows
    if all(r.dtype.kind == "c" for r in rows):
        return [conj(r) for r in rows]
    return [conj(r) if r.dtype.kind == "c" else make_complex(r, i) for r, i in zip(rows, pull_back(e * 1j))]


def _row_blocks(pull_back: Callable[[Any], list[Any]], y: Any, xs: list[Any]) -> list[Any]:
    """The derivative of one output by every tensor."""
    passes = [_row(pull_back, y, e) for e in _basis(y)]
    if not passes:
        return [_zero_block(y, x) for x in xs]
    return [_assemble(list(rows), _shape(y), _shape(x)) for rows, x in zip(zip(*passes), xs)]


def jacrev(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The Jacobian ∂yᵢ/∂xⱼ in reverse mode, one pass per output element: shape y.shape + x.shape.

    >>> import wengert as wg
    >>> jacrev(lambda x: x * x)(wg.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        g, point = _of_one(f, argnums, args, kwargs)
        xs, x_structure = _tensor_leaves(point)
        y, pull_back = differentiate_backwards(g, (tree.unflatten(x_structure, xs),))
        ys, y_structure = tree.flatten(y)

        def from_output(k: int) -> Callable[[Any], list[Any]]:
            def pull(e: Any) -> list[Any]:
                bars = [e if j == k else zeros_like(other) for j, other in enumerate(ys)]
                return tree.flatten(pull_back(tree.unflatten(y_structure, bars))[0])[0]

            return pull

        return _nest([_row_blocks(from_output(k), v, xs) for k, v in enumerate(ys)], y_structure, x_structure)

    return transformed(jacobian_of, "The Jacobian of {f}.", jacrev, f, argnums=argnums)


def jacobian(f: Callable[..., Any], mode: str = "auto", *, argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The Jacobian, in the mode that needs fewer passes: forward if the outputs are more than the inputs.

    Containers give containers: the structure of the result, and in each place of it that of the argument. A complex
    function of complex numbers must be holomorphic; a real one has ∂y/∂Re x + i ∂y/∂Im x, as in `grad`.

    >>> import wengert as wg
    >>> jacobian(lambda x: x * x)(wg.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    >>> jacobian(lambda p: p["a"] * p["b"])({"a": wg.tensor(2.0), "b": wg.tensor(3.0)})
    {'a': tensor(3.), 'b': tensor(2.)}
    """
    if mode not in ("auto", "forward", "reverse"):
        raise ArgumentError(f"jacobian: mode is 'auto', 'forward' or 'reverse', got {mode!r}")

    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        chosen = mode
        if chosen == "auto":
            g, point = _of_one(f, argnums, args, kwargs)
            xs, structure = _tensor_leaves(point)
            with no_grad():
                y = g(tree.unflatten(structure, [OPS["copy"](x) for x in xs]))  # which g may change
            chosen = "forward" if _count(result_leaves(y, "jacobian")[0]) >= _count(point) else "reverse"
        return (jacfwd if chosen == "forward" else jacrev)(f, argnums)(*args, **kwargs)

    return transformed(jacobian_of, "The Jacobian of {f}.", jacobian, f, mode=mode, argnums=argnums)


def _count(x: Any) -> int:
    return sum(int(v.size) for v in _tensor_leaves(x)[0])


def hessian(f: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """The matrix of second derivatives of a scalar function: shape x.shape + x.shape.

    The gradient is computed and recorded once; each row is a pull through what was recorded.

    >>> import wengert as wg
    >>> hessian(lambda x: (x * x * x).sum())(wg.tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """

    def hessian_of(*args: Any, **kwargs: Any) -> Any:
        g, point = _of_one(f, argnums, args, kwargs)
        for x in _tensor_leaves(point)[0]:
            _reject_complex(x, "hessian")
        return jacrev(grad(g))(point)

    return transformed(hessian_of, "The Hessian of {f}.", hessian, f, argnums=argnums)
