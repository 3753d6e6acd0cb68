import numpy as np
import pytest
from scipy import special

import wengert as wg
from tests.finite_differences import check, pulled

SHAPES = [
    ((3,), None), ((2, 3), 0), ((2, 3), 1), ((2, 3), -1), ((2, 3, 4), (0, 2)), ((2, 3, 4), None), ((), None),
    ((2, 3), ()),
]  # fmt: skip


def data(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def pair(name):
    return getattr(wg, name), getattr(np, name)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "var", "std", "any", "all"])
def test_values(name, shape, axis, keepdims):
    ours, numpys = pair(name)
    a = data(shape)
    y = ours(wg.asarray(a), axis, keepdims=keepdims)
    expected = numpys(a, axis=axis, keepdims=keepdims)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "var", "std"])
def test_strides(name):
    ours, numpys = pair(name)
    a = data((4, 6, 5)).transpose(2, 0, 1)[::2, ::-1, 1::2]
    x = wg.asarray(a)
    for axis in (None, 0, 1, 2, (0, 2)):
        np.testing.assert_allclose(ours(x, axis).numpy(), numpys(a, axis=axis), rtol=1e-12)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "var", "std"])
def test_gradients(name, shape, axis):
    f = getattr(wg, name)
    if name in ("std", "var") and axis == ():
        return
    check(lambda x: f(x, axis), data(shape))
    check(lambda x: f(x, axis, keepdims=True), data(shape))


def test_prod_gradient_with_zeros():
    check(lambda x: wg.prod(x), [2.0, 0.0, 3.0])
    check(lambda x: wg.prod(x, 0), [[0.0, 1.0], [0.0, 0.0], [3.0, 2.0]])


def test_ties_share_the_derivative():
    (g,) = pulled(wg.max, np.array([1.0, 3.0, 3.0]), seed=np.array(1.0))
    np.testing.assert_array_equal(g, [0.0, 0.5, 0.5])


@pytest.mark.parametrize("dtype", ["int8", "int32", "bool", "uint8", "uint16"])
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_integers_are_summed_wide(name, dtype):
    ours, numpys = pair(name)
    a = np.array([[1, 0], [3, 1]]).astype(dtype)
    y = ours(wg.asarray(a), 0)
    assert y.dtype == (wg.uint64 if dtype.startswith("u") else wg.int64)
    np.testing.assert_array_equal(y.numpy(), numpys(a, axis=0))


def test_dtypes():
    a = np.array([1, 2, 4], np.int64)
    assert wg.mean(wg.asarray(a)).dtype == wg.float32
    assert wg.sum(wg.asarray(a), dtype=wg.float64).dtype == wg.float64
    assert wg.mean(wg.tensor([1.0, 2.0], dtype="float16")).dtype == wg.float16
    many = wg.ones((100_000,), dtype="float16")
    assert wg.mean(many).item() == 1.0
    assert wg.count_nonzero(wg.tensor([0.0, 2.0, 3.0])).item() == 2


def test_empty():
    x = wg.zeros((0, 3))
    assert wg.sum(x, 0).tolist() == [0.0] * 3
    assert wg.prod(x, 0).tolist() == [1.0] * 3
    assert wg.max(x, 1).shape == (0,)
    assert np.isnan(wg.mean(x, 0).numpy()).all()
    for f in (wg.max, wg.min, wg.argmax, wg.argmin):
        with pytest.raises(wg.errors.ArgumentError, match="empty"):
            f(x, 0)


@pytest.mark.parametrize("correction", [0, 1, 0.5])
def test_correction(correction):
    a = data((3, 4))
    np.testing.assert_allclose(wg.var(wg.asarray(a), 1, correction=correction).numpy(), np.var(a, 1, ddof=correction))
    np.testing.assert_allclose(wg.std(wg.asarray(a), 1, correction=correction).numpy(), np.std(a, 1, ddof=correction))
    check(lambda x: wg.var(x, 1, correction=correction), a)


def test_std_and_norm_of_constants_have_finite_gradients():
    assert np.isfinite(pulled(wg.std, np.ones(3))[0]).all()
    assert np.array_equal(pulled(wg.norm, np.zeros(3))[0], np.zeros(3))


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_positions(axis, keepdims):
    a = data((3, 4))
    for name in ("argmax", "argmin"):
        ours, numpys = pair(name)
        y = ours(wg.asarray(a), axis, keepdims=keepdims)
        assert y.dtype == wg.int64
        np.testing.assert_array_equal(y.numpy(), numpys(a, axis=axis, keepdims=keepdims))
    assert wg.argmax(wg.tensor([False, True])).item() == 1


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
def test_logsumexp(axis):
    a = data((3, 4)) * 10
    for keepdims in (False, True):
        y = wg.logsumexp(wg.asarray(a), axis, keepdims=keepdims)
        np.testing.assert_allclose(y.numpy(), special.logsumexp(a, axis=axis, keepdims=keepdims), rtol=1e-12)
    check(lambda x: wg.logsumexp(x, axis), a / 10)


def test_logsumexp_extremes():
    inf = np.inf
    a = np.array([[1e4, 1e4], [-1e4, -1e4], [-inf, -inf], [inf, 0.0], [-inf, 1.0]])
    np.testing.assert_allclose(wg.logsumexp(wg.asarray(a)).numpy(), special.logsumexp(a, axis=-1))
    assert wg.logsumexp(wg.tensor(2.0)).item() == 2.0


@pytest.mark.parametrize("order", [1, 2, 3, 0.5, np.inf, -np.inf, 0])
def test_norm(order):
    a = data((3, 4)) + 0.1
    np.testing.assert_allclose(wg.norm(wg.asarray(a), 1, ord=order).numpy(), np.linalg.norm(a, order, axis=1))
    if order != 0:
        check(lambda x: wg.norm(x, 1, ord=order), a)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running(axis):
    a = data((3, 4))
    np.testing.assert_allclose(wg.cumsum(wg.asarray(a), axis).numpy(), np.cumsum(a, axis))
    np.testing.assert_allclose(wg.cumprod(wg.asarray(a), axis).numpy(), np.cumprod(a, axis))
    y = wg.cumulative_sum(wg.asarray(a), axis=axis, include_initial=True)
    np.testing.assert_allclose(y.numpy(), np.cumulative_sum(a, axis=axis, include_initial=True))
    check(lambda x: wg.cumulative_sum(x, axis, include_initial=True), a)
    check(lambda x: wg.cumprod(x, axis), a)
    assert wg.cumsum(wg.tensor([True, True])).tolist() == [1, 2]
    with pytest.raises(wg.ShapeError, match="axis"):
        wg.cumsum(wg.asarray(a))


def test_methods_and_errors():
    x = wg.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.sum(0).tolist() == [4.0, 6.0]
    assert x.mean().item() == 2.5
    with pytest.raises(TypeError, match="axis"):
        x.sum(dim=0)
    with pytest.raises(TypeError, match="keepdims"):
        x.max(0, keepdim=True)
    with pytest.raises(wg.ShapeError, match="sum: axis 2"):
        x.sum(2)
    with pytest.raises(wg.ShapeError, match="repeat an axis"):
        x.sum((0, -2))
    with pytest.raises(TypeError, match="sum: got str"):
        wg.sum("ab")


def test_sizes_are_not_baked_into_a_trace():
    f = wg.compile(lambda x: wg.mean(x, 0) + wg.var(x, 0, correction=1))
    for n in (3, 5, 9):
        a = data((n, 2), n)
        np.testing.assert_allclose(f(wg.asarray(a)).numpy(), a.mean(0) + a.var(0, ddof=1), rtol=1e-12)


@pytest.mark.parametrize(
    ("shape", "axis"), [((0,), -1), ((3, 0), 1), ((0, 3), 0), ((0, 3), 1), ((2, 0, 3), (0, 2)), ((2, 0), None)]
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_logsumexp_of_nothing(shape, axis, keepdims):
    x = wg.zeros(shape, dtype="float64", requires_grad=True)
    with np.errstate(divide="ignore"):
        expected = np.log(np.sum(np.zeros(shape), axis=axis, keepdims=keepdims))
    for f in (wg.logsumexp, wg.compile(wg.logsumexp)):
        y = f(x, axis=axis, keepdims=keepdims)
        np.testing.assert_array_equal(y.detach().numpy(), expected)
        assert wg.grad_of([y.sum()], [x])[0].shape == shape
