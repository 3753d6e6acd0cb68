"""The same training in PyTorch, to put its time beside ours: same weights, same batches, same number of threads."""

from __future__ import annotations

import importlib.util
import time
from typing import Any

import numpy as np

import wengert as wg
from wengert import optim
from wengert.cli.digits.training import DECAY, RATE, Array, Digits, Report, Run, build

PATIENCE = (
    10.0  # seconds; after the epoch in which they are over, training ends, so that a busy machine does not stall us
)


def is_installed() -> bool:
    """Whether PyTorch is there."""
    return importlib.util.find_spec("torch") is not None


def train(weights: dict[str, Array], digits: Digits, epochs: int, batch: int, seed: int, report: Report) -> Run:
    """Train PyTorch's network from these weights, as `training.train` does ours; fewer epochs where they take long."""
    import torch

    run, threads = Run("PyTorch"), torch.get_num_threads()
    torch.set_num_threads(wg.get_num_threads())
    torch.manual_seed(seed)
    net = build(torch.nn)
    net.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()}, strict=False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, optim.schedules.cosine(epochs))
    x, t = torch.from_numpy(digits.images), torch.from_numpy(digits.labels)
    orders = wg.data.batches(np.arange(len(x)), batch_size=batch, shuffle=True, seed=seed)
    for _ in range(epochs):
        start, total = time.perf_counter(), 0.0
        for order in orders:
            chosen = torch.from_numpy(np.asarray(order))
            loss = torch.nn.functional.cross_entropy(net(x[chosen]), t[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen)
        schedule.step()
        run.seconds.append(time.perf_counter() - start)
        run.losses.append(total / len(x))
        run.accuracies.append(_accuracy(torch, net, digits))
        report(run)
        if sum(run.seconds) > PATIENCE:
            break
    torch.set_num_threads(threads)
    return run


def _accuracy(torch: Any, net: Any, digits: Digits) -> float:
    net.eval()
    with torch.no_grad():
        predicted = net(torch.from_numpy(digits.test_images)).argmax(dim=1).numpy()
    net.train()
    return float(np.mean(predicted == digits.test_labels))
