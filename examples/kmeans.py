"""Newton's method for k-means: `python examples/kmeans.py` clusters scikit-learn's digits.

The cost is the sum over all points of the squared distance to the nearest centre. Its Hessian with respect to the centres is
diagonal almost everywhere, because each coordinate of a centre is independent. So one product of the Hessian with ones is
the whole diagonal, and a Newton step costs little more than a gradient step. For k-means it is the step of Lloyd's
algorithm, which moves each centre to the mean of its points; the test compares the two.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_digits

import wengert as wg


def cost(centres: wg.Tensor, points: wg.Tensor) -> wg.Tensor:
    """Sum over all points of the squared distance to the nearest centre."""
    squares = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    return squares.min(axis=1).sum()


def newton_step(centres: wg.Tensor, points: wg.Tensor) -> wg.Tensor:
    """Centres minus gradient over curvature; a centre that is nearest to no point has neither, and stays."""
    gradient = wg.grad(cost)(centres, points)
    curvature = wg.hvp(lambda c: cost(c, points), centres, wg.ones_like(centres))
    return centres - wg.where(curvature > 0, gradient / wg.where(curvature > 0, curvature, 1.0), 0.0)


def cluster(points: np.ndarray, k: int = 10, steps: int = 100, seed: int = 0) -> tuple[wg.Tensor, list[float]]:
    """The centres, and the cost after each step, until it no longer falls."""
    x = wg.asarray(points)
    chosen = np.random.default_rng(seed).choice(len(points), k, replace=False)
    centres, costs = wg.asarray(points[chosen].copy()), [np.inf]
    for _ in range(steps):
        costs.append(float(cost(centres, x)))
        if costs[-1] >= costs[-2]:
            break
        centres = newton_step(centres, x)
    return centres, costs[1:]


def main() -> None:
    """Read the options, cluster, print the cost of each step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--k", type=int, default=10, help="number of clusters (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first centres (default: %(default)s)")
    options = parser.parse_args()
    points = load_digits().data / 16.0
    _, costs = cluster(points, options.k, seed=options.seed)
    print(
        f"cost {costs[0]:.0f} at first, {costs[-1]:.0f} after {len(costs) - 1} Newton steps, where it no longer falls"
    )


if __name__ == "__main__":
    main()
