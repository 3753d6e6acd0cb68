"""Run by test_host.py, with a GPU played by the CPU: what is counted, budgets, offload, checkpoints, anomalies, bits."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

import wengert as wg
from tests.cuda.emulated_gpu import raises
from wengert import _core
from wengert.errors import AnomalyError, BudgetError

NUMBER = wg.cuda.device_number(0)
LAYERS, BATCH, WIDTH = 12, 256, 32
ACTIVATION = 4 * BATCH * WIDTH


def parameters() -> list[Any]:
    rng = np.random.default_rng(0)
    made = [rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5 for _ in range(LAYERS)]
    return [wg.Parameter(wg.tensor(w.astype("f4"), device="cuda")) for w in made]


WEIGHTS = parameters()
X = wg.tensor(np.random.default_rng(1).standard_normal((BATCH, WIDTH)).astype("f4"), device="cuda")


def loss() -> Any:
    h = X
    for w in WEIGHTS:
        h = wg.tanh(h @ w)
    return (h * h).mean()


def step(context: AbstractContextManager[Any] | None = None, f: Callable[[], Any] = loss) -> list[bytes]:
    """The bits of the gradients."""
    for w in WEIGHTS:
        w.grad = None
    gc.collect()
    wg.cuda.reset_peak_memory_stats()
    with context or nullcontext():
        f().backward()
    return [w.grad.cpu().numpy().tobytes() for w in WEIGHTS]


def counts(f: Callable[[], Any]) -> dict[str, int]:
    before = _core.replay_stats()
    f()
    after = _core.replay_stats()
    return {k: int(after[k] - before[k]) for k in before}


def what_is_counted() -> None:
    before = wg.cuda.memory_allocated()
    wg.cuda.reset_peak_memory_stats()
    x = wg.zeros(1 << 18, device="cuda")
    y = wg.tanh(x)
    assert wg.cuda.memory_allocated() == before + x.nbytes + y.nbytes
    del x
    assert wg.cuda.memory_allocated() == before + y.nbytes
    assert wg.cuda.max_memory_allocated() == before + 2 * y.nbytes
    assert wg.cuda.memory_reserved() >= wg.cuda.memory_allocated()
    assert wg.cuda.max_memory_reserved() >= wg.cuda.memory_reserved()
    wg.cuda.reset_peak_memory_stats()
    assert wg.cuda.max_memory_allocated() == wg.cuda.memory_allocated()
    free, total = wg.cuda.mem_get_info()
    assert 0 < free < total == 1 << 30
    w = wg.ones(1 << 16, device="cuda", requires_grad=True)
    z = wg.tanh(w) * 2.0
    summary = wg.cuda.memory_summary()
    assert "taken from the driver" in summary
    assert "emulated_memory.py" in summary, summary
    assert max(wg.memory_stats().by_line.values(), default=0) < 100  # those are of the host
    del z
    about = wg.cuda.get_device_properties()
    assert (about.major, about.minor, about.warp_size, about.total_memory) == (9, 0, 32, total)
    assert wg.cuda.get_device_capability() == (9, 0)
    assert wg.cuda.is_bf16_supported()
    assert not wg.cuda.is_tf32_allowed()
    wg.cuda.set_tf32(True)
    assert wg.cuda.is_tf32_allowed()
    wg.cuda.set_tf32(False)
    side = wg.cuda.Stream()
    wg.cuda.set_stream(side)
    assert wg.cuda.current_stream() == side
    wg.cuda.set_stream(wg.cuda.default_stream())


def a_fraction_is_a_limit() -> None:
    wg.cuda.set_per_process_memory_fraction(0.25)
    raises(BudgetError, "budget of 256.00 MB on cuda:0", lambda: wg.zeros(1 << 26, device="cuda"))
    assert wg.ones(3, device="cuda").tolist() == [1.0] * 3
    wg.cuda.set_per_process_memory_fraction(1.0)
    assert wg.zeros(1 << 26, device="cuda").shape == (1 << 26,)


def budgets() -> None:
    plain = step()
    before, peak = wg.cuda.memory_allocated(), wg.cuda.max_memory_allocated()
    budget = before + (peak - before) // 2
    bits: list[bytes] = []
    seen = counts(lambda: bits.extend(step(wg.memory_budget(mb=budget / 2**20, device="cuda"))))
    assert bits == plain
    assert seen["dropped"] > 0
    assert seen["recomputed"] > 0
    assert wg.cuda.max_memory_allocated() <= budget
    for strategy in ("selective", "block", "full"):
        assert step(wg.checkpointing(wg.CheckpointConfig(strategy=strategy))) == plain
        assert wg.cuda.max_memory_allocated() < peak, strategy


def offload() -> None:
    """To page-locked memory, in the background, and back before it is needed; on any stream."""
    plain = step()
    peak = wg.cuda.max_memory_allocated()
    config = wg.CheckpointConfig(strategy="block", checkpoint_every_n=4, offload="host")
    for stream in (None, wg.cuda.Stream()):
        bits: list[bytes] = []
        waits = _core.cuda_counters(NUMBER)["waits"]
        with wg.cuda.stream(stream):
            for w in WEIGHTS:
                w.grad = None
            wg.cuda.reset_peak_memory_stats()

            def run() -> None:
                with wg.checkpointing(config):
                    loss().backward()

            seen = counts(run)
            assert _core.cuda_counters(NUMBER)["waits"] == waits  # the host never does
            bits = [w.grad.cpu().numpy().tobytes() for w in WEIGHTS]
        assert bits == plain
        assert seen["stored"] == seen["loaded"] > 3, seen
        assert seen["recomputed"] == 0
        assert wg.cuda.max_memory_allocated() < peak
    assert wg.cuda.memory_stats()["host_live_bytes"] == 0
    wg.cuda.empty_cache()
    assert wg.cuda.memory_stats()["host_reserved_bytes"] == 0
    for offloaded, compress in (("disk", None), ("host", "bfloat16")):
        config = wg.CheckpointConfig(strategy="block", checkpoint_every_n=4, offload=offloaded, compress=compress)
        assert (step(wg.checkpointing(config)) == plain) == (compress is None)


def checkpoints() -> None:
    plain = step()
    peak = wg.cuda.max_memory_allocated()

    def in_regions() -> Any:
        h = X
        for k in range(0, LAYERS, 4):

            def block(h: Any, k: int = k) -> Any:
                for w in WEIGHTS[k : k + 4]:
                    h = wg.tanh(h @ w)
                return wg.dropout(h, 0.0)

            h = wg.checkpoint(block, h)
        return (h * h).mean()

    assert step(None, in_regions) == plain
    assert wg.cuda.max_memory_allocated() < peak
    calls: list[int] = []

    def differs(x: Any) -> Any:
        calls.append(1)
        return wg.tanh(x) * float(len(calls))

    y = wg.checkpoint(differs, WEIGHTS[0])
    raises(wg.errors.GradientError, "other numbers", lambda: y.sum().backward())


def anomalies() -> None:
    x = wg.tensor([4.0, 0.0], device="cuda", requires_grad=True)
    for mode in ("full", "light"):

        def bad_gradient(mode: str = mode) -> None:
            with wg.detect_anomaly(mode=mode):
                wg.sqrt(x).sum().backward()

        raises(AnomalyError, "the derivative of sqrt made", bad_gradient)

    def bad_loss() -> None:
        with wg.detect_anomaly():
            (wg.log(x - 4.0) * 2.0).sum().backward()

    raises(AnomalyError, "log made the first", bad_loss)

    @wg.compile
    def compiled(x: Any) -> Any:
        return (wg.log(x - 4.0) * 2.0).sum()

    def in_a_program() -> None:
        with wg.detect_anomaly():
            compiled(x).backward()

    raises(AnomalyError, "log made the first", in_a_program)
    with wg.detect_anomaly():
        wg.exp(x).sum().backward()


def products_repeat() -> None:
    """Whatever was fastest: the library's own choice, in graphs as well."""
    a = wg.tensor(np.random.default_rng(2).standard_normal((300, 280)).astype("f4"), device="cuda")

    @wg.compile
    def f(a: Any) -> Any:
        return wg.tanh(a @ a.T) + 1.0

    eager = [(a @ a.T).cpu().numpy() for _ in range(2)]
    for _ in range(3):
        with wg.deterministic(seed=1):
            assert ((a @ a.T).cpu().numpy() == eager[0]).all()
            fixed = f(a).cpu().numpy()
        np.testing.assert_array_equal(fixed, f(a).cpu().numpy())
    with wg.deterministic(wg.DeterministicConfig(cudnn_deterministic=False, global_seed=1)):
        f(a)
        unseeded = wg.Generator()
        raises(wg.DeterminismError, "never seeded", lambda: wg.randn(3, device="cuda", generator=unseeded))


def undefined_derivatives_are_refused() -> None:
    a = wg.tensor(np.random.default_rng(3).standard_normal((4, 2)), device="cuda", requires_grad=True)
    u, s, vh = wg.linalg.svd(a)
    grads = (u[:, :2].sum() * 0.0 + (s**2).sum() + vh.sum() * 0.0).backward()
    np.testing.assert_allclose(grads[a].cpu().numpy(), 2.0 * a.detach().cpu().numpy(), atol=1e-10)
    u, s, vh = wg.linalg.svd(a)

    def of_the_rest() -> None:
        u[:, 3].sum().backward()
        wg.cuda.synchronize()

    raises(wg.errors.GradientError, "have no derivative; use full_matrices=False", of_the_rest)
    assert wg.ones(2, device="cuda").tolist() == [1.0, 1.0]


def main() -> None:
    what_is_counted()
    a_fraction_is_a_limit()
    budgets()
    offload()
    checkpoints()
    anomalies()
    products_repeat()
    undefined_derivatives_are_refused()


if __name__ == "__main__":
    main()
