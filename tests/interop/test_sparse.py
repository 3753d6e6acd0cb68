"""Products of tensors and scipy.sparse matrices."""

import numpy as np
import pytest

import wengert as wg

sparse = pytest.importorskip("scipy.sparse")

FORMATS = [
    f"{name}_{kind}" for kind in ("array", "matrix") for name in ("csr", "csc", "coo", "dia", "lil", "dok", "bsr")
]


def matrix(kind="csr_array", dtype=np.float64, shape=(4, 3)):
    rng = np.random.default_rng(1)
    dense = rng.standard_normal(shape) * (rng.random(shape) < 0.6)
    if np.dtype(dtype).kind == "c":
        dense = dense + 1j * np.roll(dense, 1)
    return getattr(sparse, kind)(dense.astype(dtype))


def sample(*shape, dtype=np.float64, seed=2):
    return wg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


PRODUCTS = {
    "A @ x": (lambda a, x: a @ x, (3,)),
    "A @ X": (lambda a, x: a @ x, (3, 5)),
    "A @ batch": (lambda a, x: a @ x, (2, 3, 5)),
    "x @ A": (lambda a, x: x @ a, (4,)),
    "X @ A": (lambda a, x: x @ a, (5, 4)),
    "batch @ A": (lambda a, x: x @ a, (2, 5, 4)),
    "x @ A.T": (lambda a, x: x @ a.T, (3,)),
    "A.T @ x": (lambda a, x: a.T @ x, (4,)),
    "A.dot(x)": (lambda a, x: a.dot(x) if sparse.issparse(a) else a @ x, (3,)),
}


@pytest.mark.parametrize("product, shape", PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize("kind", FORMATS)
def test_values(product, shape, kind):
    a, x = matrix(kind), sample(*shape)
    y = product(a, x)
    assert type(y) is wg.Tensor
    dense = np.asarray(a.todense())
    np.testing.assert_allclose(y.numpy(), product(dense, x.numpy()), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("product, shape", PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_derivatives_in_both_modes_and_second_order(product, shape, compiled):
    a, x, v = matrix(), sample(*shape), sample(*shape, seed=3)
    dense = wg.tensor(a.toarray())
    make = wg.compile if compiled else lambda f: f

    def loss(a):
        return make(lambda x: (wg.sin(product(a, x)) * wg.arange(1.0, 1.0 + product(a, x).shape[-1])).sum())

    ours, expected = loss(a), loss(dense)
    np.testing.assert_allclose(wg.grad(ours)(x).numpy(), wg.grad(expected)(x).numpy(), rtol=1e-12)
    for got, wanted in zip(wg.jvp(ours, (x,), (v,)), wg.jvp(expected, (x,), (v,))):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-12)
    np.testing.assert_allclose(wg.hvp(ours, x, v).numpy(), wg.hvp(expected, x, v).numpy(), rtol=1e-11)
    twice = wg.grad(lambda x: (wg.grad(ours)(x) * v).sum())(x)
    np.testing.assert_allclose(twice.numpy(), wg.hvp(expected, x, v).numpy(), rtol=1e-11)


def test_backward_and_captured_parameters():
    a = matrix()
    w = wg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    np.testing.assert_allclose((a @ w).sum().backward()[w].numpy(), a.toarray().sum(0), rtol=1e-6)
    f = wg.compile(lambda s: (a @ w).sum() * s)
    one = wg.tensor(1.0)
    before = f(one).item()
    with wg.no_grad():
        w *= 2.0
    assert f(one).item() == pytest.approx(2 * before)


@pytest.mark.parametrize("x_dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "int32"])
@pytest.mark.parametrize("a_dtype", [np.int64, np.float32, np.float64, np.complex128])
def test_dtypes(x_dtype, a_dtype):
    a = matrix(dtype=a_dtype)
    x = wg.tensor([1.0, 2.0, 3.0]).astype(x_dtype)
    y = a @ x
    np.testing.assert_allclose(y.numpy(), a.toarray() @ x.astype("complex128").numpy(), rtol=1e-5)
    if x.dtype.is_inexact:
        g = wg.grad(lambda x: abs(a @ x).sum())(x)
        assert g.dtype == x.dtype


def test_complex_gradient():
    a, z = matrix(dtype=np.complex128), wg.tensor(np.array([1.0 + 2.0j, -0.5j, 3.0]))
    dense = wg.tensor(a.toarray())
    expected = wg.grad(lambda z: abs(dense @ z).sum())(z)
    np.testing.assert_allclose(
        wg.grad(lambda z: abs(a @ z).sum())(z).detach().numpy(), expected.detach().numpy(), rtol=1e-12
    )


def test_sizes_that_do_not_fit():
    a = matrix()
    for product in (lambda: a @ sample(4), lambda: sample(3) @ a, lambda: a @ sample(4, 3), lambda: sample() @ a):
        with pytest.raises(wg.ShapeError, match=r"matmul: .*sparse matrix of shape \(4, 3\)"):
            product()


def test_empty():
    a = sparse.csr_array((4, 0))
    assert (a @ wg.zeros((0, 2))).tolist() == [[0.0, 0.0]] * 4
    assert (wg.zeros((0, 4)) @ a).shape == (0, 0)
