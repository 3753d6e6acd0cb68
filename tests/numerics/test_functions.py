"""Functions as programs: what they close over, which are the same, which cannot be traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.numerics.functions import Cache, as_function, is_differentiated, numbers_of

X = wg.asarray(np.array([1.0, 2.0]))


def test_what_is_closed_over_becomes_an_argument() -> None:
    w = wg.tensor([3.0, 4.0], dtype=wg.float64, requires_grad=True)
    doubled = w * 2.0
    made = as_function(lambda x: x * doubled + w, [X])
    assert made is not None and len(made.captured) == 2
    assert made(X, *made.captured).tolist() == [9.0, 20.0]
    assert made(X, *(wg.zeros_like(c) for c in made.captured)).tolist() == [0.0, 0.0]
    assert made.bare().captured == [] and made.bare().key is made.key


def test_functions_that_do_the_same_are_the_same() -> None:
    def scaled(c: float) -> Any:
        made = as_function(lambda x: wg.sin(x) * c, [X])
        assert made is not None
        return made.key

    assert scaled(2.0) == scaled(2.0) and hash(scaled(2.0)) == hash(scaled(2.0))
    assert scaled(2.0) != scaled(3.0) and scaled(0.0) != scaled(-0.0)
    other = as_function(lambda x: wg.sin(x) * 2.0, [wg.ones(2)])
    assert other is not None and other.key != scaled(2.0)  # of another dtype


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x if float(x[0]) > 0 else -x,
        lambda x: x + wg.randn(2),
        lambda x: x * wg.dual(wg.tensor(1.0), wg.tensor(1.0)),
    ],
)
def test_what_cannot_be_traced(f: Any) -> None:
    assert as_function(f, [X]) is None


def test_functions_with_effects_are_not_traced() -> None:
    counter = wg.zeros(())

    def f(x: Any) -> Any:
        counter.add_(1.0)
        return x

    assert as_function(f, [X]) is None
    assert counter.item() == 0.0


def test_the_cache_forgets_what_was_not_used() -> None:
    cache = Cache()
    for k in range(200):
        assert cache.get(k, lambda: object()) is cache.get(k, lambda: object())
    first = cache.get(199, lambda: object())
    assert cache.get(199, lambda: object()) is first
    made = []
    cache.get(0, lambda: made.append(1))
    assert made == [1]


def test_what_is_differentiated() -> None:
    assert not is_differentiated(X) and not is_differentiated(3.0) and not is_differentiated(wg.tensor([1]))
    tracked = wg.ones(2, requires_grad=True)
    assert is_differentiated(tracked) and is_differentiated(wg.dual(X, X))
    with wg.no_grad():
        assert not is_differentiated(tracked)
    with wg.GradientTape():
        assert is_differentiated(X)
    inner = numbers_of(wg.dual(tracked, tracked))
    assert inner._plain and not inner.requires_grad
