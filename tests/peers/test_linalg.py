"""Linear algebra beside PyTorch and JAX, real and complex.

PyTorch's derivatives of cholesky and eigh are for symmetric directions only; there all three get the symmetric part.
Vectors of eigenvalue and singular value problems enter through invariants: each library has signs and phases of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.linalg.checking import hermitian, real_and_complex, regular, spaced
from tests.peers.side_by_side import compare

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed: make peers")
jax = pytest.importorskip("jax", reason="JAX is not installed: make peers")

# Second derivatives by equal values go through vectors, which have none.
_VALUES_ONCE = {"torch": ("second order",), "jax": ("second order",)}
KINDS = pytest.mark.parametrize("complex", [False, True], ids=["real", "complex"])
Function = Callable[..., Any]

# One source for three libraries: f(library, linalg, x, ...).
LIBRARIES = {"ours": (wg, wg.linalg), "torch": (torch, torch.linalg), "jax": (jnp, jnp.linalg)}


def _compare(f: Function, *arrays: Any, **options: Any) -> None:
    def bound(name: str) -> Function:
        return lambda *xs: f(*LIBRARIES[name], *xs)

    compare(bound("ours"), torch=bound("torch"), jax=bound("jax"), arrays=arrays, **options)


def _adjoint(library: Any, x: Any) -> Any:
    return library.conj(x).mT


def _symmetric(library: Any, x: Any) -> Any:
    return (x + _adjoint(library, x)) / 2


SQUARE: dict[str, Function] = {
    "inv": lambda lib, la, x: la.inv(x),
    "det": lambda lib, la, x: la.det(x),
    "slogdet": lambda lib, la, x: tuple(la.slogdet(x)),
    "matrix_power": lambda lib, la, x: la.matrix_power(x, 3),
    "inverse power": lambda lib, la, x: la.matrix_power(x, -2),
    "matrix_exp": lambda lib, la, x: jax.scipy.linalg.expm(x) if lib is jnp else la.matrix_exp(x),
    "eigvals": lambda lib, la, x: la.eigvals(x),
    "trace": lambda lib, la, x: lib.sum(lib.diagonal(x, 0, -2, -1) if lib is torch else _diagonal(lib, x), -1),
}


def _diagonal(library: Any, x: Any) -> Any:
    return wg.linalg.diagonal(x) if library is wg else jnp.diagonal(x, axis1=-2, axis2=-1)


# JAX differentiates eigenvalues of general matrices once; a second order is not implemented there.
LACKS: dict[str, dict[str, tuple[str, ...]]] = {"eigvals": {"jax": ("second order",)}}


@KINDS
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4)], ids=str)
@pytest.mark.parametrize("name", SQUARE)
def test_square(name: str, shape: Any, complex: bool) -> None:
    _compare(SQUARE[name], regular(*shape, complex=complex) / 1.5, lacks=LACKS.get(name))


@KINDS
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4)], ids=str)
def test_cholesky(shape: Any, complex: bool) -> None:
    a = hermitian(*shape, complex=complex)
    _compare(lambda lib, la, x: la.cholesky(_symmetric(lib, x)), a)


@KINDS
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4)], ids=str)
def test_eigh(shape: Any, complex: bool) -> None:
    def f(lib: Any, la: Any, x: Any) -> Any:
        w, v = la.eigh(_symmetric(lib, x))
        weights = lib.sin(w)[..., None, :]
        return w, (v * weights) @ _adjoint(lib, v)

    a = hermitian(*shape, complex=complex)
    _compare(f, a)
    _compare(lambda lib, la, x: la.eigvalsh(_symmetric(lib, x)), a)


@KINDS
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)], ids=str)
def test_svd(shape: Any, complex: bool) -> None:
    def f(lib: Any, la: Any, x: Any) -> Any:
        u, s, vh = la.svd(x, full_matrices=False)
        return s, (u * (s**2)[..., None, :]) @ vh, (u * lib.sin(s)[..., None, :]) @ _adjoint(lib, u)

    _compare(f, spaced(*shape, complex=complex))
    _compare(lambda lib, la, x: la.svdvals(x), spaced(*shape, complex=complex))


@KINDS
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 3, 2), (2, 4)], ids=str)
def test_qr(shape: Any, complex: bool) -> None:
    def f(lib: Any, la: Any, x: Any) -> Any:
        q, r = la.qr(x)
        return q @ lib.sin(r), r * r

    wide = shape[-1] > shape[-2]
    _compare(f, regular(*shape, complex=complex), lacks={"jax": ("vjp", "jvp", "second order")} if wide else None)


@KINDS
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 3)], ids=str)
def test_lu(shape: Any, complex: bool) -> None:
    def f(lib: Any, la: Any, x: Any) -> Any:
        if lib is jnp:
            factored = jax.scipy.linalg.lu
            return (factored if x.ndim == 2 else jax.vmap(factored))(x)[1:]
        return tuple(la.lu(x))[1:]

    _compare(f, regular(*shape, complex=complex))


@KINDS
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)], ids=str)
def test_pinv(shape: Any, complex: bool) -> None:
    _compare(lambda lib, la, x: la.pinv(x), spaced(*shape, complex=complex))


@KINDS
@pytest.mark.parametrize(
    ("a", "b"), [((3, 3), (3,)), ((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 2)), ((3, 3), (2, 3, 2))], ids=str
)
def test_solve(a: Any, b: Any, complex: bool) -> None:
    _compare(
        lambda lib, la, x, y: la.solve(x, y), regular(*a, complex=complex), real_and_complex(*b, number=1)[complex]
    )


@KINDS
@pytest.mark.parametrize("upper", [False, True])
def test_solve_triangular(upper: bool, complex: bool) -> None:
    def f(lib: Any, la: Any, x: Any, y: Any) -> Any:
        if lib is jnp:
            return jax.scipy.linalg.solve_triangular(x, y, lower=not upper)
        return la.solve_triangular(lib.triu(x) if upper else lib.tril(x), y, upper=upper)

    _compare(f, real_and_complex(3, 3)[complex] / 3 + 2 * np.eye(3), real_and_complex(3, 2, number=1)[complex])


@KINDS
@pytest.mark.parametrize("shape", [(4, 2), (3, 3), (2, 4)], ids=str)
def test_lstsq(shape: Any, complex: bool) -> None:
    def f(lib: Any, la: Any, x: Any, y: Any) -> Any:
        return la.pinv(x) @ y if lib is torch and shape[0] < shape[1] else la.lstsq(x, y)[0]

    _compare(f, spaced(*shape, complex=complex), real_and_complex(shape[0], 2, number=1)[complex])


@KINDS
@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, float("inf"), float("-inf")])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3)], ids=str)
def test_matrix_norm(shape: Any, ord: Any, complex: bool) -> None:
    _compare(lambda lib, la, x: la.matrix_norm(x, ord=ord), spaced(*shape, complex=complex))


@KINDS
@pytest.mark.parametrize("ord", [1, 2, 3, 1.5, float("inf"), float("-inf")])
def test_vector_norm(ord: Any, complex: bool) -> None:
    _compare(lambda lib, la, x: la.vector_norm(x, ord=ord), regular(3, 4, complex=complex))


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("bij,bjk->bki", [(2, 3, 4), (2, 4, 5)]),
    ("ii->i", [(3, 3)]),
    ("ij->", [(2, 3)]),
    ("i,j,ij->j", [(2,), (3,), (2, 3)]),
    ("ij,jk,kl,li->", [(2, 3), (3, 4), (4, 2), (2, 2)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("ijk,jil->kl", [(2, 3, 4), (3, 2, 5)]),
]


@KINDS
@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=[e for e, _ in EQUATIONS])
def test_einsum(equation: str, shapes: Any, complex: bool) -> None:
    arrays = [real_and_complex(*s, number=k)[complex] for k, s in enumerate(shapes)]
    _compare(lambda lib, la, *xs: lib.einsum(equation, *xs), *arrays)


PRODUCTS: dict[str, tuple[Function, list[tuple[int, ...]]]] = {
    "matmul": (lambda lib, la, x, y: lib.matmul(x, y), [(2, 1, 3, 4), (5, 4, 2)]),
    "vecdot": (lambda lib, la, x, y: la.vecdot(x, y), [(2, 3), (3,)]),
    "outer": (lambda lib, la, x, y: lib.outer(x, y), [(3,), (2,)]),
    "kron": (lambda lib, la, x, y: lib.kron(x, y), [(2, 3), (3, 2)]),
    "cross": (lambda lib, la, x, y: la.cross(x, y), [(4, 3), (4, 3)]),
    "tensordot": (
        lambda lib, la, x, y: (
            lib.tensordot(x, y, dims=([0, 1], [1, 0])) if lib is torch else lib.tensordot(x, y, axes=([0, 1], [1, 0]))
        ),
        [(2, 3, 4), (3, 2, 5)],
    ),
    "multi_dot": (lambda lib, la, x, y, z: la.multi_dot([x, y, z]), [(2, 5), (5, 3), (3, 4)]),
}


@KINDS
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, complex: bool) -> None:
    f, shapes = PRODUCTS[name]
    _compare(f, *(real_and_complex(*s, number=k)[complex] for k, s in enumerate(shapes)))


def test_functions_of_equal_eigenvalues() -> None:
    """Values alone: all three agree. A function of the matrix: through eigenvectors PyTorch says NaN, and we are right."""
    x = np.eye(3) * 2.0
    _compare(lambda lib, la, a: lib.sum(lib.log(la.eigh(a)[0])), x, lacks=_VALUES_ONCE)
    _compare(lambda lib, la, a: lib.sum(la.svd(a, full_matrices=False)[1]), x, lacks=_VALUES_ONCE)
    t = torch.tensor(x, requires_grad=True)
    w, v = torch.linalg.eigh(t)
    assert torch.autograd.grad((v * w.sqrt() @ v.mT)[0, 1], t)[0].isnan().any()
    ours = wg.grad(lambda a: wg.linalg.sqrtm(a)[0, 1])(wg.asarray(x)).numpy()
    expected = np.zeros((3, 3))
    expected[0, 1] = expected[1, 0] = 0.25 / np.sqrt(2.0)
    np.testing.assert_allclose(ours, expected, rtol=1e-14, atol=1e-16)
