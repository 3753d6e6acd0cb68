"""Derivatives that are wrong. Each function takes what is checked and returns a loss; `RULES` has them by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import wengert as wg

RULES: dict[str, tuple[Callable[[Any], Any], Callable[..., Any]]] = {}  # name: the function, and where the fault is


def wrong(at: Callable[..., Any] | None = None) -> Callable[[Any], Any]:
    """Of a function with a wrong derivative; `at`: the rule that is at fault, if it is not the function itself."""

    def keep(f: Any) -> Any:
        RULES[f.__name__] = (f, at or f)
        return f

    return keep


def _ruled(forward: Callable[..., Any], rule: Callable[..., Any]) -> Any:
    op = wg.custom_op(forward)
    op.defvjp(rule)
    return op


def factor(y_bar: Any, y: Any, x: Any) -> Any:  # fault
    return 2.0 * x * x * y_bar


cube = _ruled(lambda x: x * x * x, factor)


@wrong(factor)
def a_wrong_factor(x: Any) -> Any:
    return wg.tanh(cube(x) * 0.5).sum()


def sign(y_bar: Any, y: Any, x: Any) -> Any:  # fault
    return wg.sin(x) * y_bar


cosine = _ruled(lambda x: wg.cos(x), sign)


@wrong(sign)
def a_wrong_sign(x: Any) -> Any:
    return (cosine(x) * x).mean()


class Scaled(wg.CustomOp):
    def forward(self, x: Any) -> Any:
        return 3.0 * x

    def backward(self, y_bar: Any, x: Any) -> Any:  # fault
        return y_bar


@wrong(Scaled.backward)
def a_rule_that_forgets_the_scale(x: Any) -> Any:
    return wg.exp(Scaled()(x)).sum()


def tangent(x_dot: Any, y: Any, x: Any) -> Any:  # fault
    return x_dot / y


root = wg.custom_op(lambda x: wg.sqrt(x * x + 1.0))
root.defjvp(tangent)


@wrong(tangent)
def a_wrong_tangent(x: Any) -> Any:
    return (root(x) * 2.0).sum()


def index(y_bar: Any, y: Any, x: Any) -> Any:  # fault
    return 2.0 * y_bar


flipped = _ruled(lambda x: wg.flip(x) * 2.0, index)


@wrong(index)
def a_derivative_by_the_wrong_index(x: Any) -> Any:
    return (flipped(x) * x).sum()


@wrong()
def a_detached_factor(x: Any) -> Any:
    y = wg.sin(x)
    scale = y.detach()  # fault
    return (x * scale).sum()


@wrong()
def a_factor_under_no_grad(x: Any) -> Any:
    with wg.no_grad():
        scale = wg.exp(x)  # fault
    return (x * scale).sum()
