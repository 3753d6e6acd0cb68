"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.reductions import max, min, sum
from wengert.functional.reductions import norm as elementwise_norm
from wengert.functional.shapes import expand_dims, moveaxis
from wengert.linalg.factorizations import svdvals
from wengert.linalg.solving import inv, matrices, square
from wengert.tensors.arguments import all_axes, as_floating, as_tensor, describe, native, one_axis

_abs = native("abs")
Axes = int | Sequence[int] | None


@composite(precision="full", functions=("norm",))
def _norm(x: Tensor, axis: Any, keepdims: bool, ord: float) -> Any:
    return elementwise_norm(x, axis, ord=ord, keepdims=keepdims)


def vector_norm(x: Any, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """(Σ |x|ᵖ)^(1/p) over the axes (all by default); `ord` is p, with ±inf the largest and smallest |x|, 0 the count of
    non-zeros. It has derivative 0 at 0, and for p < 1 by elements that are 0.

    >>> vector_norm([[3.0, 4.0]]).item()
    5.0
    """
    t = as_tensor(x, "vector_norm")
    if t.dtype.kind == "b":
        raise ArgumentError(f"vector_norm: takes numbers, got {describe(t)}")
    axes = tuple(axis) if isinstance(axis, Sequence) else axis
    y: Tensor = _norm(t, axes, bool(keepdims), ord)
    return y


def _singular(name: str, t: Tensor, keepdims: bool) -> Tensor:
    s = svdvals(t)
    reduce: Any = {"nuc": sum, "2": max, "-2": min}[name]
    y: Tensor = reduce(s, -1)
    return expand_dims(expand_dims(y, axis=-1), axis=-1) if keepdims else y


def matrix_norm(x: Any, *, keepdims: bool = False, ord: float | str = "fro") -> Tensor:
    """A norm of the last two axes: "fro" √Σ|x|², "nuc" the sum of the singular values, 2 and −2 the largest and smallest
    of them, 1 and −1 the largest and smallest sum of a column's |x|, inf and −inf of a row's.

    >>> matrix_norm([[3.0, 0.0], [0.0, 4.0]], ord="nuc").item()
    7.0
    """
    t = as_floating(matrices(x, "matrix_norm"))
    if ord == "fro":
        y: Tensor = _norm(t, (-2, -1), bool(keepdims), 2)
        return y
    if ord == "nuc" or ord in (2, -2):
        return _singular(str(ord), t, keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(f"matrix_norm: ord must be 'fro', 'nuc', ±1, ±2 or ±inf, got {ord!r}")
    along, across = (-2, -1) if abs(float(ord)) == 1 else (-1, -2)
    sums = sum(_abs(t), along, keepdims=True)
    pick = max if float(ord) > 0 else min
    y = pick(sums, across, keepdims=True)
    return y if keepdims else y[..., 0, 0]


def norm(x: Any, ord: float | str | None = None, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """NumPy's norm: of a vector, or of a matrix if `axis` names two axes; √Σ|x|² by default.

    With `ord` but without `axis`, x is a vector or a matrix.

    >>> norm([[1.0, 2.0], [3.0, 4.0]], ord=1).item()
    6.0
    """
    t = as_tensor(x, "norm")
    if ord is None:
        return vector_norm(t, axis=axis, keepdims=keepdims)
    if axis is None and t.ndim not in (1, 2):
        raise ShapeError(f"norm: with ord={ord!r}, axis must name one axis or two, got {describe(t)}")
    axes = tuple(axis) if isinstance(axis, Sequence) else tuple(range(t.ndim)) if axis is None else (axis,)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ArgumentError(f"norm: ord {ord!r} is a matrix norm, but one axis selects vectors; pass two axes")
        return vector_norm(t, axis=axes, keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise ShapeError(f"norm: axis must name one axis or two, got {axis!r}")
    all_axes(axes, t.ndim, "norm")
    row, col = (one_axis(a, t.ndim, "norm") for a in axes)
    y = matrix_norm(moveaxis(t, (row, col), (-2, -1)), keepdims=keepdims, ord=ord)
    return moveaxis(y, (-2, -1), (row, col)) if keepdims else y


def cond(a: Any, *, p: float | str | None = None) -> Tensor:
    """The condition number: the largest over the smallest singular value, or |a| |a⁻¹| in the norm that `p` names.

    >>> cond([[4.0, 0.0], [0.0, 2.0]]).item()
    2.0
    """
    if p is None or p in (2, -2):
        s = svdvals(matrices(a, "cond"))
        high, low = max(s, axis=-1), min(s, axis=-1)
        return low / high if p == -2 else high / low
    t = square(a, "cond")
    return matrix_norm(t, ord=p) * matrix_norm(inv(t), ord=p)
