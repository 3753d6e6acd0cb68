"""A mixture of Gaussians by maximum likelihood: `python examples/gaussian_mixture.py` finds clusters without labels.

The unknowns are unconstrained: weights are a softmax, and each covariance is (L Lᵀ)⁻¹ with a triangular L whose
diagonal is an exponential, so log-densities need only products and no factorization. The gradients of all components
are one program, and L-BFGS does the rest.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import wengert as wg

Mixture = dict[str, wg.Tensor]


def log_likelihood(p: Mixture, x: wg.Tensor) -> wg.Tensor:
    """Mean of ln Σₖ wₖ N(x; μₖ, (Lₖ Lₖᵀ)⁻¹) over the points (n, d)."""
    d = x.shape[1]
    factors = wg.tril(p["lower"], k=-1) + wg.exp(p["log_diagonal"])[:, :, None] * wg.eye(d, dtype=x.dtype)
    whitened = (x[:, None, :] - p["means"])[:, :, None, :] @ factors  # (n, k, 1, d)
    squares = (whitened**2).sum(axis=(2, 3))
    log_determinants = p["log_diagonal"].sum(axis=1)
    log_densities = log_determinants - 0.5 * squares - 0.5 * d * math.log(2.0 * math.pi)
    return wg.logsumexp(wg.log_softmax(p["logits"], 0) + log_densities, 1).mean()


def sample(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of three clusters in the plane, and which cluster each is of."""
    means = np.array([[0.0, 0.0], [4.0, 1.0], [-1.0, 4.0]])
    shapes = np.array([[[1.0, 0.0], [0.8, 0.4]], [[0.5, 0.0], [0.0, 1.2]], [[0.9, 0.0], [-0.6, 0.6]]])
    labels = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    return means[labels] + np.einsum("nij,nj->ni", shapes[labels], rng.standard_normal((n, 2))), labels


def start(rng: np.random.Generator, x: np.ndarray, k: int) -> Mixture:
    """Means at points far from each other, unit covariances."""
    chosen = [x[rng.integers(len(x))]]
    while len(chosen) < k:
        chosen.append(x[np.argmax(np.min([((x - c) ** 2).sum(1) for c in chosen], axis=0))])
    zeros = wg.zeros((k, 2), dtype=wg.float64)
    lower = wg.zeros((k, 2, 2), dtype=wg.float64)
    return {"logits": zeros[:, 0], "means": wg.asarray(np.array(chosen)), "log_diagonal": zeros, "lower": lower}


def fit(n: int = 600, seed: int = 0) -> tuple[float, float]:
    """The mean log-likelihood, and which part of the points is in the cluster that it came from."""
    rng = np.random.default_rng(seed)
    points, labels = sample(rng, n)
    x = wg.asarray(points)
    found = wg.optimize.minimize(lambda p: -log_likelihood(p, x), start(rng, points, 3), method="l-bfgs")
    means = found.x["means"].numpy()
    of_point = np.argmin(((points[:, None] - means) ** 2).sum(2), axis=1)
    best = [np.bincount(labels[of_point == k], minlength=3).max() for k in range(3)]
    return -float(found.fun), sum(best) / n


def main() -> None:
    """Read the options, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=600, help="how many points there are (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the points (default: %(default)s)")
    likelihood, right = fit(**vars(parser.parse_args()))
    print(f"mean log-likelihood {likelihood:.3f}; {right:.0%} of the points are in the cluster that they came from")


if __name__ == "__main__":
    main()
