"""Gradients that are None or zero. Each function takes the tensor in question and another one, and returns a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import wengert as wg

Planted = dict[str, tuple[Callable[[Any, Any], Any], str, Any]]  # name: function, words of the explanation, x
NONE: Planted = {}
ZERO: Planted = {}

_X = [0.5, -1.5, 2.0]


def _planted(table: Planted, words: str, x: Any = None) -> Callable[[Any], Any]:
    def keep(f: Any) -> Any:
        table[f.__name__] = (f, words, _X if x is None else x)
        return f

    return keep


def none(words: str) -> Callable[[Any], Any]:
    """Of a path that ends."""
    return _planted(NONE, words)


def zero(words: str, x: Any = None) -> Callable[[Any], Any]:
    """Of a gradient that is zero."""
    return _planted(ZERO, words, x)


@none("detached")
def detached(x: Any, w: Any) -> Any:
    target = x.detach()  # fault
    return ((target - w) ** 2).sum()


@none("detached")
def detached_and_computed_with(x: Any, w: Any) -> Any:
    start = x.detach()  # fault
    smooth = wg.tanh(start * 2.0) + 1.0
    return (smooth * w).mean()


@none("integers")
def cast_to_integers(x: Any, w: Any) -> Any:
    level = x.astype(wg.int32)  # fault
    return (level * w).sum()


@none("greater has no derivative")
def compared(x: Any, w: Any) -> Any:
    active = x > 0.0  # fault
    return wg.where(active, w, 0.0).sum()


@none("argmax has no derivative")
def index_of_the_largest(x: Any, w: Any) -> Any:
    best = x.argmax()  # fault
    return wg.take(w, best.reshape((1,)), axis=0).sum()


@none("no_grad")
def under_no_grad(x: Any, w: Any) -> Any:
    with wg.no_grad():
        features = wg.exp(x)  # fault
    return (features * w).sum()


@none("no_grad")
def under_a_decorator(x: Any, w: Any) -> Any:
    @wg.no_grad()
    def features(z: Any) -> Any:
        return z * 2.0  # fault

    return (features(x) * w).sum()


@none("sort has no derivative")
def order_of_elements(x: Any, w: Any) -> Any:
    order = wg.argsort(x)  # fault
    return (w * order).sum()


@zero("other factor is zero")
def multiplied_by_zero(x: Any, w: Any) -> Any:
    weight = 0.0
    penalty = (x * x * weight).sum()  # fault
    return (w * w).sum() + penalty


@zero("dead units", [-0.5, -1.5, -2.0])
def dead_relu(x: Any, w: Any) -> Any:
    h = wg.relu(x)  # fault
    return ((h + 1.0) * w).sum()


@zero("saturated", [200.0, 300.0, 150.0])
def saturated_sigmoid(x: Any, w: Any) -> Any:
    p = wg.sigmoid(x)  # fault
    return (p * w).sum()


@zero("saturated", [50.0, -30.0, 40.0])
def saturated_tanh(x: Any, w: Any) -> Any:
    h = wg.tanh(x)  # fault
    return (h * w).sum()


@zero("constant between jumps")
def rounded(x: Any, w: Any) -> Any:
    q = wg.round(x)  # fault
    return (q * w).sum()


@zero("outside the bounds", [5.0, -7.0, 9.0])
def clipped(x: Any, w: Any) -> Any:
    c = wg.clip(x, -1.0, 1.0)  # fault
    return (c * w).sum()


@zero("no element is taken")
def never_chosen(x: Any, w: Any) -> Any:
    y = wg.where(w > 100.0, x, w)  # fault
    return y.sum()


@zero("nowhere the larger")
def never_the_larger(x: Any, w: Any) -> Any:
    y = wg.maximum(x, w + 100.0)  # fault
    return y.sum()
