"""What the workloads compute with, as NumPy arrays."""

from __future__ import annotations

import itertools

import numpy as np

Array = np.ndarray
SMALL, LARGE = (64, 64, 64, 10), (784, 1024, 1024, 10)
CHAIN = 100  # times tanh(x * b): two ops each
MILLION = 1_000_000
TURNS = 1_000  # of a loop over one number
DESCENTS = 50  # of a loop with a gradient of a loop


def operands(*shape: int) -> tuple[Array, Array, Array]:
    """Three arrays of moderate numbers."""
    rng = np.random.default_rng(0)
    return tuple(rng.normal(0.0, 0.5, shape).astype(np.float32) for _ in range(3))  # type: ignore[return-value]


def chain_operands() -> tuple[Array, Array]:
    """x and b for tanh(x * b) over and over: numbers that stay numbers of usual size, as denormal ones are slow on some
    processors."""
    x, b, _ = operands(8, 8)
    return x, (1.2 + 0.4 * b).astype(np.float32)


def layers(sizes: tuple[int, ...]) -> list[tuple[Array, Array]]:
    """Weights (outputs, inputs) and biases of a multilayer perceptron."""
    rng = np.random.default_rng(1)
    made = []
    for n_in, n_out in itertools.pairwise(sizes):
        bound = n_in**-0.5
        weight, bias = rng.uniform(-bound, bound, (n_out, n_in)), rng.uniform(-bound, bound, n_out)
        made.append((weight.astype(np.float32), bias.astype(np.float32)))
    return made


def batch(sizes: tuple[int, ...], n: int) -> tuple[Array, Array]:
    """Inputs and class indices."""
    rng = np.random.default_rng(2)
    return rng.normal(size=(n, sizes[0])).astype(np.float32), rng.integers(0, sizes[-1], n)
