"""How things print, and look in notebooks."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import wengert as wg
from wengert import nn, optim


def loss(x: Any, *, scale: float = 1.0) -> Any:
    return (x * x).sum() * scale


def test_transformed_functions() -> None:
    for transform in (wg.grad, wg.value_and_grad, wg.jacobian, wg.jacfwd, wg.jacrev, wg.hessian):
        made = transform(loss)
        name = f"{transform.__name__}(loss)"
        assert re.fullmatch(rf"<function {re.escape(name)} at 0x\w+>", repr(made)) and made.__name__ == name
        assert inspect.signature(made) == inspect.signature(loss) and "loss" in inspect.getdoc(made)
    assert "grad(grad(loss))" in repr(wg.grad(wg.grad(loss))) and "grad(Linear)" in repr(wg.grad(nn.Linear(1, 1)))
    assert "grad(<lambda>)" in repr(wg.grad(lambda x: x)) and "grad(max)" in repr(wg.grad(max))
    assert "pullback(loss)" in repr(wg.vjp(loss, wg.ones(2))[1])
    assert "pushforward(loss)" in repr(wg.linearize(loss, wg.ones(2))[1])


def test_compiled_functions() -> None:
    f = wg.compile(loss)
    assert repr(f) == "<compiled loss, traced 0 times>"
    f(wg.ones(2))
    assert repr(f) == "<compiled loss, traced 1 time>"
    f(wg.ones((2, 2)))
    assert repr(f) == "<compiled loss, traced 2 times>" and repr(wg.compile(wg.grad(f))).startswith(
        "<compiled grad(loss)"
    )
    assert inspect.signature(f) == inspect.signature(loss)


def test_schedulers() -> None:
    opt = optim.SGD([wg.Parameter.ones((1,))], lr=0.5)
    schedule = optim.schedules.cosine(10, final=0.1)
    assert repr(schedule) == "cosine(10, final=0.1)"
    scheduler = optim.Scheduler(opt, optim.schedules.chain(schedule, optim.schedules.exponential(0.5)))
    scheduler.step()
    expected = "Scheduler(SGD, chain(cosine(10, final=0.1), exponential(0.5)), step 1, lr 0.2445)"
    assert repr(scheduler) == expected
    assert repr(optim.ReduceOnPlateau(opt)).startswith("ReduceOnPlateau(SGD, min, factor=0.1, patience=10, best inf")


def test_dtypes() -> None:
    assert repr(wg.float32) == "wengert.float32" and str(wg.float32) == f"{wg.float32}" == "float32"


def test_gradient_maps_name_what_they_belong_to() -> None:
    net = nn.Linear(3, 2)
    x = wg.ones((4, 3), requires_grad=True)
    grads = (wg.ones((4, 1)) * net(x)).sum().backward()
    first, *lines = repr(grads).splitlines()
    assert first == f"GradientMap of 3 gradients, norm {grads.global_norm():.4g}"
    assert sorted(re.sub(" +", " ", s) for s in lines) == [
        f" net.bias float32(2,) norm {(32.0) ** 0.5:.4g}",
        f" net.weight float32(2, 3) norm {96.0**0.5:.4g}",
        f" x float32(4, 3) norm {float(wg.norm(grads[x])):.4g}",
    ]
    html = grads._repr_html_()
    assert html.startswith("<table>") and "<td>net.weight</td><td>float32(2, 3)</td>" in html
    assert repr(wg.GradientMap()) == "GradientMap of 0 gradients"
    unknown = (wg.ones((1,), requires_grad=True) * 2).sum().backward()
    assert re.search(r"\n  tensor \d+  float32\(1,\)  norm 2$", repr(unknown))


def test_large_gradient_maps_are_cut_off() -> None:
    grads = wg.GradientMap()
    for k in range(100):
        grads.insert(10**9 + k, wg.full((1,), 1j if k else float("nan")))
    assert len(repr(grads).splitlines()) == 32 and repr(grads).endswith("  and 70 more")
    assert "norm nan" in repr(grads) and "and 70 more" in grads._repr_html_()


def test_tensors_in_notebooks() -> None:
    matrix = wg.tensor([[1.0, 2.5], [float("nan"), -1e-9]], requires_grad=True)
    html = matrix._repr_html_()
    assert (
        "<caption>float32(2, 2), requires_grad</caption>" in html
        and "<td>2.5</td>" in html
        and "<td>-1e-09</td>" in html
    )
    large = wg.arange(10000).reshape(100, 100)._repr_html_()
    assert large.count("<tr>") == 14 and "…" in large and "<td>9999</td>" in large and "<td>5050</td>" not in large
    for x in (wg.ones(()), wg.ones(3), wg.ones((1, 2, 3)), wg.ones((0, 3)), wg.dual(wg.ones((2, 2)), wg.ones((2, 2)))):
        assert x._repr_html_().startswith("<pre>")


def test_modules_in_notebooks() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(3, 2)
            self.layer.bias.requires_grad = False

        def extra_repr(self) -> str:
            return "<script>"

    html = Odd()._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert (
        "<td>layer.weight</td><td>float32</td><td>(2, 3)</td><td>6</td><td></td>" in html and "<td>frozen</td>" in html
    )
    assert nn.ReLU()._repr_html_() == "<pre>ReLU()</pre>"


@pytest.mark.parametrize("seed", range(2))
def test_printing_a_map_changes_nothing(seed: int) -> None:
    x = wg.randn(3, generator=wg.Generator(seed=seed), requires_grad=True)
    grads = (x * x).sum().backward()
    before = grads[x].tolist()
    repr(grads), grads._repr_html_()
    assert grads[x].tolist() == before and list(grads.keys()) == [x.id]
