"""Budgets, strategies and offload where tensors are on another device: the one of the tests, which spoils freed memory."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import _core
from wengert.tensors.device import number_of

DEVICE = "test"
LAYERS, BATCH, WIDTH = 20, 256, 32  # an activation takes 32 KiB


def _weights() -> list[Any]:
    rng = np.random.default_rng(0)
    made = [wg.tensor((rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype("f4")) for _ in range(LAYERS)]
    return [wg.Parameter(w.to(DEVICE)) for w in made]


def _inputs() -> Any:
    return wg.tensor(np.random.default_rng(1).standard_normal((BATCH, WIDTH)).astype("f4")).to(DEVICE)


def _loss(x: Any, weights: list[Any]) -> Any:
    for w in weights:
        x = wg.tanh(x @ w)
    return (x * x).mean()


def _live() -> int:
    return int(_core.device_memory(number_of(DEVICE))[0])


class Step:
    """A training step on the device, and what it took."""

    def __init__(self, x: Any, weights: list[Any], context: Any = None) -> None:
        for w in weights:
            w.grad = None
        gc.collect()
        before = _core.replay_stats()
        self.base = _live()
        with context or contextlib.nullcontext():
            loss = _loss(x, weights)
            self.kept = _live() - self.base
            loss.backward()
        after = _core.replay_stats()
        self.counts = {k: after[k] - before[k] for k in ("dropped", "recomputed", "stored", "loaded")}
        self.bits = [w.grad.cpu().numpy().tobytes() for w in weights]


@pytest.fixture
def step() -> Any:
    weights, x = _weights(), _inputs()
    plain = Step(x, weights)
    return x, weights, plain


def test_a_budget_is_kept_and_bits_stay(step: Any) -> None:
    x, weights, plain = step
    for share in (0.7, 0.4):
        budget = plain.base + int(plain.kept * share) + LAYERS * 4 * WIDTH * WIDTH
        _core.reset_device_peak(number_of(DEVICE))
        held = Step(x, weights, wg.memory_budget(mb=budget / 2**20, device=DEVICE))
        assert _core.device_memory(number_of(DEVICE))[1] <= budget
        assert held.counts["dropped"] > 0
        assert held.counts["recomputed"] > 0
        assert held.bits == plain.bits
    assert _core.device_memory_limit(number_of(DEVICE)) == 0


def test_a_budget_of_the_host_does_not_drop_what_is_elsewhere(step: Any) -> None:
    x, weights, plain = step
    with wg.memory_budget(mb=wg.memory_stats().live_bytes / 2**20 + 1):
        held = Step(x, weights)
    assert held.counts["dropped"] == 0
    assert held.bits == plain.bits


def test_a_budget_that_cannot_be_met_says_what_is_kept(step: Any) -> None:
    x, weights, plain = step
    too_small = wg.memory_budget(mb=plain.base / 2**21, device=DEVICE)
    with pytest.raises(wg.errors.BudgetError, match=r"budget of .* on test:0 cannot be met"):
        too_small.__enter__()
    assert _core.device_memory_limit(number_of(DEVICE)) == 0
    budget = (_live() + 5 * x.nbytes) / 2**20
    with wg.memory_budget(mb=budget, device=DEVICE), pytest.raises(MemoryError, match="saved for backward"):
        kept = [wg.tanh(x @ weights[0]) for _ in range(LAYERS)]  # variables refer to them
        del kept
    assert Step(x, weights).bits == plain.bits


@pytest.mark.parametrize("strategy", ["selective", "block", "full"])
@pytest.mark.parametrize("offload", [None, "host", "disk"])
def test_strategies_keep_the_bits(step: Any, strategy: str, offload: str | None) -> None:
    x, weights, plain = step
    held = Step(x, weights, wg.checkpointing(wg.CheckpointConfig(strategy=strategy, offload=offload)))
    assert held.counts["dropped"] > 0
    assert held.kept < plain.kept
    assert held.bits == plain.bits
    if offload:
        assert held.counts["stored"] > 0
        assert held.counts["loaded"] > 0
    else:
        assert held.counts["recomputed"] > 0


def test_what_is_compressed_is_near(step: Any) -> None:
    x, weights, plain = step
    config = wg.CheckpointConfig(strategy="block", offload="host", compress="bfloat16")
    held = Step(x, weights, wg.checkpointing(config))
    assert held.counts["loaded"] > 0
    for a, b in zip(held.bits, plain.bits, strict=True):
        here, there = (np.frombuffer(t, "f4") for t in (a, b))
        np.testing.assert_allclose(here, there, atol=0.02 * np.abs(there).max())


def test_running_out_of_memory_drops_what_can_be_computed_again(step: Any) -> None:
    x, weights, plain = step
    _core.test_device_limit(plain.base + int(plain.kept * 0.5) + LAYERS * 4 * WIDTH * WIDTH)
    try:
        held = Step(
            x, weights, wg.checkpointing(wg.CheckpointConfig(strategy="auto", memory_budget_mb=1e6, device=DEVICE))
        )
    finally:
        _core.test_device_limit(1 << 30)
    assert held.counts["dropped"] > 0
    assert held.bits == plain.bits


def test_second_derivatives_and_retained_graphs() -> None:
    x = wg.tensor(np.linspace(-1.0, 1.0, 512)).to(DEVICE).requires_grad_()
    expected = wg.grad(lambda t: (wg.grad(lambda s: (wg.sin(wg.exp(s)) ** 2).sum())(t) ** 2).sum())(x.detach())
    with wg.checkpointing(wg.CheckpointConfig(strategy="block", checkpoint_every_n=2)):
        y = (wg.sin(wg.exp(x)) ** 2).sum()
        (first,) = wg.grad_of(y, [x], create_graph=True)
        (second,) = wg.grad_of((first**2).sum(), [x], retain_graph=True)
    np.testing.assert_array_equal(second.cpu().numpy(), expected.cpu().numpy())


def test_draws_are_repeated_where_they_were() -> None:
    w = wg.tensor(np.linspace(0.5, 1.0, 512)).to(DEVICE).requires_grad_()
    found = []
    for strategy in ("none", "block"):
        wg.manual_seed(3)
        with wg.checkpointing(wg.CheckpointConfig(strategy=strategy, checkpoint_every_n=3)):
            y = w
            for _ in range(8):
                noise = wg.randn(512, dtype="float64", device=DEVICE)
                y = wg.tanh(wg.dropout(y * noise, 0.25))
                del noise
            found.append(wg.grad_of(y.sum(), [w])[0].cpu().numpy())
    np.testing.assert_array_equal(*found)


def test_what_is_written_in_place_does_not_change_what_was_computed() -> None:
    found = []
    for device, strategy in (("cpu", "none"), (DEVICE, "none"), (DEVICE, "full"), (DEVICE, "block")):
        x = wg.tensor(np.linspace(-1.0, 1.0, 512)).to(device)
        w = wg.tensor(np.linspace(0.5, 1.0, 512)).to(device).requires_grad_()
        with wg.checkpointing(wg.CheckpointConfig(strategy=strategy)):
            y = wg.tanh(w * x)
            for _ in range(12):
                y = wg.tanh(y)
            x[0] = 7.0
            found.append(wg.grad_of(y.sum(), [w])[0].cpu().numpy())
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
