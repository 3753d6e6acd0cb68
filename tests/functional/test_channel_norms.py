"""Batch, group and instance norm: statistics, running ones, derivatives, bad input."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check
from wengert.errors import ArgumentError, DTypeError, ShapeError


def data(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([9, seed]).standard_normal(shape)


def normalised(x: Any, axes: Any, eps: float = 1e-5) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def per_channel(p: Any, x: Any) -> Any:
    return p.reshape(-1, *(1 for _ in x.shape[2:]))


SHAPES = [(6, 3), (4, 3, 5), (3, 4, 5, 2), (2, 3, 2, 3, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm(shape: Any) -> None:
    x, w, b = data(*shape), data(shape[1], seed=1), data(shape[1], seed=2)
    axes = (0, *range(2, len(shape)))
    expected = normalised(x, axes)
    np.testing.assert_allclose(wg.batch_norm(wg.asarray(x)).numpy(), expected, rtol=1e-10, atol=1e-12)
    y = wg.batch_norm(*(wg.asarray(a) for a in (x, w, b)))
    np.testing.assert_allclose(y.numpy(), expected * per_channel(w, x) + per_channel(b, x), rtol=1e-10, atol=1e-12)
    check(lambda x, w, b: wg.batch_norm(x, w, b), x, w, b)
    check(lambda x: wg.batch_norm(x), x)


@pytest.mark.parametrize("shape", SHAPES)
def test_second_order_of_batch_norm(shape: Any) -> None:
    x, w = data(*shape), data(shape[1], seed=1)
    f = lambda x, w: (wg.batch_norm(x, w) ** 3).sum()
    check(lambda x, w: wg.grad(f)(x, w), x, w, tolerance=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_fixed_statistics(shape: Any) -> None:
    x, w, b = data(*shape), data(shape[1], seed=1), data(shape[1], seed=2)
    mean, var = data(shape[1], seed=3), data(shape[1], seed=4) ** 2 + 0.5
    f = lambda x, w, b, m, v: wg.batch_norm(x, w, b, running_mean=m, running_var=v, training=False)
    expected = (x - per_channel(mean, x)) / np.sqrt(per_channel(var, x) + 1e-5) * per_channel(w, x) + per_channel(b, x)
    np.testing.assert_allclose(f(*(wg.asarray(a) for a in (x, w, b, mean, var))).numpy(), expected, rtol=1e-10)
    check(f, x, w, b, mean, var)


def test_running_statistics_move_outside_the_tape() -> None:
    x = data(5, 3, 2, 2)
    mean, var = wg.zeros((3,), dtype=wg.float64), wg.ones((3,), dtype=wg.float64)
    t = wg.tensor(x, requires_grad=True)
    y = wg.batch_norm(t, running_mean=mean, running_var=var, momentum=0.25)
    np.testing.assert_allclose(mean.numpy(), 0.25 * x.mean((0, 2, 3)))
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * x.var((0, 2, 3), ddof=1))
    assert mean.grad is None and not mean.requires_grad and not var.requires_grad
    (y**2).sum().backward()
    wg.batch_norm(t, running_mean=mean, running_var=var, training=False)
    np.testing.assert_allclose(mean.numpy(), 0.25 * x.mean((0, 2, 3)))


def test_variance_far_from_zero_is_stable() -> None:
    x = (data(32, 2, 4, 4) + 1e4).astype(np.float32)
    expected = normalised(x.astype(np.float64), (0, 2, 3))
    np.testing.assert_allclose(wg.batch_norm(wg.asarray(x)).numpy(), expected, atol=2e-3)


def test_batch_norm_keeps_no_copy_of_its_input() -> None:
    """Besides x itself: two numbers per row of one channel of one sample, and per channel."""
    x = wg.tensor(data(8, 4, 16, 16).astype(np.float32), requires_grad=True)
    w = wg.tensor(np.ones(4, np.float32), requires_grad=True)
    before = wg.memory_stats().saved_bytes
    y = wg.batch_norm(x, w)
    kept = wg.memory_stats().saved_bytes - before
    assert y.shape == x.shape
    assert kept <= x.nbytes + 4 * (3 * 8 * 4 + 8 * 4), f"{kept} bytes for an input of {x.nbytes}"


def test_half_precision_computes_in_float32() -> None:
    x = wg.asarray(data(4, 3, 5, 5)).astype(wg.float16)
    y = wg.batch_norm(x)
    assert y.dtype == wg.float16
    np.testing.assert_allclose(y.numpy(), normalised(x.numpy().astype(np.float64), (0, 2, 3)), atol=2e-3)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 5), (2, 4, 3, 2)])
def test_group_norm(shape: Any, groups: int) -> None:
    x, w, b = data(*shape), data(4, seed=1), data(4, seed=2)
    rows = x.reshape(shape[0], groups, -1)
    expected = normalised(rows, (2,)).reshape(shape) * per_channel(w, x) + per_channel(b, x)
    got = wg.group_norm(wg.asarray(x), groups, weight=wg.asarray(w), bias=wg.asarray(b))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9, atol=1e-10)
    if rows.shape[2] > 1:
        check(lambda x, w, b: wg.group_norm(x, groups, weight=w, bias=b), x, w, b)


@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 5), (2, 4, 3, 2)])
def test_second_order_of_group_norm(shape: Any) -> None:
    x, w = data(*shape), data(shape[1], seed=1)
    f = lambda x, w: (wg.group_norm(x, 2, weight=w) ** 3).sum()
    check(lambda x, w: wg.grad(f)(x, w), x, w, tolerance=1e-5)


def test_groups_far_from_zero_are_stable() -> None:
    """Also where the channels of a group lie far from each other: their offsets are part of the variance."""
    x = data(2, 6, 50) + 1e4
    far = data(2, 6, 50) + np.array([0.0, 3e3, -7e3, 1.0, 1e4, 5.0])[:, None]
    for a in (x, far):
        single = a.astype(np.float32)
        expected = normalised(single.astype(np.float64).reshape(2, 2, 150), (2,)).reshape(a.shape)
        # A mean near 1e4 is rounded by up to 5e-4.
        np.testing.assert_allclose(wg.group_norm(wg.asarray(single), 2).numpy(), expected, atol=2e-3)


def test_instance_norm() -> None:
    x, w, b = data(2, 3, 4, 5), data(3, seed=1), data(3, seed=2)
    got = wg.instance_norm(wg.asarray(x), weight=wg.asarray(w), bias=wg.asarray(b)).numpy()
    np.testing.assert_allclose(
        got, normalised(x, (2, 3)) * per_channel(w, x) + per_channel(b, x), rtol=1e-9, atol=1e-10
    )
    check(lambda x, w, b: wg.instance_norm(x, weight=w, bias=b), x, w, b)


def test_compiled_and_any_batch() -> None:
    f = lambda x, w: (wg.relu(wg.batch_norm(x, w)) ** 2).sum()
    g, w = wg.compile(f), wg.asarray(data(3, seed=1))
    for n in (2, 7):
        x = wg.asarray(data(n, 3, 4, 4))
        np.testing.assert_allclose(wg.grad(g)(x, w).numpy(), wg.grad(f)(x, w).numpy(), rtol=1e-10, atol=1e-12)


def test_bits_do_not_depend_on_threads() -> None:
    x, w = wg.asarray(data(64, 8, 20, 20).astype(np.float32)), wg.asarray(data(8, seed=1).astype(np.float32))
    before, results = wg.get_num_threads(), []
    try:
        for threads in (1, 3):
            wg.set_num_threads(threads)
            for norm in (wg.batch_norm, lambda x, w: wg.group_norm(x, 2, weight=w)):
                y, pull = wg.vjp(norm, x, w)
                results.append([t.numpy().copy() for t in (y, *pull(x * 0.5 + 0.1))])
    finally:
        wg.set_num_threads(before)
    for one, several in zip(results[:2], results[2:]):
        for a, b in zip(one, several):
            np.testing.assert_array_equal(a, b)


X = wg.ones((1, 3))
BAD: list[Any] = [
    (lambda: wg.batch_norm(X), ShapeError, "one value per channel has no variance, got float32(1, 3)"),
    (lambda: wg.batch_norm(wg.ones((1, 3, 1, 1))), ShapeError, "one value per channel"),
    (lambda: wg.batch_norm(wg.ones((0, 3, 2))), ShapeError, "no value per channel has no variance"),
    (lambda: wg.batch_norm(wg.ones((4,))), ShapeError, "(batch, channels, ...)"),
    (lambda: wg.batch_norm(wg.ones((4, 3)), wg.ones((4,))), ShapeError, "one entry per channel, got float32(4,)"),
    (lambda: wg.batch_norm(wg.ones((4, 3)), running_mean=wg.ones((2,))), ShapeError, "one entry per channel"),
    (lambda: wg.batch_norm(X, training=False), ArgumentError, "needs running_mean and running_var"),
    (lambda: wg.group_norm(wg.ones((2, 4)), 3), ShapeError, "num_groups=3 does not divide"),
    (lambda: wg.group_norm(wg.ones((2, 4)), 0), ShapeError, "num_groups=0"),
    (lambda: wg.instance_norm(wg.ones((2, 4, 1))), ShapeError, "a channel of one value"),
]


@pytest.mark.parametrize(("call", "error", "match"), BAD)
def test_bad_input(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=re.escape(match)):
        call()


NORMS = {
    "layer_norm": lambda x, **p: wg.layer_norm(x, x.shape[1:], **p),
    "rms_norm": lambda x, **p: wg.rms_norm(x, x.shape[1:], **p),
    "group_norm": lambda x, **p: wg.group_norm(x, 1, **p),
    "instance_norm": wg.instance_norm,
    "batch_norm": wg.batch_norm,
}


@pytest.mark.parametrize("name", NORMS)
def test_complex_numbers_are_refused_by_the_name_that_was_called(name: str) -> None:
    for shape in ((2, 3), (2, 3, 4)):
        if name == "instance_norm" and len(shape) == 2:
            continue
        x = wg.ones(shape)
        with pytest.raises(DTypeError, match=re.escape(f"{name}: operands must be real numbers, got complex64{shape}")):
            NORMS[name](x.astype(wg.complex64))
        with pytest.raises(DTypeError, match=f"{name}: operands must be real numbers"):
            NORMS[name](x, weight=wg.ones((3,), dtype=wg.complex64))


@pytest.mark.parametrize("shape", [(2, 0, 4), (2, 0, 0), (0, 3, 4), (2, 3, 0)], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_nothing_to_normalise(name: str, shape: Any) -> None:
    if name == "batch_norm" and shape[0] * shape[2] == 0:
        return  # raises: no variance
    x, per_channel = wg.zeros(shape, requires_grad=True), wg.ones(shape[1:2], requires_grad=True)
    weight = per_channel if name in ("group_norm", "instance_norm", "batch_norm") else wg.ones(shape[1:])
    y = NORMS[name](x, weight=weight)
    (y * y).sum().backward()
    assert y.shape == x.grad.shape == shape
    if weight is per_channel:
        assert weight.grad.tolist() == [0.0] * shape[1]
    assert wg.jvp(lambda x: NORMS[name](x, weight=weight), (x.detach(),), (x.detach(),))[1].shape == shape


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4)], ids=str)
def test_compiled_batch_norm_refuses_batches_without_a_variance(shape: Any) -> None:
    f = wg.compile(wg.batch_norm)
    assert f(wg.tensor(data(*shape))).shape == shape
    with pytest.raises(ShapeError, match="no value per channel has no variance"):
        f(wg.ones((0, *shape[1:])))
    with pytest.raises(ShapeError, match="one value per channel has no variance"):
        f(wg.ones((1, 3, *(1 for _ in shape[2:]))))


def test_instance_norm_is_traced_once_for_any_channels() -> None:
    f = wg.compile(wg.instance_norm)
    for channels in (2, 3, 5):
        x = wg.tensor(data(2, channels, 4))
        np.testing.assert_array_equal(f(x).numpy(), wg.instance_norm(x).numpy())
    assert len(f.report()) == 1
