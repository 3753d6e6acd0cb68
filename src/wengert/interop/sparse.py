"""Products with `scipy.sparse` matrices, which are constants: `x @ A` and `A @ x` are tensors and differentiable in x."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from wengert import functional
from wengert._core import Tensor
from wengert.autograd.custom import linear_op
from wengert.dtypes import as_dtype, float32, result_type
from wengert.errors import DTypeError, ShapeError
from wengert.tensors.arguments import as_dtype_of, describe


def is_sparse(x: Any) -> bool:
    """Whether x is a matrix of `scipy.sparse`; SciPy is not imported for it."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(x))


def matmul(a: Any, b: Any) -> Tensor:
    """a @ b, one of which is a tensor and the other a sparse matrix.

    >>> import scipy.sparse, wengert as wg
    >>> A = scipy.sparse.csr_array([[0.0, 2.0], [1.0, 0.0]])
    >>> wg.grad(lambda x: (A @ x).sum())(wg.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    x, matrix = (a, b) if isinstance(a, Tensor) else (b, a)
    if (
        matrix.ndim != 2
        or x.ndim == 0
        or x.shape[-1 if x is a or x.ndim == 1 else -2] != matrix.shape[0 if x is a else 1]
    ):
        left, right = (describe(m) if isinstance(m, Tensor) else f"a sparse matrix of shape {m.shape}" for m in (a, b))
        raise ShapeError(f"matmul: {left} times {right}: the inner sizes must be equal")
    x, matrix = _in_one_dtype(x, matrix)
    if isinstance(a, Tensor):
        return _rows_times(x, matrix)
    if x.ndim == 1:
        return _rows_times(x, matrix.T)
    return functional.matrix_transpose(_rows_times(functional.matrix_transpose(x), matrix.T))


def _in_one_dtype(x: Tensor, matrix: Any) -> tuple[Tensor, Any]:
    try:
        given = as_dtype(matrix.dtype)
    except TypeError:
        raise DTypeError(f"matmul: a sparse matrix of {matrix.dtype} has no counterpart; convert it first") from None
    dtype = result_type(x, given, *([float32] if x.dtype.is_inexact else []))  # SciPy has no half precision
    return as_dtype_of(x, dtype), matrix.astype(dtype.to_numpy(), copy=False)


def _rows_times(x: Tensor, matrix: Any) -> Tensor:
    """x @ matrix for a tensor of any rank; linear in x, so it is its own derivative."""
    n, m = matrix.shape

    def product(x: Tensor) -> np.ndarray[Any, Any]:
        rows = x.numpy().reshape(math.prod(x.shape[:-1]), n)
        made: np.ndarray[Any, Any] = (matrix.T @ rows.T).T.reshape(*x.shape[:-1], m)
        return made

    y: Tensor = linear_op(
        "sparse product",
        product,
        push=lambda x_dot: _rows_times(x_dot, matrix),
        pull=lambda y_bar: _rows_times(y_bar, matrix.conj().T),
        vmap=lambda size, mapped, x: _rows_times(x, matrix),
        sparsity=lambda call: _pattern(call, matrix),
    )(x)
    return y


def _pattern(call: Any, matrix: Any) -> list[Any]:
    """Each row times the matrix: by its entries."""
    from wengert.transforms.colouring import Sparsity

    factor = Sparsity(matrix.T)._sets
    return call.each(lambda p, shape, result: p.along(shape, len(shape) - 1, factor))  # type: ignore[no-any-return]
