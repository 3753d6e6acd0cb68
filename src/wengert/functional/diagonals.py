"""Diagonals and triangles of matrices."""

from __future__ import annotations

from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.errors import ShapeError
from wengert.functional.reductions import sum as total
from wengert.functional.shapes import moveaxis
from wengert.tensors.arguments import as_tensor, describe, native

_reshape = native("reshape")
_slice, _unslice = native("slice"), native("unslice")
_triu, _tril = native("triu"), native("tril")


def triu(x: Any, k: int = 0) -> Tensor:
    """The elements on and above diagonal k, zeros elsewhere.

    >>> triu([[1, 2], [3, 4]]).tolist()
    [[1, 2], [0, 4]]
    """
    return _triu(as_tensor(x, "triu"), k)


def tril(x: Any, k: int = 0) -> Tensor:
    """The elements on and below diagonal k, zeros elsewhere.

    >>> tril([[1, 2], [3, 4]]).tolist()
    [[1, 0], [3, 4]]
    """
    return _tril(as_tensor(x, "tril"), k)


def diagonal(x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """The elements x[…, i, i + offset] of two axes, as the last axis of the result.

    >>> diagonal([[1, 2], [3, 4]]).tolist()
    [1, 4]
    """
    t = as_tensor(x, "diagonal")
    if t.ndim < 2:
        raise ShapeError(f"diagonal: needs at least two axes, got {describe(t)}")
    if (axis1, axis2) != (-2, -1):  # else the reshaped tensor would be one of a view, which cannot always be written to
        t = moveaxis(t, (axis1, axis2), (-2, -1))
    *lead, rows, cols = t.shape
    height, width = (rows, cols - offset) if offset >= 0 else (rows + offset, cols)
    length = height if height <= width else width
    length = 0 if length < 0 else length
    start = (offset if offset >= 0 else -offset * cols) if isinstance(length, _core.Dim) or length else 0
    starts, steps = (*(0,) * len(lead), start), (*(1,) * len(lead), cols + 1)
    return _slice(_reshape(t, (*lead, rows * cols)), starts, (*lead, length), steps)


def diag(x: Any, k: int = 0) -> Tensor:
    """A matrix with a vector on diagonal k; of a matrix, its diagonal k.

    >>> diag([1, 2]).tolist()
    [[1, 0], [0, 2]]
    """
    t = as_tensor(x, "diag")
    if t.ndim == 2:
        return diagonal(t, offset=k)
    if t.ndim != 1:
        raise ShapeError(f"diag: takes a vector or a matrix, got {describe(t)}")
    n = t.shape[0] + abs(k)
    start = k if k >= 0 else -k * n
    return _reshape(_unslice(t, (n * n,), (start,), (n + 1,)), (n, n))


def trace(x: Any, offset: int = 0, *, dtype: Any = None) -> Tensor:
    """The sum of a diagonal of the last two axes. Small integers are summed as `sum` does.

    >>> trace([[1, 2], [3, 4]]).item()
    5
    """
    return total(diagonal(x, offset=offset), -1, dtype=dtype)
