"""A physics-informed network: `python examples/physics_informed.py`.

The network u(t) is never shown a solution. Its loss is the residual of the equation of a damped oscillator,
u'' + 2δ u' + ω² u = 0 with u(0) = 1, u'(0) = 0, so it contains second derivatives of the network with respect to its
input: forward mode, twice. The gradient with respect to the weights is reverse mode over that. The exact solution is known
and measures the error.
"""

from __future__ import annotations

import argparse
import math

from rich.progress import track

import wengert as wg
from wengert import nn, optim

DAMPING, FREQUENCY = 0.5, 4.0


def exact(t: wg.Tensor) -> wg.Tensor:
    """The solution."""
    w = math.sqrt(FREQUENCY**2 - DAMPING**2)
    return wg.exp(-DAMPING * t) * (wg.cos(w * t) + DAMPING / w * wg.sin(w * t))


def derivatives(u: nn.Module, t: wg.Tensor) -> tuple[wg.Tensor, wg.Tensor, wg.Tensor]:
    """u, u' and u'' at the times t: the tangent of the tangent."""
    one = wg.ones_like(t)

    def slope(t: wg.Tensor) -> wg.Tensor:
        u_dot: wg.Tensor = wg.jvp(u, (t,), (one,))[1]
        return u_dot

    first, second = wg.jvp(slope, (t,), (one,))
    return u(t), first, second


def train(steps: int = 3000, width: int = 32, seed: int = 0) -> nn.Module:
    """The network u(t) for times in [0, 3]."""
    wg.manual_seed(seed)
    u = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
    optimizer = optim.Adam(u.parameters(), lr=1e-2)
    schedule = optim.Scheduler(optimizer, optim.schedules.cosine(steps))
    inside, start = wg.linspace(0.0, 3.0, 96).reshape(-1, 1), wg.zeros((1, 1))
    for _ in track(range(steps), description="solving"):
        value, slope, bend = derivatives(u, inside)
        residual = bend + 2 * DAMPING * slope + FREQUENCY**2 * value
        at_zero, slope_at_zero, _ = derivatives(u, start)
        loss = (residual**2).mean() / FREQUENCY**2 + ((at_zero - 1) ** 2).sum() + (slope_at_zero**2).sum()
        optimizer.step(loss.backward())
        schedule.step()
    return u


def error(u: nn.Module) -> float:
    """The largest error of a network over [0, 3]."""
    t = wg.linspace(0.0, 3.0, 300).reshape(-1, 1)
    with wg.no_grad():
        return float(wg.max(wg.abs(u(t) - exact(t))))


def main() -> None:
    """Read the options, train, print the error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000, help="of Adam (default: %(default)s)")
    parser.add_argument("--width", type=int, default=32, help="of the hidden layers (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default: %(default)s)")
    u = train(**vars(parser.parse_args()))
    print(f"largest error on [0, 3]: {error(u):.4f}, where the solution swings between -1 and 1")


if __name__ == "__main__":
    main()
