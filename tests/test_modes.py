"""Recording on and off: blocks, decorators, calls; each thread its own."""

from __future__ import annotations

import threading

import pytest

import wengert as wg

X = wg.ones((2,), requires_grad=True)


def test_blocks_nest() -> None:
    assert wg.is_grad_enabled()
    with wg.no_grad():
        assert not wg.is_grad_enabled()
        with wg.enable_grad():
            assert wg.is_grad_enabled() and (X * 2).requires_grad
            with wg.no_grad():
                assert not (X * 2).requires_grad
            assert wg.is_grad_enabled()
        assert not wg.is_grad_enabled()
    assert wg.is_grad_enabled()


def test_blocks_restore_after_exceptions() -> None:
    with pytest.raises(KeyError), wg.no_grad():
        raise KeyError
    assert wg.is_grad_enabled()


def test_one_object_entered_twice() -> None:
    mode = wg.no_grad()
    with mode:
        with mode:
            pass
        assert not wg.is_grad_enabled()
    assert wg.is_grad_enabled()


def test_decorators() -> None:
    @wg.no_grad()
    def off(x: wg.Tensor) -> wg.Tensor:
        return x * 2

    @wg.enable_grad()
    def on(x: wg.Tensor) -> wg.Tensor:
        return x * 2

    assert not off(X).requires_grad and off.__name__ == "off"
    with wg.no_grad():
        assert on(X).requires_grad
    assert wg.is_grad_enabled()


def test_decorators_without_parentheses() -> None:
    @wg.no_grad
    def off(x: wg.Tensor) -> wg.Tensor:
        return x * 2

    assert not off(X).requires_grad


def test_a_decorated_generator_records_nothing_inside() -> None:
    @wg.no_grad()
    def numbers():
        for _ in range(2):
            yield (X * 2).requires_grad

    outside = []
    inside = []
    for flag in numbers():
        inside.append(flag)
        outside.append(wg.is_grad_enabled())
    assert inside == [False, False]
    assert outside == [True, True]


def test_set_grad_enabled_as_call_and_block() -> None:
    wg.set_grad_enabled(False)
    try:
        assert not wg.is_grad_enabled()
    finally:
        wg.set_grad_enabled(True)
    with wg.set_grad_enabled(False):
        assert not wg.is_grad_enabled()
    assert wg.is_grad_enabled()


def test_each_thread_has_its_own() -> None:
    seen = {}

    def work() -> None:
        seen["other"] = wg.is_grad_enabled()
        wg.set_grad_enabled(False)

    with wg.no_grad():
        t = threading.Thread(target=work)
        t.start()
        t.join()
        assert seen["other"] is True
    assert wg.is_grad_enabled()


def test_tensors_made_under_no_grad_may_still_be_leaves() -> None:
    with wg.no_grad():
        x = wg.ones((2,), requires_grad=True)
        y = x * 2
    assert x.requires_grad and not y.requires_grad
    assert (x * 3).sum().backward()[x].tolist() == [3.0, 3.0]


def test_transformations_record_under_no_grad() -> None:
    """wg.grad inside no_grad: what is asked for is computed."""
    with wg.no_grad():
        assert wg.grad(lambda x: (x * x).sum())(wg.tensor([3.0])).tolist() == [6.0]
        assert not wg.is_grad_enabled()


def test_transformations_respect_no_grad_inside() -> None:
    def f(x: wg.Tensor) -> wg.Tensor:
        with wg.no_grad():
            c = x * x
        return (c * x).sum()

    assert wg.grad(f)(wg.tensor([3.0])).tolist() == [9.0]
