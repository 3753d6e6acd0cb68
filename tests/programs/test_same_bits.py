"""Gradients and second derivatives have the same bits eagerly, in static graphs, inside compiled functions, and recomputed.

Random programs of composites and of ops on rows, in which values are used more than once: then the bits depend on the order
in which contributions are added, and on which values a derivative goes through.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import wengert as wg

N = 5
UNARY: list[Callable[[Any], Any]] = [
    wg.tanh,
    wg.sigmoid,
    wg.gelu,
    wg.silu,
    wg.mish,
    wg.softplus,
    wg.relu,
    lambda x: wg.exp(x * 0.3),
    lambda x: wg.softmax(x, -1),
    lambda x: wg.log_softmax(x, -1),
    lambda x: wg.layer_norm(x, (N,)),
    lambda x: wg.rms_norm(x, (N,)),
    lambda x: x - wg.logsumexp(x, -1, keepdims=True),
    lambda x: x / (1.0 + x.std(axis=-1, keepdims=True)),
    lambda x: x - x.mean(axis=0),
    lambda x: wg.cumsum(x, axis=-1),
    lambda x: x * x,
    lambda x: wg.tanh(x) * wg.sigmoid(x),
]
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a / (1.0 + b * b),
    lambda a, b: wg.where(a > b, a, b * 2.0),
    wg.maximum,
    lambda a, b: (a @ b) / 4.0,
    lambda a, b: wg.scaled_dot_product_attention(a[None], b[None], a[None])[0],
]


def _normal(seed: int, scale: float = 0.7) -> Any:
    return wg.asarray(np.random.default_rng(seed).normal(scale=scale, size=(N, N)).astype(np.float32))


def _program(seed: int) -> Callable[[Any, Any], Any]:
    """A random loss of two matrices."""
    choose = random.Random(seed)
    steps: list[tuple[Any, list[int]]] = []
    for known in range(2, choose.randint(4, 8)):
        functions: Sequence[Any] = UNARY if choose.random() < 0.6 else BINARY
        steps.append((choose.choice(functions), [choose.randrange(known) for _ in range(1 + (functions is BINARY))]))
    classes, target = wg.asarray(np.random.default_rng(seed).integers(0, N, N)), _normal(seed + 1)
    again = choose.randrange(2 + len(steps))
    losses: list[Callable[[Any], Any]] = [
        lambda h: wg.cross_entropy(h, classes),
        lambda h: wg.cross_entropy(h, classes),
        lambda h: wg.mse_loss(h, target),
        lambda h: wg.bce_with_logits(h, wg.sigmoid(target)),
        lambda h: wg.kl_div(wg.log_softmax(h, -1), wg.softmax(target, -1)),
        lambda h: (h * target).sum(),
    ]
    loss = choose.choice(losses)

    def f(x: Any, w: Any) -> Any:
        values = [x, w]
        for function, operands in steps:
            values.append(function(*(values[k] for k in operands)))
        return loss(values[-1] + values[again])

    return f


class Case:
    """A loss, where it is differentiated, and the directions of the second derivative."""

    def __init__(self, seed: int) -> None:
        f = _program(seed)
        self.f = lambda x, w: f(x, w) + 0.01 * (wg.sin(x) * wg.cos(w)).sum()  # so that it depends on both, twice
        self.xs = [_normal(seed + 2), _normal(seed + 3)]
        self.directions = [_normal(seed + 4, 1.0), _normal(seed + 5, 1.0)]

    def contracted(self, gradients: Sequence[Any]) -> Any:
        """The gradients in the directions."""
        first, second = ((g * v).sum() for g, v in zip(gradients, self.directions))
        return first + second

    def recorded(self) -> list[Any]:
        """By walks."""
        leaves = [x.clone().requires_grad_() for x in self.xs]
        gradients = wg.grad_of([self.f(*leaves)], leaves, create_graph=True)
        return [*gradients, *wg.grad_of([self.contracted(gradients)], leaves)]

    def functional(self, x: Any, w: Any) -> list[Any]:
        """By `grad` of `grad`."""
        by_both = wg.grad(self.f, (0, 1))
        return [*by_both(x, w), *wg.grad(lambda x, w: self.contracted(by_both(x, w)), (0, 1))(x, w)]

    def in_graph(self) -> list[Any]:
        """By `Graph.gradients`."""
        g = wg.Graph()
        xs = [g.variable(name, x.clone()) for name, x in zip("xw", self.xs)]
        gradients = g.gradients(self.f(*xs), xs)
        found: list[Any] = g.run([*gradients, *g.gradients(self.contracted(gradients), xs)])
        return found

    def under(self, **config: Any) -> list[Any]:
        """By walks that compute again what they do not keep."""
        with wg.checkpointing(wg.CheckpointConfig(**config)):
            return self.recorded()


WAYS: dict[str, Callable[[Case], list[Any]]] = {
    "grad of grad": lambda c: c.functional(*c.xs),
    "compiled": lambda c: list(wg.compile(c.functional)(*c.xs)),
    "graph": Case.in_graph,
    "full": lambda c: c.under(strategy="full"),
    "block": lambda c: c.under(strategy="block", checkpoint_every_n=3),
    "on disk": lambda c: c.under(strategy="full", offload="disk"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(0, 400, 20))
def test_second_derivatives(way: str, seed: int) -> None:
    case = Case(seed)
    expected, found = case.recorded(), WAYS[way](case)
    assert [wg.fingerprint(x) for x in found] == [wg.fingerprint(x) for x in expected]


def test_a_value_that_a_loss_and_its_derivative_read() -> None:
    """tanh leads back through its result, which cross entropy reads, too; its derivative reads the result twice."""
    x, w, v = _normal(0), _normal(1), _normal(2)
    classes = wg.tensor([0, 3, 1, 1, 4])

    def loss(w: Any) -> Any:
        return wg.cross_entropy(wg.tanh(x @ w), classes)

    def second(w: Any) -> Any:
        return wg.grad(lambda w: (wg.grad(loss)(w) * v).sum())(w)

    g = wg.Graph()
    node = g.variable("w", w.clone())
    (gradient,) = g.gradients(loss(node), [node])
    (found,) = g.gradients((gradient * v).sum(), [node])
    assert wg.fingerprint(g.run(found)) == wg.fingerprint(second(w)) == wg.fingerprint(wg.compile(second)(w))


def _by_direction(g: Callable[[Any], Any], k: int) -> Callable[[Any], Any]:
    return lambda x: (wg.grad(g)(x) * _normal(10 + k, 1.0)).sum()


THIRD: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: (wg.tanh(x) * wg.softmax(wg.sin(x), -1)).sum(),
    "layer_norm": lambda x: (wg.tanh(x) * wg.layer_norm(wg.tanh(x), (N,))).sum(),
    "std": lambda x: (x * x.std(axis=-1, keepdims=True)).sum(),
    "cross_entropy": lambda x: wg.cross_entropy(wg.tanh(x) * x, wg.tensor([0, 3, 1, 1, 4])),
}


@pytest.mark.parametrize("name", THIRD)
def test_third_derivatives(name: str) -> None:
    """A derivative program of a derivative program: residuals of the first are numbers without a past of their own."""
    third, x = wg.grad(_by_direction(_by_direction(THIRD[name], 0), 1)), _normal(3)
    assert wg.fingerprint(wg.compile(third)(x)) == wg.fingerprint(third(x))


def test_graphs_that_come_again_are_joined_with_the_same_bits() -> None:
    case = Case(7)
    leaves = [x.clone().requires_grad_() for x in case.xs]
    found = []
    for _ in range(6):
        grads = case.f(*leaves).backward()
        found.append(wg.fingerprint([grads[x] for x in leaves]))
        for x in leaves:
            x.grad = None
    assert set(found) == {wg.fingerprint(case.recorded()[:2])}
