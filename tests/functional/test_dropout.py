"""Dropout: its distribution, its mask in every mode, and that the mask is not kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd
from wengert.errors import ArgumentError


def test_shares_and_scale() -> None:
    y = wg.dropout(wg.ones((100_000,)), 0.3, generator=wg.Generator(seed=1)).numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.7)}
    assert abs((y == 0).mean() - 0.3) < 0.006  # four standard deviations


def test_the_same_key_and_counter_drop_the_same() -> None:
    x = wg.ones((1000,))
    a, b = (wg.dropout(x, 0.5, generator=wg.Generator(seed=4)).numpy() for _ in range(2))
    np.testing.assert_array_equal(a, b)
    g = wg.Generator(seed=4)
    wg.dropout(x, 0.5, generator=g)
    assert (wg.dropout(x, 0.5, generator=g).numpy() != a).any()


def test_backward_and_forward_mode_use_the_same_mask() -> None:
    x = wg.tensor(np.arange(1.0, 2001.0), requires_grad=True)
    y = wg.dropout(x, 0.4, generator=wg.Generator(seed=0))
    mask = y.detach().numpy() / x.detach().numpy()
    seed = np.cos(np.arange(2000.0))
    np.testing.assert_allclose(y.backward(wg.asarray(seed))[x].numpy(), mask * seed, rtol=1e-14)

    def f(z: Any) -> Any:
        return wg.dropout(z, 0.4, generator=wg.Generator(seed=0))

    np.testing.assert_allclose(wg.jvp(f, (x.detach(),), (wg.asarray(seed),))[1].numpy(), mask * seed, rtol=1e-14)


def test_nothing_is_saved() -> None:
    x = wg.ones((100_000,), requires_grad=True)
    before = wg.memory_stats().saved_bytes
    y = wg.dropout(x, 0.5)
    assert wg.memory_stats().saved_bytes == before
    y.sum().backward()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_dtypes_and_layouts_drop_the_same_elements(dtype: str) -> None:
    x = wg.ones((30, 41), dtype=dtype)
    y = wg.dropout(x, 0.5, generator=wg.Generator(seed=2))
    assert y.dtype.name == dtype
    expected = wg.dropout(wg.ones((30, 41)), 0.5, generator=wg.Generator(seed=2)).numpy()
    np.testing.assert_array_equal(y.astype("float32").numpy(), expected)
    turned = wg.ones((41, 30), dtype=dtype).T
    y = wg.dropout(turned, 0.5, generator=wg.Generator(seed=2))
    np.testing.assert_array_equal(y.astype("float32").numpy(), expected)


def test_ends_of_the_range() -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    assert wg.dropout(x, 0.0) is x and wg.dropout(x, 0.9, training=False) is x
    y = wg.dropout(x, 1.0)
    assert y.tolist() == [0.0, 0.0] and y.sum().backward()[x].tolist() == [0.0, 0.0]
    for p in (-0.1, 1.1, float("nan")):
        with pytest.raises(ArgumentError, match="dropout: the probability must be between 0 and 1"):
            wg.dropout(x, p)


def test_a_compiled_function_without_training_draws_nothing() -> None:
    assert wg.compile(lambda x: wg.dropout(x, 0.5, training=False) * 2)(wg.ones((2,))).tolist() == [2.0, 2.0]


CHANNELS: list[tuple[Any, tuple[int, ...], int]] = [
    (wg.dropout1d, (40, 25, 7), 2), (wg.dropout1d, (999, 7), 1), (wg.dropout2d, (40, 25, 3, 2), 2),
    (wg.dropout2d, (40, 25, 3), 2), (wg.dropout3d, (40, 25, 2, 3, 2), 2), (wg.dropout3d, (999, 2, 3, 2), 1),
    (wg.feature_alpha_dropout, (40, 25, 3), 2),
]  # fmt: skip


@pytest.mark.parametrize(("drop", "shape", "lead"), CHANNELS)
def test_whole_channels_are_dropped(drop: Any, shape: tuple[int, ...], lead: int) -> None:
    y = drop(wg.ones(shape), 0.3, generator=wg.Generator(seed=3)).numpy().reshape(*shape[:lead], -1)
    assert (y == y[..., :1]).all() and len(np.unique(y)) == 2
    assert abs((y[..., 0] == y.min()).mean() - 0.3) < 0.06
    assert drop(wg.ones(shape), 0.3, training=False).numpy().min() == 1.0
    assert not drop(wg.ones(shape), 1.0).numpy().any()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_alpha_dropout_keeps_mean_and_variance(p: float) -> None:
    x = wg.randn(200_000, generator=wg.Generator(seed=5))
    y = wg.alpha_dropout(x, p, generator=wg.Generator(seed=6)).numpy()
    assert abs(y.mean()) < 0.02 and abs(y.std() - 1) < 0.03


def test_alpha_dropout_is_the_affine_map_of_kept_elements() -> None:
    x = np.linspace(-2.0, 2.0, 60)

    def f(z: Any) -> Any:
        return wg.alpha_dropout(z, 0.4, generator=wg.Generator(seed=0))

    y, limit = f(wg.asarray(x)).numpy(), -1.7580993408473766
    a = 1 / np.sqrt(0.6 * (1 + 0.4 * limit**2))
    dropped = np.isclose(y, a * limit - a * limit * 0.4, rtol=1e-13)
    assert 10 < dropped.sum() < 40
    np.testing.assert_allclose(y[~dropped], a * x[~dropped] - a * limit * 0.4, rtol=1e-13, atol=1e-15)
    (g,) = fd.pulled(f, x, seed=np.arange(60.0))
    np.testing.assert_allclose(g, np.where(dropped, 0.0, a) * np.arange(60.0), rtol=1e-13)
    assert wg.alpha_dropout([1.0, 2.0], 1.0).tolist() == [0.0, 0.0]


def test_shapes_that_have_no_channels_are_named() -> None:
    for call, message in [
        (lambda: wg.dropout1d(wg.ones(3)), r"dropout1d: takes x with 2 or 3 axes, got float32\(3,\)"),
        (lambda: wg.dropout2d(wg.ones((3, 2))), "dropout2d: takes x with 3 or 4 axes"),
        (lambda: wg.feature_alpha_dropout(wg.ones(3)), "feature_alpha_dropout: takes x of shape"),
        (lambda: wg.dropout3d(wg.ones((3, 2, 2, 2)), 2.0), "dropout3d: the probability must be between 0 and 1"),
    ]:
        with pytest.raises(wg.WengertError, match=message):
            call()
