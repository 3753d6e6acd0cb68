"""Parameters of an ordinary differential equation from data: `python examples/ode_parameters.py`.

The pelts of hares and lynxes that the Hudson's Bay Company bought from 1900 to 1920 (in thousands; from C. Elton and
M. Nicholson, 1942) follow roughly the equations of Lotka and Volterra, u' = (α - β v) u and v' = (δ u - γ) v. The solver is
plain Python, classical Runge-Kutta with fixed steps; gradients pass through it into the parameters and the initial state.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import wengert as wg

HARES = [
    30, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22, 25.4, 27.1, 40.3, 57, 76.6, 52.3, 19.5, 11.2, 7.6, 14.6, 16.2, 24.7,
]  # fmt: skip
LYNXES = [4, 6.1, 9.8, 35.2, 59.4, 41.7, 19, 13, 8.3, 9.1, 7.4, 8, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8, 9.7, 10.1, 8.6]
PELTS = np.log(np.stack([HARES, LYNXES], axis=1))
NAMES = ("alpha", "beta", "gamma", "delta")


def slope(log_state: wg.Tensor, p: wg.Tensor) -> wg.Tensor:
    """The equations for the logarithms of u and v, which keep both positive."""
    u, v = wg.exp(log_state[0]), wg.exp(log_state[1])
    return wg.stack([p[0] - p[1] * v, p[3] * u - p[2]])


@wg.compile
def one_year(log_state: wg.Tensor, p: wg.Tensor) -> wg.Tensor:
    """Ten steps of Runge and Kutta: traced once, then one native call."""
    h = 0.1
    for _ in range(10):
        k1 = slope(log_state, p)
        k2 = slope(log_state + h / 2 * k1, p)
        k3 = slope(log_state + h / 2 * k2, p)
        k4 = slope(log_state + h * k3, p)
        log_state = log_state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return log_state


def simulate(unknowns: dict[str, wg.Tensor], years: int) -> wg.Tensor:
    """log u and log v at the end of each year, the initial state first."""
    p = wg.exp(unknowns["log_rates"])
    states = [unknowns["log_start"]]
    for _ in range(years):
        states.append(one_year(states[-1], p))
    return wg.stack(states)


def fit(seed: int = 0) -> tuple[dict[str, float], float]:
    """Rates, and the root mean square of the differences of logarithms."""
    rng = np.random.default_rng(seed)
    data = wg.asarray(PELTS)
    guess = np.log([0.5, 0.025, 0.8, 0.025]) + 0.1 * rng.standard_normal(4)
    start = {"log_rates": wg.asarray(guess), "log_start": wg.asarray(PELTS[0])}
    found = wg.scipy.least_squares(lambda z: (simulate(z, len(PELTS) - 1) - data).reshape(-1), start)
    rates = np.exp(found.x["log_rates"].numpy())
    return dict(zip(NAMES, rates.tolist())), float(np.sqrt(np.mean(found.fun**2)))


def main() -> None:
    """Read the options, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the first guess (default: %(default)s)")
    rates, error = fit(parser.parse_args().seed)
    print("found " + ", ".join(f"{name} {rate:.4f}" for name, rate in rates.items()))
    print(
        f"the curves miss the counts by {math.expm1(error):.0%} on average (root mean square of logarithms {error:.3f})"
    )


if __name__ == "__main__":
    main()
