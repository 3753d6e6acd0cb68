"""Gradients of the result of an optimisation: `python examples/bilevel.py` tunes a regression by its validation error.

Ridge regression with a separate penalty for each feature: the weights are an argmin, and the gradient of the validation
error with respect to the penalties passes through it by the implicit function theorem, however the argmin was found.
The second part is a saddle point: the least cost under a constraint, minimal in x and maximal in the multiplier. The
derivative of its value with respect to the bound is the multiplier itself.
"""

from __future__ import annotations

import argparse

import numpy as np

import wengert as wg


def fitted(log_penalties: wg.Tensor, x: wg.Tensor, y: wg.Tensor) -> wg.Tensor:
    """The weights that minimise the squared error on the training data and the penalties."""

    def objective(w: wg.Tensor, log_penalties: wg.Tensor) -> wg.Tensor:
        return ((x @ w - y) ** 2).mean() + (wg.exp(log_penalties) * w**2).sum()

    found: wg.Tensor = wg.implicit.argmin(objective, wg.zeros((x.shape[1],), dtype=wg.float64), log_penalties)
    return found


def tune(
    features: int = 12, useful: int = 3, n: int = 30, steps: int = 60, seed: int = 0
) -> tuple[float, float, np.ndarray]:
    """Validation errors before and after, and the penalties that were found; only the first features say anything."""
    rng = np.random.default_rng(seed)
    truth = np.r_[np.ones(useful), np.zeros(features - useful)]
    inputs = rng.standard_normal((2, n, features))
    outputs = inputs @ truth + 0.5 * rng.standard_normal((2, n))
    (x, x_new), (y, y_new) = map(wg.asarray, inputs), map(wg.asarray, outputs)

    def error(log_penalties: wg.Tensor) -> wg.Tensor:
        return ((x_new @ fitted(log_penalties, x, y) - y_new) ** 2).mean()

    p = wg.asarray(np.full(features, -3.0))
    before = float(error(p))
    for _ in range(steps):
        p = wg.clip(p - 20.0 * wg.grad(error)(p), -8.0, 4.0)
    return before, float(error(p)), p.numpy()


def cheapest(bound: wg.Tensor, prices: wg.Tensor) -> tuple[wg.Tensor, wg.Tensor]:
    """The x ≥ 0 of least cost Σ prices·x with Σ ln(1 + x) = bound, and its multiplier: the saddle of the Lagrangian."""

    def lagrangian(x: wg.Tensor, multiplier: wg.Tensor, bound: wg.Tensor) -> wg.Tensor:
        return (prices * x).sum() + multiplier * (bound - wg.log1p(x).sum())

    def slopes(z: dict[str, wg.Tensor], bound: wg.Tensor) -> dict[str, wg.Tensor]:  # zero at the saddle
        by_x, by_multiplier = wg.grad(lagrangian, (0, 1))(z["x"], z["multiplier"], bound)
        return {"x": by_x, "multiplier": by_multiplier}

    found = wg.implicit.root(slopes, {"x": wg.ones_like(prices), "multiplier": wg.ones((), dtype=wg.float64)}, bound)
    return found["x"], found["multiplier"]


def main() -> None:
    """Read the options, tune, print both parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the data (default: %(default)s)")
    before, after, penalties = tune(seed=parser.parse_args().seed)
    print(
        f"validation error {before:.3f} with one penalty for all, {after:.3f} with penalties found by their gradients:"
    )
    print("  " + " ".join(f"{p:.3g}" for p in np.exp(penalties)))
    prices, bound = wg.asarray([1.0, 2.0, 4.0], dtype=wg.float64), wg.asarray(3.0, dtype=wg.float64)
    cost = wg.grad(lambda b: (prices * cheapest(b, prices)[0]).sum())(bound)
    print(
        f"a bound that is 1 higher costs {float(cost):.4f} more; the multiplier is {float(cheapest(bound, prices)[1]):.4f}"
    )


if __name__ == "__main__":
    main()
