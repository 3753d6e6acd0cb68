"""The ten-line fit: `python examples/fit.py` finds amplitude, decay, frequency and phase of a noisy oscillation."""

from __future__ import annotations

import argparse

import wengert as wg

TRUE = (2.0, 0.3, 1.7, 0.4)  # amplitude, decay, frequency, phase


def fit(steps: int = 400, seed: int = 0) -> tuple[list[float], float]:
    """The four numbers, and the mean squared error that is left: the variance of the noise is 0.0025."""
    wg.manual_seed(seed)
    t = wg.linspace(0.0, 10.0, 200)
    y = TRUE[0] * wg.exp(-TRUE[1] * t) * wg.sin(TRUE[2] * t + TRUE[3]) + 0.05 * wg.randn(200)
    p = wg.tensor([1.0, 0.1, 1.5, 0.0], requires_grad=True)
    optimizer = wg.optim.Adam([p], lr=0.05)
    for _ in range(steps):
        loss = wg.mse_loss(p[0] * wg.exp(-p[1] * t) * wg.sin(p[2] * t + p[3]), y)
        optimizer.step(loss.backward())
    return p.tolist(), loss.item()


def main() -> None:
    """Read the options, fit, print what was found beside the truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400, help="of Adam (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the noise (default: %(default)s)")
    found, error = fit(**vars(parser.parse_args()))
    for name, value, true in zip(("amplitude", "decay", "frequency", "phase"), found, TRUE):
        print(f"{name:9}  found {value:.3f}, true {true}")
    print(f"mean squared error {error:.5f}; that of the noise alone is 0.00250")


if __name__ == "__main__":
    main()
