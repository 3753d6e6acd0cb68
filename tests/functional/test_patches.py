"""Windows as columns, channels as pixels, pooling and back, and resampling by cubics: by NumPy and finite differences."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd
from tests.tolerances import AGREEMENT, assert_near

X = np.random.default_rng(0).standard_normal((2, 3, 5, 6))
OPTIONS: list[dict[str, Any]] = [{}, dict(stride=2, padding=1), dict(dilation=(2, 1), padding=(0, 2), stride=(1, 3))]


def columns(x: Any, kernel: tuple[int, int], stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Any:
    (s, t), (p, q), (d, e) = ((v, v) if isinstance(v, int) else v for v in (stride, padding, dilation))
    x = np.pad(x, ((0, 0), (0, 0), (p, p), (q, q)))
    rows = range(0, x.shape[2] - d * (kernel[0] - 1), s)
    places = range(0, x.shape[3] - e * (kernel[1] - 1), t)
    made = [
        x[:, :, i : i + d * (kernel[0] - 1) + 1 : d, j : j + e * (kernel[1] - 1) + 1 : e].reshape(len(x), -1)
        for i, j in itertools.product(rows, places)
    ]
    return np.stack(made, -1)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_unfold_and_its_transpose(options: dict[str, Any]) -> None:
    expected = columns(X, (2, 3), **options)
    y = wg.unfold(X, (2, 3), **options)
    np.testing.assert_array_equal(y.numpy(), expected)
    seed = fd.seeds([y.shape])[0]
    back = wg.fold(seed, (5, 6), (2, 3), **options)
    assert_near(
        float((back.numpy() * X).sum()), float((seed * expected).sum()), AGREEMENT
    )  # <fold s, x> = <s, unfold x>
    fd.check(lambda x: wg.unfold(x, (2, 3), **options), X[:1, :2])
    fd.check(lambda s: wg.fold(s, (5, 6), (2, 3), **options), seed[:1])
    assert wg.unfold(X[0], (2, 3), **options).shape == y.shape[1:]
    assert wg.fold(seed[0], (5, 6), (2, 3), **options).shape == (3, 5, 6)


def test_pixels_and_channels() -> None:
    x = np.arange(2 * 8 * 2 * 3.0).reshape(2, 8, 2, 3)
    y = wg.pixel_shuffle(x, 2)
    assert y.shape == (2, 2, 4, 6)
    for c, i, j, a, b in itertools.product(range(2), range(2), range(3), range(2), range(2)):
        assert y[1, c, 2 * i + a, 2 * j + b].item() == x[1, 4 * c + 2 * a + b, i, j]
    np.testing.assert_array_equal(wg.pixel_unshuffle(y, 2).numpy(), x)
    fd.check(lambda x: wg.pixel_shuffle(x, 2), x[0])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_elements_are_where_the_indices_say(rank: int) -> None:
    x = np.random.default_rng(1).permutation(2 * 3 * 5**rank).reshape(2, 3, *(5,) * rank).astype(np.float64)
    options: dict[str, Any] = dict(stride=2, padding=1)
    y, at = getattr(wg, f"max_pool{rank}d")(x, 3, **options, return_indices=True)
    flat, places = x.reshape(2, 3, -1), at.numpy().reshape(2, 3, -1)
    np.testing.assert_array_equal(np.take_along_axis(flat, places, 2), y.numpy().reshape(2, 3, -1))
    back = getattr(wg, f"max_unpool{rank}d")(y, at, 3, **options, output_size=(5,) * rank).numpy()
    assert set(np.unique(back)) - {0.0} == set(np.unique(y.numpy())) - {0.0}
    assert (back[back != 0] == x[back != 0]).all()
    pool = getattr(wg, f"max_pool{rank}d")
    _, places = pool(x, 2, return_indices=True)
    compiled = wg.compile(lambda x: pool(x, 2, return_indices=True))
    np.testing.assert_array_equal(compiled(wg.asarray(x))[1].numpy(), places.numpy())


@pytest.mark.parametrize("size", [4, 5, 3, (2, None)])
def test_adaptive_pooling_says_where_too(size: Any) -> None:
    layer = wg.nn.AdaptiveMaxPool2d(size, return_indices=True)
    y, at = layer(wg.asarray(X))
    np.testing.assert_array_equal(
        np.take_along_axis(X.reshape(2, 3, -1), at.numpy().reshape(2, 3, -1), 2), y.numpy().reshape(2, 3, -1)
    )
    np.testing.assert_array_equal(y.numpy(), wg.nn.AdaptiveMaxPool2d(size)(wg.asarray(X)).numpy())


def test_derivatives_of_unpooling() -> None:
    values, places = wg.max_pool2d(X, 2, return_indices=True)
    fd.check(lambda v: wg.max_unpool2d(v, places, 2, output_size=(5, 6)), values.numpy())


def cubic(n: int, size: int, corners: bool) -> Any:
    """The matrix of bicubic resampling along one axis."""
    m = np.zeros((size, n))
    for j in range(size):
        at = j * (n - 1) / max(size - 1, 1) if corners else (j + 0.5) * n / size - 0.5
        low = int(np.floor(at))
        for k in range(low - 1, low + 3):
            d = abs(at - k)
            w = 1.25 * d**3 - 2.25 * d**2 + 1 if d <= 1 else -0.75 * (d**3 - 5 * d**2 + 8 * d - 4)
            m[j, min(max(k, 0), n - 1)] += w
    return m


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("size", [(9, 7), (3, 4), (1, 6)])
def test_bicubic_resampling(size: tuple[int, int], corners: bool) -> None:
    rows, places = cubic(5, size[0], corners), cubic(6, size[1], corners)
    f = lambda x: wg.upsample(x, size=size, mode="bicubic", align_corners=corners)
    np.testing.assert_allclose(f(X).numpy(), rows @ X @ places.T, rtol=1e-12, atol=1e-13)
    fd.check(f, X[:1, :1])


def test_nearest_exact_takes_the_element_under_the_centre() -> None:
    y = wg.upsample(np.arange(7.0).reshape(1, 1, 7), size=3, mode="nearest-exact")
    assert y.tolist() == [[[1.0, 3.0, 5.0]]]
    fd.check(lambda x: wg.upsample(x, size=(3, 9), mode="nearest-exact"), X[:1, :1])


def test_bad_arguments_are_named() -> None:
    for call, message in [
        (lambda: wg.unfold(X, 9), "do not fit"),
        (lambda: wg.fold(X[0], (5, 6), 2), "fold: x must be"),
        (lambda: wg.pixel_shuffle(X, 2), "multiple of 2²"),
        (lambda: wg.pixel_unshuffle(X, 2), "multiples of 2"),
        (lambda: wg.max_unpool2d(X, X, 2), "indices must be integers"),
        (lambda: wg.max_unpool2d(X, np.full(X.shape, 999), 2), "outside of the 120 elements"),
        (lambda: wg.max_unpool2d(X, np.zeros((2, 3, 5, 5), int), 2), "shape of x"),
        (lambda: wg.max_unpool2d(X, np.zeros(X.shape, int), 2, output_size=(3, 3)), "within one stride"),
        (lambda: wg.upsample(X, size=3, mode="cubic"), "bicubic"),
    ]:
        with pytest.raises(wg.WengertError, match=message):
            call()
