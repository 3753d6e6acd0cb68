"""Containers of modules and of parameters."""

from __future__ import annotations

import copy

import pytest

import wengert as wg
from wengert import nn


def named() -> nn.Sequential:
    return nn.Sequential({"hidden": nn.Linear(3, 4), "act": nn.ReLU(), "out": nn.Linear(4, 2)})


def test_layers_of_a_dict_have_names() -> None:
    net, x = named(), wg.ones((5, 3))
    assert list(net.state_dict()) == ["hidden.weight", "hidden.bias", "out.weight", "out.bias"]
    assert net.hidden is net[0] is net["hidden"] and len(net) == 3
    plain = nn.Sequential(*net)
    assert net(x).tolist() == plain(x).tolist() and "0.weight" in plain.state_dict()
    other = named()
    other.load_state_dict(net.state_dict())
    assert other(x).tolist() == copy.deepcopy(net)(x).tolist() == net(x).tolist()
    assert "hidden: Linear(3, 4)" in repr(net)
    part = net[1:]
    assert [name for name, _ in part.named_children()] == ["act", "out"]
    g = wg.grad(lambda p: nn.functional_call(net, p, x).sum())({"out.bias": net.out.bias.detach()})
    assert g["out.bias"].tolist() == [5.0, 5.0]


def test_layers_of_a_dict_can_change() -> None:
    net = named()
    net.append(nn.Tanh())
    assert [name for name, _ in net.named_children()] == ["hidden", "act", "out", "3"]
    del net[1]
    assert [name for name, _ in net.named_children()] == ["hidden", "out", "2"]
    net[0] = nn.Linear(3, 4, bias=False)
    assert list(net.state_dict()) == ["hidden.weight", "out.weight", "out.bias"]
    with pytest.raises(AttributeError, match="no attribute 'act'"):
        net.act
    with pytest.raises(wg.ArgumentError, match="make a new one of a dict"):
        net.insert(0, nn.ReLU())
    with pytest.raises(wg.ArgumentError, match="'forward' cannot be the name of a layer"):
        nn.Sequential({"forward": nn.ReLU()})


def test_lists_of_parameters() -> None:
    weights = nn.ParameterList([wg.ones((2,)), wg.Parameter(wg.zeros((3,)))])
    weights.append(wg.ones((1,))).extend([wg.ones((4,))])
    assert [p.shape for p in weights] == [(2,), (3,), (1,), (4,)] and len(weights[1:3]) == 2

    class Net(nn.Module):
        def __init__(self) -> None:
            self.weights = weights

        def forward(self, x: wg.Tensor) -> wg.Tensor:
            return x * self.weights[0]

    net = Net()
    assert list(net.state_dict()) == [f"weights.{k}" for k in range(4)]
    net(wg.ones((2,))).sum().backward()
    assert weights[0].grad is not None and weights[0].grad.tolist() == [1.0, 1.0]
    weights[0] = wg.zeros((2,))
    assert isinstance(weights[0], wg.Parameter) and net.to("float64").weights[0].dtype == wg.float64
    with pytest.raises(wg.ArgumentError, match="takes parameters and tensors, got float"):
        weights.append(1.0)  # type: ignore[arg-type]
