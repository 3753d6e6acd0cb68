"""Adapters: only they are trained, they merge and unmerge, and are saved alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn, optim
from wengert.nn import lora


class Block(nn.Module):
    def __init__(self) -> None:
        self.query = nn.Linear(6, 6)
        self.value = nn.Linear(6, 6, bias=False)
        self.mlp = [nn.Linear(6, 12), nn.Linear(12, 6)]
        self.shared = {"again": self.mlp[1]}

    def forward(self, x: Any) -> Any:
        h = self.query(x) * wg.tanh(self.value(x))
        return self.shared["again"](wg.relu(self.mlp[0](h))) + self.mlp[1](wg.relu(self.mlp[0](x)))


def _net() -> Any:
    wg.manual_seed(0)
    return nn.Sequential(Block(), nn.LayerNorm(6), nn.Linear(6, 2)).to("float64")


def _trained(net: Any, steps: int = 5) -> Any:
    opt = optim.Adam(lora.parameters(net), lr=0.05)
    g = wg.Generator(seed=1)
    x, y = wg.randn(16, 6, dtype=wg.float64, generator=g), wg.randn(16, 2, dtype=wg.float64, generator=g)
    for _ in range(steps):
        opt.step(wg.mse_loss(net(x), y).backward())
    return wg.mse_loss(net(x), y).item()


@pytest.mark.parametrize("dora", [False, True])
def test_nothing_changes_at_first_and_only_adapters_are_trained(dora: bool) -> None:
    net, x = _net(), wg.randn(3, 6, dtype=wg.float64)
    y, before = net(x).detach().numpy().copy(), net.state_dict()
    assert lora.apply(net, rank=2, dora=dora) is net
    assert np.allclose(net(x).detach().numpy(), y, rtol=1e-12)
    names = {name for name, p in net.named_parameters() if p.requires_grad}
    parts = {"lora_a", "lora_b", "magnitude"} if dora else {"lora_a", "lora_b"}
    assert {n.rpartition(".")[2] for n in names} == parts and len(names) == 5 * len(parts)
    first = _trained(net, 1)
    assert _trained(net, 30) < first
    after = net.state_dict()
    assert all(np.array_equal(after[k].numpy(), t.numpy()) for k, t in before.items())


@pytest.mark.parametrize("dora", [False, True])
def test_merging_is_exact_both_ways(dora: bool) -> None:
    net, x = lora.apply(_net(), rank=3, alpha=7.0, dora=dora), wg.randn(3, 6, dtype=wg.float64)
    _trained(net)
    y, before = net(x).detach().numpy().copy(), {k: t.detach().numpy().tobytes() for k, t in net.state_dict().items()}
    assert lora.merge(net) is net and lora.merge(net) is net  # twice is once
    assert "merged" in repr(net[0].query) and np.allclose(net(x).numpy(), y, rtol=1e-10)
    with pytest.raises(wg.ArgumentError, match="merged; call lora.unmerge"):
        lora.load_state_dict(net, lora.state_dict(net))
    lora.unmerge(net)
    assert {k: t.numpy().tobytes() for k, t in net.state_dict().items()} == before
    assert np.array_equal(net(x).detach().numpy(), y)
    plain = lora.merge(copy.deepcopy(net), remove=True)
    assert not any(isinstance(m, nn.LoRALinear) for m in plain.modules())
    assert np.allclose(plain(x).numpy(), y, rtol=1e-10) and list(plain.state_dict()) == list(_net().state_dict())


def test_dora_follows_its_formula() -> None:
    layer = nn.LoRALinear(4, 3, rank=2, alpha=3.0, dora=True, dtype=wg.float64)
    nn.init.normal(layer.lora_b)
    x = wg.randn(5, 4, dtype=wg.float64)
    w, a, b, m = (t.numpy() for t in (layer.weight, layer.lora_a, layer.lora_b, layer.magnitude))  # type: ignore[union-attr]
    v = w + 1.5 * b @ a
    lengths = np.linalg.norm(v, axis=1, keepdims=True)
    expected = x.numpy() @ (m[:, None] * v / lengths).T + layer.bias.numpy()  # type: ignore[union-attr]
    assert np.allclose(layer(x).detach().numpy(), expected, rtol=1e-12)
    # The lengths are constants of the derivative.
    seed = wg.randn(5, 3, dtype=wg.float64)
    grads = (layer(x) * seed).sum().backward()
    v_bar = (seed.numpy() * m / lengths[:, 0]).T @ x.numpy()
    assert np.allclose(grads[layer.lora_b].numpy(), 1.5 * v_bar @ a.T, rtol=1e-10)
    assert np.allclose(grads[layer.lora_a].numpy(), 1.5 * b.T @ v_bar, rtol=1e-10)


def test_targets() -> None:
    for targets, expected in [
        ("query", ["0.query"]),
        (["query", "value"], ["0.query", "0.value"]),
        ("0.mlp.*", ["0.mlp.0", "0.mlp.1"]),
        ("2", ["2"]),
        (None, ["0.query", "0.value", "0.mlp.0", "0.mlp.1", "2"]),
    ]:
        net = lora.apply(_net(), rank=1, targets=targets)
        assert [name for name, m in net.named_modules() if isinstance(m, nn.LoRALinear)] == expected
    net = lora.apply(_net(), rank=1, targets="mlp.1")
    assert net[0].shared["again"] is net[0].mlp[1] and isinstance(net[0].mlp[1], nn.LoRALinear)
    net = _net()
    with pytest.raises(wg.ArgumentError, match=r"matches 'keys'; Sequential has 0.query, 0.value, 0.mlp.0, 0.mlp.1, 2"):
        lora.apply(net, targets=["query", "keys"])
    assert all(p.requires_grad for p in net.parameters())  # nothing was changed
    with pytest.raises(wg.ArgumentError, match="LayerNorm has none"):
        lora.apply(nn.LayerNorm(3))
    alone = lora.apply(nn.Linear(3, 3), rank=1)
    assert isinstance(alone, nn.LoRALinear)


def test_adapters_are_saved_alone(tmp_path: Path) -> None:
    net, x = lora.apply(_net(), rank=2, targets="query"), wg.randn(3, 6, dtype=wg.float64)
    _trained(net)
    wg.save(tmp_path / "adapters.safetensors", lora.state_dict(net))
    assert (tmp_path / "adapters.safetensors").stat().st_size < 600
    other = lora.apply(_net(), rank=2, targets="query")
    lora.load_state_dict(other, wg.load(tmp_path / "adapters.safetensors"))
    assert np.array_equal(other(x).detach().numpy(), net(x).detach().numpy())
    with pytest.raises(
        wg.ArgumentError, match=r"missing: 0.value.lora_a[\s\S]*mismatched: 0.query.lora_a has shape \(3, 6\)"
    ):
        lora.load_state_dict(lora.apply(_net(), rank=3, targets=["query", "value"]), lora.state_dict(net))


def test_dropout_only_while_training() -> None:
    layer = nn.LoRALinear(8, 8, rank=8, dropout=0.5)
    nn.init.normal(layer.lora_b)
    x = wg.ones((4, 8))
    assert not np.array_equal(layer(x).detach().numpy(), layer(x).detach().numpy())
    layer.eval()
    assert np.array_equal(layer(x).detach().numpy(), layer(x).detach().numpy())


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(wg.ArgumentError, match="at least 1, got 0"):
        nn.LoRALinear(4, 3, rank=0)
    for f in (lora.parameters, lora.state_dict, lora.merge, lora.unmerge):
        with pytest.raises(wg.ArgumentError, match="Linear has no adapters; lora.apply adds them"):
            f(nn.Linear(2, 2))

    class Held(nn.Module):
        def __init__(self) -> None:
            self.layers = (nn.Linear(2, 2),)

    with pytest.raises(wg.ArgumentError, match="tuple.*hold it in a list"):
        lora.apply(Held(), rank=1)
