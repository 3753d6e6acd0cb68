"""Schedules: composition, state, and what they refuse. Their values stand beside PyTorch's in tests/peers."""

from __future__ import annotations

from typing import Any

import pytest

import wengert as wg
from wengert import optim
from wengert.optim import schedules as s


def _optimizer(*lrs: float) -> Any:
    return optim.SGD([{"params": [wg.Parameter.ones((1,))], "lr": lr} for lr in lrs])


def test_every_group_keeps_its_own_base() -> None:
    opt = _optimizer(1.0, 0.1)
    scheduler = optim.Scheduler(opt, s.linear(4, 1.0, 0.0))
    seen = []
    for _ in range(6):
        seen.append([g["lr"] for g in opt.param_groups])
        scheduler.step()
    assert seen == [[1.0, 0.1], [0.75, 0.1 * 0.75], [0.5, 0.05], [0.25, 0.025], [0.0, 0.0], [0.0, 0.0]]
    opt.add_param_group({"params": [wg.Parameter.ones((1,))], "lr": 7.0})
    scheduler.schedule = s.constant(0.5)
    scheduler.step()
    assert opt.param_groups[2]["lr"] == 3.5


def test_schedules_resume() -> None:
    make = lambda opt: optim.Scheduler(opt, s.warmup_cosine(5, 20))
    a, b = _optimizer(0.3), _optimizer(0.3)
    first = make(a)
    for _ in range(7):
        first.step()
    second = make(b)
    b.load_state_dict(a.state_dict())  # holds the rate of step 7; the base is the scheduler's
    second.load_state_dict(first.state_dict())
    for _ in range(5):
        first.step()
        second.step()
        assert a.param_groups[0]["lr"] == b.param_groups[0]["lr"]
    with pytest.raises(wg.ArgumentError, match="1 groups, the optimizer has 2"):
        make(_optimizer(1.0, 2.0)).load_state_dict(first.state_dict())


def test_plateau_resumes_and_respects_its_floor() -> None:
    opt = _optimizer(1.0)
    plateau = optim.ReduceOnPlateau(opt, "max", 0.1, patience=0, cooldown=1, min_lr=0.05)
    for metric in (0.5, 0.5):
        plateau.step(wg.tensor(metric))
    assert opt.param_groups[0]["lr"] == pytest.approx(0.1)
    again = optim.ReduceOnPlateau(opt, "max", 0.1, patience=0, cooldown=1, min_lr=0.05)
    again.load_state_dict(plateau.state_dict())
    again.step(0.1)  # cools down
    assert opt.param_groups[0]["lr"] == pytest.approx(0.1)
    again.step(float("nan"))
    assert opt.param_groups[0]["lr"] == 0.05


def test_what_makes_no_sense_is_refused() -> None:
    for make, message in [
        (lambda: s.step(0), "step: lengths"),
        (lambda: s.cosine(-1), "cosine: lengths"),
        (lambda: s.warmup_cosine(5, 5), "warmup must be"),
        (lambda: s.one_cycle(10, anneal="steep"), "anneal"),
        (lambda: s.sequential([s.constant()], [3]), "0 milestones"),
        (lambda: s.sequential([s.constant()] * 3, [5, 2]), "in increasing order"),
        (lambda: optim.ReduceOnPlateau(_optimizer(1.0), "best"), "mode"),
    ]:
        with pytest.raises(wg.ArgumentError, match=message):
            make()
