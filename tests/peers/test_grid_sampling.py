"""Images at the points of grids, beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.peers.side_by_side import compare

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
tf = torch.nn.functional

CASES = [
    (mode, rank) for mode in ("bilinear", "nearest", "bicubic") for rank in (2, 3) if (mode, rank) != ("bicubic", 3)
]


def draw(*shape: int, seed: int = 3, size: float = 1.0) -> Any:
    return np.random.default_rng(seed).uniform(-size, size, shape)


@pytest.mark.parametrize(("mode", "rank"), CASES)
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_samples(mode: str, rank: int, padding: str, align_corners: bool) -> None:
    options: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
    x = draw(2, 3, *(4, 5, 3)[:rank])
    grid = draw(2, *(6, 3, 2)[:rank], rank, seed=5, size=2.7)  # far outside, too
    compare(
        lambda x, g: wg.grid_sample(x, g, **options),
        torch=lambda x, g: tf.grid_sample(x, g, **options),
        arrays=[x, grid],
        lacks={
            "torch": ["jvp", "second order"]
        },  # its kernels have no forward mode, and no second order for all of these
    )


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_places_on_edges_and_images_of_one_element(padding: str, align_corners: bool) -> None:
    places = np.linspace(-3.0, 3.0, 25)
    grid = np.stack(np.meshgrid(places, places), axis=-1)[None]
    for shape in [(1, 2, 4, 4), (1, 2, 1, 3), (1, 1, 1, 1)]:
        x = draw(*shape)
        for mode in ("bilinear", "nearest", "bicubic"):
            options: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
            ours = wg.grid_sample(x, grid, **options).numpy()
            theirs = tf.grid_sample(torch.tensor(x), torch.tensor(grid), **options).numpy()
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13, err_msg=f"{shape} {mode}")


@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid:UserWarning")  # of sizes that are 1
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 1, 5), (2, 1, 3, 4, 1)])
def test_affine_grids(size: tuple[int, ...], align_corners: bool) -> None:
    rank = len(size) - 2
    compare(
        lambda t: wg.affine_grid(t * t, size, align_corners=align_corners),
        torch=lambda t: tf.affine_grid(t * t, list(size), align_corners=align_corners),
        arrays=[draw(2, rank, rank + 1)],
    )
