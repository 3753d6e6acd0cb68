"""Bundle adjustment: `python examples/bundle_adjustment.py` recovers cameras and points from where the points were seen.

Each camera has a rotation (a vector, turned into a matrix by Rodrigues' formula), a position and a focal length; each
point is three numbers. SciPy's `least_squares` minimises the distance between seen and predicted image points with the
exact Jacobian, which is sparse, because an image point depends on one camera and one point. The unknowns stay a
dictionary of tensors. The scene is generated; real ones are large.
"""

from __future__ import annotations

import argparse

import numpy as np

import wengert as wg

Scene = dict[str, wg.Tensor]


def rotate(vectors: wg.Tensor, points: wg.Tensor) -> wg.Tensor:
    """The points (n, 3) turned by each of the rotation vectors (m, 3): (m, n, 3)."""
    angle = wg.sqrt((vectors**2).sum(axis=1, keepdims=True) + 1e-20)
    axis = (vectors / angle)[:, None, :]
    sin, cos = wg.sin(angle)[:, None], wg.cos(angle)[:, None]
    along = (axis * points).sum(axis=-1, keepdims=True)
    a, p = wg.broadcast_arrays(axis, points[None])
    across = wg.stack(
        [
            a[..., 1] * p[..., 2] - a[..., 2] * p[..., 1],
            a[..., 2] * p[..., 0] - a[..., 0] * p[..., 2],
            a[..., 0] * p[..., 1] - a[..., 1] * p[..., 0],
        ],
        axis=-1,
    )
    return p * cos + across * sin + a * along * (1 - cos)


@wg.compile
def project(rotations: wg.Tensor, positions: wg.Tensor, focals: wg.Tensor, points: wg.Tensor) -> wg.Tensor:
    """Where each camera sees each point: (cameras, points, 2)."""
    seen = rotate(rotations, points) + positions[:, None]
    return focals[:, None, None] * seen[..., :2] / seen[..., 2:]


def predict(scene: Scene) -> wg.Tensor:
    """The image points of a scene."""
    return project(scene["rotations"], scene["positions"], scene["focals"], scene["points"])


def make(rng: np.random.Generator, cameras: int, points: int) -> Scene:
    """Cameras around a cloud of points, looking at it."""
    return {
        "rotations": wg.asarray(0.3 * rng.standard_normal((cameras, 3))),
        "positions": wg.asarray(np.array([0.0, 0.0, 6.0]) + 0.5 * rng.standard_normal((cameras, 3))),
        "focals": wg.asarray(rng.uniform(400.0, 600.0, cameras)),
        "points": wg.asarray(rng.uniform(-1.0, 1.0, (points, 3))),
    }


def solve(cameras: int = 6, points: int = 40, noise: float = 0.5, seed: int = 0) -> tuple[float, float]:
    """Root mean square reprojection error in pixels, before and after."""
    rng = np.random.default_rng(seed)
    truth = make(rng, cameras, points)
    seen = predict(truth) + noise * wg.asarray(rng.standard_normal((cameras, points, 2)))
    scales = {"rotations": 0.05, "positions": 0.1, "focals": 20.0, "points": 0.1}
    start = {k: t + scales[k] * wg.asarray(rng.standard_normal(t.shape)) for k, t in truth.items()}
    found = wg.scipy.least_squares(lambda scene: (predict(scene) - seen).reshape(-1), start, x_scale="jac", sparse=True)

    def error(scene: Scene) -> float:
        return float(wg.sqrt(((predict(scene) - seen) ** 2).mean()))

    return error(start), error(found.x)


def main() -> None:
    """Read the options, solve, print both errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cameras", type=int, default=6, help="how many there are (default: %(default)s)")
    parser.add_argument("--points", type=int, default=40, help="how many each camera sees (default: %(default)s)")
    parser.add_argument(
        "--noise", type=float, default=0.5, help="of the image points, in pixels (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the scene (default: %(default)s)")
    options = parser.parse_args()
    before, after = solve(**vars(options))
    print(
        f"reprojection error {before:.2f} pixels before, {after:.3f} after; the noise alone is {options.noise} pixels"
    )


if __name__ == "__main__":
    main()
