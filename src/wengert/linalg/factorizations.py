"""Factorisations of matrices.

Where eigenvalues or singular values are equal, vectors have no derivative, and gradients that go through them are NaN.
Functions of the values alone have exact gradients there too; for functions of symmetric matrices see `matrix_function`.
"""

from __future__ import annotations

from typing import Any

from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.functional.shapes import matrix_transpose
from wengert.linalg.results import EighResult, EigResult, LUResult, QRResult, SVDResult
from wengert.linalg.solving import differentiated, inexact, matrices, square
from wengert.ops.linalg import columns, positions, rows
from wengert.ops.tangents import conj
from wengert.tensors.arguments import as_dtype_of, native

_cholesky, _lu, _qr, _svd, _svdvals = (native(name) for name in ("cholesky", "lu", "qr", "svd", "svdvals"))
_eigh, _eigvalsh, _eig, _eigvals = (native(name) for name in ("eigh", "eigvalsh", "eig", "eigvals"))


def cholesky(a: Any, *, upper: bool = False) -> Tensor:
    """The lower triangular L with L Lᴴ = a, or the upper triangular U with Uᴴ U = a.

    Of `a` the Hermitian part (a + aᴴ)/2 is taken, so that gradients are Hermitian.

    >>> cholesky([[4.0, 2.0], [2.0, 5.0]]).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    low = _cholesky(inexact(square(a, "cholesky"), "cholesky"))
    return matrix_transpose(conj(low)) if upper else low


def lu(a: Any) -> LUResult:
    """a = P L U with a permutation matrix P, L lower triangular with unit diagonal, and U upper triangular.

    For an m × n matrix, L is m × k and U is k × n, where k is the smaller of m and n.

    >>> p, low, up = lu([[1.0, 2.0], [4.0, 2.0]])
    >>> low.tolist(), up.tolist()
    ([[1.0, 0.0], [0.25, 1.0]], [[4.0, 2.0], [0.0, 1.5]])
    """
    t = inexact(matrices(a, "lu"), "lu")
    permutation, low, up = _lu(t)
    place = rows(positions(t.shape[-2]))
    return LUResult(as_dtype_of(columns(permutation) == place, t.dtype), low, up)


def qr(a: Any, *, mode: str = "reduced") -> QRResult:
    """a = Q R with orthonormal columns in Q and R upper triangular.

    mode "reduced": Q is m × k and R is k × n, where k is the smaller of m and n; "complete": Q is m × m and R is m × n.
    Derivatives need the first k columns of `a` to be independent; the columns that complete Q have none.

    >>> q, r = qr([[3.0, 1.0], [4.0, 2.0]])
    >>> abs(r[0, 0]).item()
    5.0
    """
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"qr: mode must be 'reduced' or 'complete', got {mode!r}")
    q, r = _qr(inexact(matrices(a, "qr"), "qr"), int(mode == "complete"))
    return QRResult(q, r)


def svd(a: Any, *, full_matrices: bool = True) -> SVDResult:
    """a = U diag(S) Vh with orthonormal columns in U and rows in Vh, and S ≥ 0 descending.

    With `full_matrices` U and Vh are square; the vectors that complete them have no derivative, and asking for it raises.
    Gradients are right for losses that do not depend on the signs (phases) of pairs of singular vectors.

    >>> svd([[3.0, 0.0], [0.0, 4.0]]).S.tolist()
    [4.0, 3.0]
    """
    u, s, vh = _svd(inexact(matrices(a, "svd"), "svd"), int(bool(full_matrices)))
    return SVDResult(u, s, vh)


def svdvals(a: Any) -> Tensor:
    """The singular values, descending; differentiable where some are equal, too.

    >>> svdvals([[3.0, 0.0], [0.0, 4.0]]).tolist()
    [4.0, 3.0]
    """
    t = inexact(matrices(a, "svdvals"), "svdvals")
    # The derivative needs the vectors: better found at once than in a second factorisation.
    return _svd(t, 0)[1] if differentiated(t) else _svdvals(t)


def eigh(a: Any) -> EighResult:
    """Eigenvalues, ascending, and orthonormal eigenvectors (columns) of symmetric or Hermitian matrices.

    Of `a` the Hermitian part (a + aᴴ)/2 is taken, so that gradients are Hermitian.

    >>> eigh([[2.0, 0.0], [0.0, 1.0]]).eigenvalues.tolist()
    [1.0, 2.0]
    """
    w, v = _eigh(inexact(square(a, "eigh"), "eigh"))
    return EighResult(w, v)


def eigvalsh(a: Any) -> Tensor:
    """Eigenvalues, ascending, of symmetric or Hermitian matrices; differentiable where some are equal, too.

    >>> eigvalsh([[2.0, 0.0], [0.0, 1.0]]).tolist()
    [1.0, 2.0]
    """
    t = inexact(square(a, "eigvalsh"), "eigvalsh")
    return _eigh(t)[0] if differentiated(t) else _eigvalsh(t)


def eig(a: Any) -> EigResult:
    """Eigenvalues and eigenvectors (columns, of length 1) of square matrices; complex.

    Gradients are right for losses that do not depend on the phases of the eigenvectors.

    >>> eig([[0.0, 1.0], [-1.0, 0.0]]).eigenvalues.tolist()
    [1j, -1j]
    """
    w, v = _eig(inexact(square(a, "eig"), "eig"))
    return EigResult(w, v)


def eigvals(a: Any) -> Tensor:
    """Eigenvalues of square matrices; complex.

    >>> eigvals([[0.0, 1.0], [-1.0, 0.0]]).tolist()
    [1j, -1j]
    """
    t = inexact(square(a, "eigvals"), "eigvals")
    return _eig(t)[0] if differentiated(t) else _eigvals(t)
