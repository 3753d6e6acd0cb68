"""Linear systems, inverses and determinants."""

from __future__ import annotations

from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import DTypeError, ShapeError
from wengert.linalg.results import SlogdetResult
from wengert.program.trace import broadcast_shapes
from wengert.tensors.arguments import Size, as_tensor, describe, native, promoted

_lu_factor, _lu_solve, _inv = native("lu_factor"), native("lu_solve"), native("inv")
_det, _slogdet, _solve_triangular = native("det"), native("slogdet"), native("solve_triangular")
_reshape, _broadcast_to = native("reshape"), native("broadcast_to")


def matrices(x: Any, name: str) -> Tensor:
    """A tensor of at least two axes."""
    t = as_tensor(x, name)
    if t.ndim < 2:
        raise ShapeError(f"{name}: takes matrices (at least two axes), got {describe(t)}")
    return t


def square(x: Any, name: str) -> Tensor:
    """A tensor of square matrices."""
    t = matrices(x, name)
    if t.shape[-1] != t.shape[-2]:
        raise ShapeError(f"{name}: takes square matrices, got {describe(t)}")
    return t


def inexact(t: Tensor, name: str) -> Tensor:
    """t, whose dtype LAPACK computes in."""
    if t.dtype.name in ("float16", "bfloat16"):
        raise DTypeError(f"{name}: has no routine for {describe(t)}; use astype(wg.float32), and cast the result back")
    if not t.dtype.is_inexact:
        raise DTypeError(f"{name}: takes float32, float64, complex64 or complex128, got {describe(t)}; use astype")
    return t


def spread(x: Tensor, batch: tuple[Size, ...], last: int = 2) -> Tensor:
    """x with its leading axes broadcast."""
    shape = (*batch, *x.shape[x.ndim - last :])
    return x if tuple(x.shape) == shape else _broadcast_to(x, shape)


def system(a: Tensor, b: Any, name: str) -> tuple[Tensor, Tensor, bool]:
    """Matrices and right-hand sides in one dtype; whether b is a vector, which becomes a column."""
    a, b = promoted([a, as_tensor(b, name)])
    inexact(a, name)
    vector = b.ndim == 1
    if b.ndim == 0 or b.shape[0 if vector else -2] != a.shape[-2]:
        raise ShapeError(
            f"{name}: {describe(a)} and {describe(b)} do not fit: the right-hand side must have as many rows as the matrix"
        )
    return a, _reshape(b, (b.shape[0], 1)) if vector else b, vector


@composite(precision="full", functions=("solve",))
def _solve(a: Tensor, b: Tensor) -> Any:
    factors, pivots = _lu_factor(a)
    batch = broadcast_shapes("solve", a.shape[:-2], b.shape[:-2])
    return _lu_solve(spread(factors, batch), spread(pivots, batch, 1), spread(a, batch), spread(b, batch), 0)


def solve(a: Any, b: Any) -> Tensor:
    """The x with a x = b, by LU with partial pivoting; leading axes broadcast, and a `b` of one axis is a vector.

    ẋ = a⁻¹ (ḃ − ȧ x), from the same factors.

    >>> solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 2.0]).tolist()
    [1.0, 0.5]
    """
    a, b, vector = system(square(a, "solve"), b, "solve")
    x: Tensor = _solve(a, b)
    return _reshape(x, x.shape[:-1]) if vector else x


def solve_triangular(a: Any, b: Any, *, upper: bool = True, unit_diagonal: bool = False) -> Tensor:
    """The x with a x = b, where only the upper (or lower) triangle of `a` is read.

    `unit_diagonal`: the diagonal is taken to be 1, and not read.

    >>> solve_triangular([[2.0, 2.0], [0.0, 4.0]], [4.0, 4.0]).tolist()
    [1.0, 1.0]
    """
    a, b, vector = system(square(a, "solve_triangular"), b, "solve_triangular")
    batch = broadcast_shapes("solve_triangular", a.shape[:-2], b.shape[:-2])
    x = _solve_triangular(spread(a, batch), spread(b, batch), int(bool(upper)), 0, int(unit_diagonal), 0, 1)
    return _reshape(x, x.shape[:-1]) if vector else x


def inv(a: Any) -> Tensor:
    """a⁻¹. To solve a system, `solve` is faster and more accurate.

    >>> inv([[4.0, 2.0], [2.0, 2.0]]).tolist()
    [[0.5, -0.5], [-0.5, 1.0]]
    """
    return _inv(inexact(square(a, "inv"), "inv"), 1)


def det(a: Any) -> Tensor:
    """The determinant. Its gradient is the matrix of cofactors, also where `a` is singular.

    >>> det([[1.0, 2.0], [3.0, 4.0]]).item()
    -2.0
    """
    return _det(inexact(square(a, "det"), "det"))


def slogdet(a: Any) -> SlogdetResult:
    """The sign and the logarithm of the absolute value of the determinant: (0, −inf) for a singular matrix.

    >>> sign, logabsdet = slogdet([[2.0, 0.0], [0.0, -1.0]])
    >>> sign.item(), logabsdet.item()
    (-1.0, 0.693...)
    """
    sign, logabsdet = _slogdet(inexact(square(a, "slogdet"), "slogdet"))
    return SlogdetResult(sign, logabsdet)


def differentiated(t: Tensor) -> bool:
    """Whether a derivative may be asked of what is computed from t."""
    return not t._plain or (_core.is_grad_enabled() and (t.requires_grad or bool(_core.recording_tapes())))
