"""Modules: what they hold, their state, and calls with other parameters."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn


class Net(nn.Module):
    """One of everything a module may hold."""

    def __init__(self) -> None:
        self.first = nn.Linear(3, 4)
        self.blocks = [nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4))]
        self.heads = {"a": nn.Linear(4, 2), "b": nn.Linear(4, 2, bias=False)}
        self.scale = wg.Parameter.ones(())
        self.extra = wg.ParameterDict(shift=wg.Parameter.zeros((2,)))
        self.register_buffer("mean", wg.zeros((2,)))
        self.data = wg.ones((7,))  # neither a parameter nor a buffer

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = wg.tanh(block(x))
        y = self.heads["a"](x) - self.heads["b"](x)
        return (y - self.mean) * self.scale + self.extra["shift"]


NAMES = [
    "first.weight", "first.bias",
    "blocks.0.weight", "blocks.0.bias", "blocks.1.1.weight", "blocks.1.1.bias",
    "heads.a.weight", "heads.a.bias", "heads.b.weight",
    "scale", "extra.shift",
]  # fmt: skip


def test_parameters_are_found_wherever_they_are() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert [name for name, _ in net.named_buffers()] == ["mean"]
    assert [name for name, m in net.named_modules() if isinstance(m, nn.Sequential)] == ["blocks.1"]
    grads = net(wg.randn(5, 3)).sum().backward()
    assert all(p in grads for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_shared_parameters_and_modules_count_once() -> None:
    layer = nn.Linear(3, 3)
    net = nn.Sequential(layer, nn.ReLU(), layer)
    assert len(net.parameters()) == 2
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert len(tied.parameters()) == 3
    assert list(tied.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_cycles_end() -> None:
    a, b = nn.Linear(2, 2), nn.Module()
    b.inner, a.outer = a, b  # type: ignore[attr-defined]
    assert len(a.parameters()) == len(b.parameters()) == 2


def test_train_and_eval_reach_everything() -> None:
    net = Net()
    assert net.eval() is net and not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    seen: list[str] = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen[-1] == "Net" and seen.count("Linear") == 5


def test_frozen_parameters_get_no_gradient() -> None:
    net = Net()
    net.first.requires_grad_(False)
    grads = net(wg.randn(5, 3)).sum().backward()
    assert net.first.weight not in grads and net.scale in grads


def test_state_round_trip() -> None:
    a, b = Net(), Net()
    a.mean = wg.tensor([3.0, 4.0])
    x = wg.randn(5, 3)
    state = a.state_dict()
    assert set(state) == {*NAMES, "mean"}
    b.load_state_dict(state)
    assert np.array_equal(a(x).numpy(), b(x).numpy())
    before = state["first.weight"].tolist()
    a.first.weight.apply_update(np.ones((4, 3)))
    assert state["first.weight"].tolist() == before  # a state is a snapshot
    b.load_state_dict({name: t.numpy().astype(np.float64) for name, t in state.items()})
    assert b.first.weight.dtype == wg.float32 and b.first.weight.requires_grad


def test_all_problems_of_a_state_are_named_at_once() -> None:
    net, before = Net(), Net().state_dict()
    state = dict(before)
    del state["first.bias"], state["scale"]
    state["new"] = state["newer"] = wg.ones(())
    state["heads.a.weight"] = wg.ones((9, 9))
    own = net.state_dict()
    with pytest.raises(wg.ArgumentError) as e:
        net.load_state_dict(state)
    for line in ("missing: first.bias", "missing: scale", "unexpected: new", "unexpected: newer"):
        assert line in str(e.value)
    assert "mismatched: heads.a.weight has shape (2, 4), the state (9, 9)" in str(e.value)
    assert all(np.array_equal(own[k].numpy(), t.numpy()) for k, t in net.state_dict().items())
    with pytest.raises(wg.ArgumentError, match="heads.a.weight"):
        net.load_state_dict(state, strict=False)
    del state["heads.a.weight"]
    net.load_state_dict(state, strict=False)
    assert np.array_equal(net.first.weight.numpy(), before["first.weight"].numpy())


def test_deepcopy_is_independent() -> None:
    net = Net()
    twin = copy.deepcopy(net)
    x = wg.randn(2, 3)
    assert np.array_equal(net(x).numpy(), twin(x).numpy())
    twin.scale.apply_update(1.0)
    assert net.scale.item() == 1.0 and twin.scale.item() == 2.0
    assert not {id(p) for p in net.parameters()} & {id(p) for p in twin.parameters()}


def test_to_casts_in_place() -> None:
    net = Net()
    weight = net.first.weight
    net.to(wg.float64)
    assert net.first.weight is weight and weight.dtype == wg.float64 and weight.requires_grad
    assert net.mean.dtype == wg.float64
    assert net(wg.randn(2, 3, dtype=wg.float64)).dtype == wg.float64
    assert net.to("cpu") is net
    with pytest.raises(wg.DeviceError):
        net.to("cuda:7")


def test_repr_counts_parameters() -> None:
    text = repr(Net())
    assert text.startswith("Net(  # 77 parameters\n")
    assert "  first: Linear(3, 4)  # 16 parameters\n" in text
    assert "  blocks.1: Sequential(  # 20 parameters\n    0: ReLU()\n    1: Linear(4, 4)" in text
    assert "heads.b: Linear(4, 2, bias=False)" in text


def test_forward_must_be_written() -> None:
    with pytest.raises(NotImplementedError, match="Module"):
        nn.Module()(1)


def test_names_of_buffers_are_checked() -> None:
    m = nn.Module()
    for name in ("forward", "a b", ""):
        with pytest.raises(wg.ArgumentError, match="register_buffer"):
            m.register_buffer(name, wg.ones(()))


def test_functional_call_uses_other_parameters_and_restores() -> None:
    net = Net()
    params = dict(net.named_parameters())
    x = wg.randn(5, 3)
    y = net(x)
    doubled = {k: p.detach() * 2.0 for k, p in params.items()}
    other = nn.functional_call(net, doubled, x)
    assert not np.allclose(other.numpy(), y.numpy())
    assert np.array_equal(net(x).numpy(), y.numpy())
    assert dict(net.named_parameters()).keys() == params.keys()
    shifted = nn.functional_call(net, {"mean": wg.ones((2,))}, x)
    assert np.allclose(shifted.numpy(), y.numpy() - 1.0, atol=1e-5)
    with pytest.raises(wg.ArgumentError, match="no wrong, worse; it has first.weight"):
        nn.functional_call(net, {"wrong": x, "worse": x}, x)
    with pytest.raises(wg.ShapeError):
        nn.functional_call(net, {"scale": wg.ones((17,))}, x)
    assert net.scale.shape == ()


def test_functional_call_differentiates() -> None:
    net = Net()
    x = wg.randn(5, 3)
    params = {name: p.detach() for name, p in net.named_parameters()}
    by_transform = wg.grad(lambda params: (nn.functional_call(net, params, x) ** 2).sum())(params)
    by_backward = (net(x) ** 2).sum().backward()
    for name, p in net.named_parameters():
        assert np.allclose(by_transform[name].numpy(), by_backward[p].numpy(), rtol=1e-5, atol=1e-6)


def test_functional_call_exchanges_shared_parameters_everywhere() -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    y = nn.functional_call(net, {"0.weight": 2.0 * wg.eye(2)}, wg.ones((1, 2)))
    assert y.tolist() == [[4.0, 4.0]]


def test_parameters_in_a_tuple_are_trained_but_not_exchanged() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            self.both = (wg.Parameter.ones((2,)), wg.Parameter.ones((2,)))

        def forward(self) -> Any:
            return self.both[0] * self.both[1]

    net = Pair()
    assert len(net.parameters()) == 2
    with pytest.raises(wg.ArgumentError, match=r"both.0.*tuple"):
        nn.functional_call(net, {"both.0": wg.zeros((2,))})
