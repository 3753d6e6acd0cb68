"""What uncertain inputs do to a result: `python examples/uncertainty.py` propagates covariances and ranks the inputs.

The flow through a borehole between two aquifers depends on eight uncertain numbers (Harper & Gupta, 1983, a common test
of such methods), here at several pressures. To first order, the covariance of the results is J Σ Jᵀ; the share of each
input in a variance is its sensitivity index. Samples, drawn through the same function under `vmap`, show how good the
first order is.
"""

from __future__ import annotations

import argparse

import numpy as np

import wengert as wg

# name: mean, standard deviation
INPUTS = {
    "radius of the borehole": (0.10, 0.016),
    "radius of influence": (2500.0, 400.0),
    "transmissivity above": (89000.0, 15000.0),
    "head above": (1050.0, 35.0),
    "transmissivity below": (89.5, 15.0),
    "head below": (760.0, 35.0),
    "length": (1400.0, 160.0),
    "conductivity": (10950.0, 630.0),
}
DROPS = wg.asarray(np.array([0.0, 20.0, 40.0, 60.0]))  # of the upper head


def flow(x: wg.Tensor) -> wg.Tensor:
    """Cubic metres a year, for each drop of the head."""
    r, influence, above, head, below, head_below, length, conductivity = (x[k] for k in range(8))
    log = wg.log(influence / r)
    resistance = log * (1.0 + 2.0 * length * above / (log * r**2 * conductivity) + above / below)
    return 2.0 * np.pi * above * (head - DROPS - head_below) / resistance


def propagate(samples: int = 20000, seed: int = 0) -> dict[str, np.ndarray]:
    """Covariances to first order and of samples, and the first-order indices of each input in each result."""
    means, deviations = (wg.asarray(np.array(column)) for column in zip(*INPUTS.values()))
    covariance = wg.diag(deviations**2)
    jacobian = wg.jacobian(flow)(means)
    linear = jacobian @ covariance @ jacobian.T
    parts = (jacobian * deviations) ** 2
    draws = means + deviations * wg.asarray(np.random.default_rng(seed).standard_normal((samples, len(INPUTS))))
    drawn = wg.vmap(flow)(draws)
    return {
        "linear": linear.numpy(),
        "sampled": np.cov(drawn.numpy().T),
        "indices": (parts / parts.sum(axis=1, keepdims=True)).numpy(),
    }


def main() -> None:
    """Read the options, propagate, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20000, help="to compare with (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the samples (default: %(default)s)")
    found = propagate(**vars(parser.parse_args()))
    first, sampled = (np.sqrt(found[k][0, 0]) for k in ("linear", "sampled"))
    print(
        f"the flow without a drop is known to ± {first:.1f} m³ a year (of samples: {sampled:.1f}). Parts of the variance:"
    )
    for name, part in sorted(zip(INPUTS, found["indices"][0]), key=lambda row: -row[1]):
        print(f"  {name:25} {part:6.1%}")


if __name__ == "__main__":
    main()
