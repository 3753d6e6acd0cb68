"""Which traces a compiled function keeps, which it forgets, and which it finds again."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import wengert as wg
from wengert import _core

MOST = 128  # as core/trace_cache.h: kMostEntries


@pytest.mark.filterwarnings("ignore:.*many values")
def test_the_trace_that_was_not_used_longest_goes():
    """Of static values of which each has a trace, the last ones used stay."""
    seen = []

    @wg.compile(static="n")
    def f(x, n):
        seen.append(n)
        return x * n

    x = wg.ones(2)
    for n in range(MOST):
        f(x, n)
    f(x, 0)  # used again: now 1 is the oldest
    f(x, MOST)
    assert len(f.traces) <= MOST
    seen.clear()
    f(x, 0)
    f(x, 2)
    assert seen == []
    f(x, 1)
    assert seen == [1]


def test_traces_of_one_signature_are_told_apart_by_guards():
    """Which sizes are equal is not part of the signature, but of what a trace assumes."""
    traced = []

    @wg.compile
    def f(x, y):
        traced.append(x.shape)
        return x + y if x.shape[0] == y.shape[0] else x * 2

    for _ in range(3):
        assert f(wg.ones(3), wg.ones(3)).tolist() == [2.0, 2.0, 2.0]
        assert f(wg.ones(3), wg.ones(5)).tolist() == [2.0, 2.0, 2.0]
        assert f(wg.ones(4), wg.full((4,), 3.0)).tolist() == [4.0] * 4
    assert len(traced) == len(f.traces) == 2


@pytest.mark.filterwarnings("ignore:.*many values")
def test_a_call_inside_a_call_of_the_same_function():
    """A trace that runs stays, however many others come meanwhile."""
    calls = 0

    @wg.custom_op
    def inner(x):
        nonlocal calls
        calls += 1
        if calls == 1:
            for n in range(MOST + 5):
                f(wg.ones(1), n)  # more signatures than the cache keeps, while the first is running
        return wg.asarray(np.asarray(x.numpy()) + 1)

    @wg.compile(static="n")
    def f(x, n):
        return inner(x) + n

    assert f(wg.zeros(1), 1000).tolist() == [1001.0]
    assert f(wg.zeros(1), 1000).tolist() == [1001.0]


def test_what_traces_hold_goes_with_the_function():
    """Captured tensors are freed with the function, and through a cycle by the collector."""

    def make():
        w = wg.ones(3)

        @wg.compile
        def f(x):
            return x * w

        f.itself = f
        return f, weakref.ref(w)

    f, alive = make()
    f(wg.ones(3))
    assert alive() is not None
    del f
    gc.collect()
    assert alive() is None


def test_a_failed_trace_leaves_the_cache_as_it_was():
    """An exception in the function is not kept as a trace."""
    fails = True

    @wg.compile
    def f(x):
        if fails:
            raise RuntimeError("not yet")
        return x + 1

    with pytest.raises(RuntimeError, match="not yet"):
        f(wg.ones(1))
    assert f.traces == []
    fails = False
    assert f(wg.ones(1)).tolist() == [2.0]
    assert len(f.traces) == 1


def test_records_of_a_trace_are_checked():
    """What Python hands to the core is looked at before the executor trusts it."""
    with pytest.raises(TypeError):
        _core.TensorWrite(input=-1, output=0, recorded=True, op="add_")
    with pytest.raises(TypeError):
        _core.NumberGuard(0, 9, 1.0, True)  # no comparison
    with pytest.raises((TypeError, RuntimeError, ValueError)):
        _core.LeafGrad(0, _core.LeafGrad.Before.ABSENT, 99, 0, _core.LeafGrad.After.ADDED, 0)  # no dtype
