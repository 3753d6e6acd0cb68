import math

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check


def data(*shape):
    return np.random.default_rng(5).standard_normal(shape)


def layer_norm(x, n, eps=1e-5):
    axes = tuple(range(-n, 0))
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_layer_norm(shape):
    x, w, b = data(2, 3, 4), data(*shape), data(*shape)
    expected = layer_norm(x, len(shape))
    np.testing.assert_allclose(wg.layer_norm(wg.asarray(x), shape).numpy(), expected, rtol=1e-10)
    y = wg.layer_norm(wg.asarray(x), shape, weight=wg.asarray(w), bias=wg.asarray(b))
    np.testing.assert_allclose(y.numpy(), expected * w + b, rtol=1e-10)
    check(lambda x, w, b: wg.layer_norm(x, shape, weight=w, bias=b), x, w, b)
    check(lambda x: wg.layer_norm(x, shape), x)
    check(lambda x, b: wg.layer_norm(x, shape, bias=b), x, b)


def test_rms_norm():
    x, w = data(2, 3, 4), data(4)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(wg.rms_norm(wg.asarray(x), 4, eps=1e-3).numpy(), expected)
    np.testing.assert_allclose(wg.rms_norm(wg.asarray(x), 4, weight=wg.asarray(w), eps=1e-3).numpy(), expected * w)
    check(lambda x, w: wg.rms_norm(x, 4, weight=w, eps=1e-3), x, w)


def test_any_batch():
    for n in (1, 2, 7):
        x = data(n, 6)
        np.testing.assert_allclose(wg.layer_norm(wg.asarray(x), 6).numpy(), layer_norm(x, 1), rtol=1e-10)


def test_half_precision():
    x = wg.asarray(data(3, 8)).astype("float16")
    y = wg.layer_norm(x, 8)
    assert y.dtype == wg.float16
    np.testing.assert_allclose(y.numpy(), layer_norm(x.numpy().astype(np.float64), 1), atol=2e-3)


def test_errors():
    x = wg.ones((2, 3, 4))
    with pytest.raises(wg.ShapeError, match="normalized_shape"):
        wg.layer_norm(x, 3)
    with pytest.raises(wg.ShapeError, match="weight or bias"):
        wg.layer_norm(x, (3, 4), weight=wg.ones((4,)))
    with pytest.raises(wg.ShapeError, match="rms_norm"):
        wg.rms_norm(x, ())


@pytest.mark.parametrize(
    "f", [lambda x: wg.layer_norm(x, 4), lambda x: wg.rms_norm(x, 4), wg.softmax], ids=["layer", "rms", "softmax"]
)
def test_rows_that_nobody_reads_give_no_nan(f):
    """A cotangent of zeros is zero, whatever the row holds: a strong zero."""
    x = wg.tensor([[1.0, 2.0, -1.0, 0.5], [math.nan, math.inf, 0.0, 1.0]], requires_grad=True)
    used = wg.tensor([[True], [False]])
    (gradient,) = wg.grad_of((wg.where(used, f(x), 0.0) * wg.tensor([1.0, -2.0, 3.0, 0.5])).sum(), [x])
    assert np.isfinite(gradient.numpy()).all()
    assert (gradient.numpy()[1] == 0).all() and (gradient.numpy()[0] != 0).any()


def test_rows_of_any_axis():
    """Softmax along each axis, of tensors that are not packed."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 4, 5))
    for axis in range(-3, 3):
        e = np.exp(x - x.max(axis, keepdims=True))
        expected = e / e.sum(axis, keepdims=True)
        np.testing.assert_allclose(wg.softmax(wg.tensor(x), axis=axis).numpy(), expected, rtol=1e-14)
        turned = wg.permute_dims(wg.tensor(np.ascontiguousarray(x.T)), (2, 1, 0))
        np.testing.assert_allclose(wg.softmax(turned, axis=axis).numpy(), expected, rtol=1e-14)
