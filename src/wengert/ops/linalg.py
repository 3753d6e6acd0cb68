"""Elimination: solving, inverses, determinants, LU and Cholesky, on the last two axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.dtypes import int64
from wengert.ops.index import take_along_axis
from wengert.ops.matmul import matmul
from wengert.ops.reduce import prod, sum
from wengert.ops.shape import broadcast_to, iota, permute, reshape, slice, tril, triu, unslice
from wengert.ops.sparsity import solution
from wengert.ops.tangents import conj, make_complex, real, where
from wengert.program.trace import create
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Array, Invalid, Sample, exactly, matrix, regular, spd, triangular
from wengert.registry.samples import real as reals
from wengert.registry.zero import ZERO

NOT_SQUARE = [
    Invalid((reals(2, 3),), error="ShapeError", match="square matrices, got float64(2, 3)"),
    Invalid((reals(3),), error="ShapeError", match="at least two axes"),
]

# ------------------------------------------------------------------------------------------------ words of the rules


def product(*factors: Any) -> Any:
    """The matrix product, from left to right."""
    y = factors[0]
    for x in factors[1:]:
        y = matmul(y, x, 0, 0)
    return y


def transposed(x: Any) -> Any:
    """xᵀ."""
    n = x.ndim
    return permute(x, (*range(n - 2), n - 1, n - 2))


def adjoint_of(x: Any) -> Any:
    """xᴴ."""
    return conj(transposed(x))


def symmetric(x: Any) -> Any:
    """(x + xᴴ)/2."""
    return (x + adjoint_of(x)) * 0.5


def diagonal(x: Any) -> Any:
    """The diagonal of square matrices."""
    *lead, n, _ = x.shape
    zeros, ones = (0,) * len(lead), (1,) * len(lead)
    return slice(reshape(x, (*lead, n * n)), (*zeros, 0), (*lead, n), (*ones, n + 1))


def diagonal_matrix(x: Any) -> Any:
    """Square matrices with this diagonal."""
    *lead, n = x.shape
    flat = unslice(x, (*lead, n * n), (0,) * x.ndim, (*(1,) * len(lead), n + 1))
    return reshape(flat, (*lead, n, n))


def columns(x: Any) -> Any:
    """A vector as something that multiplies columns: (…, 1, n)."""
    return reshape(x, (*x.shape[:-1], 1, x.shape[-1]))


def rows(x: Any) -> Any:
    """A vector as something that multiplies rows: (…, n, 1)."""
    return reshape(x, (*x.shape, 1))


def part(x: Any, start: tuple[Any, Any], size: tuple[Any, Any]) -> Any:
    """A block of matrices."""
    lead = x.shape[:-2]
    zeros, ones = (0,) * len(lead), (1,) * x.ndim
    return slice(x, (*zeros, *start), (*lead, *size), ones)


def positions(n: Any) -> Any:
    """0, 1, …, n - 1 as int64."""
    return create(iota, ((n,), int64.code, 0.0, 1.0))


def _total(x: Any) -> Any:
    return sum(x, (x.ndim - 2, x.ndim - 1), 0)


# ---------------------------------------------------------------------------------------------- solving, inverses


def _np_lu_factor(a: Any) -> Any:
    import scipy.linalg

    # LAPACK reads the transpose of a row-major matrix.
    stack = [scipy.linalg.lu_factor(a[i].T) for i in np.ndindex(*a.shape[:-2])]
    factors = np.array([f.T for f, _ in stack], a.dtype).reshape(a.shape)
    return factors, np.array([p + 1 for _, p in stack]).reshape(a.shape[:-1])


lu_factor = define(
    "lu_factor",
    work="cubic",
    precision="full",
    formula="factors and pivots, for lu_solve",
    reference=_np_lu_factor,
    vmap="leading",
    samples=[Sample((regular(3, 3),)), Sample((regular(2, 4, 4),)), Sample((regular(0, 0),))],
    invalid=NOT_SQUARE,
    expensive=True,
    public=False,
)


def _lu_solve_jvp(*args: Any, adjoint: int) -> Any:
    # (A + Ȧ)(x + ẋ) = b + ḃ. The factors are those of `a`: they carry no tangent of their own.
    _, _, a_dot, b_dot, y, factors, pivots, a, _ = args
    if a_dot is not ZERO:
        b_dot = b_dot - product(adjoint_of(a_dot) if adjoint else a_dot, y)
    return lu_solve(factors, pivots, a, b_dot, adjoint)


def _np_lu_solve(factors: Any, pivots: Any, a: Any, b: Any, adjoint: int) -> Any:
    low, up = np.tril(factors), np.triu(factors, 1) + np.eye(factors.shape[-1])
    permutation = np.eye(factors.shape[-1])
    for i, p in reversed(list(enumerate(pivots))):
        permutation[[i, p - 1]] = permutation[[p - 1, i]]
    matrix = low @ up @ permutation.T
    return np.linalg.solve(matrix.conj().T if adjoint else matrix, b)


lu_solve: Op = define(
    "lu_solve",
    work="cubic",
    precision="full",
    formula="A⁻¹ b or A⁻ᴴ b, from the factors of A; what is differentiated is A",
    reference=_np_lu_solve,
    jvp=_lu_solve_jvp,
    transpose=(
        None,
        None,
        None,
        lambda y_bar, factors, pivots, a, b, adjoint: lu_solve(factors, pivots, a, y_bar, 1 - adjoint),
    ),
    sparsity=solution(2, 3),
    vmap="leading",
    samples=[
        Sample((triangular(3, 3), Array((3,), kind="pivot"), triangular(3, 3), reals(3, 2)), (0,), gradients=False),
        Sample((triangular(3, 3), Array((3,), kind="pivot"), triangular(3, 3), reals(3, 1)), (1,), gradients=False),
    ],
    invalid=[
        Invalid(
            (triangular(3, 3), Array((3,), kind="pivot"), triangular(3, 3), reals(2, 1)), (0,), "ShapeError", "rows"
        ),
        Invalid((triangular(3, 3), exactly(1, 2, 3), triangular(3, 3), reals(3, 1)), (0,), "DTypeError", "pivots"),
    ],
    expensive=True,
    public=False,
)
inv: Op = define(
    "inv",
    work="cubic",
    precision="full",
    formula="A⁻¹",
    reference=lambda a, check: np.linalg.inv(a),
    jvp=lambda a_dot, y, a, check: -product(y, a_dot, y),
    sparsity="matrix",
    vmap="leading",
    samples=[Sample((regular(3, 3),), (1,)), Sample((regular(2, 4, 4),), (0,)), Sample((regular(0, 0),), (1,))],
    invalid=[
        *(i._replace(attrs=(1,)) for i in NOT_SQUARE),
        Invalid((reals(2, 2, low=0.0, high=0.0),), (1,), "LinAlgError", "the matrix of float64(2, 2) is singular"),
        Invalid((reals(3, 2, 2, low=0.0, high=0.0),), (1,), "LinAlgError", "matrix (0,) of float64(3, 2, 2)"),
    ],
    expensive=True,
    public=False,
)


def _solve_triangular_jvp(
    a_dot: Any, b_dot: Any, y: Any, a: Any, b: Any, upper: int, adjoint: int, unit: int, right: int, check: int
) -> Any:
    if a_dot is not ZERO:
        triangle = triu(a_dot, unit) if upper else tril(a_dot, -unit)
        triangle = adjoint_of(triangle) if adjoint else triangle
        b_dot = b_dot - (product(y, triangle) if right else product(triangle, y))
    return solve_triangular(a, b_dot, upper, adjoint, unit, right, 0)


def _np_solve_triangular(a: Any, b: Any, upper: int, adjoint: int, unit: int, right: int, check: int) -> Any:
    t = np.triu(a, unit) if upper else np.tril(a, -unit)
    t = t + np.eye(a.shape[-1]) if unit else t
    t = np.conj(np.swapaxes(t, -1, -2)) if adjoint else t
    return b @ np.linalg.inv(t) if right else np.linalg.solve(t, b)


solve_triangular: Op = define(
    "solve_triangular",
    work="cubic",
    precision="full",
    formula="op(A)⁻¹ b or b op(A)⁻¹, from one triangle of A",
    reference=_np_solve_triangular,
    jvp=_solve_triangular_jvp,
    transpose=(
        None,
        lambda y_bar, a, b, upper, adjoint, unit, right, check: solve_triangular(
            a, y_bar, upper, 1 - adjoint, unit, right, 0
        ),
    ),
    sparsity=solution(0, 1),
    vmap="leading",
    samples=[
        Sample((triangular(3, 3), reals(3, 2)), (1, 0, 0, 0, 1)),
        Sample((triangular(3, 3), reals(3, 1)), (0, 0, 0, 0, 1)),
        Sample((triangular(2, 3, 3), reals(2, 3, 2)), (1, 1, 0, 0, 1)),
        Sample((triangular(3, 3), reals(2, 3)), (0, 1, 1, 1, 1)),
        Sample((triangular(3, 3), reals(2, 3)), (1, 0, 0, 1, 0)),
        Sample((triangular(3, 3), reals(3, 0)), (1, 0, 0, 0, 1)),
    ],
    invalid=[
        Invalid((reals(3, 2), reals(3, 2)), (1, 0, 0, 0, 1), "ShapeError", "square matrices"),
        Invalid((triangular(3, 3), reals(2, 2)), (1, 0, 0, 0, 1), "ShapeError", "the same number of rows"),
        Invalid((triangular(2, 3, 3), reals(3, 2)), (1, 0, 0, 0, 1), "ShapeError", "leading axes"),
        Invalid((reals(2, 2, low=0.0, high=0.0), reals(2, 1)), (1, 0, 0, 0, 1), "LinAlgError", "zero on its diagonal"),
    ],
    expensive=True,
    public=False,
)

# --------------------------------------------------------------------------------------------------- determinants

det = define(
    "det",
    work="cubic",
    precision="full",
    formula="the determinant",
    reference=np.linalg.det,
    jvp=lambda a_dot, y, a: _total(a_dot * cofactor(a)),
    sparsity="matrix",
    vmap="leading",
    samples=[
        Sample((regular(3, 3),)),
        Sample((regular(2, 2, 2),)),
        Sample((regular(0, 0),)),
        Sample((regular(2, 0, 0),)),
    ],
    invalid=NOT_SQUARE,
    expensive=True,
    public=False,
)


def _slogdet_jvp(a_dot: Any, y: Any, a: Any) -> Any:
    trace = _total(a_dot * transposed(inv(a, 0)))  # of A⁻¹ Ȧ = d log det A
    if a.dtype.kind != "c":
        return ZERO, trace
    turn = OPS["imag"](trace)
    return make_complex(turn * 0.0, turn) * y[0], real(trace)


slogdet = define(
    "slogdet",
    work="cubic",
    precision="full",
    formula="sign and ln |·| of the determinant",
    reference=np.linalg.slogdet,
    jvp=_slogdet_jvp,
    sparsity="matrix",
    vmap="leading",
    samples=[Sample((regular(3, 3),)), Sample((regular(2, 2, 2),)), Sample((regular(0, 0),))],
    invalid=NOT_SQUARE,
    expensive=True,
    public=False,
)


def _without_pairs(s: Any) -> Any:
    """∏ₖ sₖ over k ∉ {i, j}, and 0 where i = j: without division, so that zeros are harmless."""
    n = s.shape[-1]
    i, j, k = (reshape(positions(n), tuple(n if axis == a else 1 for a in range(3))) for axis in range(3))
    cube = (*s.shape[:-1], n, n, n)
    spread = broadcast_to(reshape(s, (*s.shape[:-1], 1, 1, n)), cube)
    others = prod(where(broadcast_to((k == i) | (k == j), cube), 1.0, spread), (len(cube) - 1,), 0)
    return where(broadcast_to(reshape(i == j, (n, n)), others.shape), 0.0, others)


def _cofactor_jvp(a_dot: Any, y: Any, a: Any) -> Any:
    # With A = U S Vᴴ and B = Uᴴ Ȧ V: adj(A + Ȧ) = det(U) det(Vᴴ) V adj(S + B) Uᴴ, and the adjugate of a diagonal matrix
    # is simple to differentiate. Exact for singular matrices, of any rank.
    u, s, vh = OPS["svd"](a, 0)
    b = product(adjoint_of(u), a_dot, adjoint_of(vh))
    pairs = _without_pairs(s)
    traces = sum(columns(diagonal(b)) * pairs, (b.ndim - 1,), 0)
    inner = diagonal_matrix(traces) - b * pairs
    sign = det(u) * det(vh)
    moved = product(conj(u), transposed(inner), conj(vh))
    return moved * reshape(sign, (*sign.shape, 1, 1))


def _np_cofactor(a: Any) -> Any:
    y = np.empty_like(a)
    for index in np.ndindex(*a.shape):
        *lead, i, j = index
        minor = np.delete(np.delete(a[tuple(lead)], i, 0), j, 1)
        y[index] = (-1) ** (i + j) * np.linalg.det(minor)
    return y


_RANK_ONE = matrix((1.0, 2.0, 3.0), (2.0, 4.0, 6.0), (-1.0, -2.0, -3.0))
_RANK_TWO = matrix((1.0, 2.0, 3.0), (4.0, 5.0, 6.0), (5.0, 7.0, 9.0))
cofactor: Op = define(
    "cofactor",
    work="cubic",
    precision="full",
    formula="∂ det(A) / ∂Aᵢⱼ",
    reference=_np_cofactor,
    jvp=_cofactor_jvp,
    sparsity="matrix",
    vmap="leading",
    samples=[
        Sample((regular(3, 3),)),
        Sample((regular(2, 2, 2),)),
        Sample((_RANK_TWO,), second=False),  # of complex ones, svd has no derivative by phases at 0
        Sample((_RANK_ONE,), second=False),  # svd has no second derivative at equal values
        Sample((regular(0, 0),)),
    ],
    invalid=NOT_SQUARE,
    expensive=True,
    public=False,
)

# -------------------------------------------------------------------------------------------------- factorisations


def _lu_jvp(a_dot: Any, y: Any, a: Any) -> Any:
    # With M = L⁻¹ Pᵀ Ȧ U⁻¹ of the square part: L̇ = L · low(M), U̇ = up(M) · U; what is left over follows linearly.
    permutation, low, up = y
    m, n = a.shape[-2:]
    moved = take_along_axis(a_dot, broadcast_to(rows(permutation), a_dot.shape), a_dot.ndim - 2)
    k = low.shape[-1]
    square_low, square_up = part(low, (0, 0), (k, k)), part(up, (0, 0), (k, k))
    inner = solve_triangular(square_low, part(moved, (0, 0), (k, k)), 0, 0, 1, 0, 0)
    inner = solve_triangular(square_up, inner, 1, 0, 0, 1, 0)
    low_dot, up_dot = product(square_low, tril(inner, -1)), product(triu(inner, 0), square_up)
    if m > n:
        rest = part(moved, (n, 0), (m - n, n)) - product(part(low, (n, 0), (m - n, n)), up_dot)
        low_dot = OPS["concat"]([low_dot, solve_triangular(up, rest, 1, 0, 0, 1, 0)], low.ndim - 2)
    elif n > m:
        rest = part(moved, (0, m), (m, n - m)) - product(low_dot, part(up, (0, m), (m, n - m)))
        up_dot = OPS["concat"]([up_dot, solve_triangular(low, rest, 0, 0, 1, 0, 0)], up.ndim - 1)
    return ZERO, low_dot, up_dot


def _np_lu(a: Any) -> Any:
    import scipy.linalg

    stack = [scipy.linalg.lu(a[i], p_indices=True) for i in np.ndindex(*a.shape[:-2])]
    # a = l[p] u there; a[permutation] = l u here.
    parts = [(np.argsort(p), low, up) for p, low, up in stack]
    return tuple(np.array(x).reshape(*a.shape[:-2], *x[0].shape) for x in zip(*parts))


lu = define(
    "lu",
    work="cubic",
    precision="full",
    formula="permutation, L and U with A[permutation] = L U",
    reference=_np_lu,
    jvp=_lu_jvp,
    sparsity="matrix",
    vmap="leading",
    samples=[Sample((regular(3, 3),)), Sample((regular(2, 4, 3),)), Sample((regular(3, 5),))],
    invalid=[NOT_SQUARE[1]],
    expensive=True,
    public=False,
)


def _cholesky_jvp(a_dot: Any, y: Any, a: Any) -> Any:
    # L̇ = L Φ(L⁻¹ Ȧ L⁻ᴴ), where Φ takes the lower triangle with half the diagonal.
    inner = solve_triangular(y, symmetric(a_dot), 0, 0, 0, 0, 0)
    inner = solve_triangular(y, inner, 0, 1, 0, 1, 0)
    return product(y, (tril(inner, 0) + tril(inner, -1)) * 0.5)


cholesky = define(
    "cholesky",
    work="cubic",
    precision="full",
    formula="lower triangular L with L Lᴴ = (A + Aᴴ)/2",
    reference=lambda a: np.linalg.cholesky((a + np.conj(np.swapaxes(a, -1, -2))) / 2),
    jvp=_cholesky_jvp,
    sparsity="matrix",
    vmap="leading",
    samples=[Sample((spd(3, 3),)), Sample((spd(2, 4, 4),)), Sample((regular(0, 0),))],
    invalid=[
        *NOT_SQUARE,
        Invalid((reals(2, 2, low=-1.0, high=-0.5),), error="LinAlgError", match="is not positive definite"),
    ],
    expensive=True,
    public=False,
)
