"""Layers against NumPy, and their gradients against finite differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn


def _numerical_gradient(f: Any, p: wg.Parameter, step: float = 1e-6) -> Any:
    start, g = p.numpy().copy(), np.zeros(p.shape)
    for i in np.ndindex(*p.shape):
        values = []
        for sign in (1, -1):
            moved = start.copy()
            moved[i] += sign * step
            with wg.no_grad():
                p.copy_(wg.tensor(moved))
                values.append(f().item())
        g[i] = (values[0] - values[1]) / (2 * step)
    with wg.no_grad():
        p.copy_(wg.tensor(start))
    return g


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 4, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape: tuple[int, ...], bias: bool) -> None:
    layer = nn.Linear(3, 2, bias=bias, dtype=wg.float64)
    x = np.random.default_rng(0).normal(size=shape)
    expected = x @ layer.weight.numpy().T + (layer.bias.numpy() if layer.bias is not None else 0.0)
    assert np.allclose(layer(wg.tensor(x)).detach().numpy(), expected)
    assert len(layer.parameters()) == 1 + bias


def test_linear_starts_as_in_pytorch() -> None:
    layer = nn.Linear(400, 300, generator=wg.Generator(seed=0))
    w, b, bound = layer.weight.numpy(), layer.bias.numpy(), 1 / math.sqrt(400)  # type: ignore[union-attr]
    assert np.abs(w).max() <= bound and np.abs(b).max() <= bound
    assert abs(w.std() - bound / math.sqrt(3)) < 1e-3 * bound * 3
    again = nn.Linear(400, 300, generator=wg.Generator(seed=0))
    assert np.array_equal(w, again.weight.numpy())


def test_linear_refuses_the_wrong_width() -> None:
    with pytest.raises(wg.ShapeError, match=r"\(5, 4\).*\(2, 3\)"):
        nn.Linear(3, 2)(wg.ones((5, 4)))
    with pytest.raises(wg.ArgumentError, match="negative"):
        nn.Linear(-1, 2)


def test_empty_batches_and_layers_work() -> None:
    assert nn.Linear(3, 2)(wg.ones((0, 3))).shape == (0, 2)
    assert nn.Linear(0, 2)(wg.ones((4, 0))).shape == (4, 2)


_erf = np.vectorize(math.erf)
_ACTIVATIONS: list[tuple[nn.Module, Any]] = [
    (nn.ReLU(), lambda x: np.maximum(x, 0)),
    (nn.Tanh(), np.tanh),
    (nn.Sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
    (nn.SiLU(), lambda x: x / (1 + np.exp(-x))),
    (nn.GELU(), lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2),
    (nn.GELU("tanh"), lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2),
    (nn.LeakyReLU(0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    (nn.ELU(1.5), lambda x: np.where(x > 0, x, 1.5 * (np.exp(x) - 1))),
    (nn.Softmax(), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    (nn.Softmax(0), lambda x: np.exp(x) / np.exp(x).sum(0, keepdims=True)),
    (nn.LogSoftmax(), lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
    (nn.Flatten(), lambda x: x.reshape(x.shape[0], -1)),
]


@pytest.mark.parametrize(("layer", "reference"), _ACTIVATIONS, ids=lambda v: type(v).__name__)
def test_activations(layer: nn.Module, reference: Any) -> None:
    x = np.random.default_rng(0).normal(size=(4, 5, 3))
    assert np.allclose(layer(wg.tensor(x)).numpy(), reference(x), atol=1e-12)
    assert not layer.parameters()


def test_layer_norm() -> None:
    x = np.random.default_rng(0).normal(2.0, 3.0, size=(4, 5, 3))
    layer = nn.LayerNorm((5, 3), dtype=wg.float64)
    layer.load_state_dict({"weight": np.full((5, 3), 2.0), "bias": np.full((5, 3), 0.5)})
    z = (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.var((1, 2), keepdims=True) + 1e-5)
    assert np.allclose(layer(wg.tensor(x)).detach().numpy(), 2.0 * z + 0.5)
    assert len(nn.LayerNorm(3).parameters()) == 2
    assert len(nn.LayerNorm(3, bias=False).parameters()) == 1
    assert len(nn.LayerNorm(3, elementwise_affine=False).parameters()) == 0


def test_dropout() -> None:
    layer = nn.Dropout(0.25, generator=wg.Generator(seed=0))
    x = wg.ones((10_000,), requires_grad=True)
    y = layer(x)
    kept = y.detach().numpy() != 0
    assert abs(kept.mean() - 0.75) < 0.02
    assert np.allclose(y.detach().numpy()[kept], 1 / 0.75)
    assert np.array_equal(y.sum().backward()[x].detach().numpy(), y.detach().numpy())
    assert layer.eval()(x) is x
    with pytest.raises(wg.ArgumentError, match="1.5"):
        nn.Dropout(1.5)


def test_sequential_and_module_list() -> None:
    layers = [nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)]
    net = nn.Sequential(*layers)
    assert len(net) == 3 and net[0] is layers[0] and list(net) == layers
    assert isinstance(net[:2], nn.Sequential) and len(net[:2]) == 2
    with pytest.raises(wg.ArgumentError, match="layer 1 is of type int"):
        nn.Sequential(layers[0], 3)  # type: ignore[arg-type]
    several = nn.ModuleList(layers[:1])
    several.append(layers[2])
    assert len(several) == 2 and next(n for n, _ in several.named_parameters()) == "0.weight"


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_losses(reduction: str) -> None:
    rng = np.random.default_rng(0)
    logits, target, weight = rng.normal(size=(6, 4)), rng.integers(0, 4, 6), rng.uniform(0.5, 2, 4)
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    each = -log_p[np.arange(6), target] * weight[target]
    expected = each.sum() / (weight[target].sum() if reduction == "mean" else 1)
    loss = nn.CrossEntropyLoss(wg.tensor(weight), reduction=reduction)
    assert np.isclose(loss(wg.tensor(logits), wg.tensor(target)).item(), expected)
    x, y = rng.normal(size=5), rng.normal(size=5)
    expected = ((x - y) ** 2).mean() if reduction == "mean" else ((x - y) ** 2).sum()
    assert np.isclose(nn.MSELoss(reduction=reduction)(wg.tensor(x), wg.tensor(y)).item(), expected)


def test_gradients_of_a_network_against_finite_differences() -> None:
    wg.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 4), nn.GELU(), nn.Linear(4, 3)).to(
        wg.float64
    )
    rng = np.random.default_rng(0)
    x, target = wg.tensor(rng.normal(size=(6, 3))), wg.tensor(rng.integers(0, 3, 6))
    loss = nn.CrossEntropyLoss()
    grads = loss(net(x), target).backward()
    for name, p in net.named_parameters():
        expected = _numerical_gradient(lambda: loss(net(x), target), p)
        assert np.allclose(grads[p].numpy(), expected, atol=1e-8), name
