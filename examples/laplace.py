"""Laplace's approximation: `python examples/laplace.py` estimates how sure a classifier can be.

The posterior of a logistic regression is approximated by a Gaussian at its maximum, whose covariance is the inverse
Hessian. It gives predictions with error bars, and the evidence, with which models can be compared: here, how strongly
to penalise the weights.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import wengert as wg


def negative_log_posterior(w: wg.Tensor, precision: wg.Tensor, x: wg.Tensor, t: wg.Tensor) -> wg.Tensor:
    """−ln p(t, w), with labels t = ±1 and a Gaussian prior of the weights."""
    d = x.shape[1]
    prior = 0.5 * precision * (w**2).sum() - 0.5 * d * wg.log(precision / (2.0 * math.pi))
    return wg.softplus(-t * (x @ w)).sum() + prior


def evidence(log_precision: wg.Tensor, x: wg.Tensor, t: wg.Tensor) -> wg.Tensor:
    """ln p(t), approximately: −f(w) + (d/2) ln 2π − ½ ln det H at the maximum w, which moves with the prior."""
    precision = wg.exp(log_precision)
    w = mode(precision, x, t)
    _, log_determinant = wg.linalg.slogdet(wg.hessian(negative_log_posterior)(w, precision, x, t))
    d = x.shape[1]
    return -negative_log_posterior(w, precision, x, t) + 0.5 * d * math.log(2.0 * math.pi) - 0.5 * log_determinant


def mode(precision: wg.Tensor, x: wg.Tensor, t: wg.Tensor) -> wg.Tensor:
    """The most probable weights, differentiable by the precision of the prior."""
    start = wg.zeros((x.shape[1],), dtype=wg.float64)
    objective = lambda w, precision: negative_log_posterior(w, precision, x, t)
    found: wg.Tensor = wg.implicit.argmin(objective, start, precision)
    return found


def predict(w: wg.Tensor, covariance: wg.Tensor, x: wg.Tensor) -> wg.Tensor:
    """Probabilities of +1, averaged over the posterior (MacKay, 1992)."""
    variance = ((x @ covariance) * x).sum(axis=1)
    return wg.sigmoid(x @ w / wg.sqrt(1.0 + math.pi / 8.0 * variance))


def run(n: int = 60, seed: int = 0) -> dict[str, float]:
    """The precision that maximises the evidence, the evidence there and at 1, and how sure predictions are near and far."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n, 2))
    labels = np.where(points @ [1.5, -1.0] + 0.3 + 0.7 * rng.standard_normal(n) > 0, 1.0, -1.0)
    x, t = wg.asarray(np.c_[points, np.ones(n)]), wg.asarray(labels)
    one = wg.zeros((), dtype=wg.float64)
    best = wg.optimize.minimize(lambda q: -evidence(q, x, t), one).x
    precision = wg.exp(best)
    w = mode(precision, x, t)
    covariance = wg.linalg.inv(wg.hessian(negative_log_posterior)(w, precision, x, t))
    along, across = wg.asarray(np.array([[3.0, -2.0, 1.0]])), wg.asarray(np.array([[20.0, 30.0, 1.0]]))
    return {
        "precision": float(precision),
        "evidence": float(evidence(best, x, t)),
        "evidence_at_one": float(evidence(one, x, t)),
        "near": float(predict(w, covariance, along)[0]),
        "far": float(predict(w, covariance, across)[0]),
        "far_without": float(wg.sigmoid(across @ w)[0]),
    }


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=60, help="how many examples there are (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the examples (default: %(default)s)")
    found = run(**vars(parser.parse_args()))
    print(f"precision of the prior {found['precision']:.3f}: ln evidence {found['evidence']:.2f}")
    print(f"with a precision of 1: {found['evidence_at_one']:.2f}")
    print(f"P(+1) near the data {found['near']:.3f}, far from it {found['far']:.3f}")
    print(f"without error bars, far from it: {found['far_without']:.3f}")


if __name__ == "__main__":
    main()
