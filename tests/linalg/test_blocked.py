"""Factorisations of matrices that are computed in blocks and tiles: residuals, special spectra, threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg

DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])


@pytest.fixture(autouse=True)
def _keep_threads() -> Iterator[None]:
    before = wg.get_num_threads()
    yield
    wg.set_num_threads(before)


def _random(shape: tuple[int, ...], dtype: str) -> Any:
    rng = np.random.default_rng(shape)
    a = rng.normal(size=shape)
    return (a + 1j * rng.normal(size=shape) if dtype.startswith("complex") else a).astype(dtype)


def _on_threads(f: Any) -> list[Any]:
    """The arrays of f(), the same to the bit for 1, 2 and 3 threads."""
    results = []
    for n in (1, 2, 3):
        wg.set_num_threads(n)
        results.append([t.numpy().copy() for t in f()])
    for other in results[1:]:
        for one, more in zip(results[0], other):
            np.testing.assert_array_equal(one, more)
    return results[0]


def _adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def _wide(x: Any) -> Any:
    return x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)


def _assert_orthonormal(q: Any) -> None:
    eye = np.eye(q.shape[-1])
    error = np.linalg.norm(_adjoint(_wide(q)) @ _wide(q) - eye, 2, axis=(-2, -1))
    # 0.4 for random matrices; 1.5 for the one of ones, whose rounding errors all have one sign
    assert np.max(error) <= 2 * np.finfo(q.dtype).eps * max(q.shape[-2:])


# --------------------------------------------------------------------------------------------------------------- QR

# One block of 32 reflectors, a second one of one row, tiles of 64 and of 128 columns, wide, tall, stacks.
SHAPES = [(32, 32), (33, 33), (31, 70), (70, 31), (64, 200), (200, 64), (97, 129), (2, 40, 35), (135, 260)]


@DTYPES
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_qr(shape: tuple[int, ...], mode: str, dtype: str) -> None:
    a = _random(shape, dtype)
    q, r = _on_threads(lambda: wg.linalg.qr(wg.asarray(a), mode=mode))
    columns = shape[-2] if mode == "complete" else min(shape[-2:])
    assert (q.shape[-1], r.shape[-2]) == (columns, columns)
    np.testing.assert_array_equal(np.tril(r, -1), 0)
    np.testing.assert_array_less(
        np.linalg.norm(_wide(q) @ _wide(r) - _wide(a), 2, axis=(-2, -1)),
        np.finfo(a.dtype).eps * max(shape) * np.linalg.norm(_wide(a), 2, axis=(-2, -1)),
    )
    _assert_orthonormal(q)


@DTYPES
def test_qr_has_the_signs_of_lapack(dtype: str) -> None:
    a = _random((80, 50), dtype)
    expected = np.linalg.qr(a)
    q, r = (t.numpy() for t in wg.linalg.qr(wg.asarray(a)))
    tolerance = 1000 * np.finfo(a.dtype).eps
    np.testing.assert_allclose(q, expected[0], rtol=0, atol=tolerance)
    np.testing.assert_allclose(r, expected[1], rtol=0, atol=tolerance * np.abs(r).max())


def test_qr_of_a_matrix_with_columns_of_zeros() -> None:
    a = np.zeros((60, 50))
    a[:, 40:] = _random((60, 10), "float64")
    q, r = (t.numpy() for t in wg.linalg.qr(wg.asarray(a)))
    _assert_orthonormal(q)
    np.testing.assert_allclose(q @ r, a, rtol=0, atol=1e-14)


def test_qr_of_a_strided_matrix() -> None:
    a = _random((90, 120), "float32")
    x = wg.asarray(a)
    for ours, theirs in ((x.T, a.T), (x[::2, ::-1], a[::2, ::-1])):
        for one, two in zip(wg.linalg.qr(ours), wg.linalg.qr(wg.asarray(theirs.copy()))):
            np.testing.assert_array_equal(one.numpy(), two.numpy())


@DTYPES
@pytest.mark.parametrize("name", ["qr", "eigh"])
def test_a_stack_has_the_bits_of_its_matrices(name: str, dtype: str) -> None:
    f, a = getattr(wg.linalg, name), _random((3, 70, 70), dtype)
    alone = [f(wg.asarray(x.copy())) for x in a]
    for k, stacked in enumerate(f(wg.asarray(a))):
        for i in range(3):
            np.testing.assert_array_equal(stacked.numpy()[i], alone[i][k].numpy())


# ------------------------------------------------------------------------------------------------------------- eigh


def _spectrum(values: Any) -> Any:
    q = np.linalg.qr(_random((len(values), len(values)), "float64"))[0]
    a = (q * values) @ q.T
    return (a + a.T) / 2


def _beside(diagonal: Any, off: Any) -> Any:
    return np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)


N = 97  # four parts, of 24 and 25 rows
_BLOCKS = np.zeros((N, N))
_BLOCKS[:50, :50], _BLOCKS[50:, 50:] = _spectrum(np.arange(1.0, 51.0)), 1e-6 * _spectrum(np.arange(1.0, 48.0))
SPECIAL = {
    "zeros": np.zeros((N, N)),
    "identity": np.eye(N),
    "diagonal": np.diag(np.sin(np.arange(N))),
    "all equal": _spectrum(np.ones(N)),
    "three values": _spectrum(np.arange(N) % 3.0),
    "rank one": _spectrum(np.eye(N)[0]),
    "ones": np.ones((N, N)),
    "graded": _spectrum(np.logspace(-30, 0, N)),
    "close": _spectrum(1 + 1e-7 * np.arange(N)),
    "blocks of two sizes": _BLOCKS,
    "Wilkinson": _beside(np.abs(np.arange(N) - N // 2), np.ones(N - 1)),
    "second differences": _beside(2 * np.ones(N), -np.ones(N - 1)),
    "torn to zero": _beside(np.arange(N), np.where(np.arange(N - 1) % 8 == 7, 1e-300, 1.0)),
    "graded corner": _beside(np.logspace(0, -40, N), np.logspace(-1, -41, N - 1)),
    "graded corner, ascending": _beside(np.logspace(-40, 0, N), np.logspace(-41, -1, N - 1)),
    "zero diagonal": _beside(np.zeros(N), np.ones(N - 1)),
}


def _check_eigh(a: Any) -> None:
    w, v = _on_threads(lambda: wg.linalg.eigh(wg.asarray(a)))
    scale = np.abs(a).max(axis=(-2, -1), keepdims=True)
    scale = np.where(scale == 0, 1, scale)
    x, values, vectors = _wide(a / scale), _wide(w / scale[..., 0]), _wide(v)
    assert (np.diff(w) >= 0).all()
    _assert_orthonormal(v)
    limit = np.finfo(w.dtype).eps * a.shape[-1] * np.maximum(np.linalg.norm(x, 2, axis=(-2, -1)), 1e-300)
    residual = np.linalg.norm(x @ vectors - vectors * values[..., None, :], 2, axis=(-2, -1))
    assert (residual <= limit).all()
    assert (np.abs(values - np.linalg.eigvalsh(x)).max(-1) <= limit).all()


@DTYPES
@pytest.mark.parametrize(
    "shape", [(9, 9), (31, 31), (32, 32), (33, 33), (64, 64), (65, 65), (130, 130), (260, 260), (2, 40, 40)], ids=str
)
def test_eigh(shape: tuple[int, ...], dtype: str) -> None:
    a = _random(shape, dtype)
    _check_eigh((a + _adjoint(a)) / 2)


@DTYPES
@pytest.mark.parametrize("name", SPECIAL)
def test_eigh_of_special_matrices(name: str, dtype: str) -> None:
    _check_eigh(SPECIAL[name].astype(dtype))


@DTYPES
@pytest.mark.parametrize("size", ["largest", "smallest"])
def test_eigh_of_numbers_at_the_ends_of_the_range(size: str, dtype: str) -> None:
    a = _random((50, 50), dtype)
    limits = np.finfo(a.dtype)
    _check_eigh((a + _adjoint(a)) * (limits.max / 200 if size == "largest" else limits.tiny * 4))


@DTYPES
@pytest.mark.parametrize("sizes", [(2, 2), (40, 3, 40)], ids=str)
def test_small_parts_of_a_matrix_keep_their_digits_beside_large_ones(sizes: tuple[int, ...], dtype: str) -> None:
    n, begin = sum(sizes), 0
    a, expected, within = np.zeros((n, n), dtype), [], []
    for k, size in enumerate(sizes):
        part = _random((size, size), dtype)
        part = ((part + _adjoint(part)) * 10.0 ** (-12 * k)).astype(dtype)
        a[begin : begin + size, begin : begin + size] = part
        begin += size
        values = np.linalg.eigvalsh(_wide(part))
        expected.extend(values)
        within.extend([np.finfo(dtype).eps * size * np.abs(values).max()] * size)
    _check_eigh(a)
    w = wg.linalg.eigh(wg.asarray(a)).eigenvalues.numpy()
    order = np.argsort(expected)
    assert (np.abs(_wide(w) - np.array(expected)[order]) <= np.array(within)[order]).all()


@DTYPES
def test_values_alone_are_those_of_eigh(dtype: str) -> None:
    a = _random((70, 70), dtype)
    x = wg.asarray((a + _adjoint(a)) / 2)
    alone, w = wg.linalg.eigvalsh(x).numpy(), wg.linalg.eigh(x).eigenvalues.numpy()
    np.testing.assert_allclose(alone, w, rtol=0, atol=100 * np.finfo(a.dtype).eps * np.abs(w).max())
