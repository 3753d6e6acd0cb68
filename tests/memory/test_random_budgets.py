"""Random training steps with all that may stand beside dropped values: whatever is dropped, the same bits.

Steps have in-place writes, views, dropout, random draws, custom operations, hooks, regions, compiled functions, casts,
branches, arrays that share memory, and exceptions on the way. `tests.programs.fuzz` has programs of more operations.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg

WIDTH, STEPS = 32, 14
MB = 2**20


@wg.custom_op
def _cube(x: Any) -> Any:
    return wg.asarray(x.numpy() ** 3 * np.float32(0.1))


_cube.defjvp(lambda x_dot, y, x: 0.3 * x * x * x_dot)
_layer = wg.compile(lambda a, w: wg.tanh(a @ w) + a)
_region = wg.compile(lambda a, b: wg.sigmoid(a) * b)


def _written(a: Any, b: Any) -> Any:
    c = a * 1.5
    c[3:7] = b[:4]
    c += 0.25
    c[:, ::2].mul_(0.5)
    return c


def _written_view(a: Any, b: Any) -> Any:
    c = wg.sin(a)
    d = wg.exp(-c * c)  # reads what is written to below
    c.reshape((-1,))[5:40] *= 2.0
    return c * d + b


def _seen_by_numpy(a: Any, b: Any) -> Any:
    c = wg.cos(a)
    np.asarray(c.detach())
    return c * b


def _hooked(a: Any, b: Any) -> Any:
    c = a * b
    c.register_hook(lambda g: g * 0.9)
    return wg.tanh(c)


def _fails(a: Any, b: Any) -> Any:
    try:
        wg.tanh(a * b) @ a
    except wg.ShapeError:
        return a - b
    raise AssertionError("shapes that do not fit")


def _in_half(a: Any, b: Any) -> Any:
    with wg.autocast():
        c = wg.gelu(a @ b.T)
    return wg.softmax(c.astype(wg.float32), axis=-1) @ a


KINDS: list[Callable[[Any, Any, Any], Any]] = [
    lambda a, b, w: wg.tanh(a @ w),
    lambda a, b, w: a * wg.sigmoid(b),
    lambda a, b, w: wg.gelu(a + b),
    lambda a, b, w: wg.layer_norm(a @ w, WIDTH),
    lambda a, b, w: wg.dropout(a, 0.3),
    lambda a, b, w: a + wg.randn(*a.shape) * 0.1,
    lambda a, b, w: wg.concat([a[len(a) // 2 :], b[: len(b) // 2]]),
    lambda a, b, w: (a.T.reshape(a.shape) * 0.5)[::-1],
    lambda a, b, w: wg.cumsum(a, axis=0) * 0.1 + b,
    lambda a, b, w: _cube(a),
    lambda a, b, w: _layer(a, w),
    lambda a, b, w: _region(a, b),
    lambda a, b, w: wg.checkpoint(lambda p, q: wg.dropout(wg.tanh(p @ w) * q, 0.2), a, b),
    lambda a, b, w: wg.cond(a.sum() > 0, lambda p, q: wg.sin(p) * q, lambda p, q: p - q, a, b),
    lambda a, b, w: wg.where(a > b, a, wg.sin(b)),
    lambda a, b, w: a.detach() * b,
    lambda a, b, w: _written(a, b),
    lambda a, b, w: _written_view(a, b),
    lambda a, b, w: _seen_by_numpy(a, b),
    lambda a, b, w: _hooked(a, b),
    lambda a, b, w: _fails(a, b),
    lambda a, b, w: _in_half(a, b),
]
DRAWING = (4, 5, 12)  # of these, random numbers


class Step:
    """A random step: which kinds of operations on which earlier results, and which of these stay referred to."""

    def __init__(self, seed: int, rows: int = 24, draws: bool = True) -> None:
        rng = np.random.default_rng(seed)
        allowed = [k for k in range(len(KINDS)) if draws or k not in DRAWING]
        self.seed, self.kinds = seed, rng.choice(allowed, size=STEPS)
        self.places = rng.integers(4, size=(STEPS, 2))  # counted from the latest
        self.held = rng.random(STEPS) < 0.15
        self.order = int(rng.integers(1, 3)) if not {20, 9} & {*self.kinds} else 1
        self.weights = [wg.Parameter(wg.tensor(rng.normal(0, 0.2, (WIDTH, WIDTH)).astype("f4"))) for _ in range(3)]
        self.x = wg.tensor(rng.normal(0, 1, (rows, WIDTH)).astype("f4"), requires_grad=True)

    def gradients(self) -> list[Any]:
        """By a walk; by a second one through the first, where all of it is differentiable twice."""
        wg.manual_seed(self.seed)
        values, held = [self.x], []
        for k, (kind, (i, j), stays) in enumerate(zip(self.kinds, self.places, self.held)):
            a, b = values[-1 - i % len(values)], values[-1 - j % len(values)]
            values.append(KINDS[kind](a, b, self.weights[k % 3]))
            if stays:
                held.append(values[-1])
            values = values[-4:]
        loss = sum((v * v).mean() for v in values)
        del values, a, b
        sources = [self.x, *self.weights]
        if self.order == 1:
            return list(wg.grad_of([loss], sources, allow_unused=True))
        first = wg.grad_of([loss], sources, create_graph=True, allow_unused=True)
        total = loss * 0.1 + sum((g * g).sum() for g in first if g is not None)
        return list(wg.grad_of([total], sources, allow_unused=True))


class Measured:
    """What a step needs without a limit: live bytes before it, the peak, the bits."""

    def __init__(self, step: Step) -> None:
        step.gradients()  # what is made once stays
        gc.collect()
        self.base = wg.memory_stats().live_bytes
        wg.reset_peak()
        self.bits = wg.fingerprint(step.gradients())
        self.peak = wg.memory_stats().peak_bytes
        gc.collect()
        assert wg.memory_stats().live_bytes == self.base


@pytest.mark.parametrize("seed", range(60))
def test_the_same_bits_under_any_budget(seed: int) -> None:
    step = Step(seed)
    plain = Measured(step)
    for share in (0.85, 0.65, 0.5, 0.35):
        limit = int(plain.base + share * (plain.peak - plain.base))
        wg.reset_peak()
        try:
            with wg.memory_budget(mb=limit / MB):
                bits = wg.fingerprint(step.gradients())
        except wg.BudgetError:
            pass  # in the middle of whatever ran
        else:
            assert bits == plain.bits
        assert wg.memory_stats().peak_bytes <= limit
        gc.collect()
        assert wg.memory_stats().live_bytes == plain.base
    assert wg.fingerprint(step.gradients()) == plain.bits  # nothing is broken


CONFIGS = [
    wg.CheckpointConfig("full"),
    wg.CheckpointConfig("block", checkpoint_every_n=3),
    wg.CheckpointConfig("selective", min_compute_cost=1e9),
    wg.CheckpointConfig("selective", min_compute_cost=3),
    wg.CheckpointConfig("full", offload="disk"),
]


@pytest.mark.parametrize("seed", range(100, 130))
def test_the_same_bits_by_any_strategy(seed: int) -> None:
    step = Step(seed)
    plain = Measured(step)
    for config in CONFIGS:
        with wg.checkpointing(config):
            bits = wg.fingerprint(step.gradients())
        assert bits == plain.bits, config
        gc.collect()
        assert wg.memory_stats().live_bytes == plain.base, config


def test_random_steps_do_drop_and_compute_again() -> None:
    before = wg.memory_stats()
    for seed in range(5):
        with wg.checkpointing(wg.CheckpointConfig("selective", min_compute_cost=1e9)):
            Step(seed).gradients()
    after = wg.memory_stats()
    assert after.dropped - before.dropped > 25 and after.recomputed - before.recomputed > 25


def test_threads_drop_their_own_values_under_one_budget() -> None:
    steps = [Step(seed, rows=512, draws=False) for seed in range(200, 204)]  # they would share a generator
    plain = [Measured(step) for step in steps]
    limit = plain[-1].base + int(0.7 * sum(p.peak - p.base for p in plain))
    found: dict[int, list[str]] = {}

    def run(k: int) -> None:
        with wg.checkpointing(CONFIGS[k]):
            found[k] = [wg.fingerprint(steps[k].gradients()) for _ in range(5)]

    with wg.memory_budget(mb=limit / MB):
        threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert found == {k: [p.bits] * 5 for k, p in enumerate(plain)}
