"""Norms, condition numbers, pseudo-inverses, ranks, least squares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.linalg.checking import check, real_and_complex, regular, spaced

KINDS = pytest.mark.parametrize("complex", [False, True], ids=["real", "complex"])
SHAPES = pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)], ids=str)


def _near(a: Any, b: Any, tolerance: float = 1e-13) -> None:
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@KINDS
@SHAPES
@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf])
def test_matrix_norm(ord: Any, shape: Any, complex: bool) -> None:
    a = spaced(*shape, complex=complex)
    for keepdims in (False, True):
        got = wg.linalg.matrix_norm(wg.asarray(a), ord=ord, keepdims=keepdims).numpy()
        expected = np.linalg.norm(a, ord=ord, axis=(-2, -1), keepdims=keepdims)
        assert got.shape == expected.shape
        _near(got, expected)
    check(lambda x: wg.linalg.matrix_norm(x, ord=ord), a)


@KINDS
@pytest.mark.parametrize("ord", [0, 1, 2, 3, 0.5, -1.5, math.inf, -math.inf])
@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_vector_norm(axis: Any, ord: Any, complex: bool) -> None:
    a = regular(3, 4, complex=complex)
    got = wg.linalg.vector_norm(wg.asarray(a), axis=axis, ord=ord, keepdims=True).numpy()
    flat = np.linalg.norm(a.ravel(), ord) if axis != 0 else np.linalg.norm(a, ord, axis=0, keepdims=True)
    _near(got, np.reshape(flat, got.shape))
    if ord != 0:
        check(lambda x: wg.linalg.vector_norm(x, axis=axis, ord=ord), a)


def test_norm_follows_numpy() -> None:
    a, x = regular(2, 3, 4), wg.asarray(regular(2, 3, 4))
    _near(wg.linalg.norm(x).numpy(), np.linalg.norm(a))
    _near(wg.linalg.norm(x, axis=1).numpy(), np.linalg.norm(a, axis=1))
    _near(wg.linalg.norm(x, axis=(0, 2), ord="nuc").numpy(), np.linalg.norm(a, "nuc", axis=(0, 2)))
    _near(wg.linalg.norm(x, axis=(2, 0), ord=1, keepdims=True).numpy(), np.linalg.norm(a, 1, (2, 0), True))
    _near(wg.linalg.norm(x[0], ord=-2).numpy(), np.linalg.norm(a[0], -2))
    _near(wg.linalg.norm(x[0, 0], ord=3).numpy(), np.linalg.norm(a[0, 0], 3))
    with pytest.raises(
        wg.ShapeError, match=r"norm: with ord=1, axis must name one axis or two, got float64\(2, 3, 4\)"
    ):
        wg.linalg.norm(x, ord=1)
    with pytest.raises(wg.ArgumentError, match="is a matrix norm"):
        wg.linalg.norm(x, axis=0, ord="fro")
    with pytest.raises(wg.ShapeError, match="one axis or two"):
        wg.linalg.norm(x, axis=(0, 1, 2), ord=2)
    with pytest.raises(wg.ArgumentError, match="matrix_norm: ord must be"):
        wg.linalg.matrix_norm(x, ord=3)


def test_norms_at_zero() -> None:
    """The derivative of a norm at 0 is 0."""
    zero = wg.zeros((3, 3), dtype=wg.float64)
    for ord in ("fro", 2):
        g = wg.grad(lambda x, o=ord: wg.linalg.matrix_norm(x, ord=o))(zero).numpy()  # type: ignore[misc]
        assert np.isfinite(g).all()
    assert wg.grad(wg.linalg.norm)(zero).tolist() == [[0.0] * 3] * 3


def test_spectral_norm_of_equal_values() -> None:
    """The largest of equal values: a subgradient, of nuclear norm 1."""
    g = wg.grad(lambda x: wg.linalg.matrix_norm(x, ord=2))(wg.eye(3, dtype=wg.float64)).numpy()
    assert np.linalg.norm(g, "nuc") == pytest.approx(1.0)
    np.testing.assert_allclose(np.trace(g), 1.0)


@pytest.mark.parametrize("p", [None, 2, -2, 1, -1, math.inf, "fro", "nuc"])
def test_condition_number(p: Any) -> None:
    a = regular(2, 3, 3)
    _near(wg.linalg.cond(wg.asarray(a), p=p).numpy(), np.linalg.cond(a, p), 1e-12)
    check(lambda x: wg.linalg.cond(x, p=p), a)


# ------------------------------------------------------------------------------------------- pseudo-inverses, ranks


@KINDS
@SHAPES
def test_pseudo_inverse(shape: Any, complex: bool) -> None:
    a = spaced(*shape, complex=complex)
    _near(wg.linalg.pinv(wg.asarray(a)).numpy(), np.linalg.pinv(a), 1e-12)
    check(wg.linalg.pinv, a)


@KINDS
@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (4, 4)])
def test_pseudo_inverse_of_deficient_rank(shape: Any, complex: bool) -> None:
    """The derivative at constant rank: of factors of rank 2."""
    left, right = real_and_complex(shape[0], 2)[complex], real_and_complex(2, shape[1], number=1)[complex]
    check(lambda p, q: wg.linalg.pinv(p @ q, rtol=1e-8), left, right)


def test_cutoffs_and_ranks() -> None:
    a = np.stack([np.diag([1.0, 1e-3, 0.0]), np.diag([1.0, 1e-3, 1e-6])])
    x = wg.asarray(a)
    assert wg.linalg.matrix_rank(x).tolist() == [2, 3]
    assert wg.linalg.matrix_rank(x, rtol=1e-4).tolist() == [2, 2]
    assert wg.linalg.matrix_rank(x, rtol=wg.asarray(np.array([1e-2, 1e-7]))).tolist() == [1, 3]
    assert wg.linalg.matrix_rank(x).dtype == wg.int64
    assert wg.linalg.matrix_rank(wg.zeros((2, 0, 3))).tolist() == [0, 0]
    got = wg.linalg.pinv(x, rtol=wg.asarray(np.array([1e-2, 1e-7]))).numpy()
    _near(got[0], np.diag([1.0, 0.0, 0.0]))
    _near(got[1], np.diag([1.0, 1e3, 1e6]), 1e-9)
    assert wg.linalg.pinv(wg.zeros((2, 0, 3))).shape == (2, 3, 0)


@KINDS
@pytest.mark.parametrize(
    ("shape", "b_shape"), [((4, 2), (4,)), ((4, 2), (4, 3)), ((2, 4), (2, 3)), ((2, 4, 3), (4, 1))]
)
def test_least_squares(shape: Any, b_shape: Any, complex: bool) -> None:
    a, b = spaced(*shape, complex=complex), real_and_complex(*b_shape, number=3)[complex]
    got = wg.linalg.lstsq(wg.asarray(a), wg.asarray(b))
    for i in np.ndindex(*shape[:-2]):
        x, residuals, rank, s = np.linalg.lstsq(a[i], b, rcond=None)
        _near(got.x.numpy()[i], x, 1e-12)
        _near(got.residuals.numpy()[i], residuals, 1e-12)
        assert got.rank.numpy()[i] == rank
        _near(got.s.numpy()[i], s)
    check(lambda p, q: wg.linalg.lstsq(p, q)[:2], a, b)


@KINDS
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_least_squares_of_deficient_rank(shape: Any, complex: bool) -> None:
    """The shortest solution, all singular values, and the rank by the cutoff that was given; compiled too."""
    left, right = real_and_complex(shape[0], 2)[complex], real_and_complex(2, shape[1], number=1)[complex]
    b = real_and_complex(shape[0], 2, number=3)[complex]
    want = np.linalg.lstsq(left @ right, b, rcond=1e-8)

    def solved(p: Any, q: Any, y: Any) -> Any:
        got = wg.linalg.lstsq(p @ q, y, rtol=1e-8)
        return got.x, got.rank, got.s

    for f in (solved, wg.compile(solved)):
        x, rank, s = f(wg.asarray(left), wg.asarray(right), wg.asarray(b))
        _near(x.numpy(), want[0], 1e-11)
        assert rank.item() == want[2] == 2
        _near(s.numpy(), want[3], 1e-13)
    assert not solved(wg.tensor(left, requires_grad=True), wg.asarray(right), wg.asarray(b))[2].requires_grad
    check(lambda p, q, y: wg.linalg.lstsq(p @ q, y, rtol=1e-8).x, left, right, b)


def test_least_squares_of_nothing() -> None:
    x, residuals, rank, s = wg.linalg.lstsq(wg.zeros((2, 3, 0)), wg.ones((3, 2)))
    assert (x.shape, residuals.tolist(), rank.tolist(), s.shape) == ((2, 0, 2), [[3.0, 3.0]] * 2, [0, 0], (2, 0))


def test_least_squares_refuses() -> None:
    with pytest.raises(wg.ShapeError, match=r"lstsq: float32\(3, 2\) and float32\(2,\) do not fit"):
        wg.linalg.lstsq(wg.ones((3, 2)), wg.ones((2,)))


ORDERS = (-math.inf, -2, -1, 0, 0.5, 1, 1.5, 2, 2.5, 3, 4, math.inf)


@pytest.mark.parametrize("ord", ORDERS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_vector_norms_have_derivatives_at_zeros(ord: float, dtype: str) -> None:
    """Zero rows, and zeros beside others: no NaN, the two modes agree, and what is away from 0 is unaffected."""
    rows = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, -2.0], [0.0, 3.0, 0.0], [1.0, -3.0, 2.0]]).astype(dtype)
    x = wg.asarray(rows)
    for norm in (wg.norm, wg.linalg.vector_norm, wg.compile(wg.linalg.vector_norm)):

        def f(t: Any, norm: Any = norm) -> Any:
            return norm(t, axis=-1, ord=ord)

        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(f(x).numpy(), np.linalg.norm(rows, axis=-1, ord=ord), rtol=1e-6)
        weights = wg.tensor([1.0, 2.0, 3.0, 4.0], dtype=f(x).dtype)
        gradient = wg.grad(lambda t: (f(t) * weights).sum())
        g = gradient(x).numpy()
        assert np.isfinite(g).all()
        assert not g[0].any(), "a norm has derivative 0 at 0"
        pushed = [wg.jvp(f, (x,), (wg.asarray(np.eye(3)[k] * np.ones((4, 1), dtype)),))[1] for k in range(3)]
        np.testing.assert_allclose(np.stack([(p * weights).numpy() for p in pushed], 1), g.real, rtol=1e-5, atol=1e-6)
        if dtype != "complex128":
            assert np.isfinite(wg.grad(lambda t: gradient(t).sum())(x).numpy()).all()


def test_the_number_of_nonzeros_depends_on_them_with_derivative_zero() -> None:
    x = wg.tensor([1.0, 0.0, math.nan], requires_grad=True)
    y = wg.linalg.vector_norm(x, ord=0)
    assert y.item() == 2.0
    assert y.backward()[x].tolist()[:2] == [0.0, 0.0]
