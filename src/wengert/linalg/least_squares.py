"""Pseudo-inverses, ranks, and systems without a unique solution."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.dtypes import DType, as_dtype, int64
from wengert.functional.linear import matmul
from wengert.functional.reductions import max, sum
from wengert.linalg.factorizations import svdvals
from wengert.linalg.results import LstsqResult
from wengert.linalg.solving import inexact, matrices, system
from wengert.program.trace import broadcast_shapes
from wengert.tensors.arguments import as_dtype_of, as_tensor, full, native

_pinv, _broadcast_to, _reshape, _abs = native("pinv"), native("broadcast_to"), native("reshape"), native("abs")


def real_dtype(t: Tensor) -> DType:
    """The dtype of |t|."""
    return as_dtype({"complex64": "float32", "complex128": "float64"}.get(t.dtype.name, t.dtype.name))


def _default(t: Tensor) -> float:
    # While tracing, the sizes of the first call decide; a guard holds them.
    larger = t.shape[-2] if t.shape[-2] >= t.shape[-1] else t.shape[-1]
    return float(np.finfo(real_dtype(t).name).eps) * int(larger)


def _cutoffs(t: Tensor, rtol: Any) -> Tensor:
    """One relative cutoff for each matrix."""
    batch, dtype = t.shape[:-2], real_dtype(t)
    if rtol is None or isinstance(rtol, (int, float)):
        return full(batch, _default(t) if rtol is None else rtol, dtype)
    given = as_dtype_of(as_tensor(rtol, "pinv"), dtype)
    return given if tuple(given.shape) == tuple(batch) else _broadcast_to(given, batch)


def pinv(a: Any, *, rtol: Any = None) -> Tensor:
    """The pseudo-inverse V diag(1/s) Uᴴ; singular values up to `rtol` times the largest count as zeros.

    `rtol` is a number, or one for each matrix; by default max(m, n) times the machine epsilon. The derivative is that at
    constant rank.

    >>> pinv([[2.0, 0.0], [0.0, 0.0]]).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    t = inexact(matrices(a, "pinv"), "pinv")
    return _pinv(t, _cutoffs(t, rtol))[0]


def matrix_rank(a: Any, *, rtol: Any = None) -> Tensor:
    """The number of singular values above `rtol` times the largest, as int64.

    >>> matrix_rank([[2.0, 0.0], [0.0, 0.0]]).item()
    1
    """
    t = inexact(matrices(a, "matrix_rank"), "matrix_rank")
    return _rank(svdvals(t.detach()), _cutoffs(t, rtol))


def _rank(s: Tensor, cutoffs: Tensor) -> Tensor:
    if s.shape[-1] == 0:
        return full(s.shape[:-1], 0, int64)
    least = cutoffs * max(s, axis=-1)
    return sum(as_dtype_of(s > _reshape(least, (*least.shape, 1)), int64), -1)


def lstsq(a: Any, b: Any, *, rtol: Any = None) -> LstsqResult:
    """The x with the smallest |a x − b|², and of those the one with the smallest |x|; rank and singular values of `a`.

    `residuals` are |a x − b|², one for each right-hand side, if `a` has more rows than columns; none otherwise, whatever
    the rank. A `b` of one axis is a vector. Leading axes broadcast.

    >>> x, residuals, rank, s = lstsq([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [1.0, 2.0, 3.0])
    >>> x.tolist(), residuals.tolist(), rank.item()
    ([1.0, 2.0], [9.0], 2)
    """
    t, right, vector = system(matrices(a, "lstsq"), b, "lstsq")
    cutoffs = _cutoffs(t, rtol)
    inverse, s = _pinv(t, cutoffs)
    x, s = matmul(inverse, right), s.detach()
    m, n = t.shape[-2:]
    if m > n:
        gap = _abs(matmul(t, x) - right)
        residuals = sum(gap * gap, -2)
    else:
        batch = broadcast_shapes("lstsq", t.shape[:-2], right.shape[:-2])
        residuals = full((*batch, 0), 0.0, real_dtype(t))
    return LstsqResult(_reshape(x, x.shape[:-1]) if vector else x, residuals, _rank(s, cutoffs), s)
