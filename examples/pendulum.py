"""A pendulum from a film of it: `python examples/pendulum.py` finds its length, its damping, and where it was let go.

The differential equation itself is fitted to what a camera would see of a damped pendulum, x = sin(angle) with some
noise. `wg.ode.odeint` solves it, and `wg.optimize.least_squares` finds the parameters using derivatives of the
solution; the Jacobian tells how well they are determined. Finally, an event finds when the pendulum first hangs
straight, and a derivative how much that time depends on gravity.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import wengert as wg

GRAVITY = 9.81
TRUTH = {"length": 0.8, "damping": 0.25, "angle": 1.9}


def slope(t: wg.Tensor, y: wg.Tensor, p: dict[str, wg.Tensor], gravity: wg.Tensor) -> list[wg.Tensor]:
    """The equation of motion, of the angle and its rate."""
    return [y[1], -gravity / p["length"] * wg.sin(y[0]) - p["damping"] * y[1]]


def film(p: dict[str, wg.Tensor], times: np.ndarray) -> wg.Tensor:
    """Where the pendulum is seen at these times."""
    start = wg.stack([p["angle"], 0.0 * p["angle"]])
    return wg.sin(wg.ode.odeint(slope, start, times, p, GRAVITY, rtol=1e-8, atol=1e-10).y[:, 0])


def straight(p: dict[str, wg.Tensor], gravity: wg.Tensor) -> wg.Tensor:
    """When it first hangs straight."""
    start = wg.stack([p["angle"], 0.0 * p["angle"]])
    found = wg.ode.odeint(slope, start, [0.0, 10.0], p, gravity, events=lambda t, y, p, g: y[0], rtol=1e-8).event
    assert found is not None, "a pendulum that was let go passes through the middle"
    return found.t


def fit(seed: int = 0, noise: float = 0.03) -> tuple[dict[str, float], dict[str, float], np.ndarray, np.ndarray]:
    """What was found, its standard errors, and the film: times and places."""
    rng = np.random.default_rng(seed)
    times = np.linspace(0.0, 6.0, 121)
    truth = {name: wg.asarray(np.float64(value)) for name, value in TRUTH.items()}
    seen = film(truth, times).numpy() + noise * rng.standard_normal(len(times))
    guess = {"length": 0.7, "damping": 0.1, "angle": 1.5}
    result = wg.optimize.least_squares(lambda p: film(p, times) - seen, guess)
    jacobian = result.jac.numpy()
    variance = 2.0 * result.cost.item() / (len(times) - len(guess))
    covariance = variance * np.linalg.inv(jacobian.T @ jacobian)
    errors = dict(zip(TRUTH, np.sqrt(np.diag(covariance)).tolist()))
    return {name: x.item() for name, x in result.x.items()}, errors, times, seen


def draw(path: Path, found: dict[str, float], times: np.ndarray, seen: np.ndarray) -> None:
    """The film, and the motion that was found."""
    from matplotlib.figure import Figure

    fine = np.linspace(times[0], times[-1], 600)
    motion = film({name: wg.asarray(np.float64(x)) for name, x in found.items()}, fine).numpy()
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(times, seen, ".", label="seen")
    axes.plot(fine, motion, label="found")
    axes.set(title="a pendulum", xlabel="seconds", ylabel="sin(angle)")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Read the options, fit, draw, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the noise (default: %(default)s)")
    parser.add_argument("--noise", type=float, default=0.03, help="of what is seen (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("demo/pendulum.png"), help="picture (default: %(default)s)")
    options = parser.parse_args()
    found, errors, times, seen = fit(options.seed, options.noise)
    draw(options.out, found, times, seen)
    print(f"wrote {options.out}")
    for name, value in found.items():
        print(f"{name:8} {value:.4f} ± {errors[name]:.4f}, in truth {TRUTH[name]}")
    p = {name: wg.asarray(np.float64(x)) for name, x in found.items()}
    when, by_gravity = wg.value_and_grad(lambda g: straight(p, g))(wg.asarray(np.float64(GRAVITY)))
    sooner = -0.01 * GRAVITY * by_gravity.item()
    print(f"it hangs straight after {when.item():.3f} s, and {1e3 * sooner:.1f} ms sooner with 1 % more gravity")


if __name__ == "__main__":
    main()
