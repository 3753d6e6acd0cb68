"""Train a small network on scikit-learn's handwritten digits: `python examples/digits_mlp.py`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits

import wengert as wg
from wengert import nn, optim


def load(seed: int) -> tuple[wg.Tensor, wg.Tensor, wg.Tensor, wg.Tensor]:
    """1,797 images of 8×8: three quarters to train on, one quarter to test on."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    x = (images[order] / 16.0).astype(np.float32)
    t = labels[order].astype(np.int64)
    n = 3 * len(x) // 4
    return wg.tensor(x[:n]), wg.tensor(t[:n]), wg.tensor(x[n:]), wg.tensor(t[n:])


def batches(x: wg.Tensor, t: wg.Tensor, size: int) -> Iterator[tuple[wg.Tensor, wg.Tensor]]:
    """All samples once, in random order."""
    order = wg.permutation(len(x))
    for start in range(0, len(x), size):
        chosen = order[start : start + size]
        yield x[chosen], t[chosen]


def accuracy(net: nn.Module, x: wg.Tensor, t: wg.Tensor) -> float:
    """The part of the samples whose most likely class is the right one."""
    with wg.no_grad():
        return float((net(x).argmax(axis=1) == t).mean(dtype=wg.float64))


def train(epochs: int = 40, batch: int = 32, width: int = 64, seed: int = 0) -> tuple[float, float]:
    """Train a 64-width-width-10 network; returns test accuracy and seconds per epoch."""
    wg.manual_seed(seed)
    x, t, x_test, t_test = load(seed)
    net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = optim.Adam(net.parameters(), lr=2e-3)
    console = Console()
    console.print(net, highlight=False)
    loss_column = TextColumn("loss {task.fields[loss]:.4f}")
    columns = (TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), loss_column)
    spent = 0.0
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=epochs, loss=float("nan"))
        for _ in range(epochs):
            start = time.perf_counter()
            total = 0.0
            for images, labels in batches(x, t, batch):
                optimizer.zero_grad()
                loss = wg.cross_entropy(net(images), labels)
                loss.backward()
                optimizer.step()
                total += loss.item() * len(images)
            spent += time.perf_counter() - start
            progress.update(task, advance=1, loss=total / len(x))
    return accuracy(net, x_test, t_test), spent / epochs


def main() -> None:
    """Read the options, train, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40, help="passes over the images (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="images per step (default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="of the hidden layers (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and order (default: %(default)s)")
    reached, seconds = train(**vars(parser.parse_args()))
    print(f"test accuracy {reached:.4f}, {seconds:.4f} seconds per epoch")


if __name__ == "__main__":
    main()
