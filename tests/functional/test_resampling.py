"""Upsampling: sizes, values where they are known, derivatives. PyTorch's values are compared in tests/peers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import check
from wengert.errors import ArgumentError, ShapeError


def data(*shape: int) -> Any:
    return np.random.default_rng(8).standard_normal(shape)


def test_nearest_repeats() -> None:
    x = data(2, 3, 4, 5)
    got = wg.upsample(wg.asarray(x), scale=(2, 3)).numpy()
    np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(3, 3))
    down = wg.upsample(wg.asarray(x), size=(2, 5)).numpy()
    np.testing.assert_array_equal(down, x[:, :, ::2])


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_the_nearest_elements_keep_their_dtype(mode: str) -> None:
    x = data(2, 3, 8, 5) * 100
    for size in ((4, 10), (11, 3)):
        floating = wg.upsample(wg.asarray(np.round(x)), size=size, mode=mode).numpy()
        whole = wg.upsample(wg.asarray(np.round(x).astype(np.int16)), size=size, mode=mode)
        assert whole.dtype == wg.int16
        np.testing.assert_array_equal(whole.numpy(), floating)
    assert wg.upsample(wg.asarray(x.astype(np.int16)), size=(4, 4), mode="bilinear").dtype == wg.float32


@pytest.mark.parametrize("align_corners", [False, True])
def test_interpolation_is_exact_for_what_is_linear(align_corners: bool) -> None:
    x = np.arange(5.0)[None, None, :, None] * 2.0 + np.arange(7.0)
    y = wg.upsample(wg.asarray(x), size=(9, 13), mode="bilinear", align_corners=align_corners).numpy()[0, 0]
    inner = y[2:-2, 2:-2]
    np.testing.assert_allclose(np.diff(inner, 2, axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.diff(inner, 2, axis=1), 0.0, atol=1e-12)
    if align_corners:
        np.testing.assert_allclose(y[[0, 0, -1, -1], [0, -1, 0, -1]], x[0, 0][[0, 0, -1, -1], [0, -1, 0, -1]])


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 2},
        {"size": (5, 3)},
        {"scale": 1.5, "mode": "bilinear"},
        {"size": (2, 7), "mode": "bilinear", "align_corners": True},
    ],
)
def test_derivatives(options: Any) -> None:
    check(lambda x: wg.upsample(x, **options), data(1, 2, 4, 3))


def test_one_and_three_axes() -> None:
    check(lambda x: wg.upsample(x, size=7, mode="linear"), data(1, 2, 4))
    check(lambda x: wg.upsample(x, scale=2, mode="trilinear"), data(1, 1, 2, 3, 2))
    assert wg.upsample(wg.ones((1, 1, 2, 2, 2)), scale=3).shape == (1, 1, 6, 6, 6)


def test_elements_without_weight_do_not_count() -> None:
    x = np.array([1.0, 2.0, np.inf])
    got = wg.upsample(wg.asarray(x[None, None]), size=5, mode="linear", align_corners=True).numpy()[0, 0]
    np.testing.assert_array_equal(got, [1.0, 1.5, 2.0, np.inf, np.inf])


def test_nearest_elements_keep_their_bits() -> None:
    x = np.array([5e-324, -0.0, np.nan, np.inf, -3e-320])
    got = wg.upsample(wg.asarray(np.stack([x, x[::-1]])[None, None]), scale=(3, 2)).numpy()[0, 0]
    expected = np.stack([x, x[::-1]]).repeat(3, 0).repeat(2, 1)
    np.testing.assert_array_equal(got.view(np.int64), expected.view(np.int64))


def test_half_precision_and_many_to_one() -> None:
    x = data(1, 2, 40, 30).astype(np.float16)
    y = wg.upsample(wg.asarray(x), size=(7, 4), mode="bilinear")
    assert y.dtype == wg.float16
    wide = wg.upsample(wg.asarray(x.astype(np.float64)), size=(7, 4), mode="bilinear").numpy()
    np.testing.assert_allclose(y.numpy(), wide, atol=4e-3)
    check(lambda x: wg.upsample(x, size=(3, 61), mode="bilinear"), data(1, 1, 20, 5))


X = wg.ones((1, 2, 4, 4))
BAD: list[Any] = [
    (lambda: wg.upsample(X), ArgumentError, "either size or scale"),
    (lambda: wg.upsample(X, size=2, scale=2), ArgumentError, "either size or scale"),
    (lambda: wg.upsample(X, size=0), ArgumentError, "sizes must be positive"),
    (lambda: wg.upsample(X, size=(1, 2, 3)), ArgumentError, "size must be one number or 2"),
    (lambda: wg.upsample(X, scale=2, mode="linear"), ArgumentError, "got 'linear' for float32(1, 2, 4, 4)"),
    (lambda: wg.upsample(X, scale=2, mode="cubic"), ArgumentError, "got 'cubic'"),
    (lambda: wg.upsample(X, scale=2, align_corners=True), ArgumentError, "interpolation only"),
    (lambda: wg.upsample(wg.ones((2, 2)), scale=2), ShapeError, "one to three spatial axes"),
]


@pytest.mark.parametrize(("call", "error", "match"), BAD)
def test_bad_input(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=re.escape(match)):
        call()
