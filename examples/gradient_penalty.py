"""A critic with gradient penalty measures the distance between two sets of images: `python examples/gradient_penalty.py`.

The Wasserstein distance of two sets is the largest difference of means over functions of slope at most 1 (Kantorovich and
Rubinstein). A network is pushed towards slope 1 by the penalty (|∇f| - 1)² at random points between the sets (Gulrajani et
al., 2017): a loss with a gradient inside, differentiated with respect to the weights. For two sets of equal size the
exact distance is an assignment problem, which SciPy solves; the critic should come close.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.progress import track
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits

import wengert as wg
from wengert import nn, optim


def digits(which: int, n: int, axes: int) -> np.ndarray:
    """n images of one digit, as coordinates along the main axes of all digits."""
    images, labels = load_digits(return_X_y=True)
    images = images - images.mean(axis=0)
    main = np.linalg.svd(images, full_matrices=False)[2][:axes]
    chosen: np.ndarray = (images[labels == which][:n] @ main.T / 16.0).astype(np.float32)
    return chosen


def exact_distance(a: np.ndarray, b: np.ndarray) -> float:
    """The mean length of the cheapest assignment."""
    lengths = np.linalg.norm(a[:, None] - b[None], axis=-1)
    rows, columns = linear_sum_assignment(lengths)
    return float(lengths[rows, columns].mean())


def penalty(critic: nn.Module, a: wg.Tensor, b: wg.Tensor) -> wg.Tensor:
    """(|∇f| - 1)² at points between a and b."""
    mix = wg.rand(len(a), 1)
    between = (mix * a + (1 - mix) * b).requires_grad_()
    (slopes,) = wg.grad_of(critic(between).sum(), [between], create_graph=True)
    return ((wg.sqrt((slopes**2).sum(axis=1) + 1e-12) - 1) ** 2).mean()


def train(steps: int = 1500, n: int = 160, axes: int = 8, width: int = 64, seed: int = 0) -> tuple[float, float]:
    """The critic's distance between the threes and the eights, and the exact one."""
    wg.manual_seed(seed)
    threes, eights = digits(3, n, axes), digits(8, n, axes)
    a, b = wg.asarray(threes), wg.asarray(eights)
    critic = nn.Sequential(nn.Linear(axes, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
    optimizer = optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for _ in track(range(steps), description="training"):
        order = wg.permutation(n)
        loss = critic(b).mean() - critic(a).mean() + 10.0 * penalty(critic, a, b[order])
        optimizer.step(loss.backward())
    with wg.no_grad():
        return (critic(a).mean() - critic(b).mean()).item(), exact_distance(threes, eights)


def main() -> None:
    """Read the options, train, print both distances."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500, help="of the critic (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default: %(default)s)")
    found, exact = train(**vars(parser.parse_args()))
    print(
        f"distance between threes and eights: {found:.4f} by the critic, {exact:.4f} exactly (ratio {found / exact:.3f})"
    )


if __name__ == "__main__":
    main()
