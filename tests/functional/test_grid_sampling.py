"""Images at the points of grids: both modes, second order, dtypes, compiled with other sizes, errors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd
from wengert.errors import ArgumentError, DTypeError, ShapeError


def draw(*shape: int, seed: int = 3, size: float = 1.0) -> Any:
    return np.random.default_rng(seed).uniform(-size, size, shape)


X, GRID = draw(2, 3, 4, 5), draw(2, 3, 2, 2, seed=5, size=1.4)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_derivatives(mode: str, padding: str) -> None:
    options: dict[str, Any] = {"mode": mode, "padding_mode": padding}
    fd.check(lambda x, g: wg.grid_sample(x, g, **options), X, GRID)
    assert wg.check_gradients(lambda x, g: wg.grid_sample(x * x, g, **options), wg.asarray(X), wg.asarray(GRID))


def test_three_spatial_axes() -> None:
    x, grid = draw(1, 2, 3, 4, 3), draw(1, 2, 2, 1, 3, seed=1, size=1.3)
    fd.check(lambda x, g: wg.grid_sample(x, g), x, grid)


def test_the_identity_and_a_turn() -> None:
    x = draw(1, 2, 5, 5)
    for align_corners in (False, True):
        for mode in ("bilinear", "nearest", "bicubic"):
            options: dict[str, Any] = {"mode": mode, "align_corners": align_corners}
            grid = wg.affine_grid([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], x.shape, align_corners=align_corners)
            np.testing.assert_allclose(wg.grid_sample(x, grid, **options).numpy(), x, atol=1e-6)
            grid = wg.affine_grid(np.array([[[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]]), x.shape, align_corners=align_corners)
            np.testing.assert_allclose(wg.grid_sample(x, grid, **options).numpy(), np.rot90(x, -1, (2, 3)), atol=1e-12)


def test_compiled_for_other_sizes() -> None:
    f = wg.compile(lambda x, g: wg.grid_sample(x, g, padding_mode="reflection"))
    for shape, points in [((2, 3, 4, 5), (2, 3, 2, 2)), ((3, 1, 6, 2), (3, 2, 4, 2)), ((2, 3, 1, 5), (2, 3, 2, 2))]:
        x, grid = draw(*shape), draw(*points, size=2.0)
        expected = wg.grid_sample(x, grid, padding_mode="reflection").numpy()
        np.testing.assert_allclose(f(wg.asarray(x), wg.asarray(grid)).numpy(), expected, rtol=1e-12)


def test_mapped_over_images() -> None:
    x, grid = wg.asarray(draw(4, 1, 2, 3, 3)), wg.asarray(draw(4, 1, 2, 2, 2))
    mapped = wg.vmap(wg.grid_sample)(x, grid).numpy()
    np.testing.assert_allclose(mapped, np.stack([wg.grid_sample(a, b).numpy() for a, b in zip(x, grid)]), rtol=1e-13)


def test_dtypes_nothing_and_numbers_that_are_none() -> None:
    half = wg.grid_sample(wg.asarray(X.astype(np.float16)), wg.asarray(GRID.astype(np.float16)))
    assert half.dtype == wg.float16
    np.testing.assert_allclose(half.numpy(), wg.grid_sample(X, GRID).numpy(), atol=2e-2)
    assert wg.grid_sample(np.ones((0, 3, 2, 2)), np.ones((0, 4, 5, 2))).shape == (0, 3, 4, 5)
    assert wg.grid_sample(np.ones((1, 3, 2, 2)), np.ones((1, 0, 5, 2))).shape == (1, 3, 0, 5)
    odd = np.array([[[[np.nan, 0.0], [np.inf, 0.0], [1e30, -1e30]]]])
    for mode in ("bilinear", "nearest", "bicubic"):
        assert wg.grid_sample(X[:1], odd, mode=mode).numpy().any() == 0.0
    assert wg.grid_sample(np.ones((1, 1, 3, 3)), odd, padding_mode="border").numpy()[0, 0, 0, 1:].tolist() == [1.0, 1.0]


BAD: list[Any] = [
    (lambda: wg.grid_sample(X, GRID[:1]), ShapeError, "grid_sample: takes x of shape"),
    (lambda: wg.grid_sample(X, draw(2, 3, 2, 3)), ShapeError, "got float64(2, 3, 4, 5) and float64(2, 3, 2, 3)"),
    (lambda: wg.grid_sample(X[:, :, :0], GRID), ShapeError, "images must have elements"),
    (lambda: wg.grid_sample(X, GRID, mode="cubic"), ArgumentError, "mode must be 'bilinear', 'nearest' or"),
    (lambda: wg.grid_sample(draw(1, 1, 2, 2, 2), draw(1, 1, 1, 1, 3), mode="bicubic"), ArgumentError, "got 'bicubic'"),
    (lambda: wg.grid_sample(X, GRID, padding_mode="wrap"), ArgumentError, "padding_mode must be one of 'zeros', "),
    (lambda: wg.grid_sample(X + 1j, GRID), DTypeError, "must be real"),
    (lambda: wg.affine_grid(draw(2, 3, 3), (2, 1, 4, 4)), ShapeError, "affine_grid: takes maps (batch, 2, 3)"),
    (lambda: wg.affine_grid(draw(2, 2, 3), (2, 1, 0, 4)), ArgumentError, "sizes must be positive"),
]


@pytest.mark.parametrize(("call", "error", "match"), BAD)
def test_bad_input(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=re.escape(match)):
        call()
