"""Solving, inverses, determinants and Cholesky factors: values, derivatives, corners and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import wengert as wg
from tests.linalg.checking import check, hermitian, real_and_complex, regular
from tests.tolerances import assert_close

KINDS = pytest.mark.parametrize("complex", [False, True], ids=["real", "complex"])


def _numpy(t: Any) -> Any:
    return t.numpy()


@KINDS
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((3, 3), (3,)),
        ((3, 3), (3, 2)),
        ((2, 3, 3), (3, 1)),
        ((3, 3), (2, 3, 2)),
        ((2, 1, 3, 3), (4, 3, 2)),
        ((1, 1), (1,)),
    ],
)
def test_solve(a_shape: Any, b_shape: Any, complex: bool) -> None:
    a, b = regular(*a_shape, complex=complex), real_and_complex(*b_shape, number=1)[complex]
    got = wg.linalg.solve(wg.asarray(a), wg.asarray(b)).numpy()
    assert_close(got, np.linalg.solve(a, b), got.dtype.name, scale=10)
    check(wg.linalg.solve, a, b)


def test_solve_mixes_dtypes() -> None:
    a, b = regular(3, 3), np.ones(3, np.float32)
    assert wg.linalg.solve(wg.asarray(a), wg.asarray(b)).dtype == wg.float64
    assert wg.linalg.solve(wg.asarray(regular(3, 3, complex=True)), wg.asarray(b)).dtype == wg.complex128


@pytest.mark.parametrize(("batch", "n", "k"), [((), 0, 2), ((0,), 3, 2), ((2,), 3, 0), ((2,), 0, 0), ((0, 2), 3, 1)])
def test_nothing_to_solve(batch: Any, n: int, k: int) -> None:
    a, b = np.zeros((*batch, n, n)) + np.eye(n), np.zeros((*batch, n, k))
    x, pull = wg.vjp(wg.linalg.solve, wg.asarray(a), wg.asarray(b))
    assert x.shape == b.shape
    assert [g.shape for g in pull(x)] == [a.shape, b.shape]


def test_solve_keeps_one_factorisation() -> None:
    """The backward pass reuses the factors: eliminating again would be two thirds of n³."""
    from wengert.linalg.solving import _solve

    a, b = wg.tensor(regular(5, 5), requires_grad=True), wg.tensor(np.ones((5, 1)), requires_grad=True)
    _solve(a, b).sum().backward()
    derivations = [d for t in _solve.traces for d in t.derivations.values()]
    assert derivations
    for d in derivations:
        assert "lu_factor" in str(d.forward)
        assert "lu_factor" not in str(d.vjp)


@KINDS
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4)])
def test_inverse(shape: Any, complex: bool) -> None:
    a = regular(*shape, complex=complex)
    got = wg.linalg.inv(wg.asarray(a)).numpy()
    assert_close(got, np.linalg.inv(a), got.dtype.name, scale=10)
    check(wg.linalg.inv, a)


@KINDS
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("b_shape", [(3,), (3, 2), (2, 3, 1)])
def test_solve_triangular(b_shape: Any, unit: bool, upper: bool, complex: bool) -> None:
    a = real_and_complex(3, 3)[complex] / 3 + 2 * np.eye(3)
    b = real_and_complex(*b_shape, number=1)[complex]
    got = wg.linalg.solve_triangular(wg.asarray(a), wg.asarray(b), upper=upper, unit_diagonal=unit).numpy()
    parts = [b] if len(b_shape) < 3 else list(b)
    expected = [scipy.linalg.solve_triangular(a, x, lower=not upper, unit_diagonal=unit) for x in parts]
    assert_close(got, np.reshape(expected, b_shape), got.dtype.name, scale=10)
    check(lambda p, q: wg.linalg.solve_triangular(p, q, upper=upper, unit_diagonal=unit), a, b)


# --------------------------------------------------------------------------------------------------- determinants


@KINDS
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4)])
def test_determinant(shape: Any, complex: bool) -> None:
    a = regular(*shape, complex=complex)
    got = wg.linalg.det(wg.asarray(a)).numpy()
    np.testing.assert_allclose(got, np.linalg.det(a), rtol=1e-13)
    check(wg.linalg.det, a)


@KINDS
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_determinant_of_a_singular_matrix(rank: int, complex: bool) -> None:
    """The gradient is the matrix of cofactors, and the Hessian that of second cofactors, whatever the rank."""
    left, right = real_and_complex(4, rank)[complex], real_and_complex(rank, 4, number=1)[complex]
    check(wg.linalg.det, left @ right)


def test_determinant_of_empty_matrices_is_one() -> None:
    assert wg.linalg.det(wg.zeros((2, 0, 0))).tolist() == [1.0, 1.0]
    sign, log = wg.linalg.slogdet(wg.zeros((0, 0)))
    assert (sign.item(), log.item()) == (1.0, 0.0)


@KINDS
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4)])
def test_slogdet(shape: Any, complex: bool) -> None:
    a = regular(*shape, complex=complex)
    for got, expected in zip(wg.linalg.slogdet(wg.asarray(a)), np.linalg.slogdet(a)):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-13, atol=1e-14)
    check(wg.linalg.slogdet, a)


def test_slogdet_of_a_singular_matrix() -> None:
    result = wg.linalg.slogdet(wg.tensor([[1.0, 2.0], [2.0, 4.0]]))
    assert result.sign.item() == 0.0
    assert result.logabsdet.item() == -np.inf


def test_slogdet_does_not_overflow() -> None:
    a = np.eye(400) * 1e3
    assert wg.linalg.slogdet(wg.asarray(a)).logabsdet.item() == pytest.approx(400 * np.log(1e3))


# --------------------------------------------------------------------------------------------------------- Cholesky


@KINDS
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4)])
def test_cholesky(shape: Any, complex: bool) -> None:
    a = hermitian(*shape, complex=complex)
    got = wg.linalg.cholesky(wg.asarray(a)).numpy()
    assert_close(got, np.linalg.cholesky(a), got.dtype.name, scale=10)
    upper = wg.linalg.cholesky(wg.asarray(a), upper=True).numpy()
    np.testing.assert_array_equal(upper, np.conj(np.swapaxes(got, -1, -2)))
    check(wg.linalg.cholesky, a)
    check(lambda x: wg.linalg.cholesky(x, upper=True), a)


def test_cholesky_takes_the_hermitian_part() -> None:
    a = hermitian(3, 3)
    skew = np.triu(np.full((3, 3), 0.25), 1)
    one = wg.linalg.cholesky(wg.asarray(a + skew - skew.T)).numpy()
    assert_close(one, np.linalg.cholesky(a), "float64", scale=10)


# ------------------------------------------------------------------------------------------------- compiled, errors


def test_inside_compiled_functions() -> None:
    @wg.compile
    def f(a: Any, b: Any) -> Any:
        low = wg.linalg.cholesky(a @ a.mT + wg.linalg.solve(a, b) @ b.mT * 0.0 + 3.0)
        return wg.linalg.slogdet(a)[1] + (low * wg.linalg.inv(a)).sum() + wg.linalg.det(a)

    for n in (3, 5):
        a, b = regular(n, n), real_and_complex(n, 2)[0]
        x = wg.asarray(a)
        expected = f.__wrapped__(x, wg.asarray(b)).item()
        assert f(x, wg.asarray(b)).item() == pytest.approx(expected, rel=1e-12)
        check(f, a, b, second=False)


SQUARE = ["solve", "inv", "det", "slogdet", "cholesky", "solve_triangular"]


def _call(name: str, a: Any) -> Any:
    f = getattr(wg.linalg, name)
    return f(a, wg.ones((a.shape[-1],), dtype=a.dtype)) if name.startswith("solve") else f(a)


@pytest.mark.parametrize("name", SQUARE)
def test_shapes_are_refused(name: str) -> None:
    with pytest.raises(wg.ShapeError, match=rf"{name}: takes square matrices, got float32\(2, 3\)"):
        _call(name, wg.ones((2, 3)))
    with pytest.raises(wg.ShapeError, match=rf"{name}: takes matrices \(at least two axes\), got float32\(3,\)"):
        _call(name, wg.ones((3,)))


@pytest.mark.parametrize("name", SQUARE)
def test_dtypes_are_refused(name: str) -> None:
    for dtype in (wg.int64, wg.bool_):
        with pytest.raises(wg.DTypeError, match=rf"{name}: takes float32.*use astype"):
            _call(name, wg.ones((2, 2), dtype=dtype))
    for dtype in (wg.float16, wg.bfloat16):
        with pytest.raises(wg.DTypeError, match=rf"{name}: has no routine for {dtype.name}\(2, 2\).*astype"):
            _call(name, wg.ones((2, 2), dtype=dtype))


@pytest.mark.parametrize("name", ["solve", "inv"])
def test_singular_matrices_are_named(name: str) -> None:
    a = np.stack([np.stack([np.eye(2), np.eye(2), np.ones((2, 2))])] * 2)
    with pytest.raises(wg.LinAlgError, match=rf"{name}: matrix \(0, 2\) of float64\(2, 3, 2, 2\) is singular"):
        _call(name, wg.asarray(a))
    with pytest.raises(np.linalg.LinAlgError, match=rf"{name}: the matrix of float64\(2, 2\) is singular"):
        _call(name, wg.asarray(np.ones((2, 2))))


def test_other_refusals() -> None:
    with pytest.raises(wg.LinAlgError, match=r"cholesky: matrix \(1,\) of float64\(2, 2, 2\) is not positive definite"):
        wg.linalg.cholesky(wg.asarray(np.stack([np.eye(2), -np.eye(2)])))
    with pytest.raises(wg.LinAlgError, match="solve_triangular: the matrix.*zero on its diagonal"):
        wg.linalg.solve_triangular(wg.tensor([[1.0, 1.0], [0.0, 0.0]]), wg.ones((2,)))
    with pytest.raises(wg.ShapeError, match=r"solve: float32\(3, 3\) and float32\(2,\) do not fit"):
        wg.linalg.solve(wg.eye(3), wg.ones((2,)))
    assert issubclass(wg.LinAlgError, ValueError)
    assert wg.linalg.LinAlgError is wg.LinAlgError


@KINDS
@pytest.mark.parametrize("dtype", ["single", "double"])
@pytest.mark.parametrize("n", [1, 2, 5, 8, 16, 17, 20])
@pytest.mark.parametrize("k", [1, 3, 32, 33])
def test_small_and_large_systems(n: int, k: int, dtype: str, complex: bool) -> None:
    """Small matrices are eliminated by loops of our own, larger ones by LAPACK: residuals, factors and adjoints."""
    rng = np.random.default_rng(n * 100 + k)
    a, b = rng.normal(size=(3, n, n)), rng.normal(size=(3, n, k))
    a[0] = a[0][::-1] * (np.arange(n) != n - 1) + np.eye(n)[::-1]  # needs pivots
    if complex:
        a, b = a + 1j * rng.normal(size=a.shape), b - 1j * rng.normal(size=b.shape)
    if dtype == "single":
        a, b = a.astype(np.complex64 if complex else np.float32), b.astype(np.complex64 if complex else np.float32)
    epsilon = np.finfo(a.dtype).eps
    x, pull = wg.vjp(wg.linalg.solve, wg.asarray(a), wg.asarray(b))
    size = np.linalg.norm(a, axis=(1, 2)) * np.linalg.norm(x.numpy(), axis=(1, 2)) + 1
    assert (np.linalg.norm(a @ x.numpy() - b, axis=(1, 2)) <= 4 * n * epsilon * size).all()
    (_, b_bar), h = pull(wg.asarray(b)), a.conj().swapaxes(1, 2)
    size = np.linalg.norm(a, axis=(1, 2)) * np.linalg.norm(b_bar.numpy(), axis=(1, 2)) + 1
    assert (np.linalg.norm(h @ b_bar.numpy() - b, axis=(1, 2)) <= 4 * n * epsilon * size).all()
    sign, log = wg.linalg.slogdet(wg.asarray(a))
    expected = np.linalg.slogdet(a.astype(np.complex128))
    np.testing.assert_allclose(sign.numpy(), expected[0], rtol=0, atol=1e3 * epsilon)
    np.testing.assert_allclose(log.numpy(), expected[1], rtol=0, atol=1e3 * epsilon)


@pytest.mark.parametrize("n", [4, 20])
def test_elimination_of_what_is_not_finite(n: int) -> None:
    a = np.eye(n)
    a[1, 2] = np.nan
    assert np.isnan(wg.linalg.solve(wg.asarray(a), wg.ones((n, 1), dtype=wg.float64)).numpy()).any()
    a[1] = 0.0
    with pytest.raises(wg.LinAlgError, match="singular"):
        wg.linalg.solve(wg.asarray(a), wg.ones((n, 1), dtype=wg.float64))
