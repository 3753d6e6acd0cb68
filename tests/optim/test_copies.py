"""Copies and pickles of optimizers, schedules and gradient maps go on where the original is, and apart from it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn, optim

X = wg.tensor(np.random.default_rng(3).standard_normal((5, 3)), dtype=wg.float32)
MAKERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=wg.tensor(0.1), amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.1),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1),
    "Lion": lambda p: optim.Lion(p, lr=0.1),
    "Adafactor": lambda p: optim.Adafactor(p, lr=0.1),
    "LBFGS": lambda p: optim.LBFGS(p, lr=0.1, max_iter=2),
}
COPIES: dict[str, Callable[[Any], Any]] = {"deepcopy": copy.deepcopy, "pickle": lambda x: pickle.loads(pickle.dumps(x))}


def _step(net: Any, opt: Any) -> None:
    def closure() -> Any:
        opt.zero_grad()
        loss = (net(X) ** 2).sum()
        loss.backward()
        return loss

    if isinstance(opt, optim.LBFGS):
        opt.step(closure)
    else:
        closure()
        opt.step()


def _numbers(net: Any) -> list[Any]:
    return [p.detach().numpy().tobytes() for p in net.parameters()]


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("name", MAKERS)
def test_a_copy_goes_on_as_the_original_does(name: str, copied: str) -> None:
    net = nn.Linear(3, 2)
    opt = MAKERS[name](net.named_parameters())
    for _ in range(2):
        _step(net, opt)
    other, twin = COPIES[copied]((net, opt))
    assert twin.param_groups[0]["params"][0] is other.weight and repr(twin) == repr(opt)
    before = _numbers(net)
    _step(other, twin)
    assert _numbers(net) == before != _numbers(other)
    _step(net, opt)
    assert _numbers(net) == _numbers(other)
    if name != "LBFGS":
        with pytest.raises(wg.ArgumentError, match="is not a parameter"):
            twin.apply_gradients([(net.weight.detach(), net.bias.detach())])
        with pytest.raises(wg.GradientError, match=r"weight float32\(2, 3\), bias"):
            twin.zero_grad()
            twin.step()


@pytest.mark.parametrize("copied", COPIES)
def test_an_optimizer_alone_is_copied_with_its_parameters(copied: str) -> None:
    p = wg.Parameter.ones((2,))
    opt = optim.Adam([p], lr=0.5)
    opt.step([(p, np.ones(2))])
    twin = COPIES[copied](opt)
    (q,) = twin.param_groups[0]["params"]
    twin.step([(q, np.ones(2))])
    assert p.tolist() != q.tolist()
    opt.step([(p, np.ones(2))])
    assert p.tolist() == q.tolist()


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize(
    "schedule",
    [
        optim.schedules.cosine(10, final=0.1),
        optim.schedules.chain(optim.schedules.linear_warmup(3), optim.schedules.exponential(0.5)),
        optim.schedules.one_cycle(20),
    ],
    ids=repr,
)
def test_schedulers_are_copied_with_their_optimizer(schedule: Any, copied: str) -> None:
    opt = optim.SGD([wg.Parameter.ones((2,))], lr=0.5)
    scheduler = optim.Scheduler(opt, schedule)
    scheduler.step()
    twin = COPIES[copied](scheduler)
    assert repr(twin) == repr(scheduler)
    twin.step()
    assert opt.param_groups[0]["lr"] == 0.5 * schedule(1) and twin.optimizer.param_groups[0]["lr"] == 0.5 * schedule(2)


@pytest.mark.parametrize("copied", [*COPIES, "copy"])
def test_gradient_maps_are_copied(copied: str) -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    grads = (x * x).sum().backward()
    twin = {**COPIES, "copy": copy.copy}[copied](grads)
    assert twin[x].tolist() == [2.0, 4.0] and len(twin) == 1
    twin.scale_(10.0)
    twin.insert(12345, wg.ones((1,)))
    assert grads[x].tolist() == [2.0, 4.0] and len(grads) == 1
    assert wg.explain(copy.deepcopy(grads), x) == wg.explain(grads, x)


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("mode", ["norm", "value", "per_layer", "adaptive"])
def test_clippers_are_copied(mode: str, copied: str) -> None:
    clipper = wg.GradientClipper(0.5, mode)
    assert repr(COPIES[copied](clipper)) == repr(clipper)
