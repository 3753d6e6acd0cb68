"""Parametrisations: values, derivatives, states, compiled, and back to a plain parameter."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd
from wengert import nn


def linear() -> Any:
    return nn.Linear(4, 3, dtype="float64", generator=wg.Generator(seed=1))


def test_weight_norm_starts_where_the_weight_was() -> None:
    plain, layer = linear(), nn.weight_norm(linear())
    np.testing.assert_allclose(layer.weight.detach().numpy(), plain.weight.detach().numpy(), rtol=1e-14)
    assert [name for name, _ in layer.named_parameters()] == [
        "bias", "parametrizations.weight.original0", "parametrizations.weight.original1"
    ]  # fmt: skip
    assert isinstance(layer, nn.Linear) and type(plain) is nn.Linear
    layer.requires_grad_(False)
    g, v = (p.detach().numpy() for p in layer.parametrizations["weight"].parameters())

    def f(g: Any, v: Any) -> Any:
        given = {"parametrizations.weight.original0": g, "parametrizations.weight.original1": v}
        return nn.functional_call(layer, given, wg.ones((2, 4), dtype=wg.float64))

    fd.check(f, g * 1.5, v)
    np.testing.assert_allclose(
        f(wg.asarray(g * 2), wg.asarray(v * 5)).numpy() - plain.bias.detach().numpy(),
        2 * (np.ones((2, 4)) @ plain.weight.detach().numpy().T),
        rtol=1e-12,
    )


def test_spectral_norm_finds_the_largest_singular_value() -> None:
    layer = nn.spectral_norm(linear(), n_power_iterations=50)
    original = layer.parametrizations["weight"].original.detach().numpy()
    layer(wg.ones((1, 4), dtype=wg.float64))
    largest = np.linalg.svd(original, compute_uv=False)[0]
    np.testing.assert_allclose(layer.eval().weight.detach().numpy(), original / largest, rtol=1e-10)
    u = layer.state_dict()["parametrizations.weight.0._u"].numpy()
    layer(wg.ones((1, 4), dtype=wg.float64))
    np.testing.assert_array_equal(layer.state_dict()["parametrizations.weight.0._u"].numpy(), u)  # not while evaluating
    # Vectors are constants of the derivative: σ is uᵀ W v.
    v = layer.state_dict()["parametrizations.weight.0._v"].numpy()
    seed = fd.seeds([(3, 4)])[0]
    (layer.weight * wg.asarray(seed)).sum().backward()
    expected = fd.gradient(lambda w: (w / (u @ w @ v) * seed).sum(), [original])[0]
    np.testing.assert_allclose(layer.parametrizations["weight"].original.grad.numpy(), expected, rtol=1e-7)


@pytest.mark.parametrize("norm", [nn.weight_norm, nn.spectral_norm])
def test_training_steps_copies_and_states(norm: Any) -> None:
    layer = norm(linear())
    optimizer = wg.optim.SGD(layer.parameters(), 0.1)
    x, before = wg.ones((2, 4), dtype=wg.float64), layer.eval().weight.detach().numpy().copy()
    for _ in range(3):
        (layer(x) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not np.allclose(layer.weight.detach().numpy(), before)
    twin = copy.deepcopy(layer)
    other = norm(nn.Linear(4, 3, dtype="float64"))
    other.load_state_dict(layer.state_dict())
    for m in (twin, other.eval()):
        np.testing.assert_array_equal(m(x).detach().numpy(), layer(x).detach().numpy())
    compiled = wg.compile(lambda x: layer(x))
    np.testing.assert_allclose(compiled(x).detach().numpy(), layer(x).detach().numpy(), rtol=1e-13)


def test_compiled_functions_improve_the_singular_vectors_too() -> None:
    eager, traced = (nn.spectral_norm(linear(), generator=wg.Generator(seed=3)) for _ in range(2))
    f, x = wg.compile(lambda x: traced(x)), wg.ones((2, 4), dtype=wg.float64)
    for _ in range(3):
        np.testing.assert_allclose(f(x).detach().numpy(), eager(x).detach().numpy(), rtol=1e-12)
    key = "parametrizations.weight.0._u"
    np.testing.assert_allclose(traced.state_dict()[key].numpy(), eager.state_dict()[key].numpy(), rtol=1e-12)


class Symmetric(nn.Module):
    def forward(self, x: Any) -> Any:
        return wg.triu(x) + wg.triu(x, k=1).T


def test_ones_own_and_removing_it() -> None:
    layer = nn.register_parametrization(nn.Linear(3, 3, dtype="float64"), "weight", Symmetric())
    w = layer.weight.detach().numpy().copy()
    np.testing.assert_array_equal(w, w.T)
    layer.weight = wg.eye(3, dtype=wg.float64)
    assert layer.weight.tolist() == np.eye(3).tolist()
    nn.remove_parametrization(layer)
    assert isinstance(layer.weight, wg.Parameter) and sorted(layer.state_dict()) == ["bias", "weight"]
    assert layer.weight.tolist() == np.eye(3).tolist() and layer.weight.requires_grad


def test_bad_arguments_are_named() -> None:
    for call, message in [
        (lambda: nn.weight_norm(linear(), "wieght"), "has no parameter 'wieght'"),
        (lambda: nn.spectral_norm(linear(), "bias"), "two or more axes"),
        (lambda: nn.spectral_norm(linear(), n_power_iterations=0), "must be positive"),
        (lambda: nn.remove_parametrization(linear()), "is not parametrised"),
        (lambda: nn.weight_norm(nn.weight_norm(linear())), "has no parameter 'weight' of its own"),
    ]:
        with pytest.raises(wg.ArgumentError, match=message):
            call()
