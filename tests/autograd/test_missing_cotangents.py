"""Nodes with several outputs of which some have no cotangent: the others' derivative is computed, and no zeros are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.memory.statistics import reset_peak


def joint(x: Any, w: Any) -> tuple[Any, ...]:
    y = wg.tanh(x @ w)
    return y, y.sum(axis=0) * x[0], (x * x).mean()


def leaves(n: int = 3, dtype: Any = wg.float64) -> tuple[Any, Any]:
    wg.manual_seed(n)
    x, w = wg.randn(n, n, dtype=dtype), wg.randn(n, n, dtype=dtype)
    return x.requires_grad_(), w.requires_grad_()


def loss(outputs: Any, chosen: Any) -> Any:
    terms = [wg.sin(outputs[k] * (k + 1.5)).sum() for k in chosen]
    return sum(terms[1:], terms[0])


SUBSETS = [s for n in (1, 2) for s in itertools.combinations(range(3), n)]


@pytest.mark.parametrize("chosen", SUBSETS)
def test_some_of_the_outputs(chosen: tuple[int, ...]) -> None:
    compiled = wg.compile(joint)
    for n in (3, 5, 1, 4):  # sizes after those of which it was derived
        x, w = leaves(n)
        expected = wg.grad_of(loss(joint(x, w), chosen), (x, w), allow_unused=True)
        found = wg.grad_of(loss(compiled(x, w), chosen), (x, w), allow_unused=True)
        for a, b in zip(expected, found):
            if a is not None:
                np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-12)
            else:
                assert b is None or not b.numpy().any()


@pytest.mark.parametrize("chosen", SUBSETS)
def test_higher_orders(chosen: tuple[int, ...]) -> None:
    def third(f: Callable[..., Any]) -> Any:
        x, w = leaves()
        (first,) = wg.grad_of(loss(f(x, w), chosen), x, create_graph=True)
        (second,) = wg.grad_of((first * wg.cos(x)).sum(), x, create_graph=True)
        return wg.grad_of((second * x).sum(), (x, w), allow_unused=True)

    for a, b in zip(third(joint), third(wg.compile(joint))):
        a, b = (wg.zeros((3, 3)) if g is None else g for g in (a, b))
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-10, atol=1e-12)


def test_the_value_of_a_tracked_dual() -> None:
    x, w = leaves()
    x_dot = wg.randn(3, 3, dtype=wg.float64)

    def f(x: Any) -> Any:
        return (wg.tanh(x @ w) * x + x[0]).sum()

    y, y_dot = wg.jvp(f, (x,), (x_dot,))
    by_value = wg.grad_of(y, (x, w), retain_graph=True)
    for a, b in zip(by_value, wg.grad_of(f(x), (x, w))):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
    (found,) = wg.grad_of(y_dot, x)
    np.testing.assert_allclose(found.detach().numpy(), wg.hvp(f, x, x_dot).detach().numpy(), rtol=1e-11)


def test_no_zeros_are_made() -> None:
    n = 1 << 18
    f = wg.compile(lambda x: (wg.tanh(x), *(x * float(k) + 1.0 for k in range(8))))
    x = wg.randn(n).requires_grad_()

    def peak() -> int:
        y = f(x)[0]
        reset_peak()
        before = wg.memory_stats().live_bytes
        wg.grad_of(y, x, grad_outputs=wg.ones((n,)))
        return wg.memory_stats().peak_bytes - before

    peak()  # derives
    assert peak() < 4 * 4 * n  # one cotangent, one gradient; the eight others would be as large


def test_integer_outputs_need_none() -> None:
    x = wg.randn(6, dtype=wg.float64).requires_grad_()
    for _ in range(2):
        values, places = wg.topk(x, 3)
        (g,) = wg.grad_of((values * wg.asarray([1.0, 2.0, 3.0], dtype=wg.float64)).sum(), [x])
        expected = np.zeros(6)
        expected[places.numpy()] = [1.0, 2.0, 3.0]
        np.testing.assert_array_equal(g.numpy(), expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda g: wg.clip(g, -0.5, 0.5),
        wg.sign,
        lambda g: g * g,
        lambda g: g + wg.sign(g),
        lambda g: wg.where(g > 0, g, 0.0),
    ],
    ids=["clip", "sign", "square", "partly", "where"],
)
def test_rules_of_users_that_are_not_linear(change: Callable[[Any], Any]) -> None:
    @wg.custom_op
    def same(x: Any) -> Any:
        return x * 1.0

    same.defvjp(lambda y_bar, y, x: change(y_bar))

    def f(x: Any) -> tuple[Any, Any]:
        y = same(x * 2.0)
        return y, y + x

    x = wg.asarray([0.3, -2.0, 1.5], dtype=wg.float64).requires_grad_()
    weights = wg.asarray([2.0, -0.25, 0.1], dtype=wg.float64)
    for k in (0, 1):
        (expected,) = wg.grad_of((f(x)[k] * weights).sum(), x)
        (found,) = wg.grad_of((wg.compile(f)(x)[k] * weights).sum(), x)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


def test_more_subsets_than_are_kept() -> None:
    n = 6
    f = wg.compile(lambda x: tuple(wg.sin(x * float(k + 1)) for k in range(n)))
    x = wg.asarray([0.2, 0.7], dtype=wg.float64).requires_grad_()
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(n), k) for k in range(1, n)):
        ys = f(x)
        (found,) = wg.grad_of(sum((ys[k] for k in chosen[1:]), ys[chosen[0]]).sum(), x)
        expected = sum((k + 1) * np.cos((k + 1) * x.detach().numpy()) for k in chosen)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
