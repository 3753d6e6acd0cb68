"""Checkpoint strategies: what they keep, that they really compute again, and what may be put away instead."""

from __future__ import annotations

import gc
import re
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import _core

WIDTH, BATCH, LAYERS = 32, 128, 48  # an activation takes 16 KiB


class Chain:
    """A chain of layers, and what a step of it keeps and computes again."""

    def __init__(self, layers: int = LAYERS) -> None:
        rng = np.random.default_rng(0)
        self.weights = [
            wg.Parameter(wg.tensor((rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype("f4")))
            for _ in range(layers)
        ]
        self.x = wg.tensor(rng.standard_normal((BATCH, WIDTH)).astype("f4"))

    def loss(self) -> Any:
        h = self.x
        for w in self.weights:
            h = wg.tanh(h @ w)
        return (h * h).mean()

    def step(self, config: wg.CheckpointConfig | None) -> dict[str, Any]:
        gc.collect()
        before = _core.replay_stats()
        with wg.checkpointing(config or wg.CheckpointConfig(strategy="none")):
            loss = self.loss()
            saved = wg.memory_stats().saved_bytes
            grads = loss.backward()
        after = _core.replay_stats()
        counts = {k: after[k] - before[k] for k in ("dropped", "recomputed", "stored", "loaded")}
        bits = [wg.fingerprint(grads[w]) for w in self.weights]
        numbers = [np.asarray(grads[w]) for w in self.weights]
        for w in self.weights:
            w.grad = None
        return {"saved": saved, "bits": bits, "grads": numbers, **counts}


def test_none_drops_nothing() -> None:
    found = Chain().step(None)
    assert found["dropped"] == found["recomputed"] == 0


@pytest.mark.parametrize(
    ("config", "share", "again"),
    [
        (
            wg.CheckpointConfig("block", checkpoint_every_n=4),
            0.65,
            1.0,
        ),  # every fourth result: products and tanh in turns
        (wg.CheckpointConfig("full"), 0.35, 3.0),
        (wg.CheckpointConfig("selective", min_compute_cost=1e9), 0.15, 1.0),  # keeps nothing
    ],
    ids=["block", "full", "selective"],
)
def test_strategies_drop_and_compute_again(config: Any, share: float, again: float) -> None:
    chain = Chain()
    plain, found = chain.step(None), chain.step(config)
    assert found["bits"] == plain["bits"]
    assert found["saved"] <= share * plain["saved"]
    assert 0 < found["recomputed"] <= again * 2 * LAYERS


def test_full_forgets_the_sizes_of_earlier_graphs() -> None:
    with wg.checkpointing(wg.CheckpointConfig("full")):
        wg.tanh(wg.ones((512, 512), requires_grad=True) * 2.0).sum().backward()
    chain = Chain()
    plain, found = chain.step(None), chain.step(wg.CheckpointConfig("full"))
    assert found["saved"] <= 0.35 * plain["saved"]


@pytest.mark.parametrize(
    "config",
    [wg.CheckpointConfig("selective"), wg.CheckpointConfig("block"), wg.CheckpointConfig("full")],
    ids=["selective", "block", "full"],
)
def test_what_is_computed_for_backward_alone_is_dropped_safely(config: Any) -> None:
    # Norms, attention and dropout make residuals, which only the node holds from the start.
    wg.manual_seed(0)
    layers = [wg.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1) for _ in range(8)]
    x = wg.randn(4, 16, 32)

    def bits() -> list[str]:
        wg.manual_seed(1)
        h = x
        for layer in layers:
            h = layer(h)
        grads = (h * h).mean().backward()
        found = [wg.fingerprint(grads[p]) for layer in layers for p in layer.parameters()]
        for layer in layers:
            layer.zero_grad()
        return found

    plain, before = bits(), wg.memory_stats()
    with wg.checkpointing(config):
        assert bits() == plain
    assert wg.memory_stats().dropped > before.dropped and wg.memory_stats().recomputed > before.recomputed


def test_selective_keeps_what_is_expensive() -> None:
    rng = np.random.default_rng(0)
    weights = [wg.Parameter(wg.tensor((rng.standard_normal((64, 64)) / 8).astype("f4"))) for _ in range(12)]
    x = wg.tensor(rng.standard_normal((128, 64)).astype("f4"))

    def step(cost: float) -> tuple[list[str], int, int]:
        dropped, recomputed = wg.memory_stats().dropped, wg.memory_stats().recomputed
        with wg.checkpointing(wg.CheckpointConfig("selective", min_compute_cost=cost)):
            h = x
            for w in weights:
                h = wg.exp(wg.sin(h @ w))  # sin keeps the product, exp its own result
            del w
            grads = h.mean().backward()
        after = wg.memory_stats()
        found = [wg.fingerprint(grads[w]) for w in weights], after.dropped - dropped, after.recomputed - recomputed
        for w in weights:
            w.grad = None
        return found

    plain = step(0)
    assert plain[1] == plain[2] == 0
    # A product takes 32 operations per byte, exp and sin together 4: the products are kept, and nothing is run twice
    # but exp of sin.
    cheap = step(10)
    assert cheap[0] == plain[0] and 10 <= cheap[1] <= 12 and cheap[2] <= 2 * 12
    everything = step(1e9)
    assert everything[0] == plain[0] and everything[1] > cheap[1] and everything[2] > cheap[2]


def test_selective_keeps_what_only_an_expensive_result_leads_to() -> None:
    chain = Chain()  # nothing keeps the products, so that each tanh would take one to come back
    assert chain.step(wg.CheckpointConfig("selective", min_compute_cost=10))["dropped"] == 0


def test_full_keeps_a_tenth_of_a_thousand_layers() -> None:
    chain = Chain(1000)
    plain, found = chain.step(None), chain.step(wg.CheckpointConfig("full"))
    assert found["bits"] == plain["bits"]
    assert found["saved"] <= 0.1 * plain["saved"]
    assert found["recomputed"] <= 2 * 1000 * np.log2(1000)


def test_a_setting_for_all_that_follows() -> None:
    chain = Chain()
    plain = chain.step(None)
    wg.set_checkpointing(wg.CheckpointConfig("full"))
    try:
        before = wg.memory_stats().recomputed
        grads = chain.loss().backward()
        assert wg.memory_stats().recomputed > before
    finally:
        wg.set_checkpointing(None)
    assert [wg.fingerprint(grads[w]) for w in chain.weights] == plain["bits"]
    before = wg.memory_stats().dropped
    chain.loss().backward()
    assert wg.memory_stats().dropped == before


def test_settings_nest() -> None:
    chain = Chain()
    with wg.checkpointing(wg.CheckpointConfig("full")):
        with wg.checkpointing(wg.CheckpointConfig("none")):
            before = wg.memory_stats().dropped
            chain.loss()
            assert wg.memory_stats().dropped == before
        chain.loss()
        assert wg.memory_stats().dropped > before


def test_the_tighter_of_two_budgets_holds() -> None:
    mb = wg.memory_stats().live_bytes / 2**20 + 10
    with wg.memory_budget(mb=mb):
        with wg.memory_budget(mb=2 * mb):
            assert _core.memory_limit() == int(mb * 2**20)
        with wg.memory_budget(mb=mb - 1):
            assert _core.memory_limit() == int((mb - 1) * 2**20)
        assert _core.memory_limit() == int(mb * 2**20)
    assert _core.memory_limit() == 0


def test_values_on_disk_are_read_back(tmp_path: Any) -> None:
    chain = Chain()
    plain = chain.step(None)
    for where in ("disk", str(tmp_path)):
        found = chain.step(wg.CheckpointConfig("full", offload=where))
        assert found["bits"] == plain["bits"]
        assert found["stored"] > 20 and found["loaded"] > 20
        assert found["saved"] <= 0.35 * plain["saved"]
    assert not list(tmp_path.iterdir())  # the file has no name


@pytest.mark.parametrize(("compress", "error"), [("bfloat16", 0.02), ("int8", 0.1)])
@pytest.mark.parametrize("offload", ["host", "disk"])
def test_compressed_values_are_nearly_the_same(offload: str, compress: str, error: float) -> None:
    chain = Chain(12)
    plain = chain.step(None)
    found = chain.step(wg.CheckpointConfig("selective", min_compute_cost=1e9, offload=offload, compress=compress))
    assert found["stored"] > 5 and found["bits"] != plain["bits"]
    for g, expected in zip(found["grads"], plain["grads"]):
        assert np.linalg.norm(g - expected) <= error * np.linalg.norm(expected)


def test_nothing_stays_behind() -> None:
    chain = Chain(8)
    for config in (wg.CheckpointConfig("full"), wg.CheckpointConfig("block", offload="host", compress="int8")):
        sizes = set()
        for _ in range(4):
            chain.step(config)
            gc.collect()
            sizes.add(wg.memory_stats().live_bytes)
        assert len(sizes) == 1


def test_what_is_let_go_without_a_walk_leaves_nothing_behind() -> None:
    x = wg.ones((64, 64), requires_grad=True)
    gc.collect()
    before = wg.memory_stats().live_bytes
    for strategy in ("block", "selective", "full"):
        with wg.checkpointing(wg.CheckpointConfig(strategy, min_compute_cost=1e9)):
            wg.sin(wg.ones((64, 64)) - x).sum()  # nobody asks for a derivative
            assert wg.memory_stats().live_bytes == before, strategy


def test_what_a_strategy_does_not_want_goes_when_it_ends() -> None:
    x = wg.ones((64, 64), requires_grad=True)
    before = wg.memory_stats().live_bytes
    with wg.checkpointing(wg.CheckpointConfig("selective", min_compute_cost=1e9)):
        y = x
        for _ in range(5):
            y = wg.sin(y)
        loss = y.sum()
        del y
    assert wg.memory_stats().live_bytes - before < x.nbytes
    assert loss.backward()[x].shape == (64, 64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": "most"}, "unknown strategy 'most'; use none, auto"),
        ({"strategy": "block", "checkpoint_every_n": 0}, "checkpoint_every_n must be a positive integer, got 0"),
        ({"strategy": ["full"]}, "unknown strategy ['full']"),
        ({"checkpoint_every_n": "3"}, "checkpoint_every_n must be a positive integer, got '3'"),
        ({"checkpoint_every_n": 2.5}, "checkpoint_every_n must be a positive integer, got 2.5"),
        ({"min_compute_cost": -1}, "min_compute_cost must be a number of at least 0, got -1"),
        ({"min_compute_cost": "much"}, "min_compute_cost must be a number of at least 0, got 'much'"),
        ({"memory_budget_mb": 0}, "memory_budget_mb must be a positive number of megabytes, got 0"),
        ({"strategy": "full", "memory_budget_mb": 5}, "is for the strategy 'auto'"),
        ({"compress": "float12", "offload": "disk"}, "unknown compression 'float12'"),
        ({"compress": "int8"}, "set offload, too"),
        ({"offload": "/no/such/folder"}, "offload must be 'host', 'disk' or a folder"),
    ],
)
def test_bad_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(wg.ArgumentError, match=re.escape(message)):
        wg.CheckpointConfig(**arguments)


def test_checkpointing_takes_a_config() -> None:
    with pytest.raises(TypeError, match="takes a CheckpointConfig, got str"):
        wg.checkpointing("full")  # type: ignore[arg-type]
