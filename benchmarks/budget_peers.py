"""The networks of `benchmarks.budgets` in PyTorch, without and with its checkpoints."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

Made = tuple[Callable[[], Any], list[Any]]  # a loss, and the parameters
RandomArray = Callable[..., np.ndarray[Any, Any]]


def _run(regions: list[Callable[[Any], Any]], h: Any, checkpointed: bool) -> Any:
    from torch.utils.checkpoint import checkpoint

    for region in regions:
        h = checkpoint(region, h, use_reentrant=False) if checkpointed else region(h)
    return h


def mlp(random: RandomArray, checkpointed: bool, layers: int = 64, width: int = 256, batch: int = 2048) -> Made:
    """Layers of tanh, √n of them in a region."""
    import torch

    weights = [torch.tensor(random(width, width, seed=k) * width**-0.5, requires_grad=True) for k in range(layers)]
    x = torch.tensor(random(batch, width, seed=1000))
    size = round(layers**0.5)

    def region(h: Any, ws: list[Any]) -> Any:
        return functools.reduce(lambda h, w: torch.tanh(h @ w), ws, h)

    regions = [functools.partial(region, ws=weights[k : k + size]) for k in range(0, layers, size)]
    return lambda: (_run(regions, x, checkpointed) ** 2).mean(), weights


def transformer(
    random: RandomArray, checkpointed: bool, blocks: int = 12, width: int = 256, batch: int = 24, length: int = 64
) -> Made:
    """Encoder blocks, each a region."""
    import torch

    torch.manual_seed(0)
    options = {"dropout": 0.1, "activation": "gelu", "batch_first": True}
    layers = [torch.nn.TransformerEncoderLayer(width, 4, 4 * width, **options) for _ in range(blocks)]
    x = torch.tensor(random(batch, length, width))
    return lambda: (_run(layers, x, checkpointed) ** 2).mean(), [p for layer in layers for p in layer.parameters()]


def recurrent(random: RandomArray, checkpointed: bool, steps: int = 1000, width: int = 256, batch: int = 64) -> Made:
    """A recurrent net, √n steps in a region."""
    import torch

    w = torch.tensor(random(width, width) * width**-0.5, requires_grad=True)
    xs = torch.tensor(random(steps, batch, width) * np.float32(0.1))
    size = round(steps**0.5)

    def region(h: Any, first: int) -> Any:
        for t in range(first, min(first + size, steps)):
            h = torch.tanh(h @ w + xs[t])
        return h

    regions = [functools.partial(region, first=k) for k in range(0, steps, size)]
    start = torch.zeros((batch, width), requires_grad=True)  # its checkpoints want an argument with a gradient
    return lambda: (_run(regions, start, checkpointed) ** 2).mean(), [w]


NETWORKS = {"64-layer MLP": mlp, "12-block transformer": transformer, "1,000-step recurrent net": recurrent}
