"""What stands out in a profile: faults are found with their line, and healthy programs have none."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

import wengert as wg
from tests.debug.faults.lines import line_at_fault
from wengert.profiling.events import PREPARING
from wengert.profiling.findings import findings


def _found(p: Any, words: str) -> list[str]:
    return [f"{f.text} {f.line}" for f in findings(p) if re.search(words, f.text)]


def _names(text: str, f: Any) -> bool:
    return line_at_fault(f).rpartition("/")[2] in text


# ------------------------------------------------------------------------------------------------ slow loops


def sum_of_elements(x: Any) -> Any:
    total = wg.zeros(())
    for i in range(1500):
        total = total + x[i % 64] * 2.0  # fault
    return total


def filled_row_by_row(x: Any) -> Any:
    y = wg.zeros((600, 64))
    for i in range(600):
        y[i] = wg.tanh(x) + float(i)  # fault
    return y.sum()


class _Module(wg.nn.Module):
    def __init__(self, f: Any, shape: tuple[int, ...]) -> None:
        self.f, self.weight = f, wg.Parameter.ones(shape)

    def forward(self) -> Any:
        return self.f(self.weight)


@pytest.mark.parametrize("in_module", [False, True])
@pytest.mark.parametrize("f", [sum_of_elements, filled_row_by_row])
def test_slow_loops(f: Any, in_module: bool) -> None:
    net = _Module(f, (64,))
    net()  # what is derived the first time is no loop's
    with wg.profile() as p:
        (net() if in_module else f(wg.ones(64, requires_grad=True))).backward()
    (text,) = _found(p, "instead of a loop over elements")
    assert _names(text, f), text


class _Block(wg.nn.Module):
    def __init__(self) -> None:
        self.norm, self.attention = wg.nn.LayerNorm(16), wg.nn.MultiheadAttention(16, 4)
        self.mlp = wg.nn.Sequential(wg.nn.Linear(16, 32), wg.nn.GELU(), wg.nn.Linear(32, 16))

    def forward(self, x: Any) -> Any:
        h = self.norm(x)
        return x + self.attention(h, h, h)[0] + self.mlp(x)


def test_functions_of_the_library_are_no_loops() -> None:
    net = wg.nn.Sequential(*(_Block() for _ in range(4)))
    optimizer = wg.optim.AdamW(net.parameters(), lr=1e-3)
    x = wg.randn(2, 8, 16)
    with wg.profile() as p:
        for _ in range(20):
            optimizer.step((net(x) ** 2).mean().backward())
    assert not _found(p, "loop over elements")


# --------------------------------------------------------------------------------------- accidental broadcasts


def column_minus_row(prediction: Any) -> Any:
    target = wg.ones(8)
    return ((prediction - target) ** 2).mean()  # fault


WEIGHTS = wg.ones(8)


def row_times_column(prediction: Any) -> Any:
    return (WEIGHTS * prediction).sum()  # fault


@pytest.mark.parametrize("way", ["plain", "module", "compiled"])
@pytest.mark.parametrize("f", [column_minus_row, row_times_column])
def test_broadcasts_by_accident(f: Any, way: str) -> None:
    net = _Module(wg.compile(f) if way == "compiled" else f, (8, 1))
    with wg.profile() as p:
        loss = f(wg.ones((8, 1), requires_grad=True)) if way == "plain" else net()
    loss.backward()
    (text,) = _found(p, r"A column \(8, 1\) and a row \(8,\) were broadcast to \(8, 8\)")
    assert "return self.f(self.weight)" in text if way == "compiled" else _names(text, f), text


def test_broadcasts_on_purpose_are_none() -> None:
    x, w, b = wg.randn(8, 8, requires_grad=True), wg.randn(8, 8), wg.randn(8)
    with wg.profile() as p:
        (x @ w + b).sum().backward()
        ((x[:, None] - x[None]) ** 2).sum()
        (b[:, None] * b[None, :]).sum()
        (x - x.mean(axis=1, keepdims=True)).sum()
    assert not _found(p, "broadcast")


# ---------------------------------------------------------------------------------------------- dead layers


class _Net(wg.nn.Module):
    def __init__(self, used: bool = True) -> None:
        self.first, self.second, self.unused = wg.nn.Linear(4, 6), wg.nn.Linear(6, 1), wg.nn.Linear(6, 1)
        self.used = used

    def forward(self, x: Any) -> Any:
        h = wg.relu(self.first(x))
        return self.second(h) + (self.unused(h) if self.used else 0.0)


def _steps(net: Any, x: Any, n: int = 3) -> Any:
    optimizer = wg.optim.SGD(net.parameters(), lr=1e-3)
    with wg.profile() as p:
        for _ in range(n):
            optimizer.step((net(x) ** 2).mean().backward())
    return p


def test_a_dead_layer() -> None:
    net = _Net()
    with wg.no_grad():
        net.first.bias[:] = -1e3
    p = _steps(net, wg.randn(16, 4))
    (text,) = _found(p, "[Gg]radients are zero")
    assert "_Net.first.weight" in text and "_Net.first.bias" in text and "wg.explain" in text
    assert "_Net.second.bias" not in text


def test_a_layer_that_no_gradient_reaches() -> None:
    (text,) = _found(_steps(_Net(used=False), wg.randn(16, 4)), "No gradient reached")
    assert "_Net.unused.weight" in text and "first" not in text


def test_gradients_that_are_not_finite() -> None:
    (text,) = _found(_steps(_Net(), wg.full((16, 4), wg.inf), n=1), "not finite")
    assert "_Net.first.weight" in text and "detect_anomaly" in text


def test_a_healthy_net_with_two_optimizers() -> None:
    net = _Net()
    optimizers = [wg.optim.SGD(m.parameters(), lr=1e-3) for m in (net.first, net.second)]
    x = wg.rand(16, 4)
    with wg.profile() as p:
        for _ in range(4):
            loss = (net(x) ** 2).mean()
            loss.backward()
            for o in optimizers:
                o.step()
                o.zero_grad()
    assert not _found(p, "radient")
    assert {row["name"] for row in p._data("")["gradients"]["rows"]} == {
        f"_Net.{layer}.{name}" for layer in ("first", "second") for name in ("weight", "bias")
    }


# ------------------------------------------------------------------------------------- time that is not the user's


def test_deriving_is_told_apart_from_python() -> None:
    @wg.compile
    def fresh(x: Any) -> Any:
        for _ in range(40):
            x = wg.tanh(x * 1.5 + wg.sin(x))
        return x.sum()

    x = wg.ones(8, requires_grad=True)
    with wg.profile() as first:
        fresh(x).backward()
    with wg.profile() as again:
        fresh(x).backward()
    assert first.totals().preparing > 0.5 * (first.seconds - first.totals().in_ops)
    assert again.totals().preparing == 0.0
    assert "tracing functions and deriving rules" in first.summary()
    assert "tracing" not in again.summary()
    t = first.totals()
    assert t.in_ops + t.preparing + first.sums.around.sum() <= first.seconds
    spans = [s for s in first.recording.spans if s.kind == PREPARING]
    assert all(0 <= s.start <= s.end <= first.seconds * 1e9 for s in spans)


def test_looks_at_gradients_are_told_apart_from_python() -> None:
    net = _Net()
    optimizer = wg.optim.SGD(net.parameters(), lr=1e-3)
    with wg.profile() as p:
        optimizer.step((net(wg.rand(16, 4)) ** 2).mean().backward())
    assert 0 < p.totals().looking < p.seconds
    with wg.profile(gradients=False) as p:
        optimizer.step((net(wg.rand(16, 4)) ** 2).mean().backward())
    assert p.totals().looking == 0.0


def test_steps_that_are_compiled_as_a_whole() -> None:
    net = _Net()
    optimizer = wg.optim.Adam(net.parameters(), lr=1e-3)

    @wg.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    with wg.profile() as p:
        for _ in range(3):
            step(wg.rand(16, 4))
    assert [r.calls for r in p.by_op() if r.name == "step"] == [3]
    assert not p.gradients.seen and p.gradients.steps == 0


def test_views_move_nothing() -> None:
    x = wg.ones((64, 32), requires_grad=True)
    with wg.profile() as p:
        wg.permute_dims(x, (1, 0)).sum().backward()
    (row,) = [r for r in p.by_op() if "permute" in r.name]
    assert row.calls == 2 and row.bytes == 0


def test_one_op_that_waited_makes_no_slow_line() -> None:
    """As on a busy machine: one of many calls took long."""
    net, x = wg.nn.LayerNorm(64), wg.randn(32, 64)
    with wg.profile() as p:
        for _ in range(40):
            net(x)
    events = p.recording.events
    held_up = 200_000_000  # nanoseconds
    k = len(events) // 2
    for name in ("end", "self"):
        events[name][k] += held_up
    for name in ("start", "end"):
        events[name][k + 1 :] += held_up
    object.__setattr__(p.recording, "seconds", p.seconds + held_up * 1e-9)
    assert max(row.seconds for row in p.by_line()) > 0.15 * p.seconds
    assert not _found(p, "of what the machine can do")


def test_a_line_that_is_slow_is_found() -> None:
    """It waits in every call."""

    @wg.custom_op
    def slow(x: Any) -> Any:
        time.sleep(2e-3)
        return wg.asarray(x.numpy() * 1.0)

    @slow.defvjp
    def _(y_bar: Any, y: Any, x: Any) -> Any:
        return y_bar

    f = wg.compile(lambda x: slow(x) + 1.0)
    x = wg.ones(64)
    f(x)
    with wg.profile() as p:
        for _ in range(10):
            f(x)
    (text,) = _found(p, "of what the machine can do")
    assert "f(x)" in text
