"""Hooks: when they run, what they may do."""

from __future__ import annotations

from typing import Any

import pytest

import wengert as wg


def test_hooks_run_in_order_and_may_be_removed() -> None:
    x = wg.tensor(1.0, requires_grad=True)
    first = x.register_hook(lambda g: g + 1)
    x.register_hook(lambda g: g * 10)
    assert (x * 2.0).backward()[x].item() == 30.0
    first.remove()
    first.remove()
    assert (x * 2.0).backward()[x].item() == 20.0


def test_a_hook_sees_the_whole_gradient_once() -> None:
    x = wg.tensor(3.0, requires_grad=True)
    seen: list[float] = []
    x.register_hook(lambda g: seen.append(g.item()))
    (x * x + x * 2.0 + x).backward()
    assert seen == [9.0]


def test_hooks_of_intermediates_change_what_flows_on() -> None:
    x = wg.tensor(3.0, requires_grad=True)
    h = x * x
    h.register_hook(lambda g: g * 0.5)
    assert (h * 4.0).backward()[x].item() == 12.0


def test_a_hook_that_returns_none_changes_nothing() -> None:
    x = wg.tensor(3.0, requires_grad=True)
    x.register_hook(lambda g: None)
    assert (x * x).backward()[x].item() == 6.0


def test_a_hook_may_remove_itself_and_others() -> None:
    x = wg.tensor(1.0, requires_grad=True)
    handles: list[Any] = []

    def once(g: Any) -> Any:
        for h in handles:
            h.remove()
        return g * 100

    handles += [x.register_hook(once), x.register_hook(lambda g: g + 1)]
    (x * 2.0).backward()
    assert (x * 2.0).backward()[x].item() == 2.0


def test_a_hook_may_call_backward() -> None:
    x, z = wg.tensor(3.0, requires_grad=True), wg.tensor(2.0, requires_grad=True)

    def inner(g: Any) -> Any:
        with wg.enable_grad():
            other = (z * z * z).backward()[z]
        return g * other

    h = x * x
    h.register_hook(inner)
    assert (h * 1.0).backward()[x].item() == 72.0
    assert z.grad.item() == 12.0


def test_a_hook_may_differentiate_the_same_leaf() -> None:
    x = wg.tensor(3.0, requires_grad=True)
    calls: list[float] = []

    def inner(g: Any) -> None:
        if not calls:
            calls.append(1.0)
            with wg.enable_grad():
                (x * 5.0).backward()

    x.register_hook(inner)
    (x * x).backward()
    assert x.grad.item() == 11.0


def test_an_exception_in_a_hook_arrives_and_nothing_breaks() -> None:
    x = wg.tensor(3.0, requires_grad=True)
    handle = x.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (x * x).backward()
    handle.remove()
    x.grad = None
    assert (x * x).backward()[x].item() == 6.0


def test_a_hook_that_returns_nonsense() -> None:
    x = wg.tensor([3.0, 1.0], requires_grad=True)
    handle = x.register_hook(lambda g: wg.ones(5))
    with pytest.raises(wg.WengertError, match="hook"):
        (x * x).sum().backward()
    handle.remove()
    handle = x.register_hook(lambda g: "text")
    with pytest.raises((TypeError, wg.WengertError)):
        (x * x).sum().backward()
    handle.remove()
    assert (x * x).sum().backward()[x].tolist() == [6.0, 2.0]


def test_hooks_run_under_create_graph_and_are_differentiated() -> None:
    x = wg.tensor(3.0, requires_grad=True)
    handle = x.register_hook(lambda g: g * g)
    g = (x * x).backward(create_graph=True)[x]
    assert g.item() == 36.0
    handle.remove()
    (second,) = wg.grad_of(g, x)
    assert second.item() == 24.0  # (2x)² → 8x


def test_hooks_under_inputs() -> None:
    x = wg.tensor(3.0, requires_grad=True)
    x.register_hook(lambda g: g * 2)
    assert (x * x).backward(inputs=[x])[x].item() == 12.0


def test_hooks_of_what_is_not_tracked() -> None:
    with pytest.raises(wg.GradientError):
        wg.ones(2).register_hook(lambda g: g)


def test_hooks_do_not_keep_the_graph_alive() -> None:
    before = wg.memory_stats().live_bytes
    x = wg.ones((1000,), requires_grad=True)
    h = x * 2.0
    h.register_hook(lambda g: g)
    del h, x
    assert wg.memory_stats().live_bytes == before


def test_a_hook_is_callable() -> None:
    x = wg.tensor(1.0, requires_grad=True)
    with pytest.raises(TypeError, match="the hook must be a function of the gradient, got int"):
        x.register_hook(3)


@pytest.mark.parametrize("final", [False, True])
def test_removing_a_hook_twice_leaves_the_other_registration(final: bool) -> None:
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    register = x.register_post_accumulate_hook if final else x.register_hook
    calls = []

    def hook(_: Any) -> None:
        calls.append(1)

    first, _second = register(hook), register(hook)
    first.remove()
    first.remove()
    (x * x).sum().backward()
    assert len(calls) == 1
