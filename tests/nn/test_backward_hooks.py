"""Hooks on the gradients of a module's arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn


class Sum(nn.Module):
    def forward(self, a: Any, b: Any, factor: float) -> Any:
        return {"sum": a + b, "product": a * b * factor}


def test_hooks_see_and_replace_gradients() -> None:
    net, seen = Sum(), []

    def hook(module: Any, inputs: Any, outputs: Any) -> Any:
        seen.append((module, inputs, outputs))
        return inputs[0] * 10, inputs[1], None

    handle = net.register_full_backward_hook(hook)
    a, b = wg.tensor([1.0, 2.0], requires_grad=True), wg.tensor([3.0, 4.0], requires_grad=True)
    y = net(a, b, 2.0)
    (y["sum"] + y["product"] * 100.0).sum().backward()
    ((module, inputs, outputs),) = seen
    assert module is net and inputs[2] is None
    assert [g.tolist() for g in inputs[:2]] == [[601.0, 801.0], [201.0, 401.0]]
    assert [g.tolist() for g in outputs] == [[1.0, 1.0], [100.0, 100.0]]
    assert a.grad.tolist() == [6010.0, 8010.0] and b.grad.tolist() == [201.0, 401.0]
    handle.remove()
    net(a, b, 2.0)["sum"].sum().backward()
    assert len(seen) == 1


def test_arguments_without_gradients() -> None:
    layer, seen = nn.Linear(3, 2), []
    layer.register_full_backward_hook(lambda m, inputs, outputs: seen.append((inputs, outputs)))
    layer(wg.ones((4, 3))).sum().backward()
    ((inputs, outputs),) = seen
    assert inputs == (None,) and outputs[0].tolist() == np.ones((4, 2)).tolist() and layer.weight.grad is not None
    with wg.no_grad():
        layer(wg.ones((4, 3)))
    assert len(seen) == 1


def test_results_stay_the_same_and_second_order_works() -> None:
    layer = nn.Linear(3, 1, dtype="float64").requires_grad_(False)
    x = wg.randn(4, 3, dtype=wg.float64)
    f = lambda x: (layer(x) ** 3).sum()
    before = f(x).item(), wg.grad(f)(x).tolist(), wg.hessian(f)(x).tolist()
    layer.register_full_backward_hook(lambda m, inputs, outputs: None)
    np.testing.assert_allclose(f(x).item(), before[0], rtol=1e-13)
    np.testing.assert_allclose(wg.grad(f)(x).numpy(), before[1], rtol=1e-12)
    np.testing.assert_allclose(wg.hessian(f)(x).numpy(), before[2], rtol=1e-12)
    np.testing.assert_allclose(wg.jacrev(wg.jacrev(f))(x).numpy(), before[2], rtol=1e-12)


def test_a_wrong_number_of_gradients_is_named() -> None:
    net = nn.Linear(2, 2)
    net.register_full_backward_hook(lambda m, inputs, outputs: (None, None))
    with pytest.raises(wg.ArgumentError, match="hook of Linear returned 2 gradients for 1 arguments"):
        net(wg.ones((1, 2), requires_grad=True)).sum().backward()
