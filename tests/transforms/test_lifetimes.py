"""How long a transformation's recording lives: no longer than its function runs, unless an outer derivative needs it."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import _core

X = wg.tensor([0.5, -1.5, 2.0], dtype=wg.float64)
W = wg.tensor([1.5, 0.25, -0.75], dtype=wg.float64)


def energy(h: Any, w: Any) -> Any:
    return (h * h * h * w).sum()


# Each takes w and differentiates `energy` by h on the way. The gradient by w of all of them is known.
NESTED: dict[str, Callable[[Any], Any]] = {
    "grad": lambda w: wg.grad(lambda h: energy(h, w))(X).sum(),
    "value_and_grad": lambda w: wg.value_and_grad(lambda h: energy(h, w))(X)[1].sum(),
    "vjp": lambda w: wg.vjp(lambda h: h * h * h * w, X)[1](wg.ones_like(X))[0].sum(),
    "jacrev": lambda w: wg.jacrev(lambda h: h * h * h * w)(X).sum(),
    "jvp": lambda w: wg.jvp(lambda h: energy(h, w), (X,), (wg.ones_like(X),))[1],
    "linearize": lambda w: wg.linearize(lambda h: energy(h, w), X)[1](wg.ones_like(X)),
    "compiled": lambda w: wg.grad(wg.compile(lambda h: energy(h, w)))(X).sum(),
}


@pytest.mark.parametrize("inner", list(NESTED))
@pytest.mark.parametrize("outer", ["grad", "jacrev", "vjp", "linearize"])
def test_the_result_for_a_plain_tensor_is_plain(outer: str, inner: str) -> None:
    f = NESTED[inner]
    by_outer: dict[str, Callable[[], Any]] = {
        "grad": lambda: wg.grad(f)(W),
        "jacrev": lambda: wg.jacrev(f)(W),
        "vjp": lambda: wg.vjp(f, W)[1](wg.tensor(1.0, dtype=wg.float64))[0],
        "linearize": lambda: wg.linearize(f, W)[1](wg.tensor([1.0, 0.0, 0.0], dtype=wg.float64)),
    }
    g = by_outer[outer]()
    assert not g.requires_grad
    assert _core.node_of(g) is None, "the graph is gone"
    expected = 3 * X.numpy() ** 2
    np.testing.assert_allclose(g.numpy(), expected[0] if outer == "linearize" else expected, rtol=1e-14)


def test_a_gradient_that_does_not_depend_on_the_outer_variable_is_not_recorded() -> None:
    w = wg.tensor(2.0, dtype=wg.float64, requires_grad=True)
    g = wg.grad(lambda h: (h * h * h).sum() + w)(X)
    assert not g.requires_grad
    g = wg.grad(lambda h: (h * h * h).sum() * w)(X)
    assert g.requires_grad
    np.testing.assert_allclose(wg.grad_of(g.sum(), w)[0].item(), (3 * X.numpy() ** 2).sum(), rtol=1e-14)


def test_what_a_function_leaves_outside_is_not_tracked() -> None:
    kept = []

    def f(h: Any) -> Any:
        kept.append(h * h)
        assert kept[-1].requires_grad
        return kept[-1].sum()

    wg.grad(f)(X)
    assert not kept[0].requires_grad
    assert _core.node_of(kept[0] * 2.0) is None


def test_the_value_is_differentiated_by_what_it_depends_on_besides() -> None:
    w = wg.tensor(W.numpy(), requires_grad=True)
    value, g = wg.value_and_grad(lambda h: energy(h, w))(X)
    np.testing.assert_allclose(wg.grad_of(value, w, retain_graph=True)[0].numpy(), X.numpy() ** 3, rtol=1e-14)
    np.testing.assert_allclose(wg.grad_of(g.sum(), w)[0].numpy(), 3 * X.numpy() ** 2, rtol=1e-14)


def test_a_function_that_works_in_other_threads() -> None:
    def f(h: Any) -> Any:
        parts: list[Any] = [None] * 3

        def work(k: int) -> None:
            parts[k] = h[k] * h[k]

        threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return parts[0] + parts[1] + parts[2]

    np.testing.assert_allclose(wg.grad(f)(X).numpy(), 2 * X.numpy(), rtol=1e-14)


def test_a_tape_that_stops_inside_a_function_leaves_it_tracked() -> None:
    y = wg.tensor(3.0, dtype=wg.float64)
    tape = wg.GradientTape()
    tape.start_recording()

    def f(h: Any) -> Any:
        product = h * y
        tape.stop_recording()
        return (product * h).sum()

    np.testing.assert_allclose(wg.grad(f)(X).numpy(), 2 * X.numpy() * 3.0, rtol=1e-14)


def test_a_tape_around_a_transformation_sees_through_it() -> None:
    with wg.GradientTape() as tape:
        g = wg.grad(lambda h: (h * h * h).sum())(X)
    np.testing.assert_allclose(tape.gradient(g, X).numpy(), 6 * X.numpy(), rtol=1e-14)
    untracked = wg.tensor(X.numpy(), requires_grad=False)
    with wg.GradientTape() as tape:
        g = wg.grad(lambda h: (h * h * h).sum())(untracked)
    np.testing.assert_allclose(g.numpy(), 3 * X.numpy() ** 2, rtol=1e-14)
    assert tape.gradient(g, untracked) is None


def test_a_failing_function_ends_what_it_was_tracked_for() -> None:
    kept = []

    def f(h: Any) -> Any:
        kept.append(h * 2.0)
        raise RuntimeError("no value")

    with pytest.raises(RuntimeError, match="no value"):
        wg.grad(f)(X)
    assert not kept[0].requires_grad


def calls_in(f: Callable[[], Any]) -> int:
    """Calls of Python and C functions while f runs: what it does, without a clock."""
    n = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal n
        n += event in ("call", "c_call")

    gc.disable()  # a collection calls back whoever asked for it: Hypothesis, where one of its tests has run
    sys.setprofile(count)
    try:
        f()
    finally:
        sys.setprofile(None)
        gc.enable()
    return n


@pytest.mark.parametrize("inner", list(NESTED))
def test_an_iteration_over_nested_derivatives_stays_flat(inner: str) -> None:
    g = wg.grad(NESTED[inner])
    w = W

    def step() -> None:
        nonlocal w
        w = w - 1e-3 * g(w)

    for _ in range(5):
        step()
    gc.collect()
    calls, live = calls_in(step), _core.memory_stats()["live_bytes"]
    for _ in range(50):
        step()
    assert calls_in(step) == calls
    gc.collect()
    assert _core.memory_stats()["live_bytes"] <= live


@pytest.mark.parametrize(
    "f",
    [
        lambda x: wg.sort(x),
        lambda x: wg.sort(x * x, descending=True),
        lambda x: wg.topk(wg.sin(x), 2)[0],
        lambda x: wg.cummin(x * x)[0],
        lambda x: wg.median(wg.exp(x)),
        lambda x: wg.max(x * x, axis=0, return_indices=True)[0],
    ],
    ids=["sort", "sort descending", "topk", "cummin", "median", "max"],
)
def test_positions_that_are_kept_lead_nowhere(f: Callable[[Any], Any]) -> None:
    """Ops of two results keep the integers among them; derivatives that read those have no edge to the op."""
    g = wg.grad(lambda x: (wg.grad(lambda x: f(x).sum())(x) * x).sum())(wg.tensor([3.0, 1.0, 2.0, 5.0]))
    assert not g.requires_grad and wg.compile(lambda x: x)(g).is_leaf


def descent(steps: int) -> Callable[[Any], Any]:
    """The loss after some steps of gradient descent, as a function of where it starts."""
    loss = lambda w: ((w * w - 1.0) * w).sum()

    def end(w: Any) -> Any:
        for _ in range(steps):
            w = w - 0.01 * wg.grad(loss)(w)
        return loss(w)

    return end


def test_reverse_over_reverse_in_a_loop() -> None:
    f = descent(20)
    start = np.array([0.3, 0.7])
    g = wg.grad(f)(wg.tensor(start)).numpy()
    for k in range(2):
        h = 1e-5 * np.eye(2)[k]
        difference = f(wg.tensor(start + h)).item() - f(wg.tensor(start - h)).item()
        np.testing.assert_allclose(g[k], difference / 2e-5, rtol=1e-7)


def test_reverse_over_reverse_in_a_loop_costs_the_same_for_every_step() -> None:
    start = wg.tensor([0.3, 0.7], dtype=wg.float64)
    costs = {}
    for steps in (10, 20, 40):
        g = wg.grad(descent(steps))
        g(start)
        costs[steps] = calls_in(lambda g=g: g(start))
    assert costs[40] - costs[20] < 2.2 * (costs[20] - costs[10])


def test_results_that_are_views_of_what_was_written_later() -> None:
    """Their gradient is that of the written tensor, though they are read only after the function has returned."""

    def row_first(x: Any) -> Any:
        y = x * 2.0
        row = y[0]
        y *= x
        return row

    def transposed_first(x: Any) -> Any:
        a = wg.sin(x)
        b = a.T
        a.mul_(x)
        return b

    x, seed = wg.tensor([[0.5, 0.7], [0.9, 1.1]]), wg.tensor([1.0, 2.0])
    pulled = wg.compile(lambda x, c: wg.vjp(row_first, x)[1](c)[0])(x, seed)
    np.testing.assert_allclose(pulled.numpy(), [[4 * 0.5, 2 * 4 * 0.7], [0.0, 0.0]], rtol=1e-6)

    value, tangent = wg.jvp(lambda x: wg.vjp(transposed_first, x)[1](wg.ones((2, 2)))[0], (x,), (wg.ones((2, 2)),))
    a = x.numpy()
    np.testing.assert_allclose(value.numpy(), np.sin(a) + a * np.cos(a), rtol=1e-6)
    np.testing.assert_allclose(tangent.numpy(), 2 * np.cos(a) - a * np.sin(a), rtol=1e-6)
