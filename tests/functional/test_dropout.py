"""Dropout: its distribution, its mask in every mode, and that the mask is not kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
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
