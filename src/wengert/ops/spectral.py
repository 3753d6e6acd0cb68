"""Orthogonal factorisations: QR, singular values, eigenvalues, on the last two axes.

At equal eigenvalues or singular values the vectors have no derivative: their tangents are not finite. Functions of the
values alone do not touch them (strong zero), and are differentiated exactly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert.ops.linalg import (
    NOT_SQUARE,
    adjoint_of,
    columns,
    diagonal,
    diagonal_matrix,
    lu_factor,
    lu_solve,
    part,
    positions,
    product,
    rows,
    solve_triangular,
    symmetric,
)
from wengert.ops.reduce import sum
from wengert.ops.shape import broadcast_to, concat, reshape, tril, zeros_like
from wengert.ops.tangents import conj, make_complex, real, scale, unscale, where
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Invalid, Sample, matrix, positive, regular, spaced
from wengert.registry.samples import real as reals
from wengert.registry.zero import ZERO

_NO_MATRIX = NOT_SQUARE[1]
_NAN = matrix((1.0, math.nan), (2.0, 3.0))

# ---------------------------------------------------------------------------------------- derivatives that do not exist

undefined_tangent: Op = define(
    "undefined_tangent",
    formula="NaN: the derivative of what has none",
    reference=lambda x, shape, reason: np.full(shape, np.nan),
    jvp="linear",
    transpose=lambda y_bar, x, shape, reason: undefined_cotangent(y_bar, x.shape, reason),
    sparsity="everything",
    vmap="axes",
    samples=[Sample((regular(2, 3),), ((3, 1), 0), gradients=False)],
    public=False,
)
undefined_cotangent: Op = define(
    "undefined_cotangent",
    formula="zeros, if x is zero; raises otherwise",
    reference=lambda x, shape, reason: np.zeros(shape),
    jvp="linear",
    transpose=lambda y_bar, x, shape, reason: undefined_tangent(y_bar, x.shape, reason),
    sparsity="everything",
    vmap="axes",
    samples=[Sample((regular(0, 3),), ((3, 1), 0), gradients=False)],
    public=False,
)
_OF_SVD, _OF_QR = 0, 1


def _completed(thin: Any, axis: int, whole: Any, x_dot: Any, reason: int) -> Any:
    """Tangents of a basis of which only the first vectors have one."""
    missing = tuple(whole.shape[i] - thin.shape[i] if i == axis else n for i, n in enumerate(thin.shape))
    return concat([thin, undefined_tangent(x_dot, missing, reason)], axis)


# -------------------------------------------------------------------------------------------------------------- QR


def _antihermitian(m: Any) -> Any:
    """Ω with M − Ω upper triangular and real on its diagonal."""
    low = tril(m, -1)
    omega = low - adjoint_of(low)
    if m.dtype.kind == "c":
        turn = OPS["imag"](diagonal(m))
        omega = omega + diagonal_matrix(make_complex(turn * 0.0, turn))
    return omega


def _qr_jvp(a_dot: Any, y: Any, a: Any, complete: int) -> Any:
    # Ȧ R⁻¹ = Q̇ + Q Ṙ R⁻¹, where Ṙ R⁻¹ is upper triangular and Qᴴ Q̇ antihermitian.
    q, r = y
    m, n = a.shape[-2:]
    if m > n:
        thin, square = part(q, (0, 0), (m, n)), part(r, (0, 0), (n, n))
        x = solve_triangular(square, a_dot, 1, 0, 0, 1, 0)
        inner = product(adjoint_of(thin), x)
        upper = inner - _antihermitian(inner)
        q_dot, r_dot = x - product(thin, upper), product(upper, square)
        if not complete:
            return q_dot, r_dot
        padding = OPS["unslice"](r_dot, r.shape, (0,) * r.ndim, (1,) * r.ndim)
        return _completed(q_dot, q.ndim - 1, q, a_dot, _OF_QR), padding
    inner = product(adjoint_of(q), a_dot)
    omega = _antihermitian(solve_triangular(part(r, (0, 0), (m, m)), part(inner, (0, 0), (m, m)), 1, 0, 0, 1, 0))
    return product(q, omega), inner - product(omega, r)


qr = define(
    "qr",
    work="cubic",
    precision="full",
    formula="A = Q R",
    reference=lambda a, complete: np.linalg.qr(a, "complete" if complete else "reduced"),
    jvp=_qr_jvp,
    sparsity="matrix",
    vmap="leading",
    samples=[
        Sample((regular(3, 3),), (0,)),
        Sample((regular(2, 4, 3),), (0,)),
        Sample((regular(2, 4),), (1,)),
        Sample((regular(4, 2),), (1,), gradients=False),
        Sample((regular(0, 3),), (0,), gradients=False),
        Sample((regular(3, 0),), (1,), gradients=False),
    ],
    invalid=[_NO_MATRIX._replace(attrs=(0,))],
    expensive=True,
    public=False,
)

# --------------------------------------------------------------------------------------------------- singular values


def _inverse_gaps(gap: Any) -> Any:
    """1/gap off the diagonal, and 0 on it; infinite where values are equal."""
    n = gap.shape[-1]
    on_diagonal = reshape(positions(n), (n, 1)) == reshape(positions(n), (1, n))
    on_diagonal = broadcast_to(on_diagonal, gap.shape)
    return where(on_diagonal, 0.0, 1.0 / where(on_diagonal, 1.0, gap))


def _svd_jvp(a_dot: Any, y: Any, a: Any, full: int) -> Any:
    # With B = Uᴴ Ȧ V, U̇ = U Ω + …, V̇ = V Ψ + …: B = Ω S + Ṡ − S Ψ (Townsend, 2016; Wan and Zhang, 2019, for the phases).
    u, s, vh = y
    m, n = a.shape[-2:]
    k = s.shape[-1]
    thin_u, thin_vh = (part(u, (0, 0), (m, k)), part(vh, (0, 0), (k, n))) if full else (u, vh)
    v = adjoint_of(thin_vh)
    pushed = product(a_dot, v)
    b = product(adjoint_of(thin_u), pushed)
    s_dot = real(diagonal(b))
    b_adjoint = adjoint_of(b)
    gaps = _inverse_gaps((columns(s) - rows(s)) * (columns(s) + rows(s)))
    omega = scale(*_one_type(b * columns(s) + b_adjoint * rows(s), gaps))
    psi = scale(*_one_type(b * rows(s) + b_adjoint * columns(s), gaps))
    if a.dtype.kind == "c":  # the phase of a pair is free; half goes to each
        turn = unscale(OPS["imag"](diagonal(b)), s * 2.0)
        turn = diagonal_matrix(make_complex(turn * 0.0, turn))
        omega, psi = omega + turn, psi - turn
    u_dot, v_dot = product(thin_u, omega), product(v, psi)
    if m > n:
        rest = pushed - product(thin_u, b)
        u_dot = u_dot + unscale(*_one_type(rest, broadcast_to(columns(s), rest.shape)))
    elif n > m:
        rest = product(adjoint_of(a_dot), thin_u)
        rest = rest - product(v, b_adjoint)
        v_dot = v_dot + unscale(*_one_type(rest, broadcast_to(columns(s), rest.shape)))
    vh_dot = adjoint_of(v_dot)
    if full and m > n:
        u_dot = _completed(u_dot, u.ndim - 1, u, a_dot, _OF_SVD)
    elif full and n > m:
        vh_dot = _completed(vh_dot, vh.ndim - 2, vh, a_dot, _OF_SVD)
    return u_dot, s_dot, vh_dot


def _one_type(tangent: Any, coefficient: Any) -> tuple[Any, Any]:
    """Operands of `scale`, which takes one dtype."""
    return tangent, OPS["cast"](coefficient, tangent.dtype.code) if tangent.dtype.kind == "c" else coefficient


svd: Op = define(
    "svd",
    work="cubic",
    precision="full",
    formula="A = U diag(s) Vᴴ, s descending",
    jvp=_svd_jvp,
    sparsity="matrix",
    vmap="leading",
    samples=[
        Sample((spaced(3, 3),), (0,), phases=True),
        Sample((spaced(2, 4, 3),), (0,), phases=True),
        Sample((spaced(2, 4),), (0,), phases=True),
        Sample((spaced(3, 3),), (1,), phases=True),
        Sample((spaced(4, 2),), (1,), gradients=False, phases=True),
        Sample((spaced(0, 3),), (0,), gradients=False),
        Sample((spaced(2, 0),), (1,), gradients=False),
    ],
    invalid=[_NO_MATRIX._replace(attrs=(0,)), Invalid((_NAN,), (0,), "LinAlgError", "contains NaN or infinity")],
    expensive=True,
    public=False,
)


def _svdvals_jvp(a_dot: Any, y: Any, a: Any) -> Any:
    u, _, vh = svd(a, 0)
    return real(sum(conj(u) * product(a_dot, adjoint_of(vh)), (a.ndim - 2,), 0))


svdvals = define(
    "svdvals",
    work="cubic",
    precision="full",
    formula="singular values, descending",
    reference=lambda a: np.linalg.svd(a, compute_uv=False),
    jvp=_svdvals_jvp,
    sparsity="matrix",
    vmap="leading",
    samples=[Sample((spaced(3, 3),)), Sample((spaced(2, 4, 3),)), Sample((spaced(3, 5),)), Sample((spaced(3, 0),))],
    invalid=[_NO_MATRIX, Invalid((_NAN,), (), "LinAlgError", "contains NaN or infinity")],
    expensive=True,
    public=False,
)

# ------------------------------------------------------------------------------------------------------- eigenvalues


def _eigh_jvp(a_dot: Any, y: Any, a: Any) -> Any:
    w, v = y
    b = product(adjoint_of(v), symmetric(a_dot), v)
    inner = scale(*_one_type(b, _inverse_gaps(columns(w) - rows(w))))
    return real(diagonal(b)), product(v, inner)


eigh: Op = define(
    "eigh",
    work="cubic",
    precision="full",
    formula="(A + Aᴴ)/2 = V diag(w) Vᴴ, w ascending",
    jvp=_eigh_jvp,
    sparsity="matrix",
    vmap="leading",
    samples=[
        Sample((spaced(3, 3),), phases=True),
        Sample((spaced(2, 4, 4),), phases=True),
        Sample((spaced(0, 0),)),
    ],
    invalid=[*NOT_SQUARE, Invalid((_NAN,), (), "LinAlgError", "contains NaN or infinity")],
    expensive=True,
    public=False,
)


def _eigvalsh_jvp(a_dot: Any, y: Any, a: Any) -> Any:
    _, v = eigh(a)
    return real(sum(conj(v) * product(symmetric(a_dot), v), (a.ndim - 2,), 0))


eigvalsh = define(
    "eigvalsh",
    work="cubic",
    precision="full",
    formula="eigenvalues of (A + Aᴴ)/2, ascending",
    reference=lambda a: np.linalg.eigvalsh((a + np.conj(np.swapaxes(a, -1, -2))) / 2),
    jvp=_eigvalsh_jvp,
    sparsity="matrix",
    vmap="leading",
    samples=[Sample((spaced(3, 3),)), Sample((spaced(2, 4, 4),)), Sample((spaced(0, 0),))],
    invalid=[*NOT_SQUARE, Invalid((_NAN,), (), "LinAlgError", "contains NaN or infinity")],
    expensive=True,
    public=False,
)


def _in_eigenbasis(a_dot: Any, v: Any) -> Any:
    """V⁻¹ Ȧ V."""
    if a_dot.dtype.kind != "c":
        a_dot = OPS["cast"](a_dot, v.dtype.code)
    factors, pivots = lu_factor(v)
    return lu_solve(factors, pivots, v, product(a_dot, v), 0)


def _eig_jvp(a_dot: Any, y: Any, a: Any) -> Any:
    w, v = y
    b = _in_eigenbasis(a_dot, v)
    moved = product(v, scale(b, _inverse_gaps(columns(w) - rows(w))))
    # Vectors keep their length; their phases are free, and taken not to turn.
    growth = real(sum(conj(v) * moved, (v.ndim - 2,), 0))
    return diagonal(b), moved - v * columns(OPS["cast"](growth, v.dtype.code))


eig: Op = define(
    "eig",
    work="cubic",
    precision="full",
    formula="A V = V diag(w)",
    jvp=_eig_jvp,
    sparsity="matrix",
    vmap="leading",
    samples=[Sample((spaced(3, 3),), gradients=False), Sample((spaced(2, 4, 4),), gradients=False)],
    invalid=[*NOT_SQUARE, Invalid((_NAN,), (), "LinAlgError", "contains NaN or infinity")],
    expensive=True,
    public=False,
)


def _eigvals_jvp(a_dot: Any, y: Any, a: Any) -> Any:
    _, v = eig(a)
    return diagonal(_in_eigenbasis(a_dot, v))


eigvals = define(
    "eigvals",
    work="cubic",
    precision="full",
    formula="eigenvalues",
    reference=lambda a: np.linalg.eigvals(a).astype(np.complex128),
    jvp=_eigvals_jvp,
    sparsity="matrix",
    vmap="leading",
    samples=[Sample((spaced(3, 3),)), Sample((spaced(2, 4, 4),)), Sample((spaced(0, 0),))],
    invalid=[*NOT_SQUARE, Invalid((_NAN,), (), "LinAlgError", "contains NaN or infinity")],
    expensive=True,
    public=False,
)

# ------------------------------------------------------------------------------------------- pseudo-inverse, exponential


def _pinv_jvp(a_dot: Any, cutoff_dot: Any, y: Any, a: Any, cutoff: Any) -> Any:
    # At constant rank (Golub and Pereyra, 1973): Ṗ = −P Ȧ P + P Pᴴ Ȧᴴ (I − A P) + (I − P A) Ȧᴴ Pᴴ P.
    # The singular values are for ranks, which have no derivative; `svdvals` has theirs.
    p = y[0]
    a_back, p_back = adjoint_of(a_dot), adjoint_of(p)
    left = product(p, p_back, a_back)
    right = product(a_back, p_back, p)
    return left - product(left, a, p) + right - product(p, a, right) - product(p, a_dot, p), ZERO


pinv = define(
    "pinv",
    work="cubic",
    precision="full",
    formula="V diag(1/s) Uᴴ, without the s that are zero; and s",
    reference=lambda a, cutoff: (np.linalg.pinv(a, rcond=cutoff), np.linalg.svd(a, compute_uv=False)),
    jvp=_pinv_jvp,
    vmap="leading",
    samples=[
        Sample((spaced(3, 3), positive(high=0.31)), gradients=False),
        Sample((spaced(2, 4, 3), positive(2, high=0.31)), gradients=False),
        Sample((spaced(3, 0), positive(high=0.31)), gradients=False),
    ],
    invalid=[
        Invalid((reals(3), positive()), (), "ShapeError", "at least two axes"),
        Invalid((spaced(3, 3), positive(2)), (), "ShapeError", "one real cutoff for each matrix"),
    ],
    expensive=True,
    public=False,
)


def _exp_push_jvp(a_dot: Any, e_dot: Any, y: Any, a: Any, e: Any) -> Any:
    # exp of [[A, E], [0, A]] has L(A, E) in its upper right block; so has its derivative that of L.
    if a_dot is ZERO:
        return matrix_exp_push(a, e_dot)
    n, last = a.shape[-1], a.ndim - 1
    zero = zeros_like(a)

    def block(diagonal: Any, corner: Any) -> Any:
        corner = zero if corner is ZERO else corner
        return concat([concat([diagonal, corner], last), concat([zero, diagonal], last)], last - 1)

    return part(matrix_exp_push(block(a, e), block(a_dot, e_dot)), (0, n), (n, n))


def _np_matrix_exp(a: Any) -> Any:
    import scipy.linalg

    return scipy.linalg.expm(a)


def _np_exp_push(a: Any, e: Any) -> Any:
    import scipy.linalg

    pushed = [scipy.linalg.expm_frechet(a[i], e[i], compute_expm=False) for i in np.ndindex(*a.shape[:-2])]
    return np.reshape(pushed, a.shape)


matrix_exp = define(
    "matrix_exp",
    work="cubic",
    precision="full",
    formula="Σ Aᵏ/k!",
    reference=_np_matrix_exp,
    jvp=lambda a_dot, y, a: matrix_exp_push(a, a_dot),
    sparsity="matrix",
    vmap="leading",
    samples=[Sample((regular(3, 3),)), Sample((regular(2, 4, 4),)), Sample((spaced(3, 3),)), Sample((regular(0, 0),))],
    invalid=NOT_SQUARE,
    expensive=True,
    public=False,
)
matrix_exp_push: Op = define(
    "matrix_exp_push",
    work="cubic",
    formula="d/dt exp(A + t E) at t = 0",
    reference=_np_exp_push,
    jvp=_exp_push_jvp,
    transpose=(None, lambda y_bar, a, e: matrix_exp_push(adjoint_of(a), y_bar)),
    sparsity="matrix",
    vmap="leading",
    samples=[Sample((regular(3, 3), regular(3, 3))), Sample((spaced(2, 3, 3), regular(2, 3, 3)))],
    invalid=[Invalid((regular(3, 3), regular(2, 2)), (), "ShapeError", "direction of its type")],
    expensive=True,
    public=False,
)
