"""Memory that stays: each line is named, in a module, in a compiled function, and where backward alone keeps it."""

from __future__ import annotations

import pytest

import wengert as wg
from tests.debug.faults.lines import line_at_fault

N = 1 << 14


class KeepsLosses:
    def __init__(self):
        self.w, self.kept = wg.Parameter.ones((N,)), []

    def round(self):
        loss = (wg.tanh(self.w) * 2.0).sum()  # fault
        self.kept.append(loss)


class KeepsInModule:
    """A module that remembers what went through it."""

    class Remembers(wg.nn.Module):
        def __init__(self):
            self.weight, self.seen = wg.Parameter.ones((N,)), []

        def forward(self, x):
            h = wg.sin(x * self.weight)
            self.seen.append(h)
            return h.sum()

    def __init__(self):
        self.net, self.x = self.Remembers(), wg.ones(N)

    def round(self):
        self.net(self.x).backward()


class KeepsResultsOfCompiled:
    def __init__(self):
        self.f, self.kept, self.x = wg.compile(lambda x: wg.exp(x) * 2.0), [], wg.ones(N)

    def round(self):
        y = self.f(self.x)  # fault
        self.kept.append(y)


class KeepsGradients:
    """Backward alone: a hook that collects."""

    def __init__(self):
        self.w, self.kept = wg.Parameter.ones((N,)), []

    def round(self):
        h = wg.cos(self.w)
        h.register_hook(self.kept.append)
        (h * h).sum().backward()  # fault


class KeepsGraphsOfGradients:
    """Backward alone: gradients that were recorded, and keep their history in `.grad`."""

    def __init__(self):
        self.w, self.kept = wg.Parameter.ones((N,)), []

    def round(self):
        loss = (wg.sinh(self.w) * self.w).sum()
        (g,) = wg.grad_of(loss, [self.w], create_graph=True)  # fault
        self.kept.append(g)


class Cycle:
    """An object that refers to itself, and holds a tensor."""

    def __init__(self):
        self.x = wg.ones(N)

    def round(self):
        class Holder:
            pass

        held = Holder()
        held.itself = held
        held.tensor = wg.exp(self.x)  # fault


class CycleOfModule:
    """A module that is an attribute of what it calls: each round makes another one."""

    def __init__(self):
        self.x = wg.ones(N)

    def round(self):
        net = wg.nn.Sequential(wg.nn.Identity())
        net.weight = wg.Parameter(wg.ones(N))  # fault
        net.callback = lambda: net.weight


def _line(case):
    return line_at_fault(case.Remembers.forward if hasattr(case, "Remembers") else case.round)


@pytest.fixture
def profiler():
    with wg.GradientMemoryProfiler() as p:
        yield p


CASES = [KeepsLosses, KeepsResultsOfCompiled, KeepsGradients, KeepsGraphsOfGradients, Cycle, CycleOfModule]


@pytest.mark.parametrize("case", CASES)
def test_the_line_is_named(case, profiler):
    planted = case()
    for k in range(5):
        planted.round()
        profiler.record_checkpoint(f"round {k}")
    report = profiler.detect_leaks()
    named = [leak for leak in report.leaks if _line(case).endswith(leak.line)]
    assert named, report
    assert named[0].kind == ("cycle" if case.__name__.startswith("Cycle") else "growth")


def test_a_module_that_remembers(profiler):
    planted = KeepsInModule()
    for k in range(5):
        planted.round()
        profiler.record_checkpoint(f"round {k}")
    (leak,) = profiler.detect_leaks().leaks
    assert "test_memory_faults.py" in leak.line and leak.bytes >= 4 * 4 * N


def test_healthy_loops_have_no_leaks(profiler):
    net = wg.nn.Sequential(wg.nn.Linear(64, 64), wg.nn.ReLU(), wg.nn.Linear(64, 1))
    optimizer = wg.optim.Adam(net.parameters(), lr=1e-3)
    losses = []
    for k in range(6):
        loss = (net(wg.ones((256, 64))) ** 2).mean()
        optimizer.step(loss.backward())
        losses.append(loss.item())
        del loss
        profiler.record_checkpoint(f"round {k}")
    assert profiler.detect_leaks().num_suspicious == 0, profiler.detect_leaks()
