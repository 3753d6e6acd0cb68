"""Products of other shapes: Kronecker, cross, tables of powers, and chains of matrices."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import int64, uint64
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.joining import concat, flip, stack
from wengert.functional.scanning import cumulative_prod
from wengert.functional.shapes import moveaxis
from wengert.tensors.arguments import as_dtype_of, as_tensor, describe, full, native, one_axis, promoted

_matmul, _reshape, _mul = native("matmul"), native("reshape"), native("mul")
_broadcast_to = native("broadcast_to")


def kron(a: Any, b: Any) -> Tensor:
    """The Kronecker product: blocks aᵢⱼ·b.

    >>> kron([1, 10], [1, 2]).tolist()
    [1, 2, 10, 20]
    """
    a, b = as_tensor(a, "kron"), as_tensor(b, "kron")
    n = max(a.ndim, b.ndim)
    of_a, of_b = ((1,) * (n - t.ndim) + tuple(t.shape) for t in (a, b))
    apart = _reshape(a, tuple(s for size in of_a for s in (size, 1)))
    y = _mul(apart, _reshape(b, tuple(s for size in of_b for s in (1, size))))
    return _reshape(y, tuple(p * q for p, q in zip(of_a, of_b)))


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tensor:
    """The Vandermonde matrix: row i holds the powers xᵢⁿ⁻¹ … xᵢ, 1 of a vector, or 1, xᵢ, … if `increasing`. N is the
    number of columns, by default that of the elements.

    >>> vander([2, 3], 3).tolist()
    [[4, 2, 1], [9, 3, 1]]
    """
    t = as_tensor(x, "vander")
    if t.ndim != 1:
        raise ShapeError(f"vander: takes a vector, got {describe(t)}")
    columns = t.shape[0] if N is None else operator.index(N)
    if columns < 0:
        raise ArgumentError(f"vander: N must not be negative, got {columns}")
    if t.dtype.kind in "biu" and t.dtype != uint64:
        t = as_dtype_of(t, int64)  # powers soon leave the range of narrow integers
    rows: Any = t.shape[0]
    if columns == 0:
        return full((rows, 0), 0.0, t.dtype, like=t)
    factors = _broadcast_to(_reshape(t, (rows, 1)), (rows, columns - 1))
    powers = cumulative_prod(concat([full((rows, 1), 1.0, t.dtype, like=t), factors], 1), 1, dtype=t.dtype)
    return powers if increasing else flip(powers, 1)


def cross(a: Any, b: Any, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements along an axis; the other axes broadcast.

    >>> cross([1, 0, 0], [0, 1, 0]).tolist()
    [0, 0, 1]
    """
    a, b = as_tensor(a, "cross"), as_tensor(b, "cross")
    for t in (a, b):
        if t.ndim == 0 or t.shape[one_axis(axis, t.ndim, "cross")] != 3:
            raise ShapeError(f"cross: axis {axis} must have 3 elements, got {describe(a)} and {describe(b)}")
    y: Tensor = _cross(moveaxis(a, axis, -1), moveaxis(b, axis, -1))
    return moveaxis(y, -1, axis)


@composite
def _cross(a: Tensor, b: Tensor) -> Any:
    (a0, a1, a2), (b0, b1, b2) = ([t[..., k] for k in range(3)] for t in (a, b))
    return stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=-1)


def multi_dot(operands: Sequence[Any]) -> Tensor:
    """The product of two or more matrices, in the cheapest order; the first and the last may be vectors.

    >>> multi_dot([[1.0, 2.0], [[1.0, 0.0], [0.0, 1.0]], [3.0, 4.0]]).item()
    11.0
    """
    given = [as_tensor(x, "multi_dot") for x in operands]
    if len(given) < 2:
        raise ArgumentError(f"multi_dot: takes two operands or more, got {len(given)}")
    for k, t in enumerate(given):
        if t.ndim != 2 and not (t.ndim == 1 and k in (0, len(given) - 1)):
            raise ShapeError(f"multi_dot: takes matrices, and vectors at the ends; operand {k} is {describe(t)}")
    first, *_, last = given
    matrices = promoted(given)
    if first.ndim == 1:
        matrices[0] = _reshape(matrices[0], (1, first.shape[0]))
    if last.ndim == 1:
        matrices[-1] = _reshape(matrices[-1], (last.shape[0], 1))
    for a, b in itertools.pairwise(matrices):
        if a.shape[1] != b.shape[0]:
            raise ShapeError(f"multi_dot: {describe(a)} and {describe(b)} do not fit")
    sizes = tuple(_hint(n) for n in (*(m.shape[0] for m in matrices), matrices[-1].shape[1]))
    y = _multiply(matrices, _splits(sizes), 0, len(matrices))
    return _reshape(y, (*first.shape[: first.ndim - 1], *last.shape[1:]))


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.hint)


def _multiply(matrices: Sequence[Tensor], splits: dict[tuple[int, int], int], start: int, end: int) -> Tensor:
    if end - start == 1:
        return matrices[start]
    cut = splits[start, end]
    return _matmul(_multiply(matrices, splits, start, cut), _multiply(matrices, splits, cut, end), 0, 0)


@functools.lru_cache(maxsize=128)
def _splits(sizes: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """Where to cut each range of a chain of matrices (Godbole, 1973)."""
    count = len(sizes) - 1
    cost = {(i, i + 1): 0 for i in range(count)}
    splits = {}
    for length in range(2, count + 1):
        for i in range(count - length + 1):
            j = i + length
            options = [(cost[i, k] + cost[k, j] + sizes[i] * sizes[k] * sizes[j], k) for k in range(i + 1, j)]
            cost[i, j], splits[i, j] = min(options)
    return splits
