"""Budgets in bytes: peaks stay below them, values really go and come back, and gradients keep their bits."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import _core
from wengert.transforms import revolve

MB = 2**20
WIDTH, BATCH, LAYERS = 32, 512, 24  # an activation takes 64 KiB, a weight 4 KiB


def _weights(layers: int = LAYERS, width: int = WIDTH) -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        wg.Parameter(wg.tensor((rng.standard_normal((width, width)) / width**0.5).astype("f4"))) for _ in range(layers)
    ]


def _inputs(batch: int = BATCH, width: int = WIDTH) -> Any:
    return wg.tensor(np.random.default_rng(1).standard_normal((batch, width)).astype("f4"))


def _chain(x: Any, weights: list[Any]) -> Any:
    h = x
    for w in weights:
        h = wg.tanh(h @ w)
    return (h * h).mean()


class Run:
    """A step, with what it took."""

    def __init__(self, f: Callable[[], Any], parameters: list[Any], mb: float | None = None) -> None:
        for p in parameters:
            p.grad = None
        gc.collect()
        before = _core.replay_stats()
        self.base = wg.memory_stats().live_bytes
        wg.reset_peak()
        if mb is None:
            grads = f().backward()
        else:
            with wg.memory_budget(mb=mb):
                grads = f().backward()
        self.peak = wg.memory_stats().peak_bytes
        after = _core.replay_stats()
        self.dropped, self.recomputed = (after[k] - before[k] for k in ("dropped", "recomputed"))
        self.bits = [wg.fingerprint(grads[p]) for p in parameters]
        for p in parameters:
            p.grad = None

    @property
    def own(self) -> int:
        """Bytes beside what was there before."""
        return self.peak - self.base


def test_a_chain_keeps_its_bits_and_its_budget() -> None:
    x, weights = _inputs(), _weights()
    plain = Run(lambda: _chain(x, weights), weights)
    assert plain.dropped == plain.recomputed == 0
    for share in (1.2, 0.7, 0.5, 0.3, 0.25):
        budget = plain.base + share * plain.own
        held = Run(lambda: _chain(x, weights), weights, budget / MB)
        assert held.bits == plain.bits
        assert held.peak <= budget
        assert (held.dropped > 0) == (held.recomputed > 0) == (share < 1)


def test_tighter_budgets_never_peak_higher() -> None:
    x, weights = _inputs(), _weights()
    plain = Run(lambda: _chain(x, weights), weights)
    shares = (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.25)
    peaks = [Run(lambda: _chain(x, weights), weights, (plain.base + s * plain.own) / MB).peak for s in shares]
    assert peaks == sorted(peaks, reverse=True)


def test_a_chain_is_computed_again_about_as_often_as_is_optimal() -> None:
    # With room for a third, every layer that does not fit has to run once more: a product and a tanh each.
    x, weights = _inputs(), _weights(60)
    plain = Run(lambda: _chain(x, weights), weights)
    held = Run(lambda: _chain(x, weights), weights, (plain.base + plain.own / 3) / MB)
    assert held.recomputed <= 2 * 60


@pytest.fixture
def executor() -> Iterator[None]:
    """The executor, which writes results into operands that nobody else needs; generated code takes memory for them."""
    before = _core.set_tier("executor")
    yield
    _core.set_tier(before)


@pytest.mark.usefixtures("executor")
@pytest.mark.parametrize("room", [4, 6, 10, 20, 60])
def test_chains_of_equal_steps_run_little_more_often_than_by_revolve(room: int) -> None:
    n, x = 200, wg.full((64, 64), 0.5, requires_grad=True)

    def chain() -> Any:
        y = x
        for _ in range(n):
            y = wg.sin(y)
        return y.sum()

    plain = Run(chain, [x])
    held = Run(chain, [x], (plain.base + room * x.nbytes + 64) / MB)
    # Two places are taken by what is being computed and by its cotangent.
    assert held.bits == plain.bits and n + held.recomputed <= 1.3 * revolve.advances(n, room - 2)


def test_thousands_of_layers_are_not_walked_by_recursion() -> None:
    x = wg.ones((16, 16), requires_grad=True)

    def deep() -> Any:
        y = x
        for _ in range(20_000):
            y = wg.sin(y)
        return y.sum()

    plain = Run(deep, [x])
    held = Run(deep, [x], (plain.base + plain.own / 20) / MB)
    assert held.bits == plain.bits and held.recomputed > 10_000


@pytest.mark.parametrize("share", [0.5, 0.2, 0.08])
def test_a_recurrent_net_that_reads_slices_of_its_input(share: float) -> None:
    # Nothing keeps the slices, and the sums on the way are seen by nobody: both have to come back without piling up.
    rng = np.random.default_rng(0)
    w = wg.Parameter(wg.tensor((rng.standard_normal((32, 32)) / 6).astype("f4")))
    u = wg.Parameter(wg.tensor((rng.standard_normal((32, 32)) / 6).astype("f4")))
    xs = wg.tensor(rng.standard_normal((200, 16, 32)).astype("f4"))

    def forward() -> Any:
        h = wg.zeros((16, 32))
        for t in range(200):
            h = wg.tanh(xs[t] @ u + h @ w + xs[t])
        return (h * h).mean()

    plain = Run(forward, [w, u])
    budget = plain.base + share * plain.own
    held = Run(forward, [w, u], budget / MB)
    assert held.bits == plain.bits and held.recomputed > 0 and held.peak <= budget


@pytest.mark.parametrize("steps", [100, 400])
def test_full_keeps_little_while_it_computes_again(steps: int) -> None:
    rng = np.random.default_rng(0)
    w = wg.Parameter(wg.tensor((rng.standard_normal((32, 32)) / 6).astype("f4")))
    xs = wg.tensor(rng.standard_normal((steps, 16, 32)).astype("f4"))

    def forward() -> Any:
        h = wg.zeros((16, 32))
        for t in range(steps):
            h = wg.tanh(h @ w + xs[t])
        return (h * h).mean()

    plain = Run(forward, [w])
    with wg.checkpointing(wg.CheckpointConfig("full")):
        held = Run(forward, [w])
    assert held.bits == plain.bits
    assert held.own < (16 + 2 * np.log2(steps)) * 16 * 32 * 4  # of these many steps, at any time
    assert held.recomputed <= 3 * steps * np.log2(steps)


def test_dropout_draws_the_same_again() -> None:
    x, weights = _inputs(), _weights()

    def forward() -> Any:
        wg.manual_seed(5)
        h = x
        for w in weights:
            h = wg.dropout(wg.gelu(h @ w), 0.3)
        return (h * h).mean()

    plain = Run(forward, weights)
    held = Run(forward, weights, (plain.base + plain.own / 3) / MB)
    assert held.recomputed > 0 and held.bits == plain.bits
    after = wg.rand(3)
    wg.manual_seed(5)
    forward()
    assert wg.fingerprint(wg.rand(3)) == wg.fingerprint(after)  # drawing again has not moved the generator


def test_a_transformer_block() -> None:
    wg.manual_seed(0)
    layers = [wg.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1) for _ in range(4)]
    x = wg.randn(8, 32, 32)
    parameters = [p for layer in layers for p in layer.parameters()]

    def forward() -> Any:
        wg.manual_seed(1)
        h = x
        for layer in layers:
            h = layer(h)
        return (h * h).mean()

    forward().backward()  # derives what is derived once
    plain = Run(forward, parameters)
    held = Run(forward, parameters, (plain.base + plain.own / 2) / MB)
    assert held.recomputed > 0 and held.bits == plain.bits and held.peak <= plain.base + plain.own / 2 + 1


def test_writes_in_place_near_what_is_dropped() -> None:
    weights = _weights(16)
    x = _inputs()

    def forward() -> Any:
        h = x
        for k, w in enumerate(weights):
            h = wg.tanh(h @ w)
            scaled = h * 2.0
            scaled[k : k + 3] = 1.0  # into memory of its own
            scaled += 0.5
            h = scaled * h
        return h.sum()

    plain = Run(forward, weights)
    held = Run(forward, weights, (plain.base + plain.own / 2) / MB)
    assert held.dropped > 0 and held.bits == plain.bits


def test_what_was_written_in_place_is_not_taken_for_what_it_was() -> None:
    x = wg.ones((64, 64), requires_grad=True)

    def forward() -> Any:
        y = wg.exp(x)
        z = y * 3.0  # reads y, keeps nothing of it
        u = wg.sin(z)
        y[0] = 0.0  # nobody needs the old contents: written at its place
        big = [wg.cos(u * float(k)) for k in range(20)]
        return sum((b * b).sum() for b in big) + y.sum()

    plain = Run(forward, [x])
    held = Run(forward, [x], (plain.base + plain.own * 0.7) / MB)
    assert held.dropped > 0 and held.bits == plain.bits


def test_second_derivatives() -> None:
    x = wg.rand(64, 64)

    def value(x: Any) -> Any:
        y = x
        for _ in range(20):
            y = wg.sin(y) * 1.1
        return y.sum()

    def twice() -> Any:
        return wg.grad(lambda x: (wg.grad(value)(x) ** 2).sum())(x)

    plain = twice()
    base = wg.memory_stats().live_bytes
    wg.reset_peak()
    twice()
    own = wg.memory_stats().peak_bytes - base
    before = _core.replay_stats()["recomputed"]
    with wg.memory_budget(mb=(base + 0.6 * own) / MB):
        held = twice()
    assert _core.replay_stats()["recomputed"] > before
    assert wg.fingerprint(held) == wg.fingerprint(plain)


def test_create_graph_through_dropped_values() -> None:
    x = wg.rand(64, 64, requires_grad=True)

    def penalty() -> Any:
        y = x
        for _ in range(20):
            y = wg.sin(y) * 1.1
        (g,) = wg.grad_of(y.sum(), [x], create_graph=True)
        return (g * g).sum()

    plain = Run(penalty, [x])
    held = Run(penalty, [x], (plain.base + plain.own * 0.6) / MB)
    assert held.recomputed > 0 and held.bits == plain.bits


def test_retained_graphs_are_walked_twice() -> None:
    x, weights = _inputs(), _weights()
    plain = Run(lambda: _chain(x, weights), weights)
    with wg.memory_budget(mb=(plain.base + plain.own / 2) / MB):
        loss = _chain(x, weights)
        first = [wg.fingerprint(g) for g in wg.grad_of(loss, weights, retain_graph=True)]
        second = [wg.fingerprint(g) for g in wg.grad_of(loss, weights)]
    assert first == second == plain.bits


def test_backward_after_the_block() -> None:
    x, weights = _inputs(), _weights()
    plain = Run(lambda: _chain(x, weights), weights)
    with wg.memory_budget(mb=(plain.base + plain.own / 2) / MB):
        loss = _chain(x, weights)
    grads = loss.backward()
    assert [wg.fingerprint(grads[w]) for w in weights] == plain.bits


def test_on_a_tape() -> None:
    x, weights = _inputs(), _weights()
    plain = Run(lambda: _chain(x, weights), weights)
    config = wg.CheckpointConfig(memory_budget_mb=(plain.base + plain.own / 2) / MB)
    before = _core.replay_stats()["dropped"]
    with wg.GradientTape(checkpoint=config) as tape:
        loss = _chain(x, weights)
    grads = tape.gradient(loss, weights)
    assert _core.replay_stats()["dropped"] > before
    assert [wg.fingerprint(g) for g in grads] == plain.bits


def test_custom_operations_are_kept() -> None:
    calls = []

    @wg.custom_op(pure=False)
    def noted(x: Any) -> Any:
        calls.append(1)
        return x * 2.0

    noted.defvjp(lambda g, y, x: g * 2.0)
    x, weights = _inputs(), _weights()

    def forward() -> Any:
        h = x
        for k, w in enumerate(weights):
            h = wg.tanh(h @ w)
            h = noted(h) if k % 6 == 0 else h
        return (h * h).mean()

    plain = Run(forward, weights)
    calls.clear()
    held = Run(forward, weights, (plain.base + plain.own * 0.8) / MB)
    assert len(calls) == LAYERS // 6 and held.dropped > 0 and held.bits == plain.bits


def test_training_under_a_budget_keeps_nothing() -> None:
    x, weights = _inputs(), _weights(8)
    optimizer = wg.optim.SGD(weights, lr=0.1)
    sizes = []
    plain = Run(lambda: _chain(x, weights), weights)
    with wg.memory_budget(mb=(plain.base + plain.own * 0.8) / MB):
        for _ in range(30):
            loss = _chain(x, weights)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            sizes.append(wg.memory_stats().live_bytes)
    assert len(set(sizes[2:])) == 1


_PROCESS = """
import ctypes, json, sys
import wengert as wg

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

def mlp(n, batch, depth=24):
    weights = [wg.Parameter.randn((n, n), std=n**-0.5) for _ in range(depth)]
    def forward(h):
        for w in weights:
            h = wg.tanh(h @ w)
        return h
    return forward, weights, wg.ones((batch, n))

def transformer(n, batch, depth=4):
    layers = [wg.nn.TransformerEncoderLayer(n, 4, 4 * n, dropout=0.1) for _ in range(depth)]
    def forward(h):
        for layer in layers:
            h = layer(h)
        return h
    return forward, [p for layer in layers for p in layer.parameters()], wg.ones((batch, 64, n))

def step(forward, parameters, x):
    (forward(x) ** 2).mean().backward()
    for p in parameters:
        p.grad = None

make, large, mb = eval(sys.argv[1])
with wg.checkpointing(wg.CheckpointConfig("full")):
    step(*make(16, 2))  # loads what is loaded at first use
run = make(*large)
wg.empty_pool()
ctypes.CDLL(None).malloc_trim(0)
live, resident = wg.memory_stats().live_bytes, status("VmRSS")
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")
wg.reset_peak()
with wg.memory_budget(mb=live / 2**20 + mb):
    step(*run)
print(json.dumps([wg.memory_stats().peak_bytes - live, status("VmHWM") - resident]))
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="only Linux tells a process its own peak")
@pytest.mark.skipif(bool(os.environ.get("WENGERT_SANITIZED")), reason="the sanitizer keeps freed memory for a while")
@pytest.mark.parametrize(
    ("network", "counted_at_least", "mb"),
    [
        ("mlp, (128, 8192)", 90, 150),
        ("mlp, (128, 8192)", 40, 60),
        ("transformer, (256, 24)", 45, 50),
        ("transformer, (256, 24, 12)", 60, 66),  # blocks of 1.5 MiB come and go between used ones
    ],
)
def test_the_process_holds_what_is_counted(network: str, counted_at_least: int, mb: int) -> None:
    command = [sys.executable, "-c", _PROCESS, f"{network}, {mb}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    counted, process = json.loads(done.stdout)
    assert counted_at_least * MB < counted <= mb * MB
    assert abs(process - counted) <= 0.05 * counted + 16 * MB


# ---------------------------------------------------------------------------------------- beside everything else


def _with_views(x: Any, weights: list[Any]) -> Any:
    h = x
    for w in weights:
        h = wg.tanh(h @ w)
        a, b = h[: BATCH // 2], h[BATCH // 2 :]
        h = wg.concat([b, a.reshape(2, -1, WIDTH).reshape(-1, WIDTH)], 0)
    return (h.T * h.T).mean()


def _with_hooks(x: Any, weights: list[Any]) -> Any:
    h = x
    for w in weights:
        h = wg.tanh(h @ w)
        h.register_hook(lambda g: g * 1.5)
    return (h * h).mean()


def _with_arrays(x: Any, weights: list[Any]) -> Any:
    h, arrays = x, []
    for k, w in enumerate(weights):
        h = wg.tanh(h @ w)
        if k % 6 == 0:
            arrays.append(np.asarray(h.detach()))
    return (h * h).mean()


def _with_branches(x: Any, weights: list[Any]) -> Any:
    h = x
    for w in weights:
        h = wg.cond(wg.tensor(True), lambda h, w: wg.tanh(h @ w), lambda h, w: h, h, w)
    return (h * h).mean()


_layer = wg.compile(lambda h, w: wg.tanh(h @ w))


def _with_compiled_layers(x: Any, weights: list[Any]) -> Any:
    h = x
    for w in weights:
        h = _layer(h, w)
    return (h * h).mean()


def _in_half_precision(x: Any, weights: list[Any]) -> Any:
    with wg.autocast():
        return _chain(x, weights)


def _in_another_budget(x: Any, weights: list[Any]) -> Any:
    with wg.memory_budget(mb=1e6):  # no looser one can be had inside
        return _chain(x, weights)


def _beside_a_thread(x: Any, weights: list[Any]) -> Any:
    own = [wg.Parameter(w.detach()) for w in weights[:6]]
    other = threading.Thread(target=lambda: _chain(x, own).backward())
    other.start()
    loss = _chain(x, weights)
    other.join()
    return loss


@pytest.mark.parametrize(
    "forward",
    [_with_views, _with_hooks, _with_arrays, _with_branches, _with_compiled_layers, _in_half_precision,
     _in_another_budget, _beside_a_thread],
)  # fmt: skip
def test_budgets_beside_everything_else(forward: Any) -> None:
    x, weights = _inputs(), _weights()
    forward(x, weights).backward()  # traces what is traced once
    plain = Run(lambda: forward(x, weights), weights)
    budget = plain.base + 0.8 * plain.own
    held = Run(lambda: forward(x, weights), weights, budget / MB)
    assert held.bits == plain.bits and held.peak <= budget and held.dropped > 0


def test_a_forked_process_goes_on() -> None:
    x, weights = _inputs(), _weights()
    plain = Run(lambda: _chain(x, weights), weights)
    with wg.memory_budget(mb=(plain.base + plain.own / 2) / MB):
        loss = _chain(x, weights)
        child = os.fork()
        if child == 0:
            grads = loss.backward()
            os._exit(0 if [wg.fingerprint(grads[w]) for w in weights] == plain.bits else 1)
        grads = loss.backward()
    assert os.waitpid(child, 0)[1] == 0
    assert [wg.fingerprint(grads[w]) for w in weights] == plain.bits


def test_failing_hooks_leave_nothing_behind() -> None:
    x, weights = _inputs(), _weights()
    live = wg.memory_stats().live_bytes

    def fails() -> None:
        h = x
        for k, w in enumerate(weights):
            h = wg.tanh(h @ w)
            if k == 12:
                h.register_hook(lambda g: 1 / 0)
        h.sum().backward()

    for _ in range(3):
        with pytest.raises(ZeroDivisionError), wg.memory_budget(mb=(live + 12 * x.nbytes) / MB):
            fails()
        for w in weights:
            w.grad = None
    gc.collect()
    assert wg.memory_stats().live_bytes == live


# ------------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("mb", [0, -1, float("nan"), float("inf")])
def test_budgets_must_be_positive(mb: float) -> None:
    with pytest.raises(wg.ArgumentError, match="positive number of megabytes"):
        wg.memory_budget(mb=mb)


def test_budgets_must_be_numbers() -> None:
    for mb in ("1GB", None, [1], True):
        with pytest.raises(TypeError, match="memory_budget: mb must be a number of megabytes"):
            wg.memory_budget(mb=mb)  # type: ignore[arg-type]


def test_a_budget_of_more_than_there_is() -> None:
    with wg.memory_budget(mb=1e30):
        assert wg.ones((3,)).sum().item() == 3.0


def test_nothing_but_the_new_tensor_does_not_fit() -> None:
    budget = wg.memory_stats().live_bytes / 2**20 + 1.0
    with wg.memory_budget(mb=budget), pytest.raises(wg.BudgetError, match="for a new tensor") as caught:
        wg.zeros((1 << 20,))
    assert "()" not in str(caught.value)


def test_what_is_live_already_does_not_fit() -> None:
    kept = wg.zeros((512, 512))
    with pytest.raises(wg.BudgetError, match=r"budget of 0\.50 MB cannot be met: at least .* are needed"):
        wg.memory_budget(mb=0.5).__enter__()
    assert _core.memory_limit() == 0 and kept.shape == (512, 512)


def test_an_unreachable_budget_says_what_is_needed() -> None:
    x, weights = _inputs(), _weights()
    live = wg.memory_stats().live_bytes
    budget = wg.memory_budget(mb=(live + 3 * x.nbytes // 2) / MB)
    with pytest.raises(wg.BudgetError, match=r"(?s)at least .* are needed.*raise the budget") as caught, budget:
        _chain(x, weights).backward()
    assert isinstance(caught.value, MemoryError)
    _chain(x, weights).backward()  # nothing is broken


def test_gradients_that_do_not_fit_are_refused_before_anything_is_computed() -> None:
    w = wg.Parameter(wg.ones((512, 512)))  # 1 MB, and its gradient as much
    x = wg.ones((1, 512))
    loss = (x @ w).sum()
    budget = wg.memory_budget(mb=wg.memory_stats().live_bytes / MB + 0.5)
    with pytest.raises(wg.BudgetError, match="for the gradients"), budget:
        loss.backward()
    loss.backward()  # the graph is whole


def test_an_array_that_changed_is_detected() -> None:
    array = np.ones((64, 64), dtype="f4")
    x = wg.asarray(array)
    w = wg.Parameter(wg.ones((64, 64)))
    with wg.checkpointing(wg.CheckpointConfig(strategy="full")):
        h = x * w
        for _ in range(30):
            h = wg.sin(h)
        loss = h.sum()
        del h
        array[:] = 2.0  # unseen
        with pytest.raises(wg.InPlaceError, match="changed in place"):
            loss.backward()


def test_exceptions_in_the_middle_of_a_recomputation() -> None:
    x, weights = _inputs(), _weights()
    plain = Run(lambda: _chain(x, weights), weights)
    with wg.memory_budget(mb=(plain.base + plain.own / 2) / MB):
        loss = _chain(x, weights)
    before = wg.memory_stats().recomputed
    with pytest.raises(wg.BudgetError), wg.memory_budget(mb=(plain.base + 3.5 * x.nbytes) / MB):
        wg.grad_of(loss, weights, retain_graph=True)
    assert wg.memory_stats().recomputed > before
    grads = wg.grad_of(loss, weights)
    assert [wg.fingerprint(g) for g in grads] == plain.bits
