"""Less usual layers: their text, modes and errors. Values are compared in tests/peers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd
from wengert import nn
from wengert.errors import ArgumentError, ShapeError


def test_padding_counts_from_the_last_axis() -> None:
    x = np.arange(6.0).reshape(1, 2, 3)
    np.testing.assert_array_equal(
        nn.ZeroPad2d((1, 0, 2, 0))(wg.asarray(x)).numpy(), np.pad(x, ((0, 0), (2, 0), (1, 0)))
    )
    assert repr(nn.ConstantPad1d(2, 0.5)) == "ConstantPad1d(padding=(2, 2), value=0.5)"


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode: str) -> None:
    w, index, offsets = np.random.default_rng(0).uniform(-1, 1, (4, 2)), [3, 0, 1, 1, 2], [0, 0, 3]
    bags = [[], [3, 0, 1], [1, 2]]
    expected = [getattr(w[b], mode)(0) if b else np.zeros(2) for b in bags]
    np.testing.assert_allclose(wg.embedding_bag(index, w, offsets=offsets, mode=mode).numpy(), expected, rtol=1e-14)
    fd.check(lambda w: wg.embedding_bag(index, w, offsets=offsets, mode=mode), w)
    f = wg.compile(lambda w: wg.embedding_bag(index, w, offsets=offsets, mode=mode))
    np.testing.assert_allclose(f(wg.asarray(w)).numpy(), expected, rtol=1e-14)
    assert wg.embedding_bag(np.zeros((0, 3), int), w, mode=mode).shape == (0, 2)
    assert wg.embedding_bag(np.zeros((2, 0), int), w, mode=mode).tolist() == [[0.0, 0.0]] * 2
    assert wg.embedding_bag(np.zeros(0, int), w, offsets=[0, 0], mode=mode).tolist() == [[0.0, 0.0]] * 2


def test_local_response_norm_derivatives() -> None:
    x = np.random.default_rng(0).uniform(-2, 2, (2, 5, 3))
    fd.check(lambda x: wg.local_response_norm(x, 3, alpha=0.5, beta=0.7, k=1.2), x)
    assert wg.check_gradients(lambda x: wg.local_response_norm(x, 4, alpha=0.5), wg.asarray(x))
    assert wg.local_response_norm(wg.ones((0, 4)), 3).shape == (0, 4)
    large = wg.local_response_norm(wg.full((1, 2), 3000.0, dtype=wg.float16), 2, alpha=1.0, beta=0.5, k=0.0)
    assert large.dtype == wg.float16 and large.flatten().tolist() == pytest.approx([2**0.5, 1.0], rel=1e-3)


def test_unflatten_is_the_inverse_of_flatten() -> None:
    x = wg.randn(2, 3, 4, 5)
    assert bool((wg.unflatten(x.flatten(1, 2), 1, (3, 4)) == x).all())
    assert x.flatten(1, 2).unflatten(1, (-1, 4)).shape == (2, 3, 4, 5)
    assert wg.unflatten(wg.ones((2, 0)), 1, (0, 4)).shape == (2, 0, 4)
    f = wg.compile(lambda x: wg.unflatten(x, 0, (-1, 2)))
    assert f(wg.ones(6)).shape == (3, 2) and f(wg.ones(8)).shape == (4, 2)


def test_modules_that_drop_only_do_so_while_training() -> None:
    for name, shape in [("Dropout1d", (4, 5, 3)), ("Dropout2d", (4, 5, 3, 2)), ("Dropout3d", (4, 5, 2, 2, 2)),
                        ("AlphaDropout", (40, 5)), ("FeatureAlphaDropout", (4, 9, 3))]:  # fmt: skip
        layer = getattr(nn, name)(0.5, generator=wg.Generator(seed=1))
        assert len(np.unique(layer(wg.ones(shape)).numpy())) == 2, name
        assert bool((layer.eval()(wg.ones(shape)) == 1.0).all()), name
        assert repr(layer) == f"{name}(p=0.5)"


BAD: list[Any] = [
    (lambda: nn.ZeroPad2d((1, 2, 3)), ArgumentError, "ZeroPad2d: padding must be one number or 4"),
    (lambda: nn.ReflectionPad1d(-1), ArgumentError, "ReflectionPad1d: padding must not be negative, got -1"),
    (lambda: nn.CircularPad1d(1)(wg.ones((2, 2, 2, 2))), ShapeError, "CircularPad1d: takes x of shape"),
    (lambda: wg.embedding_bag([1, 2], np.ones((4, 2))), ShapeError, "a vector with the offsets"),
    (lambda: wg.embedding_bag([[1, 2]], np.ones((4, 2)), offsets=[0]), ArgumentError, "leave them out"),
    (lambda: wg.embedding_bag([1, 2], np.ones((4, 2)), offsets=[1]), ArgumentError, "offsets must begin with 0"),
    (lambda: wg.embedding_bag([[1, 2]], np.ones((4, 2)), mode="min"), ArgumentError, "mode must be 'sum', 'mean' or 'max'"),
    (
        lambda: wg.embedding_bag([[1, 2]], np.ones((4, 2)), per_sample_weights=[[1.0, 2.0]]),
        ArgumentError,
        "scale the rows of sums only",
    ),
    (lambda: nn.EmbeddingBag(3, 2, padding_idx=3), ArgumentError, "EmbeddingBag: padding_idx 3 is out of range for 3"),
    (lambda: wg.lp_pool1d(wg.ones((1, 1, 4)), 0, 2), ArgumentError, "lp_pool1d: norm_type must be positive, got 0"),
    (lambda: wg.lp_pool2d(wg.ones((1, 1, 4)), 2, 9), ShapeError, "lp_pool2d"),
    (lambda: wg.local_response_norm(wg.ones(3), 2), ShapeError, "local_response_norm: takes x of shape"),
    (lambda: wg.local_response_norm(wg.ones((3, 2)), 0), ArgumentError, "size must be positive, got 0"),
    (lambda: wg.unflatten(wg.ones((2, 6)), 1, (4, 2)), ShapeError, "unflatten: sizes (4, 2) do not make up axis 1"),
    (lambda: wg.unflatten(wg.ones((2, 6)), 1, (-1, -1)), ShapeError, "unflatten: sizes (-1, -1)"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 10, [5, 3]), ArgumentError, "cutoffs must increase"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 10, [5])(wg.ones((2, 8)), [1, 10]), ArgumentError, "label 10"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 10, [5])(wg.ones((2, 8)), [1]), ShapeError, "a target (batch,)"),
    (lambda: wg.multi_margin_loss(wg.ones((2, 3)), [0, 3]), ArgumentError, "the target has label 3, but there are 3"),
    (lambda: wg.multi_margin_loss(wg.ones((2, 3)), [0, -1]), ArgumentError, "the target has label -1"),
    (lambda: wg.multi_margin_loss(wg.ones((2, 3)), [0, 1], p=3), ArgumentError, "p must be 1 or 2, got 3"),
    (lambda: wg.multi_margin_loss(wg.ones((2, 3)), [0, 1], weight=[1.0]), ShapeError, "one number per class"),
    (lambda: wg.soft_margin_loss(wg.ones((2, 3)), wg.ones(2)), ShapeError, "soft_margin_loss: prediction"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "match"), BAD)
def test_bad_input(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=re.escape(match)):
        call()
