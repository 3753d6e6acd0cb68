"""Train a small network on handwritten digits, and print its accuracy."""

from __future__ import annotations

import argparse
import sys
import time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Epochs and seed."""
    parser.add_argument("--epochs", type=int, default=20, help="passes over the 1,347 images (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the order of the images (default: 0)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Train, showing the loss of each epoch."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        print("wengert demo learns from scikit-learn's digits: pip install 'wengert[demo]'", file=sys.stderr)
        return 1
    import wengert as wg
    from wengert import nn, optim

    if options.epochs < 1:
        print(f"wengert demo: --epochs must be at least 1, got {options.epochs}", file=sys.stderr)
        return 2
    wg.manual_seed(options.seed)
    images, labels = load_digits(return_X_y=True)
    order = wg.permutation(len(images))
    x, t = wg.asarray(images / 16.0, dtype=wg.float32)[order], wg.asarray(labels)[order]
    n = 3 * len(x) // 4
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = optim.Adam(net.parameters(), lr=2e-3)
    start = time.perf_counter()
    for epoch in range(options.epochs):
        total = 0.0
        for chosen in wg.permutation(n).split(range(32, n, 32)):
            optimizer.zero_grad()
            loss = wg.cross_entropy(net(x[chosen]), t[chosen])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen)
        print(f"epoch {epoch + 1:3d}/{options.epochs}   loss {total / n:.4f}", flush=True)
    seconds = (time.perf_counter() - start) / options.epochs
    with wg.no_grad():
        right = (net(x[n:]).argmax(axis=1) == t[n:]).mean(dtype=wg.float64).item()
    print(f"test accuracy {right:.4f}, {seconds:.4f} seconds per epoch")
    return 0
