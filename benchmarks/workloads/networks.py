"""Networks to train. wengert's `nn` and PyTorch's have the same words, so one description serves both; JAX has its own.

Each description names its input and target, and takes an `nn`. Weights are drawn here, once, by the name and shape that both
libraries give them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workloads.data import Array

LETTERS, TIME, WIDTH, BLOCKS, HEADS = 64, 64, 128, 4, 4
HIDDEN = 64


@dataclass(frozen=True)
class Network:
    """How to build it, and what it learns from."""

    name: str
    build: Callable[[Any], Any]  # nn → module
    inputs: Callable[[np.random.Generator], Array]
    targets: Callable[[np.random.Generator], Array]


def batch(network: Network) -> tuple[Array, Array]:
    """Inputs and class indices, the same for all libraries."""
    rng = np.random.default_rng(5)
    return network.inputs(rng), network.targets(rng)


def weights(shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Numbers for every weight: scaled by their inputs, ones for the scales of norms."""
    rng = np.random.default_rng(6)
    made = {}
    for name in sorted(shapes):
        shape = shapes[name]
        if len(shape) < 2:
            one = name.endswith("weight")
            made[name] = np.full(shape, float(one), np.float32)
        else:
            bound = 1 / math.sqrt(math.prod(shape[1:]))
            made[name] = rng.uniform(-bound, bound, shape).astype(np.float32)
    return made


# ------------------------------------------------------------------------------------------------- descriptions


def _cnn(nn: Any) -> Any:
    def block(n_in: int, n_out: int) -> list[Any]:
        return [nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(*block(1, 32), *block(32, 64), nn.Flatten(), nn.Linear(64 * 49, 10))


def _transformer(nn: Any) -> Any:
    class Writer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.letters = nn.Embedding(LETTERS, WIDTH)
            make = lambda: nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", norm_first=True, batch_first=True
            )
            self.blocks = nn.ModuleList([make() for _ in range(BLOCKS)])
            self.norm = nn.LayerNorm(WIDTH)
            self.logits = nn.Linear(WIDTH, LETTERS)

        def forward(self, x: Any) -> Any:
            x = self.letters(x)
            for block in self.blocks:
                x = block(x)
            return self.logits(self.norm(x)).reshape(-1, LETTERS)

    return Writer()


def _lstm(nn: Any) -> Any:
    class Reader(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(32, HIDDEN, batch_first=True)
            self.logits = nn.Linear(HIDDEN, 10)

        def forward(self, x: Any) -> Any:
            return self.logits(self.cells(x)[0][:, -1])

    return Reader()


CNN = Network(
    "CNN, 64×1×28×28, two blocks of convolution, batch norm, ReLU, pooling",
    _cnn,
    lambda rng: rng.normal(size=(64, 1, 28, 28)).astype(np.float32),
    lambda rng: rng.integers(0, 10, 64),
)
TRANSFORMER = Network(
    "transformer, 4 blocks, width 128, 64 letters, batch 16",
    _transformer,
    lambda rng: rng.integers(0, LETTERS, (16, TIME)),
    lambda rng: rng.integers(0, LETTERS, 16 * TIME),
)
LSTM = Network(
    "LSTM, 32×50×32 → 64",
    _lstm,
    lambda rng: rng.normal(size=(32, 50, 32)).astype(np.float32),
    lambda rng: rng.integers(0, 10, 32),
)
NETWORKS = {"cnn": CNN, "transformer": TRANSFORMER, "lstm": LSTM}
