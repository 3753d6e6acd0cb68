"""Learning rates beside PyTorch's schedulers, step by step."""

from __future__ import annotations

from typing import Any

import pytest

import wengert as wg
from wengert import optim
from wengert.optim import schedules as s

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
lr_scheduler = torch.optim.lr_scheduler

CASES = {
    "step": (s.step(7, 0.3), lambda o: lr_scheduler.StepLR(o, 7, 0.3)),
    "exponential": (s.exponential(0.93), lambda o: lr_scheduler.ExponentialLR(o, 0.93)),
    "constant": (s.constant(0.25, 9), lambda o: lr_scheduler.ConstantLR(o, 0.25, 9)),
    "warmup": (s.linear_warmup(10, 1 / 3), lambda o: lr_scheduler.LinearLR(o, 1 / 3, 1.0, 10)),
    "linear": (s.linear(13, 1.0, 0.1), lambda o: lr_scheduler.LinearLR(o, 1.0, 0.1, 13)),
    "cosine": (s.cosine(40, 0.1), lambda o: lr_scheduler.CosineAnnealingLR(o, 40, 0.05)),
    "restarts": (s.cosine_restarts(5, 2, 0.1), lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5, 2, 0.05)),
    "restarts equal": (s.cosine_restarts(6), lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 6)),
    "one cycle": (s.one_cycle(40), lambda o: lr_scheduler.OneCycleLR(o, 0.5, 40, cycle_momentum=False)),
    "one cycle linear": (
        s.one_cycle(40, 0.4, 10.0, 100.0, "linear"),
        lambda o: lr_scheduler.OneCycleLR(o, 0.5, 40, None, None, 0.4, "linear", False, 0.85, 0.95, 10.0, 100.0),
    ),
    "chain": (
        s.chain(s.constant(0.1, 4), s.exponential(0.9)),
        lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(o, 0.1, 4), lr_scheduler.ExponentialLR(o, 0.9)]),
    ),
    "sequential": (
        s.sequential([s.linear_warmup(5, 0.2), s.exponential(0.9)], [5]),
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.2, 1.0, 5), lr_scheduler.ExponentialLR(o, 0.9)], [5]
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:.*deprecat:UserWarning")
def test_schedule(name: str) -> None:
    schedule, make = CASES[name]
    ours = optim.SGD([wg.Parameter.ones((1,))], lr=0.5)
    theirs = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    a, b = optim.Scheduler(ours, schedule), make(theirs)
    for t in range(40):
        assert ours.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9, abs=1e-12), t
        theirs.step()
        if t < 39:
            a.step()
            b.step()


@pytest.mark.parametrize("mode", ["min", "max"])
def test_plateau(mode: str) -> None:
    ours = optim.SGD([wg.Parameter.ones((1,))], lr=0.5)
    theirs = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)
    options = dict(factor=0.5, patience=2, threshold=0.01, cooldown=1, min_lr=0.01)
    a = optim.ReduceOnPlateau(ours, mode, **options)  # type: ignore[arg-type]
    b = lr_scheduler.ReduceLROnPlateau(theirs, mode, **options)
    for t in range(60):
        metric = 1.0 + ((t * 37) % 11) * 0.1 / (1 + t)
        a.step(metric)
        b.step(metric)
        assert ours.param_groups[0]["lr"] == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-12), t
