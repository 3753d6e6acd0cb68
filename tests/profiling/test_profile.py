"""The profiler: what ran, for how long, from which line and module, and what was alive."""

from __future__ import annotations

import gc
import inspect
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import _core
from wengert.profiling.events import CATEGORIES, parents


def _here(offset: int = 0) -> str:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return f"test_profile.py:{frame.f_back.f_lineno + offset}"


def _row(rows: list[Any], name: str) -> Any:
    found = [r for r in rows if r.name.endswith(name)]
    assert len(found) == 1, (name, [r.name for r in rows])
    return found[0]


class Block(wg.nn.Module):
    def __init__(self) -> None:
        self.first = wg.nn.Linear(8, 16)
        self.second = wg.nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return self.second(wg.tanh(self.first(x)))


class Net(wg.nn.Module):
    def __init__(self) -> None:
        self.blocks = [Block(), Block()]

    def forward(self, x: Any) -> Any:
        for b in self.blocks:
            x = b(x) + x
        return x


def test_ops_are_counted_forward_and_backward_at_the_line_that_ran_them() -> None:
    x = wg.ones((64, 32), requires_grad=True)
    with wg.profile() as p:
        y = x @ wg.ones((32, 16))
        product = _here(-1)
        z = y.tanh().sum()
        chain = _here(-1)
        z.backward()
    ops = {r.name: r for r in p.by_op()}
    assert ops["matmul"].calls == 2 and ops["tanh"].calls == 2 and ops["sum"].calls == 2
    assert ops["tanh"].forward > 0 and ops["tanh"].backward > 0
    at_product, at_chain = _row(p.by_line(), product), _row(p.by_line(), chain)
    assert at_product.calls == 3  # with ones()
    assert at_chain.calls == 4 and at_chain.backward > 0
    assert "x @ wg.ones" in at_product.note
    assert sum(r.seconds for r in ops.values()) <= p.seconds
    assert "matmul" in str(p) and product in str(p)


def test_arithmetic_and_bytes_are_exact_for_a_product() -> None:
    a, b = wg.ones((40, 50)), wg.ones((50, 60))
    with wg.profile() as p:
        a @ b
    row = _row(p.by_op(), "matmul")
    assert row.flops == 2 * 40 * 50 * 60
    assert row.bytes == 4 * (40 * 50 + 50 * 60 + 40 * 60)
    assert row.roofline is not None and row.roofline > 0


def test_views_move_nothing_and_broadcast_operands_count_once() -> None:
    x, bias = wg.ones((100, 10)), wg.ones((10,))
    with wg.profile() as p:
        x.permute_dims((1, 0))
        x + bias
    by_op = {r.name: r for r in p.by_op()}
    assert by_op["permute"].bytes == 0
    assert by_op["add"].bytes == 4 * (1000 + 10 + 1000)


def test_a_derivative_with_a_forward_program_has_the_name_of_its_op() -> None:
    x = wg.randn((128,), requires_grad=True)
    with wg.profile() as p:
        wg.relu(x).sum().backward()
    assert {"relu", "sum"} <= {r.name for r in p.by_op()}
    assert _row(p.by_op(), "relu").flops >= 128


def test_modules_by_path_with_what_is_inside() -> None:
    net = Net()
    x = wg.randn((4, 8))
    with wg.profile() as p:
        net(x).sum().backward()
    rows = {r.name: r for r in p.by_module()}
    for path in ("Net", "Net.blocks.0", "Net.blocks.0.first", "Net.blocks.1.second"):
        assert path in rows, list(rows)
    first = rows["Net.blocks.0.first"]
    assert first.forward > 0 and first.backward > 0 and first.note == "Linear"
    inside = sum(rows[f"Net.blocks.0.{n}"].seconds for n in ("first", "second")) + rows["Net.blocks.0"].seconds
    assert rows["Net.blocks.0"].inclusive == pytest.approx(inside)
    assert rows["Net"].inclusive >= rows["Net.blocks.0"].inclusive + rows["Net.blocks.1"].inclusive
    assert wg.nn.Module.__call__.__module__ == "wengert.nn.module"
    assert not hasattr(wg.nn.Module.__call__, "__wrapped__")


def test_module_lines_are_the_users() -> None:
    layer = wg.nn.Linear(3, 2)
    with wg.profile() as p:
        layer(wg.ones((4, 3)))
        called = _here(-1)
    assert {r.name.rpartition("/")[2] for r in p.by_line()} == {called}


def test_compiled_functions_are_one_op_and_can_be_looked_into() -> None:
    @wg.compile
    def step(x: Any, w: Any) -> Any:
        return wg.tanh(x @ w * 2.0 + 1.0).sum()

    x, w = wg.ones((32, 16)), wg.ones((16, 8))
    step(x, w)
    with wg.profile() as p:
        for _ in range(3):
            step(x, w)
    row = _row(p.by_op(), "step")
    assert row.calls == 3 and [r.name for r in p.by_op()] == ["step"]
    assert row.flops == pytest.approx(3 * (2 * 32 * 16 * 8 + 32 * 8 * (1 + 1 + 8) + 32 * 8), rel=0.1)
    with wg.profile(inside=True) as q:
        for _ in range(3):
            step(x, w)
    by_op = {r.name: r for r in q.by_op()}
    assert by_op["matmul"].calls == 3 and by_op["step"].calls == 3
    assert any(name.startswith("fused") for name in by_op)
    assert by_op["matmul"].flops == 3 * 2 * 32 * 16 * 8
    events = q.recording.events
    around = parents(events)
    assert (around[events["depth"] == 1] >= 0).all() and (events["self"] >= 0).all()
    assert q.totals().flops == pytest.approx(p.totals().flops)


def test_compiled_functions_that_are_differentiated() -> None:
    @wg.compile
    def loss(w: Any) -> Any:
        return (w * w).sum()

    w = wg.ones((50,), requires_grad=True)
    with wg.profile() as p:
        loss(w).backward()
    row = _row(p.by_op(), "loss")
    assert row.forward > 0 and row.backward > 0


def test_steps_of_optimizers_are_updates() -> None:
    net = Net()
    opt = wg.optim.Adam(net.parameters(), lr=0.1)
    with wg.profile() as p:
        for _ in range(3):
            opt.step(net(wg.ones((4, 8))).sum().backward())
    assert p.totals().phases["update"] > 0
    assert any("adam" in r.name and r.update for r in p.by_op())
    seen = [step for step, _ in p.gradients.seen]
    assert seen[0] == 1 and p.gradients.steps == 3
    names = {int(r.name) for r in p.gradients.seen[0][1]}
    assert names == {q.id for q in net.parameters()}


def test_looking_at_gradients_is_not_an_op_of_the_program() -> None:
    net = Net()
    opt = wg.optim.SGD(net.parameters(), lr=0.1)
    with wg.profile() as p:
        opt.step(net(wg.ones((4, 8))).sum().backward())
    with wg.profile(gradients=False) as q:
        opt.step(net(wg.ones((4, 8))).sum().backward())
    assert not q.gradients.seen
    assert {r.name for r in p.by_op()} == {r.name for r in q.by_op()}


def test_memory_over_time_and_the_contents_of_its_peak() -> None:
    before = wg.ones((1000,))
    with wg.profile() as p:
        a = wg.ones((50_000,))
        large = _here(-1)
        b = a * 2.0
        also = _here(-1)
        del a
        c = wg.ones((10,))
    live = p.memory.live
    assert p.memory.peak_bytes == live.max()
    assert live[-1] == _core.memory_stats()["live_bytes"]
    held = {h.line.rpartition("/")[2]: h for h in p.memory.contents()}
    assert held[large].bytes == 200_000 and held[large].tensors == 1
    assert held[also].bytes in (200_000, 200_004)  # with the number 2.0, unless an earlier program keeps one
    older = sum(h.bytes for h in p.memory.contents() if h.line == "before the profile")  # one entry for each category
    assert older >= before.size * 4
    assert sum(h.bytes for h in p.memory.contents()) == p.memory.peak_bytes
    times, columns = p.memory.by_category()
    assert set(columns) == set(CATEGORIES) and len(times) == len(columns["other"])
    assert sum(column[-1] for column in columns.values()) == live[-1]
    del b, c


def test_a_tensor_from_before_that_is_freed_is_not_at_the_peak() -> None:
    old = wg.ones((30_000,))
    with wg.profile() as p:
        del old
        new = wg.ones((40_000,))
    assert sum(h.bytes for h in p.memory.contents()) == p.memory.peak_bytes
    assert any(h.bytes == 160_000 for h in p.memory.contents())
    del new


def test_profiles_nest() -> None:
    x = wg.ones((10,))
    with wg.profile() as outer:
        x.exp()
        with wg.profile() as inner:
            x.tanh()
        x.sin()
    assert [r.name for r in inner.by_op()] == ["tanh"]
    assert {r.name for r in outer.by_op()} == {"exp", "tanh", "sin"}
    assert 0 <= inner.seconds <= outer.seconds
    assert not _core.profiling()


def test_an_exception_ends_a_profile_and_an_op_that_fails_is_no_event() -> None:
    x = wg.ones((3, 4))
    p = wg.profile()
    with pytest.raises(wg.ShapeError), p:
        x.exp()
        x @ x
    assert [r.name for r in p.by_op()] == ["exp"]
    assert not _core.profiling()
    with wg.profile() as q:
        x.exp()
    assert (q.recording.events["depth"] == 0).all()


def test_a_profile_that_has_not_ended_says_so_and_none_is_used_twice() -> None:
    p = wg.profile()
    with pytest.raises(wg.WengertError, match="before the with block has ended"):
        p.by_op()
    assert "not ended" in repr(p) and "not ended" in str(p)
    with p:
        pass
    assert p.totals().ops == 0 and "0 ops" in str(p)
    with pytest.raises(wg.WengertError, match="another one"):
        p.__enter__()
    with pytest.raises(ValueError, match="must be positive, got 0"):
        wg.profile(max_events=0)
    with pytest.raises(ValueError, match='"op", "line" or "module", got \'time\''):
        p.table("time")


def test_events_beyond_the_most_are_counted() -> None:
    x = wg.ones((4,))
    with wg.profile(max_events=5) as p:
        for _ in range(12):
            x.exp()
    assert len(p.recording.events) == 5 and p.recording.dropped == 7
    assert "7 ops came after" in str(p)


def test_threads_have_rows_of_their_own() -> None:
    def work() -> None:
        for _ in range(5):
            (wg.ones((64, 64)) @ wg.ones((64, 64))).sum()

    with wg.profile() as p:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        work()
        for t in threads:
            t.join()
    assert _row(p.by_op(), "matmul").calls == 20
    assert len(set(p.recording.events["thread"].tolist())) == 4
    for thread in range(4):
        mine = p.recording.events[p.recording.events["thread"] == thread]
        assert (mine["start"][1:] >= mine["end"][:-1]).all()


def test_what_runs_when_another_profile_begins_belongs_to_none() -> None:
    """As a thread's work does during which another thread ends one profile and starts the next."""
    first, second = wg.profile(), wg.profile()

    @wg.custom_op
    def swap(x: Any) -> Any:
        if wg._core.profiling():
            first.__exit__(None, None, None)
            second.__enter__()
        return x

    f = wg.compile(lambda x: swap(x.exp()).log().sum())
    x = wg.ones((4,))
    f(x)
    first.__enter__()
    f(x)
    second.__exit__(None, None, None)
    assert not first.by_op()
    assert [r.name for r in second.by_op()] == ["fused log+sum"]


def test_second_order_and_hooks_and_custom_ops() -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    with wg.profile() as p:
        y = (x * x * x).sum()
        (g,) = wg.grad_of(y, [x], create_graph=True)
        g.register_hook(lambda bar: bar * 2.0)
        g.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [12.0, 24.0]
    assert _row(p.by_op(), "mul").backward > 0


def test_arithmetic_of_layers_is_that_of_their_products() -> None:
    x, w = wg.randn(4, 3, 16, 16, requires_grad=True), wg.randn(8, 3, 3, 3, requires_grad=True)
    q = wg.randn(2, 4, 32, 16, requires_grad=True)
    a, b = wg.randn(8, 10, 20, requires_grad=True), wg.randn(20, 30, requires_grad=True)
    lstm, gru, steps = wg.nn.LSTM(16, 32), wg.nn.GRU(16, 32), wg.randn(10, 4, 16, requires_grad=True)
    conv, attention, product = 2 * 4 * 8 * 16 * 16 * 3 * 9, 2 * 2 * 2 * 4 * 32 * 32 * 16, 2 * 8 * 10 * 20 * 30
    recurrent = 2 * 10 * 4 * 32 * (16 + 32)
    attend = wg.scaled_dot_product_attention
    for run, forward, both in (
        (lambda: wg.conv2d(x, w, padding=1), conv, 3 * conv),
        (lambda: wg.conv2d(wg.concat([x, x], axis=1), wg.concat([w, w]), padding=1, groups=2), 2 * conv, 6 * conv),
        (lambda: attend(q, q, q), attention, 3.5 * attention),
        (lambda: attend(q, q, q, is_causal=True), attention / 2, 1.75 * attention),
        (lambda: a @ b, product, 3 * product),
        (lambda: lstm(steps)[0], 4 * recurrent, 12 * recurrent),
        (lambda: gru(steps)[0], 3 * recurrent, 9 * recurrent),
    ):
        with wg.profile() as p:
            y = run()
        with wg.profile() as q2:
            y.sum().backward()
        assert p.totals().flops == pytest.approx(forward, rel=0.05)
        assert p.totals().flops + q2.totals().flops == pytest.approx(both, rel=0.05)


def test_the_tape_of_the_first_backward() -> None:
    net = Net()
    x = wg.ones((4, 8))
    with wg.profile() as p:
        for _ in range(2):
            net(x).sum().backward()
    tape = p.recording.tape
    leaves = {n.leaf_id for n in tape if n.leaf_id}
    assert leaves == {q.id for q in net.parameters()}
    assert {n.name for n in tape if not n.leaf_id} >= {"sum", "tanh", "add"}
    numbers = {n.number for n in tape}
    assert all(s in numbers for n in tape for s in n.sources)
    assert p.parameter_names[net.blocks[1].first.weight.id] == ("Net.blocks.1.first", "weight")
    assert any(n.saved_bytes for n in tape)


def test_results_and_gradients_are_the_same_under_a_profile() -> None:
    def run() -> list[Any]:
        wg.manual_seed(0)
        net = Net()
        loss = (net(wg.randn((16, 8))) ** 2).mean()
        loss.backward()
        return [loss.item(), *(q.grad.numpy() for q in net.parameters())]

    plain = run()
    for inside in (False, True):
        with wg.profile(inside=inside):
            seen = run()
        assert all(np.array_equal(a, b) for a, b in zip(plain, seen))


def test_a_slow_python_loop_is_found_with_its_line() -> None:
    x = wg.ones((4,), requires_grad=True)
    total = x[0] + x[1]  # derivatives are derived the first time
    with wg.profile() as p:
        total = wg.zeros(())
        for i in range(2000):
            total = total + x[i % 4]
            looped = _here(-1)
    text = str(p)
    assert "ops of" in text and looped in text.split("! ")[1].splitlines()[0]


def test_memory_does_not_grow_over_many_profiles() -> None:
    x = wg.ones((8,))

    def once() -> None:
        with wg.profile():
            for _ in range(20):
                x.exp()

    once()
    gc.collect()  # what other tests left
    before = _core.memory_stats()["live_bytes"]
    for _ in range(100):
        once()
    assert _core.memory_stats()["live_bytes"] == before


def test_chrome_traces_have_complete_events_and_a_counter(tmp_path: Path) -> None:
    net = Net()
    with wg.profile() as p:
        net(wg.ones((4, 8))).sum().backward()
    trace = json.loads(p.to_chrome_trace(tmp_path / "trace.json"))
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8")) == trace
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(events) == len(p.recording.events)
    for e in events:
        assert e["dur"] >= 0 and e["ts"] >= 0 and e["pid"] == 1 and isinstance(e["tid"], int)
        assert e["cat"] in ("forward", "backward") and "test_profile.py" in e["args"]["line"]
    assert any(e["args"].get("module") == "Net.blocks.0.first" for e in events)
    counters = [e for e in trace["traceEvents"] if e["ph"] == "C"]
    assert counters and all(set(e["args"]) == set(CATEGORIES) for e in counters)
    assert {e["name"] for e in trace["traceEvents"] if e["ph"] == "M"} == {"process_name", "thread_name"}


def test_json_has_totals_and_tables() -> None:
    with wg.profile() as p:
        wg.ones((10,)).exp()
    data = json.loads(p.to_json())
    assert data["totals"]["ops"] == 2
    assert {r["name"] for r in data["tables"]["op"]} == {"full", "exp"}


def test_profiles_in_notebooks() -> None:
    with wg.profile() as p:
        wg.ones((10,)).exp()
    html = p._repr_html_()
    assert "<table>" in html and "exp" in html and "in all" in html
