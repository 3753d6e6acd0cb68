"""Training steps of four networks: the same bits for any number of threads, compiled and recomputed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wengert as wg
from wengert import nn


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = wg.get_num_threads()
    yield
    wg.set_num_threads(before)


class _MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(160, 160) for _ in range(3))
        self.drop = nn.Dropout(0.25)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = wg.gelu(self.drop(layer(x)))
        return x.mean(axis=1)


class _CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3)
        self.norm, self.last = nn.GroupNorm(2, 8), nn.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        y = wg.max_pool2d(wg.relu(self.norm(self.first(x.reshape(-1, 1, 16, 10)))), 2)
        return self.last(wg.silu(self.second(y)).mean(axis=(2, 3)))[:, 0]


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.block(x.reshape(-1, 10, 16)).mean(axis=(1, 2))


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.last = nn.LSTM(10, 16, batch_first=True), nn.Linear(16, 1)

    def forward(self, x: Any) -> Any:
        return self.last(self.cells(x.reshape(-1, 16, 10))[0][:, -1])[:, 0]


STRATEGIES = ("selective", "block", "full")
MODELS: list[Callable[[], nn.Module]] = [_MLP, _CNN, _Transformer, _Recurrent]


def _trained(make: Callable[[], nn.Module], how: str = "eager", threads: int = 2, precision: Any = None) -> str:
    wg.set_num_threads(threads)
    wg.manual_seed(0)
    net = make()
    opt = wg.optim.AdamW(net.parameters(), lr=1e-2)
    x = wg.randn(192, 160, generator=wg.Generator(1))
    t = wg.randn(192, generator=wg.Generator(2))

    def loss_of(x: Any) -> Any:
        return wg.mse_loss(net(x), t)

    others = {"compiled": wg.compile(loss_of), "recomputed": lambda x: wg.checkpoint(loss_of, x)}
    f = others.get(how, loss_of)
    strategy = how if how in STRATEGIES else "none"
    before, seen = wg.memory_stats().recomputed, []
    for _ in range(2):
        with wg.checkpointing(wg.CheckpointConfig(strategy, min_compute_cost=1e9)):
            with wg.autocast(precision or wg.bfloat16, enabled=precision is not None):
                loss = f(x)
            grads = loss.backward()
        seen.append([loss.detach(), [grads[p] for p in net.parameters()]])
        opt.step(grads)
    assert strategy in ("none", "full") or wg.memory_stats().recomputed > before  # of few results, `full` keeps all
    return wg.fingerprint([seen, net])


@pytest.mark.parametrize("make", MODELS)
def test_threads_and_modes_do_not_change_the_bits(make: Callable[[], nn.Module]) -> None:
    bits = _trained(make, threads=1)
    assert _trained(make, threads=2) == bits
    assert _trained(make, threads=4) == bits
    assert _trained(make, "recomputed", threads=4) == bits
    assert _trained(make, "compiled", threads=4) == bits
    for strategy in STRATEGIES:
        assert _trained(make, strategy, threads=4) == bits


@pytest.mark.parametrize("precision", [wg.bfloat16, wg.float16])
def test_nor_do_they_in_half_precision(precision: Any) -> None:
    for make in MODELS:
        bits = _trained(make, threads=1, precision=precision)
        assert _trained(make, threads=4, precision=precision) == bits
        assert _trained(make, "recomputed", precision=precision) == bits
        assert _trained(make, "compiled", precision=precision) == bits
        assert _trained(make, "block", precision=precision) == bits
