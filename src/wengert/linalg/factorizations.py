"""Factorisations of matrices."""

from __future__ import annotations

from typing import Any

from wengert._core import Tensor
from wengert.functional.arguments import native
from wengert.functional.shapes import matrix_transpose
from wengert.linalg.solving import inexact, square
from wengert.ops.elementwise import conj

_cholesky = native("cholesky")


def cholesky(a: Any, *, upper: bool = False) -> Tensor:
    """The lower triangular L with L Lᴴ = a, or the upper triangular U with Uᴴ U = a.

    Of `a` the Hermitian part (a + aᴴ)/2 is taken, so that gradients are Hermitian.

    >>> cholesky([[4.0, 2.0], [2.0, 5.0]]).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    low = _cholesky(inexact(square(a, "cholesky"), "cholesky"))
    return matrix_transpose(conj(low)) if upper else low
