"""Powers, exponentials, and functions of symmetric matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import wengert as wg
from tests.linalg.checking import check, hermitian, real_and_complex, regular

KINDS = pytest.mark.parametrize("complex", [False, True], ids=["real", "complex"])


def _near(a: Any, b: Any, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.max(np.abs(b), initial=0))))


@KINDS
@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 5, 8])
def test_matrix_power(n: int, complex: bool) -> None:
    a = regular(2, 3, 3, complex=complex) / 2
    _near(wg.linalg.matrix_power(wg.asarray(a), n).numpy(), np.linalg.matrix_power(a, n))
    check(lambda x: wg.linalg.matrix_power(x, n), a)


def test_matrix_power_of_integers() -> None:
    assert wg.linalg.matrix_power(wg.tensor([[1, 1], [1, 0]]), 10).tolist() == [[89, 55], [55, 34]]
    with pytest.raises(wg.DTypeError, match="inv: takes float32"):
        wg.linalg.matrix_power(wg.tensor([[1, 1], [1, 0]]), -1)


@KINDS
@pytest.mark.parametrize("size", [1e-3, 0.1, 0.5, 1.5, 4.0, 50.0])
def test_matrix_exp(size: float, complex: bool) -> None:
    """Every degree of the approximant, and squaring."""
    a = real_and_complex(2, 4, 4)[complex]
    a = a * (size / np.abs(a).sum(-2).max())
    for dtype, tolerance in ((a.dtype, 1e-12), (np.complex64 if complex else np.float32, 1e-4)):
        got = wg.linalg.matrix_exp(wg.asarray(a.astype(dtype))).numpy()
        assert got.dtype == dtype
        _near(got, scipy.linalg.expm(a), tolerance if size < 10 else tolerance * 20)
    check(wg.linalg.matrix_exp, a, second=size < 10)


def test_matrix_exp_in_the_corners() -> None:
    assert wg.linalg.expm is wg.linalg.matrix_exp
    assert wg.linalg.matrix_exp(wg.zeros((2, 0, 0))).shape == (2, 0, 0)
    jordan = wg.asarray(np.array([[1.0, 1.0], [0.0, 1.0]]))  # defective: no eigenvectors to go through
    _near(wg.linalg.matrix_exp(jordan).numpy(), np.e * np.array([[1.0, 1.0], [0.0, 1.0]]))
    check(wg.linalg.matrix_exp, jordan.numpy())
    assert np.isnan(wg.linalg.matrix_exp(wg.asarray(np.full((2, 2), np.inf))).numpy()).all()


# ---------------------------------------------------------------------------------- functions of symmetric matrices

FUNCTIONS = [
    ("sqrt", wg.sqrt, scipy.linalg.sqrtm),
    ("log", wg.log, scipy.linalg.logm),
    ("exp", wg.exp, scipy.linalg.expm),
    ("cube", lambda w: w**3, lambda a: a @ a @ a),
    ("sin", wg.sin, scipy.linalg.sinm),
]


@KINDS
@pytest.mark.parametrize(("f", "reference"), [x[1:] for x in FUNCTIONS], ids=[x[0] for x in FUNCTIONS])
def test_matrix_function(f: Any, reference: Any, complex: bool) -> None:
    a = hermitian(4, 4, complex=complex)
    _near(wg.linalg.matrix_function(f, wg.asarray(a)).numpy(), reference(a))
    check(lambda x: wg.linalg.matrix_function(f, x), a)


@KINDS
@pytest.mark.parametrize("f", [x[1] for x in FUNCTIONS], ids=[x[0] for x in FUNCTIONS])
@pytest.mark.parametrize("values", [[2.0, 2.0, 2.0], [1.0, 1.0, 3.0], [2.0, 2.0 + 1e-9, 2.0 + 1e-7]], ids=str)
def test_equal_eigenvalues(values: Any, f: Any, complex: bool) -> None:
    """Right to second order, where going through the eigenvectors gives NaN."""
    q = np.linalg.qr(real_and_complex(3, 3)[complex])[0]
    a = q @ np.diag(values) @ np.conj(q.T)
    check(lambda x: wg.linalg.matrix_function(f, x), a)


def test_divided_differences_do_not_cancel() -> None:
    """Gaps from 1e-12 to 1 between eigenvalues from 1e-6 to 1: eleven digits of every difference."""
    from wengert.linalg.functions import _Spectral

    gaps = np.array([0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0])
    for base in (1e-6, 1e-3, 1.0):
        w = base + gaps
        exact = 1 / (np.sqrt(w)[:, None] + np.sqrt(w)[None, :])
        got = _Spectral(wg.sqrt).differences(wg.asarray(w)).numpy()
        np.testing.assert_allclose(got, exact, rtol=1e-10)
    middle, half = (gaps[:, None] + gaps[None, :]) / 2, (gaps[:, None] - gaps[None, :]) / 2
    exact = np.exp(middle) * np.where(half == 0, 1.0, np.sinh(half) / np.where(half == 0, 1.0, half))
    np.testing.assert_allclose(_Spectral(wg.exp).differences(wg.asarray(gaps)).numpy(), exact, rtol=1e-10)


def test_square_root_and_logarithm() -> None:
    a = hermitian(2, 3, 3)
    root = wg.linalg.sqrtm(wg.asarray(a))
    _near((root @ root).numpy(), a)
    _near(wg.linalg.matrix_function(wg.exp, wg.linalg.logm(wg.asarray(a))).numpy(), a)
    check(wg.linalg.sqrtm, np.eye(3) * 2.0)
    check(wg.linalg.logm, np.eye(3) * 2.0)


def test_matrix_function_inside_a_compiled_function() -> None:
    f = wg.compile(lambda x: (wg.linalg.sqrtm(x @ x.mT) ** 2).sum())
    x = wg.asarray(regular(3, 3))
    assert f(x).item() == pytest.approx(float(np.sum(scipy.linalg.sqrtm(x.numpy() @ x.numpy().T) ** 2)))
    check(f, regular(3, 3))
    g = wg.compile(lambda x: wg.linalg.logm(x))
    check(g, np.eye(3) * 2.0, second=False)


def test_matrix_function_refuses() -> None:
    with pytest.raises(wg.DTypeError, match="f must be a real elementwise function"):
        wg.linalg.matrix_function(lambda w: w.sum(), wg.eye(2))
    with pytest.raises(wg.ShapeError, match="matrix_function: takes square matrices"):
        wg.linalg.matrix_function(wg.exp, wg.ones((2, 3)))


def test_matrix_power_takes_integers() -> None:
    with pytest.raises(TypeError, match=r"matrix_power: the exponent must be an integer, got 1\.5"):
        wg.linalg.matrix_power(wg.eye(2), 1.5)  # type: ignore[arg-type]


@KINDS
def test_the_power_zero_is_a_constant_with_a_path(complex: bool) -> None:
    a = np.ones((2, 3, 3)) * (1j if complex else 1)
    x = wg.tensor(a, requires_grad=True)
    y = wg.linalg.matrix_power(x, 0)
    np.testing.assert_array_equal(y.detach().numpy(), np.linalg.matrix_power(a, 0))
    np.testing.assert_array_equal(wg.real(y).sum().backward()[x].numpy(), np.zeros_like(a))
    assert wg.linalg.matrix_power(wg.tensor([[2, 1], [0, 3]]), 0).tolist() == [[1, 0], [0, 1]]
    np.testing.assert_array_equal(
        wg.linalg.matrix_power(wg.asarray([[np.inf, np.nan], [0.0, 1.0]]), 0).numpy(), np.eye(2)
    )
