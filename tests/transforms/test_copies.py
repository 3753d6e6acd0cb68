"""Transformed functions are copied and pickled as what they were made of."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import wengert as wg
from wengert import nn


def loss(x: Any, y: Any, *, scale: float = 1.0) -> Any:
    return (x * x * y).sum() * scale


def loss_and_aux(x: Any, y: Any) -> Any:
    return loss(x, y), {"x": x}


MADE: dict[str, Callable[[], Any]] = {
    "grad": lambda: wg.grad(loss),
    "grad by both": lambda: wg.grad(loss, argnums=(0, 1)),
    "grad with aux": lambda: wg.grad(loss_and_aux, has_aux=True),
    "value_and_grad": lambda: wg.value_and_grad(loss, 1),
    "jacobian": lambda: wg.jacobian(loss, "forward", argnums=1),
    "jacfwd": lambda: wg.jacfwd(loss, 1),
    "jacrev": lambda: wg.jacrev(loss, argnums=1),
    "hessian": lambda: wg.hessian(loss),
    "grad of grad": lambda: wg.jacobian(wg.grad(loss)),
    "grad of compiled": lambda: wg.grad(wg.compile(loss)),
    "compiled grad": lambda: wg.compile(wg.grad(loss)),
    "vmap": lambda: wg.vmap(loss, in_axes=(0, 0)),
    "vmap of grad": lambda: wg.vmap(wg.grad(loss), (0, None), out_axes=-1),
    "per_sample_grad": lambda: wg.per_sample_grad(loss, argnums=1),
}
DUPLICATE: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda f: pickle.loads(pickle.dumps(f)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("duplicate", list(DUPLICATE))
@pytest.mark.parametrize("name", list(MADE))
def test_a_duplicate_computes_the_same(name: str, duplicate: str) -> None:
    f, x, y = MADE[name](), wg.tensor([1.0, 2.0]), wg.tensor([3.0, 5.0])
    g = DUPLICATE[duplicate](f)
    assert repr(g(x, y)) == repr(f(x, y))
    assert g is not f or name.startswith("vmap")  # of a function that is mapped anew nothing is traced anew
    assert (g.__name__, g.__doc__) == (f.__name__, f.__doc__)


def test_a_deep_copy_has_a_network_of_its_own() -> None:
    net = nn.Linear(2, 1)
    gradient = wg.grad(net)
    other = copy.deepcopy(gradient)
    with wg.no_grad():
        net.weight.zero_()
    assert gradient(wg.ones(2)).tolist() == [0.0, 0.0] and other(wg.ones(2)).tolist() != [0.0, 0.0]


def test_what_cannot_be_pickled_says_which_function() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(wg.grad(lambda x: x))


class Energy:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def energy(self, x: Any) -> Any:
        return self.scale * (x * x).sum()

    force = wg.grad(energy, argnums=1)


def test_in_a_class_it_is_a_method() -> None:
    assert Energy(2.0).force(wg.tensor([1.0, 3.0])).tolist() == [4.0, 12.0]
    assert Energy.force(Energy(2.0), wg.tensor([1.0])).tolist() == [4.0]


def test_the_gradient_of_a_bound_method_is_pickled_with_its_object() -> None:
    gradient = pickle.loads(pickle.dumps(wg.grad(Energy(3.0).energy)))
    assert gradient(wg.tensor([1.0])).tolist() == [6.0]
