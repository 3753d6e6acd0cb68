"""How the solution of a differential equation depends on its parameters: `python examples/ode_sensitivities.py`.

An epidemic: of N people, S can fall ill and I are ill, S' = −β S I / N, I' = β S I / N − γ I. The derivative of the
whole curve I(t) with respect to β, γ and the initial number of infected is its Jacobian, in forward mode through the
solver: three tangents travel with the solution. The peak, where I'(t) = 0, moves with the parameters, too, by the
implicit function theorem.
"""

from __future__ import annotations

import argparse

import numpy as np

import wengert as wg

PEOPLE = 1000.0
TIMES = np.linspace(0.0, 60.0, 61)


def slope(t: wg.Tensor, y: wg.Tensor, p: wg.Tensor) -> wg.Tensor:
    """The equations for S and I; p = (β, γ, I(0))."""
    falling_ill = p[0] * y[0] * y[1] / PEOPLE
    return wg.stack([-falling_ill, falling_ill - p[1] * y[1]])


def ill(p: wg.Tensor, times: np.ndarray = TIMES) -> wg.Tensor:
    """How many are ill, at each time."""
    start = wg.stack([PEOPLE - p[2], p[2]])
    curve: wg.Tensor = wg.ode.odeint(slope, start, wg.asarray(times), p, rtol=1e-9, atol=1e-9).y[:, 1]
    return curve


def peak(p: wg.Tensor) -> wg.Tensor:
    """How many are ill at the worst time: there I' = 0, so that S = γ N / β, and the orbit says what I is then."""

    def conserved(s: wg.Tensor, i: wg.Tensor, p: wg.Tensor) -> wg.Tensor:  # constant along each solution
        return i + s - p[1] * PEOPLE / p[0] * wg.log(s)

    def on_orbit(i: wg.Tensor, p: wg.Tensor) -> wg.Tensor:
        return conserved(p[1] * PEOPLE / p[0], i, p) - conserved(PEOPLE - p[2], p[2], p)

    found: wg.Tensor = wg.implicit.root(on_orbit, wg.asarray(100.0, dtype=wg.float64), p)
    return found


def sensitivities(beta: float = 0.5, gamma: float = 0.15, first: float = 2.0) -> dict[str, np.ndarray]:
    """The curve, its derivatives with respect to the logarithms of the parameters, and those of the peak."""
    log_p = wg.asarray(np.log([beta, gamma, first]))
    return {
        "curve": ill(wg.exp(log_p)).numpy(),
        "of_curve": wg.jacfwd(lambda q: ill(wg.exp(q)))(log_p).numpy(),
        "peak": peak(wg.exp(log_p)).numpy(),
        "of_peak": wg.grad(lambda q: peak(wg.exp(q)))(log_p).numpy(),
    }


def main() -> None:
    """Read the options, print what one per cent more of each parameter does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beta", type=float, default=0.5, help="contacts per day (default: %(default)s)")
    parser.add_argument("--gamma", type=float, default=0.15, help="recoveries per day (default: %(default)s)")
    found = sensitivities(**vars(parser.parse_args()))
    day = int(np.argmax(found["curve"]))
    print(f"day {day} is the worst, with {found['curve'][day]:.0f} of {PEOPLE:.0f} ill; 1 % more of")
    for k, name in enumerate(("beta", "gamma", "I(0)")):
        early, late = (found["of_curve"][d, k] / 100.0 for d in (day // 2, 2 * day))
        change = f"{early:+.2f} on day {day // 2}, {late:+.2f} on day {2 * day}"
        print(f"  {name:5}: {change}, {found['of_peak'][k] / 100.0:+.2f} at the peak")


if __name__ == "__main__":
    main()
