"""Hooks of leaves whose gradient is final: when they are called, and what they may do."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import wengert as wg


def _leaf(*values: float) -> Any:
    return wg.tensor(list(values), dtype=wg.float64, requires_grad=True)


def test_leaves_are_announced_in_the_order_of_last_use_before_the_walk_ends() -> None:
    ws = [_leaf(1.0 + k, 2.0) for k in range(4)]
    events: list[Any] = []
    for k, w in enumerate(ws):
        w.register_post_accumulate_hook(lambda w, k=k: events.append((k, w.grad.tolist())))
    h = x = wg.ones((2,), dtype=wg.float64)
    for k, w in enumerate(ws):
        h = h * w
        h.register_hook(lambda g, k=k: events.append(f"h{k}"))
    h.sum().backward()
    assert [e if isinstance(e, str) else e[0] for e in events] == ["h3", 3, "h2", 2, "h1", 1, "h0", 0]
    for k, gradient in (e for e in events if not isinstance(e, str)):
        assert gradient == ws[k].grad.tolist()
    assert x.grad is None


def test_a_leaf_is_announced_once_after_its_last_contribution() -> None:
    w, v = _leaf(2.0), _leaf(3.0)
    calls: list[Any] = []
    w.register_post_accumulate_hook(lambda w: calls.append(("w", w.grad.item())))
    v.register_post_accumulate_hook(lambda v: calls.append(("v", v.grad.item())))
    y = w * w
    y = y * v + w * v * v
    (y * w).sum().backward()
    # w³v + w²v²: 3w²v + 2wv² and w³ + 2w²v
    # w is used first, so its last contribution comes last.
    assert calls == [("v", 8.0 + 2 * 4.0 * 3.0), ("w", 3 * 4.0 * 3.0 + 2 * 2.0 * 9.0)]


def test_gradients_are_the_same_with_and_without_hooks() -> None:
    def gradients(hooked: bool) -> list[Any]:
        ws = [_leaf(0.5, -1.0, 2.0) for _ in range(3)]
        if hooked:
            ws[1].register_post_accumulate_hook(lambda w: None)
        y = ws[0]
        for k in range(20):
            y = wg.tanh(y * ws[k % 3] + ws[(k + 1) % 3])
        (y * ws[0]).sum().backward()
        return [w.grad.tolist() for w in ws]

    assert gradients(True) == gradients(False)


def test_accumulated_gradients_are_final_in_each_pass() -> None:
    w = _leaf(2.0)
    seen: list[float] = []
    handle = w.register_post_accumulate_hook(lambda w: seen.append(w.grad.item()))
    (3.0 * w).backward(wg.ones_like(w))
    (w * w).backward(wg.ones_like(w))
    handle.remove()
    w.backward(wg.ones_like(w))
    assert seen == [3.0, 7.0] and w.grad.item() == 8.0


def test_a_root_that_is_a_leaf_is_announced() -> None:
    w = _leaf(2.0)
    seen: list[float] = []
    w.register_post_accumulate_hook(lambda w: seen.append(w.grad.item()))
    w.backward(wg.ones_like(w))
    assert seen == [1.0]


def test_a_parameter_can_be_updated_while_others_wait() -> None:
    ws = [wg.Parameter(wg.full((3,), 1.0 + k)) for k in range(3)]
    expected = [w.clone().detach() for w in ws]

    def update(w: Any) -> None:
        with wg.no_grad():
            w -= 0.5 * w.grad
        w.grad = None

    for w in ws:
        w.register_post_accumulate_hook(update)
    h = wg.ones((3,))
    for w in ws:
        h = wg.sin(h * w)
    grads = h.sum().backward()
    for w, before in zip(ws, expected):
        assert w.grad is None
        assert w.tolist() == (before - 0.5 * grads[w]).tolist()


def test_only_backward_announces_and_only_what_it_was_asked_for() -> None:
    w, v = _leaf(2.0), _leaf(3.0)
    seen: list[str] = []
    w.register_post_accumulate_hook(lambda _: seen.append("w"))
    v.register_post_accumulate_hook(lambda _: seen.append("v"))
    wg.grad_of((w * v).sum(), [w, v])
    with wg.GradientTape() as tape:
        y = (w * v).sum()
    tape.gradient(y, [w, v])
    assert seen == []
    (w * v).sum().backward(inputs=[v])
    assert seen == ["v"]


def test_a_hook_may_differentiate_something_else() -> None:
    w, v = _leaf(2.0), _leaf(3.0)
    inner: list[float] = []

    def hook(w: Any) -> None:
        with wg.enable_grad():
            inner.append((w.detach() * v * v).sum().backward(inputs=[v])[v].item())

    w.register_post_accumulate_hook(hook)
    ((w * w) * (w * v)).sum().backward()
    assert inner == [12.0]
    assert w.grad.item() == 3 * 4.0 * 3.0 and v.grad.item() == 8.0 + 12.0


def test_what_a_hook_raises_comes_out() -> None:
    w = _leaf(2.0)

    def fail(_: Any) -> None:
        raise KeyError("no room")

    handle = w.register_post_accumulate_hook(fail)
    with pytest.raises(KeyError, match="no room"):
        (w * w).sum().backward()
    handle.remove()
    w.grad = None
    (w * w).sum().backward()
    assert w.grad.item() == 4.0


def test_hooks_that_close_over_their_tensor_are_collected() -> None:
    w = _leaf(2.0)
    w.register_post_accumulate_hook(lambda _, w=w: None)
    gone = weakref.ref(w)
    (w * w).sum().backward()
    del w
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("tensor", [wg.ones((2,)), wg.ones((2,), requires_grad=True) * 2.0], ids=["constant", "result"])
def test_only_leaves_have_them(tensor: Any) -> None:
    with pytest.raises(wg.GradientError, match="not a leaf that requires a gradient; intermediates have register_hook"):
        tensor.register_post_accumulate_hook(lambda _: None)


def test_a_hook_is_a_function() -> None:
    with pytest.raises(TypeError, match="the hook must be a function of the tensor, got int"):
        _leaf(1.0).register_post_accumulate_hook(3)
