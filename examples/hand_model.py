"""The pose of a hand from points on its skin: `python examples/hand_model.py`.

Five fingers of three joints each bend by angles; points on the skin hang on the bones. There are few parameters and
many outputs: the Jacobian has 26 columns and a thousand rows, so the scheduler chooses forward mode, with one pass per
parameter, all of them in one batch. Gauss–Newton steps find the pose.
"""

from __future__ import annotations

import argparse

import numpy as np

import wengert as wg

FINGERS, JOINTS = 5, 3
SIZES = {"turn": (3,), "move": (3,), "spread": (FINGERS,), "bend": (FINGERS, JOINTS)}  # 26 numbers
LENGTHS = np.array([[4.0, 3.0, 2.5]] + [[4.5, 3.0, 2.0]] * 4)
BASES = np.array([[-3.0, 2.0, 0.0], [-2.0, 8.0, 0.0], [0.0, 8.5, 0.0], [2.0, 8.0, 0.0], [3.5, 7.0, 0.0]])

Pose = dict[str, wg.Tensor]


def rotation(axis: int, angle: wg.Tensor) -> wg.Tensor:
    """Matrices (..., 3, 3) that turn about a coordinate axis."""
    one, zero, c, s = wg.ones_like(angle), wg.zeros_like(angle), wg.cos(angle), wg.sin(angle)
    rows = {
        0: [[one, zero, zero], [zero, c, -s], [zero, s, c]],
        1: [[c, zero, s], [zero, one, zero], [-s, zero, c]],
        2: [[c, -s, zero], [s, c, zero], [zero, zero, one]],
    }[axis]
    return wg.stack([wg.stack(row, axis=-1) for row in rows], axis=-2)


def skin(pose: Pose, offsets: wg.Tensor) -> wg.Tensor:
    """Points on the skin: (fingers, joints, points of a bone, 3), at offsets (points of a bone, 3) in lengths of bones."""
    frame = rotation(2, pose["spread"])  # of each finger
    at, points = wg.asarray(BASES), []
    for j in range(JOINTS):
        frame = frame @ rotation(0, pose["bend"][:, j])
        lengths = wg.asarray(LENGTHS[:, j])[:, None, None]
        points.append(at[:, None, :] + (lengths * offsets) @ wg.matrix_transpose(frame))
        at = at + wg.asarray(LENGTHS[:, j])[:, None] * frame[:, :, 1]  # bones lie along y
    whole = rotation(0, pose["turn"][0]) @ rotation(1, pose["turn"][1]) @ rotation(2, pose["turn"][2])
    return wg.stack(points, axis=1) @ whole.T + pose["move"]


def unpack(x: wg.Tensor) -> Pose:
    """The pose out of one vector."""
    parts, at = {}, 0
    for name, shape in SIZES.items():
        n = int(np.prod(shape))
        parts[name] = x[at : at + n].reshape(shape)
        at += n
    return parts


def fit(points: int = 24, steps: int = 12, noise: float = 0.02, seed: int = 0) -> tuple[str, float, float]:
    """The mode of the Jacobian, and the root mean square distance from the skin that was seen, before and after."""
    rng = np.random.default_rng(seed)
    offsets = wg.asarray(rng.uniform([-0.2, 0.0, -0.2], [0.2, 1.0, 0.2], (points, 3)))
    n = sum(int(np.prod(s)) for s in SIZES.values())
    truth = np.concatenate(
        [rng.normal(0.0, 0.3, 6), rng.normal(0.0, 0.1, FINGERS), rng.uniform(0.1, 0.8, n - 6 - FINGERS)]
    )
    clean = skin(unpack(wg.asarray(truth)), offsets)
    seen = clean + wg.asarray(noise * rng.standard_normal(clean.shape))

    def residuals(x: wg.Tensor) -> wg.Tensor:
        return (skin(unpack(x), offsets) - seen).reshape(-1)

    jacobian, compiled = wg.compile(wg.jacobian(residuals)), wg.compile(residuals)
    x = wg.asarray(np.concatenate([np.zeros(6 + FINGERS), np.full(n - 6 - FINGERS, 0.4)]))
    plan = wg.HybridScheduler().plan(residuals, x)
    before = float(wg.sqrt((compiled(x) ** 2).mean()))
    for _ in range(steps):
        j = jacobian(x)
        x = x - wg.linalg.solve(j.T @ j + 1e-6 * wg.eye(n, dtype=wg.float64), j.T @ compiled(x))
    return plan.mode, before, float(wg.sqrt((compiled(x) ** 2).mean()))


def main() -> None:
    """Read the options, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=24, help="on each of the 15 bones (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the pose (default: %(default)s)")
    mode, before, after = fit(**vars(parser.parse_args()))
    print(f"{mode} mode; the skin is {before:.2f} away before, {after:.4f} after; the noise is 0.02")


if __name__ == "__main__":
    main()
