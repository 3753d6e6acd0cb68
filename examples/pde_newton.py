"""A nonlinear partial differential equation by Newton's method: `python examples/pde_newton.py` solves Bratu's problem.

-Δu = λ exp(u) on the unit square, u = 0 on its boundary: the temperature of a reaction that its own heat speeds up. On
a grid this is one equation per point, which involves the point and its four neighbours. The residual is written with
slices, as on paper; its sparse Jacobian comes from the program, and SciPy solves each linear system. The derivative of
the temperature in the middle with respect to λ then takes one more solve, by the implicit function theorem.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.sparse.linalg import spsolve

import wengert as wg


def residual(u: wg.Tensor, strength: wg.Tensor) -> wg.Tensor:
    """-Δu - λ exp(u) at the inner points (n, n), with the five-point Laplacian, times the squared width of the grid."""
    h = 1.0 / (u.shape[0] + 1)
    padded = wg.pad(u, ((1, 1), (1, 1)))
    neighbours = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    return 4.0 * u - neighbours - h**2 * strength * wg.exp(u)


def solve(n: int = 63, strength: float = 5.0, tolerance: float = 1e-12) -> tuple[np.ndarray, list[float], float]:
    """The solution, the norm of the residual before each Newton step, and the slope of its middle by λ."""
    by_u, by_strength = wg.jacobian(residual, sparse=True), wg.jacobian(residual, argnums=1)
    s = wg.asarray(np.array(strength))
    u, norms = wg.zeros((n, n), dtype=wg.float64), []
    for _ in range(20):
        r = residual(u, s)
        norms.append(float(wg.sqrt((r * r).sum())))
        if norms[-1] < tolerance:
            break
        u = u - wg.asarray(spsolve(by_u(u, s), r.numpy().ravel())).reshape(n, n)
    slope = spsolve(by_u(u, s), -by_strength(u, s).numpy().ravel())
    return u.numpy(), norms, float(slope[n * n // 2])


def main() -> None:
    """Read the options, solve, print how Newton's method converged."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=63, help="inner points along an axis (default: %(default)s)")
    parser.add_argument("--strength", type=float, default=5.0, help="λ, below 6.8 (default: %(default)s)")
    options = parser.parse_args()
    u, norms, slope = solve(options.n, options.strength)
    print(f"{options.n**2} unknowns; residuals:", ", ".join(f"{x:.1e}" for x in norms))
    print(f"temperature in the middle {u[options.n // 2, options.n // 2]:.4f}, its slope by λ {slope:.4f}")


if __name__ == "__main__":
    main()
