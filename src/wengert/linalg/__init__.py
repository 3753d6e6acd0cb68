"""Linear algebra: the array API standard's `linalg`, and more, on the last two axes of stacks of matrices.

>>> import wengert as wg
>>> wg.linalg.det(wg.eye(3)).item()
1.0
"""

from wengert.errors import LinAlgError
from wengert.functional.linear import dot, matmul, outer, tensordot, vecdot
from wengert.functional.shapes import diagonal, matrix_transpose, trace
from wengert.linalg.factorizations import cholesky
from wengert.linalg.solving import det, inv, slogdet, solve, solve_triangular

__all__ = [
    "LinAlgError", "cholesky", "det", "diagonal", "dot", "inv", "matmul", "matrix_transpose", "outer", "slogdet", "solve",
    "solve_triangular", "tensordot", "trace", "vecdot",
]  # fmt: skip
