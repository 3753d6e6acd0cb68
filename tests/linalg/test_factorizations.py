"""LU, QR, singular values and eigenvalues: what the factors multiply to, derivatives of invariants, equal values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.linalg.checking import check, hermitian, real_and_complex, regular, spaced

KINDS = pytest.mark.parametrize("complex", [False, True], ids=["real", "complex"])
SHAPES = pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2), (2, 2, 3), (1, 1)], ids=str)
EMPTY = pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (0, 2, 2), (2, 0, 3)], ids=str)


def _adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def _near(a: Any, b: Any, tolerance: float = 1e-13) -> None:
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * 10)


def _orthonormal(q: Any) -> None:
    _near(_adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1])))


# ---------------------------------------------------------------------------------------------------------- LU, QR


@KINDS
@SHAPES
def test_lu(shape: Any, complex: bool) -> None:
    a = regular(*shape, complex=complex)
    p, low, up = (t.numpy() for t in wg.linalg.lu(wg.asarray(a)))
    _near(p @ low @ up, a)
    np.testing.assert_array_equal(np.triu(low, 1), 0)
    np.testing.assert_array_equal(np.tril(up, -1), 0)
    np.testing.assert_array_equal(np.diagonal(low, axis1=-2, axis2=-1), 1)
    check(lambda x: wg.linalg.lu(x)[1:], a)


def test_lu_pivots() -> None:
    p, low, up = wg.linalg.lu(wg.tensor([[0.0, 1.0], [2.0, 3.0]]))
    assert p.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert up.tolist() == [[2.0, 3.0], [0.0, 1.0]]
    assert low.tolist() == [[1.0, 0.0], [0.0, 1.0]]


@KINDS
@SHAPES
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr(mode: str, shape: Any, complex: bool) -> None:
    a = regular(*shape, complex=complex)
    q, r = (t.numpy() for t in wg.linalg.qr(wg.asarray(a), mode=mode))
    expected = np.linalg.qr(a, mode=mode)
    assert (q.shape, r.shape) == (expected[0].shape, expected[1].shape)
    _near(q @ r, a)
    _orthonormal(q)
    np.testing.assert_array_equal(np.tril(r, -1), 0)
    if mode == "reduced" or shape[-2] <= shape[-1]:
        check(lambda x: tuple(wg.linalg.qr(x, mode=mode)), a)
    else:
        check(lambda x: wg.linalg.qr(x, mode=mode).R, a, second=False)


def test_columns_that_complete_a_basis_have_no_derivative() -> None:
    a = wg.tensor(regular(4, 2), requires_grad=True)
    q = wg.linalg.qr(a, mode="complete").Q
    (q[:, :2] * wg.arange(8.0).reshape(4, 2)).sum().backward()
    with pytest.raises(wg.GradientError, match=r"qr: with mode='complete' the columns of Q beyond min\(m, n\)"):
        wg.linalg.qr(a, mode="complete").Q.sum().backward()
    u = wg.linalg.svd(a).U
    (u[:, :2] ** 2 * wg.arange(8.0).reshape(4, 2)).sum().backward()
    with pytest.raises(wg.GradientError, match=r"svd: with full_matrices=True the columns of U and rows of Vh"):
        (wg.linalg.svd(a).U ** 2 * wg.arange(16.0).reshape(4, 4)).sum().backward()
    _, tangent = wg.jvp(lambda x: wg.linalg.qr(x, mode="complete").Q, (a.detach(),), (wg.ones((4, 2), dtype=a.dtype),))
    assert np.isfinite(tangent.numpy()[:, :2]).all()
    assert np.isnan(tangent.numpy()[:, 2:]).all()


# ------------------------------------------------------------------------------------------------- singular values


def _svd_invariants(x: Any) -> Any:
    """Functions of U, S, Vh that do not depend on signs and phases."""
    u, s, vh = wg.linalg.svd(x, full_matrices=False)
    weights = 1.0 + wg.arange(0.0, float(s.shape[-1]), dtype=s.dtype)
    return s, (u * (s**2 * weights).astype(u.dtype)[..., None, :]) @ vh, (u * weights.astype(u.dtype)) @ wg.conj(u).mT


@KINDS
@SHAPES
def test_svd(shape: Any, complex: bool) -> None:
    a = spaced(*shape, complex=complex)
    for full in (False, True):
        u, s, vh = (t.numpy() for t in wg.linalg.svd(wg.asarray(a), full_matrices=full))
        expected = np.linalg.svd(a, full_matrices=full)
        assert [x.shape for x in (u, s, vh)] == [x.shape for x in expected]
        k = s.shape[-1]
        _near(u[..., :k] * s[..., None, :] @ vh[..., :k, :], a)
        _near(s, expected[1])
        _orthonormal(u)
        _orthonormal(_adjoint(vh))
    _near(wg.linalg.svdvals(wg.asarray(a)).numpy(), expected[1])
    check(_svd_invariants, a)
    check(wg.linalg.svdvals, a)
    check(lambda x: wg.linalg.svd(x).S, a)


@KINDS
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (2, 3, 4)], ids=str)
def test_functions_of_equal_singular_values(shape: Any, complex: bool) -> None:
    """Nuclear and spectral norms, and sums of functions, where all values are equal: finite, and right."""
    m, n = shape[-2:]
    a = np.linalg.qr(real_and_complex(*shape[:-2], m, m)[complex])[0][..., :, :n] * 2.0
    a = a if m >= n else np.broadcast_to(np.eye(m, n), shape) * (2.0 + 0j if complex else 2.0)
    nuclear = lambda x: wg.linalg.svd(x, full_matrices=False).S.sum()
    x = wg.asarray(np.ascontiguousarray(a))
    g = wg.grad(nuclear)(x).numpy()
    _near(g, a / 2.0)  # U Vh
    g = wg.grad(lambda t: wg.exp(wg.linalg.svdvals(t)).sum())(x).numpy()
    _near(g, a / 2.0 * np.exp(2.0))
    _, slope = wg.jvp(nuclear, (x,), (x,))
    assert slope.item() == pytest.approx(float(np.sum(np.abs(a) ** 2) / 2.0))


def test_nuclear_norm_of_a_matrix_of_low_rank() -> None:
    """At zero singular values a subgradient: bounded, and U Vh on the range."""
    a = np.diag([2.0, 1.0, 0.0, 0.0])
    g = wg.grad(lambda x: wg.linalg.matrix_norm(x, ord="nuc"))(wg.asarray(a)).numpy()
    assert np.linalg.norm(g, 2) <= 1 + 1e-12
    _near(g[:2, :2], np.eye(2))


# ------------------------------------------------------------------------------------------------------- eigenvalues


@KINDS
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4)])
def test_eigh(shape: Any, complex: bool) -> None:
    a = hermitian(*shape, complex=complex)
    result = wg.linalg.eigh(wg.asarray(a))
    w, v = result.eigenvalues.numpy(), result.eigenvectors.numpy()
    _near(v * w[..., None, :] @ _adjoint(v), a)
    _orthonormal(v)
    _near(w, np.linalg.eigvalsh(a))
    _near(wg.linalg.eigvalsh(wg.asarray(a)).numpy(), w)

    def invariants(x: Any) -> Any:
        w, v = wg.linalg.eigh(x)
        weights = wg.sin(w).astype(v.dtype)[..., None, :]
        return w, (v * weights) @ wg.conj(v).mT

    check(invariants, a)
    check(wg.linalg.eigvalsh, a)


@KINDS
def test_functions_of_equal_eigenvalues(complex: bool) -> None:
    q = np.linalg.qr(real_and_complex(4, 4)[complex])[0]
    a = q @ np.diag([2.0, 2.0, 2.0, 5.0]) @ _adjoint(q)
    for x in (a, np.eye(4) * (2.0 + 0j if complex else 2.0)):
        w, v = np.linalg.eigh(x)
        expected = v @ np.diag(1 / w) @ _adjoint(v)  # of the sum of logarithms
        for f in (lambda t: wg.log(wg.linalg.eigvalsh(t)).sum(), lambda t: wg.log(wg.linalg.eigh(t).eigenvalues).sum()):
            _near(wg.grad(f)(wg.asarray(x)).numpy(), expected)
        _near(wg.grad(lambda t: wg.linalg.slogdet(t)[1])(wg.asarray(x)).numpy(), expected)


def test_vectors_of_equal_eigenvalues_have_no_derivative() -> None:
    """Not a wrong number: NaN. matrix_function is the way."""
    x = wg.asarray(np.eye(3) + np.diag([0.0, 0.0, 1.0]))

    def rebuilt(a: Any) -> Any:
        w, v = wg.linalg.eigh(a)
        return ((v * w) @ v.mT * wg.arange(9.0, dtype=wg.float64).reshape(3, 3)).sum()

    assert np.isnan(wg.grad(rebuilt)(x).numpy()).any()


@KINDS
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4)])
def test_eig(shape: Any, complex: bool) -> None:
    a = regular(*shape, complex=complex)
    w, v = (t.numpy() for t in wg.linalg.eig(wg.asarray(a)))
    _near(a @ v, v * w[..., None, :])
    _near(np.linalg.norm(v, axis=-2), np.ones(shape[:-1]))
    _near(w, np.linalg.eigvals(a))
    _near(wg.linalg.eigvals(wg.asarray(a)).numpy(), w)

    def invariants(x: Any) -> Any:
        w, v = wg.linalg.eig(x)
        weights = wg.exp(w)[..., None, :]
        return w, (v * weights) @ wg.linalg.inv(v), abs(v)

    check(invariants, a)
    check(wg.linalg.eigvals, a)


def test_eig_of_a_real_matrix_with_complex_eigenvalues() -> None:
    a = np.array([[0.5, 2.0, 0.1], [-2.0, 0.4, 0.3], [0.2, 0.1, 3.0]])
    assert np.iscomplex(np.linalg.eigvals(a)).sum() == 2
    check(lambda x: wg.real(wg.linalg.eigvals(x) ** 3).sum(), a)
    check(lambda x: wg.real(wg.exp(wg.linalg.eig(x).eigenvalues)).sum(), a)


# --------------------------------------------------------------------------------------------------------- corners


@EMPTY
def test_nothing_to_factor(shape: Any) -> None:
    a = wg.zeros(shape, dtype=wg.float64)
    for f in (wg.linalg.lu, wg.linalg.qr, wg.linalg.svd):
        reference = np.linalg.svd(np.zeros(shape)) if f is wg.linalg.svd else None
        parts = f(a)
        if reference is not None:
            assert [p.shape for p in parts] == [r.shape for r in reference]
        outputs, pull = wg.vjp(lambda x, f=f: tuple(t for t in f(x)), a)  # type: ignore[misc]
        (g,) = pull(tuple(wg.zeros_like(t) for t in outputs))
        assert g.shape == shape
    if shape[-1] == shape[-2]:
        assert wg.linalg.eigh(a).eigenvectors.shape == shape
        assert wg.linalg.eig(a).eigenvalues.shape == shape[:-1]


@pytest.mark.parametrize("name", ["svd", "svdvals", "eigh", "eigvalsh", "eig", "eigvals", "pinv"])
def test_not_finite(name: str) -> None:
    a = np.stack([np.eye(2), [[1.0, np.nan], [0.0, np.inf]]])
    with pytest.raises(wg.LinAlgError, match=rf"{name}: matrix \(1,\) of float64\(2, 2, 2\) contains NaN or infinity"):
        getattr(wg.linalg, name)(wg.asarray(a))


@pytest.mark.parametrize("name", ["lu", "qr", "svd", "svdvals", "eigh", "eigvalsh", "eig", "eigvals", "pinv"])
def test_refusals(name: str) -> None:
    f = getattr(wg.linalg, name)
    with pytest.raises(wg.ShapeError, match=rf"{name}: takes matrices"):
        f(wg.ones((3,)))
    with pytest.raises(wg.DTypeError, match=rf"{name}: has no routine for float16.*astype"):
        f(wg.ones((2, 2), dtype=wg.float16))
    with pytest.raises(wg.DTypeError, match=rf"{name}: takes float32"):
        f(wg.ones((2, 2), dtype=wg.int64))
    if name.startswith("eig"):
        with pytest.raises(wg.ShapeError, match=rf"{name}: takes square matrices, got float32\(2, 3\)"):
            f(wg.ones((2, 3)))


def test_qr_mode() -> None:
    with pytest.raises(wg.ArgumentError, match="qr: mode must be 'reduced' or 'complete', got 'r'"):
        wg.linalg.qr(wg.eye(2), mode="r")


@pytest.mark.parametrize("name", ["qr", "svdvals", "eigvalsh", "eigh", "lu"])
def test_inside_compiled_functions(name: str) -> None:
    f = getattr(wg.linalg, name)
    compiled = wg.compile(lambda x: sum((t * t).sum() for t in ([f(x)] if name.endswith(("s", "sh")) else f(x))))
    for n in (3, 4):
        a = hermitian(n, n)
        x = wg.asarray(a)
        expected = compiled.__wrapped__(x).item()
        assert compiled(x).item() == pytest.approx(expected)
        np.testing.assert_allclose(
            wg.grad(compiled)(x).numpy(), wg.grad(compiled.__wrapped__)(x).numpy(), rtol=1e-10, atol=1e-12
        )


def test_threads_do_not_change_the_bits() -> None:
    a = regular(40, 12, 12)
    before = wg.get_num_threads()
    results = []
    for n in (1, 2):
        wg.set_num_threads(n)
        x = wg.asarray(a)
        results.append([t.numpy().copy() for t in (*wg.linalg.svd(x), *wg.linalg.eig(x), wg.linalg.inv(x))])
    wg.set_num_threads(before)
    for one, two in zip(*results):
        np.testing.assert_array_equal(one, two)
