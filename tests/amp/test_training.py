"""A small transformer in half precision learns as it does in float32, and overflows are survived."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn


class _Writer(nn.Module):
    def __init__(self, characters: int, length: int, width: int) -> None:
        super().__init__()
        self.character, self.position = nn.Embedding(characters, width), nn.Embedding(length, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, norm_first=True, batch_first=True)
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, characters)

    def forward(self, text: Any) -> Any:
        x = self.character(text) + self.position(wg.arange(text.shape[1]))
        return self.logits(self.norm(self.block(x, is_causal=True)))


def _losses(precision: str, steps: int, scaler: Any = None) -> tuple[list[float], Any]:
    wg.manual_seed(0)
    rng = np.random.default_rng(0)
    text = np.frombuffer(b"the quick brown fox jumps over the lazy dog; " * 20, np.uint8).astype(np.int64) % 32
    net = _Writer(32, 16, 32)
    opt = wg.optim.AdamW(net.named_parameters(), lr=1e-2)
    scaler = scaler or wg.GradScaler(loss_scaler=None if precision == "float16" else wg.StaticLossScaler(1.0))
    losses = []
    for _ in range(steps):
        starts = rng.integers(0, len(text) - 17, (8, 1)) + np.arange(16)
        with wg.autocast(precision if precision != "float32" else "bfloat16", enabled=precision != "float32"):
            logits = net(wg.asarray(text[starts]))
            loss = wg.cross_entropy(logits.reshape(-1, 32), wg.asarray(text[starts + 1]).reshape(-1))
        scaler.step(opt, scaler.scale(loss).backward())
        scaler.update()
        losses.append(loss.item())
    return losses, scaler


def test_half_precision_reaches_the_loss_of_float32() -> None:
    exact, _ = _losses("float32", 60)
    assert exact[0] > 3.0 and np.mean(exact[-5:]) < 1.0
    for precision in ("bfloat16", "float16"):
        losses, scaler = _losses(precision, 60)
        assert losses != exact
        np.testing.assert_allclose(np.mean(losses[-5:]), np.mean(exact[-5:]), rtol=0.05)
        assert scaler.skipped_steps < 5


def test_forced_overflows_back_off_skip_recover_and_are_named() -> None:
    start = wg.GradScaler(init_scale=2.0**40, growth_interval=10)
    losses, scaler = _losses("float16", 60, start)
    assert 10 <= scaler.skipped_steps < 50 and scaler.get_scale() < 2.0**34
    assert losses[-1] < 0.75 * losses[0]
    text = scaler.report()
    assert (
        "overflowed at a scale of" in text and "first: the derivative of" in text and "the nearest parameter is" in text
    )


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_layer_that_overflows_is_named(precision: str) -> None:
    wg.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 1))
    with wg.no_grad():
        net[2].weight.fill_(3e38 if precision == "bfloat16" else 1e4)
    opt, scaler = wg.optim.SGD(net.named_parameters(), lr=0.1), wg.GradScaler(init_scale=1024.0)
    with wg.autocast(precision):
        loss = net(wg.ones((8, 4))).sum()
    assert not scaler.step(opt, scaler.scale(loss).backward())
    assert "2.weight" in scaler.report() or "3.weight" in scaler.report()
