"""The networks and their sizes: as they are measured on a GPU, and small ones, to see on any machine that the rows run."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sizes:
    """Of everything that is measured."""

    chain: tuple[int, ...]  # elements
    rows: tuple[int, int]
    heads: tuple[tuple[int, int, int, int], ...]  # of attention: batch, heads, time, width
    big: tuple[list[int], int]  # widths of the large products, and the batch
    images: int  # of the CNN's batch
    sequences: tuple[int, int, int, int]  # LSTM: batch, steps, input, hidden
    writer: tuple[int, int, int, int, int, int]  # transformer: blocks, width, heads, letters, batch, time


MEASURED = Sizes(
    (1 << 20, 1 << 24, 1 << 27),
    (4096, 1024),
    ((16, 12, 512, 64), (4, 12, 2048, 64)),
    ([4096] * 5, 4096),
    64,
    (32, 50, 32, 64),
    (12, 768, 12, 1024, 16, 512),
)
SMALL = Sizes((1 << 8,), (8, 33), ((1, 2, 9, 8),), ([16] * 3, 8), 2, (3, 4, 5, 6), (2, 16, 2, 11, 2, 6))


def cnn(nn: Any) -> Any:
    """The CNN of `benchmarks.training`."""

    def block(n_in: int, n_out: int) -> list[Any]:
        return [nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(*block(1, 32), *block(32, 64), nn.Flatten(), nn.Linear(64 * 49, 10))


def reader(nn: Any, sizes: Sizes) -> Any:
    """An LSTM whose last output is classified."""
    _, _, width, hidden = sizes.sequences

    class Reader(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(width, hidden, batch_first=True)
            self.logits = nn.Linear(hidden, 10)

        def forward(self, x: Any) -> Any:
            return self.logits(self.cells(x)[0][:, -1])

    return Reader()


def writer(nn: Any, attention: Any, sizes: Sizes) -> Any:
    """A causal transformer with norms first. `attention(q, k, v)` is causal; heads are the second axis."""
    blocks, width, heads, letters, _, time = sizes.writer

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down, self.gelu = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.GELU()

        def forward(self, x: Any) -> Any:
            n, t, _ = x.shape
            h = self.into(self.norm1(x)).reshape(n, t, 3, heads, width // heads)
            y = attention(*(h[:, :, k].swapaxes(1, 2) for k in range(3)))
            x = x + self.out(y.swapaxes(1, 2).reshape(n, t, width))
            return x + self.down(self.gelu(self.up(self.norm2(x))))

    class Writer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(time, width)
            self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
            self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, letters)

        def forward(self, x: Any) -> Any:
            x = self.letters(x) + self.places.weight
            for block in self.blocks:
                x = block(x)
            return self.logits(self.norm(x)).reshape(-1, letters)

    return Writer()


def perceptron(nn: Any, widths: list[int]) -> Any:
    """Linear layers with ReLU between them."""
    layers: list[Any] = []
    for n, m in itertools.pairwise(widths):
        layers += [nn.Linear(n, m), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def batch(kind: str, sizes: Sizes, widths: list[int] | None = None, n: int = 0) -> tuple[Array, Array]:
    """Inputs and classes, the same for all libraries."""
    rng = np.random.default_rng(5)
    if kind == "mlp":
        assert widths
        return rng.normal(size=(n, widths[0])).astype(np.float32), rng.integers(0, widths[-1], n)
    if kind == "cnn":
        return rng.normal(size=(sizes.images, 1, 28, 28)).astype(np.float32), rng.integers(0, 10, sizes.images)
    if kind == "lstm":
        b, t, width, _ = sizes.sequences
        return rng.normal(size=(b, t, width)).astype(np.float32), rng.integers(0, 10, b)
    _, _, _, letters, b, t = sizes.writer
    return rng.integers(0, letters, (b, t)), rng.integers(0, letters, b * t)
