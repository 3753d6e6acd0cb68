"""Hyperparameters of a Gaussian process by its marginal likelihood: `python examples/gaussian_process.py`.

Monthly measurements of a few years: a kernel with a trend, a season and noise, whose six parameters are found by BFGS. The
gradient passes through the Cholesky factor of the kernel matrix. The curvature at the maximum says how well each of them is
known.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import wengert as wg

NAMES = ("size of the trend", "length of the trend", "size of the season", "period", "smoothness", "noise")
START = np.log([1.0, 2.0, 1.0, 1.05, 1.0, 0.5])


def kernel(log_p: wg.Tensor, s: wg.Tensor, t: wg.Tensor) -> wg.Tensor:
    """Covariances between times, without the noise."""
    p = wg.exp(log_p)
    apart = s[:, None] - t
    trend = p[0] ** 2 * wg.exp(-0.5 * (apart / p[1]) ** 2)
    season = p[2] ** 2 * wg.exp(-2.0 * (wg.sin(math.pi * apart / p[3]) / p[4]) ** 2)
    return trend + season


def factor(log_p: wg.Tensor, t: wg.Tensor) -> wg.Tensor:
    """The Cholesky factor of the covariance of what is measured."""
    noise = wg.exp(2.0 * log_p[5]) + 1e-8
    return wg.linalg.cholesky(kernel(log_p, t, t) + noise * wg.eye(t.shape[0], dtype=t.dtype))


def negative_log_likelihood(log_p: wg.Tensor, t: wg.Tensor, y: wg.Tensor) -> wg.Tensor:
    """−ln p(y) for each measurement, with a weak prior that keeps the parameters near 1."""
    lower = factor(log_p, t)
    white = wg.linalg.solve_triangular(lower, y[:, None], upper=False)[:, 0]
    n = t.shape[0]
    nll = 0.5 * (white**2).sum() + wg.log(wg.linalg.diagonal(lower)).sum() + 0.5 * n * math.log(2.0 * math.pi)
    return (nll + 0.05 * (log_p**2).sum()) / n


def predict(log_p: wg.Tensor, t: wg.Tensor, y: wg.Tensor, new: wg.Tensor) -> wg.Tensor:
    """The mean of the process at new times."""
    lower = factor(log_p, t)
    white = wg.linalg.solve_triangular(lower, y[:, None], upper=False)
    across = wg.linalg.solve_triangular(lower, kernel(log_p, t, new), upper=False)
    return (across.T @ white)[:, 0]


def fit(months: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, float]:
    """The parameters, the standard errors of their logarithms, and the error of predictions for the year that follows."""
    rng = np.random.default_rng(seed)
    t = np.arange(months + 12) / 12.0
    clean = np.sin(2.0 * np.pi * t) + 0.3 * np.cos(4.0 * np.pi * t) + 0.5 * np.sin(0.7 * t)
    seen = clean + 0.2 * rng.standard_normal(len(t))
    times, values = wg.asarray(t[:months]), wg.asarray(seen[:months])
    found = wg.optimize.minimize(negative_log_likelihood, START, (times, values))
    curvature = months * wg.hessian(negative_log_likelihood)(found.x, times, values)
    errors = wg.sqrt(wg.linalg.diagonal(wg.linalg.inv(curvature))).numpy()
    ahead = predict(found.x, times, values, wg.asarray(t[months:])).numpy()
    return np.exp(found.x.numpy()), errors, float(np.sqrt(np.mean((ahead - clean[months:]) ** 2)))


def main() -> None:
    """Read the options, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--months", type=int, default=60, help="of measurements (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the noise (default: %(default)s)")
    found, errors, ahead = fit(**vars(parser.parse_args()))
    for name, value, error in zip(NAMES, found, errors):
        print(f"{name:20} {value:6.3f} ± {100 * error:.0f} %")
    print(f"the next year is predicted to ± {ahead:.3f}; the noise is 0.2")


if __name__ == "__main__":
    main()
