"""Linear algebra: the array API standard's `linalg`, and more, on the last two axes of stacks of matrices.

>>> import wengert as wg
>>> wg.linalg.det(wg.eye(3)).item()
1.0
"""

from typing import Any

from wengert.errors import LinAlgError
from wengert.foreign_names import MissingName
from wengert.functional.diagonals import diagonal, trace
from wengert.functional.einsum import einsum
from wengert.functional.linear import dot, matmul, outer, tensordot, vecdot
from wengert.functional.products import cross, kron, multi_dot
from wengert.functional.shapes import matrix_transpose
from wengert.linalg.factorizations import cholesky, eig, eigh, eigvals, eigvalsh, lu, qr, svd, svdvals
from wengert.linalg.functions import expm, logm, matrix_exp, matrix_function, matrix_power, sqrtm
from wengert.linalg.least_squares import lstsq, matrix_rank, pinv
from wengert.linalg.norms import cond, matrix_norm, norm, vector_norm
from wengert.linalg.solving import det, inv, slogdet, solve, solve_triangular

__all__ = [
    "LinAlgError", "cholesky", "cond", "cross", "det", "diagonal", "dot", "eig", "eigh", "eigvals", "eigvalsh", "einsum",
    "expm", "inv", "kron", "logm", "lstsq", "lu", "matmul", "matrix_exp", "matrix_function", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve",
    "solve_triangular", "sqrtm", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


def __dir__() -> list[str]:
    return [*__all__, *(n for n in globals() if n.startswith("__"))]


def __getattr__(name: str) -> Any:
    raise MissingName(__name__, name)
