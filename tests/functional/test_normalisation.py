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
    "f",
    [lambda x: wg.layer_norm(x, 4), lambda x: wg.rms_norm(x, 4), wg.softmax, wg.log_softmax],
    ids=["layer", "rms", "softmax", "log_softmax"],
)
def test_rows_that_nobody_reads_give_no_nan(f):
    """A cotangent of zeros is zero, whatever the row holds: a strong zero."""
    x = wg.tensor([[1.0, 2.0, -1.0, 0.5], [math.nan, math.inf, 0.0, 1.0]], requires_grad=True)
    used = wg.tensor([[True], [False]])
    (gradient,) = wg.grad_of((wg.where(used, f(x), 0.0) * wg.tensor([1.0, -2.0, 3.0, 0.5])).sum(), [x])
    assert np.isfinite(gradient.numpy()).all()
    assert (gradient.numpy()[1] == 0).all() and (gradient.numpy()[0] != 0).any()


@pytest.mark.parametrize(
    "f",
    [wg.softmax, wg.log_softmax, lambda x: wg.layer_norm(x, 4), lambda x: wg.group_norm(x, 1, weight=wg.ones((4,)))],
    ids=["softmax", "log_softmax", "layer_norm", "group_norm"],
)
def test_a_direction_of_zeros_gives_zeros(f):
    x = wg.tensor([[1.0, 2.0, -1.0, 0.5], [math.nan, math.inf, 0.0, 1.0]])
    _, pushed = wg.jvp(f, (x,), (wg.tensor([[1.0, -2.0, 3.0, 0.5], [0.0] * 4]),))
    assert (pushed.numpy()[1] == 0).all() and (pushed.numpy()[0] != 0).any()


def test_rows_of_any_axis():
    """Softmax and its logarithm along each axis, of tensors that are not packed."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 4, 5))
    for axis in range(-3, 3):
        e = np.exp(x - x.max(axis, keepdims=True))
        expected = e / e.sum(axis, keepdims=True)
        np.testing.assert_allclose(wg.softmax(wg.tensor(x), axis=axis).numpy(), expected, rtol=1e-14)
        turned = wg.permute_dims(wg.tensor(np.ascontiguousarray(x.T)), (2, 1, 0))
        np.testing.assert_allclose(wg.softmax(turned, axis=axis).numpy(), expected, rtol=1e-14)
        for t in (wg.tensor(x), turned):
            np.testing.assert_allclose(wg.log_softmax(t, axis=axis).numpy(), np.log(expected), rtol=1e-13)


def test_softmax_divides_correctly_rounded():
    """The quotient is found without a division; it is that of the exponentials and their sum all the same."""
    x = np.random.default_rng(4).standard_normal((64, 1)).astype(np.float32) * 3
    y = wg.softmax(wg.tensor(np.concatenate([x, np.zeros_like(x)], 1))).numpy()
    largest = np.maximum(x, 0)
    e = wg.exp(wg.tensor(np.concatenate([x - largest, -largest], 1))).numpy()
    np.testing.assert_array_equal(y, e / (e[:, :1] + e[:, 1:]))


def test_rows_that_nobody_reads_give_no_nan_to_the_parameters():
    x = wg.tensor([[1.0, 2.0, -1.0, 0.5], [math.nan, math.inf, 0.0, 1.0]])
    for f in (
        lambda w, b: wg.layer_norm(x, 4, weight=w, bias=b),
        lambda w, b: wg.rms_norm(x, 4, weight=w) + b,
        lambda w, b: wg.group_norm(wg.reshape(x, (2, 4, 1)), 1, weight=w, bias=b)[..., 0],
    ):
        _, pull = wg.vjp(f, wg.ones((4,)), wg.zeros((4,)))
        gradients = [g.numpy() for g in pull(wg.tensor([[1.0, -2.0, 3.0, 0.5], [0.0] * 4]))]
        assert all(np.isfinite(g).all() and (g != 0).all() for g in gradients)


@pytest.mark.parametrize("number", [0.1, 1e4 / 3, -7.3e20])
def test_rows_of_equal_numbers_are_zero(number):
    """Whatever the rounding of their sum: 1/√eps would make it visible."""
    for n in (3, 7, 100, 1023):
        x = wg.full((2, n), number, dtype=wg.float32)
        assert (wg.layer_norm(x, n).numpy() == 0).all()
        assert (wg.group_norm(x, 1, weight=wg.ones((n,)), bias=wg.full((n,), 2.0)).numpy() == 2).all()


def gradients_by_hand(x, w, y_bar, columns, eps=1e-5):
    """Of rows of `columns`, as the definition says; w in the shape of x."""
    h = layer_norm(x.reshape(-1, columns), 1, eps)
    scale = 1 / np.sqrt(x.reshape(-1, columns).var(1, keepdims=True) + eps)
    t = (y_bar * w).reshape(-1, columns)
    x_bar = scale * (t - t.mean(1, keepdims=True) - h * (h * t).mean(1, keepdims=True))
    return x_bar.reshape(x.shape), h.reshape(x.shape) * y_bar


@pytest.mark.parametrize("shape", [(300, 129), (40, 1030), (3000, 3), (5, 17000)])
def test_gradients_of_many_rows_add_up(shape):
    """Over more than one tile, with rows shorter and longer than a tile and a block of a sum."""
    x, y_bar, w = data(*shape), data(2, *shape)[1], data(shape[1])
    _, pull = wg.vjp(lambda x, w, b: wg.layer_norm(x, shape[1], weight=w, bias=b), x, w, w + 1)
    x_bar, w_terms = gradients_by_hand(x, w, y_bar, shape[1])
    for got, expected in zip(pull(y_bar), (x_bar, w_terms.sum(0), y_bar.sum(0))):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    ("shape", "groups"), [((70, 8, 20, 3), 4), ((3, 4, 130, 61), 2), ((900, 12), 3), ((50, 6, 37), 6)]
)
def test_gradients_of_many_groups_add_up(shape, groups):
    x, y_bar, w = data(*shape), data(2, *shape)[1], data(shape[1])
    _, pull = wg.vjp(lambda x, w, b: wg.group_norm(x, groups, weight=w, bias=b), x, w, w + 1)
    columns = math.prod(shape[1:]) // groups
    wide = np.broadcast_to(w.reshape(-1, *(1 for _ in shape[2:])), shape)
    x_bar, w_terms = gradients_by_hand(x, wide, y_bar, columns)
    others = (0, *range(2, len(shape)))
    for got, expected in zip(pull(y_bar), (x_bar, w_terms.sum(others), y_bar.sum(others))):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9, atol=1e-11)


def test_parameters_of_another_precision():
    x = wg.asarray(data(3, 8)).astype("float16")
    assert wg.layer_norm(x, 8, weight=wg.ones((8,), dtype=wg.float32)).dtype == wg.float32
    assert wg.layer_norm(x, 8, weight=wg.ones((8,), dtype=wg.float16)).dtype == wg.float16
    assert wg.group_norm(x, 2, bias=wg.ones((8,), dtype=wg.float64)).dtype == wg.float64
