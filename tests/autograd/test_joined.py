"""Backward passes that come again run as one joined program: with the walk's bits, gradients and errors.

To all leaves, as `backward` walks, and to some of them, as `grad`, `grad_of`, `vjp` and `linearize` do.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import wengert as wg
from tests.programs.test_random_programs import SETTINGS, STEPS, inputs, programs
from wengert import _core, nn, optim

pytestmark = pytest.mark.filterwarnings("error:.*were not joined")


@pytest.fixture(autouse=True)
def _joins_as_by_default() -> Iterator[None]:
    before = _core.join_after(2)
    yield
    _core.join_after(before)


def runs() -> int:
    return int(_core.joined_counters()[1])


def bits(tensors: Any) -> list[bytes | None]:
    return [None if t is None else t.numpy().tobytes() for t in tensors]


def after(passes: int, f: Callable[[], Any]) -> Any:
    """f(), with graphs joined after this many equal passes; -1: never, 0: at once."""
    before = _core.join_after(passes)
    try:
        return f()
    finally:
        _core.join_after(before)


def network() -> Any:
    wg.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 3)
    )


def train(steps: int, keep: set[int]) -> dict[int, list[bytes]]:
    """Gradients and parameters after some of the steps."""
    net = network()
    optimizer = optim.Adam(net.parameters(), lr=1e-2)
    rng = np.random.default_rng(1)
    x, target = wg.tensor(rng.standard_normal((8, 6)).astype("f4")), wg.tensor(rng.integers(0, 3, 8))
    seen = {}
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        wg.cross_entropy(net(x), target).backward()
        gradients = [p.grad.numpy().tobytes() for p in net.parameters()]
        optimizer.step()
        if step in keep:
            seen[step] = gradients + [p.detach().numpy().tobytes() for p in net.parameters()]
    return seen


def test_training_has_the_bits_of_the_walk() -> None:
    """At steps 1, 2, 3, 4, and 100; the joined program runs from the fourth on, or from the first."""
    steps = {1, 2, 3, 4, 100}
    _core.join_after(-1)
    walked = train(100, steps)
    for passes in (0, 2):
        _core.join_after(passes)
        before = runs()
        assert train(100, steps) == walked
        assert runs() - before >= 96


def gradients_of(f: Callable[..., Any], arrays: Any, passes: int) -> list[bytes | None]:
    xs = [wg.tensor(a, requires_grad=True) for a in arrays]
    after(passes, lambda: f(*xs).sum().backward())
    return bits(x.grad for x in xs)


@given(programs(STEPS))
@settings(SETTINGS, max_examples=60)
def test_random_programs_have_the_bits_of_the_walk(drawn: Any) -> None:
    f, _, shape = drawn
    arrays = inputs(shape)
    assert gradients_of(f, arrays, 0) == gradients_of(f, arrays, -1)


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "one value used often": lambda x, w: sum((wg.sin(x * k) * x for k in range(1, 6)), x * w),
    "a graph that branches and meets": lambda x, w: (a := x * w) + wg.exp(b := a - w) * a / (b * b + 1),
    "views": lambda x, w: x[1:].reshape(-1)[:4] * w.T.reshape(-1)[2:6],
    "broadcasting": lambda x, w: x * w[0] + w[:, :1] - x.mean(axis=0),
    "sums over each axis": lambda x, w: wg.softmax(x, axis=0).sum(axis=1) + (x * w).sum(axis=(0,))[0],
    "several results": lambda x, w: wg.split(x, 2, axis=1)[0] * wg.max(w) + wg.sort(x, axis=1)[0, 0],
    "only some of several results": lambda x, w: wg.linalg.qr(x.T @ w + 3 * wg.eye(4))[1],
    "products": lambda x, w: (x @ w.T) @ (x @ w.T).T + wg.einsum("ij,kj->ik", x, w),
    "a leaf alone": lambda x, w: x + 0.0,
    "written in place": lambda x, w: (x * w).clone().add_(1.0).mul_(x),
    "cast": lambda x, w: (x.astype(wg.float64) * w).astype(wg.float32),
    "gathered": lambda x, w: x[wg.tensor([0, 1, 0])] * w[wg.tensor([1, 1, 2])],
    "compiled inside": wg.compile(lambda x, w: wg.tanh(x * w) + x),
    "rows": lambda x, w: wg.layer_norm(x, (4,)) * wg.log_softmax(w, axis=-1),
    "recorded under no_grad in part": lambda x, w: x * w.detach() + w,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_kinds_of_graphs(name: str) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 4)).astype("f4") + 0.1 for _ in range(2)]
    f = FUNCTIONS[name]
    joined, walked = gradients_of(f, arrays, 0), gradients_of(f, arrays, -1)
    assert joined == walked
    assert gradients_of(f, arrays, 0) == walked  # found again
    assert any(g is not None for g in walked)


def test_other_sizes_are_other_programs() -> None:
    """A batch size that changes gets programs of its own, a few of them, and then the walk."""

    def loss(x: Any) -> Any:
        return (wg.sin(x) * x).sum()

    for k in range(40):
        n = 2 + k % 7
        x = wg.tensor(np.linspace(0.1, 1.0, n), requires_grad=True)
        loss(x).backward()
        a = np.linspace(0.1, 1.0, n)
        np.testing.assert_allclose(x.grad.numpy(), np.cos(a) * a + np.sin(a), rtol=1e-12)


def test_hooks_are_called() -> None:
    """A graph with a hook is walked, also where the graph without it was joined."""
    x = wg.tensor([0.3, 0.4], requires_grad=True)
    calls = 0

    def loss(hooked: bool) -> None:
        nonlocal calls
        x.grad = None
        h = wg.exp(x)

        def double(g: Any) -> Any:
            nonlocal calls
            calls += 1
            return g * 2

        if hooked:
            h.register_hook(double)
        (h * h).sum().backward()

    for _ in range(6):
        loss(False)
    plain = x.grad.numpy()
    loss(True)
    assert calls == 1
    np.testing.assert_allclose(x.grad.numpy(), 2 * plain, rtol=1e-6)


def test_a_graph_whose_hooks_were_removed_is_joined() -> None:
    x = wg.tensor([0.3, 0.4], requires_grad=True)
    handle = x.register_hook(lambda g: g * 2)

    def step() -> None:
        (wg.exp(x) * x).sum().backward()

    for _ in range(6):
        step()
    before = runs()
    handle.remove()
    for _ in range(6):
        step()
    assert runs() > before


def test_retained_gradients_and_graphs() -> None:
    x = wg.tensor([0.5, 2.0], requires_grad=True)
    for _ in range(6):
        x.grad = None
        h = x * x
        h.retain_grad()
        y = (h * 3.0).sum()
        y.backward(retain_graph=True)
        assert h.grad.tolist() == [3.0, 3.0]
        y.backward()
        assert x.grad.tolist() == [6.0, 24.0]
    for _ in range(6):
        x.grad = None
        y = (x * x * 3.0).sum()
        y.backward(retain_graph=True)
        y.backward()
        assert x.grad.tolist() == [6.0, 24.0]


def test_a_graph_is_freed_and_says_so() -> None:
    x = wg.tensor([0.5, 2.0], requires_grad=True)
    for _ in range(6):
        y = (wg.sin(x) * x).sum()
        y.backward()
        with pytest.raises(wg.GradientError, match="freed by an earlier backward"):
            y.backward()


def test_what_was_saved_may_be_overwritten() -> None:
    """A write makes a new value: the pass reads the old one, whether it is joined or walked."""
    x = wg.tensor([0.5, 2.0], requires_grad=True)
    for _ in range(6):
        x.grad = None
        s = wg.exp(x * 1.0)
        y = (s * s).sum()
        with wg.no_grad():
            s.add_(1.0)
        y.backward()
        np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp([1.0, 4.0]), rtol=1e-5)


def test_what_was_overwritten_outside_raises() -> None:
    x = wg.tensor([0.5, 2.0], requires_grad=True)
    for k in range(6):
        weights = np.ones(2, "f4")
        w = wg.from_dlpack(weights)
        y = (x * w).sum()
        if k == 5:
            w += 1.0  # through the array's memory, which the graph cannot keep
            with pytest.raises(wg.InPlaceError, match="was changed in place"):
                y.backward()
        else:
            y.backward()


def test_a_zero_gradient_is_explained() -> None:
    """The walk notes where cotangents became zero; so a graph with a gradient of zeros is walked."""
    x = wg.tensor([-1.0, -2.0], requires_grad=True)
    for _ in range(6):
        x.grad = None
        loss = (wg.relu(x) * 2.0).sum()
        grads = loss.backward()
    assert x.grad.tolist() == [0.0, 0.0]
    assert "relu" in wg.explain(grads, x)


def test_accumulation_and_shared_gradients() -> None:
    """Two leaves of one cotangent have gradients of their own."""
    for _ in range(6):
        a, b = (wg.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        for _ in range(3):
            (a + b).backward(wg.tensor([1.0, 10.0]))
        assert a.grad.tolist() == b.grad.tolist() == [3.0, 30.0]
        a.grad.mul_(0.0)
        assert b.grad.tolist() == [3.0, 30.0]


def test_graphs_that_change_are_walked() -> None:
    x = wg.tensor([0.5, 2.0], requires_grad=True)
    before = _core.joined_counters()[0]
    rng = np.random.default_rng(0)
    for _ in range(60):
        x.grad = None
        n = int(rng.integers(1, 30))
        y = x
        for _ in range(n):
            y = y * 1.01
        y.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), 1.01**n, rtol=1e-5)
    assert _core.joined_counters()[0] - before <= 4


def test_nothing_is_left_behind() -> None:
    """What a joined pass saved is freed with it."""

    def step(w: Any) -> None:
        w.grad = None
        wg.tanh(w * w).sum().backward()

    w = wg.tensor(np.ones((64, 64), "f4"), requires_grad=True)
    for _ in range(8):
        step(w)
    gc.collect()
    live = wg.memory_stats().live_bytes
    for _ in range(20):
        step(w)
    gc.collect()
    assert wg.memory_stats().live_bytes <= live


def test_threads() -> None:
    failures = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        a = rng.standard_normal((40, 50))
        for _ in range(40):
            x = wg.tensor(a, requires_grad=True)
            (wg.sin(x) * x).sum().backward()
            if not np.allclose(x.grad.numpy(), np.cos(a) * a + np.sin(a)):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


# --------------------------------------------------------------------------------------------- to some of the leaves


def gradients_by(f: Callable[..., Any], arrays: Any, chosen: tuple[int, ...], passes: int) -> list[bytes | None]:
    xs = [wg.tensor(a, requires_grad=True) for a in arrays]
    return bits(after(passes, lambda: wg.grad_of(f(*xs).sum(), [xs[k] for k in chosen], allow_unused=True)))


@given(programs(STEPS))
@settings(SETTINGS, max_examples=60)
def test_random_programs_have_the_bits_of_the_walk_for_each_choice_of_leaves(drawn: Any) -> None:
    f, _, shape = drawn
    arrays = inputs(shape)
    for chosen in ((0,), (1,), (1, 0), (0, 1, 0)):
        assert gradients_by(f, arrays, chosen, 0) == gradients_by(f, arrays, chosen, -1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_kinds_of_graphs_for_each_choice_of_leaves(name: str) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 4)).astype("f4") + 0.1 for _ in range(2)]
    for chosen in ((0,), (1,), (1, 0), (1, 1)):
        walked = gradients_by(FUNCTIONS[name], arrays, chosen, -1)
        assert gradients_by(FUNCTIONS[name], arrays, chosen, 0) == walked
        assert gradients_by(FUNCTIONS[name], arrays, chosen, 0) == walked  # found again


def test_grad_is_joined() -> None:
    """From the fourth call on; with arguments and numbers that change."""
    gradient = wg.grad(lambda x, k: (wg.sin(x * k) * x).sum())
    xs = [wg.tensor(np.linspace(0.1, 1.0, 5) + k) for k in range(10)]
    walked = after(-1, lambda: bits(gradient(x, 0.5 * k) for k, x in enumerate(xs)))
    before = runs()
    assert bits(gradient(x, 0.5 * k) for k, x in enumerate(xs)) == walked
    assert runs() - before >= 5


def test_grad_of_functions_that_change() -> None:
    """Their structure, the sizes of their arguments and their branches."""
    rng = np.random.default_rng(0)

    def f(x: Any, kind: int) -> Any:
        for _ in range(kind % 3):
            x = wg.tanh(x) * 1.5
        return (x[1:] * x[:-1]).sum() if kind % 2 else (x * x).sum()

    calls = [(wg.tensor(rng.standard_normal(int(rng.integers(2, 5)))), int(rng.integers(0, 6))) for _ in range(80)]
    calls = [c for c in calls for _ in range(int(rng.integers(1, 5)))]
    everything = lambda: bits(wg.grad(f)(x, kind) for x, kind in calls)
    assert after(0, everything) == after(2, everything) == after(-1, everything)


def test_other_leaves_get_no_gradient_and_keep_their_graph() -> None:
    """What leads only to leaves that were not asked for is not freed, and nothing that it saved is read."""
    a, b = (wg.tensor([0.5, 2.0], requires_grad=True) for _ in range(2))
    before = runs()
    for _ in range(6):
        numbers = wg.from_dlpack(np.ones(2, "f4"))
        other = wg.exp(b) * numbers
        y = (wg.sin(a) * a + other * 2.0).sum()
        numbers += 1.0  # through the array's memory; saved for the gradient of b alone
        (g,) = wg.grad_of(y, [a])
        np.testing.assert_allclose(g.numpy(), np.cos(a.numpy()) * a.numpy() + np.sin(a.numpy()), rtol=1e-6)
        assert a.grad is None
        assert b.grad is None
        with pytest.raises(wg.InPlaceError):
            other.sum().backward()
        z = wg.exp(b)
        (g,) = wg.grad_of((z + a).sum(), [a])
        z.sum().backward()  # was not freed
        assert b.grad is not None
        b.grad = None
    assert runs() > before


def test_hooks_count_where_the_walk_goes() -> None:
    """On a leaf that was asked for, a hook is called; elsewhere it is not, and does not keep the graph from being joined."""
    a, b = (wg.tensor([0.5, 2.0], requires_grad=True) for _ in range(2))
    calls = []
    b.register_hook(lambda g: calls.append(1))

    def step(asked: Any) -> Any:
        return wg.grad_of((wg.exp(a) * b).sum(), asked)

    for _ in range(4):
        step([a])
    before = runs()
    np.testing.assert_array_equal(step([a])[0].numpy(), (wg.exp(a) * b).detach().numpy())
    assert runs() == before + 1
    assert not calls
    step([a, b])
    assert calls == [1]
    doubled = a.register_hook(lambda g: g * 2)
    np.testing.assert_array_equal(step([a])[0].numpy(), 2 * (wg.exp(a) * b).detach().numpy())
    doubled.remove()


def test_sources_that_are_not_reached() -> None:
    """None for them, and for integers; each of several equal ones has the gradient."""
    a, b, unused = (wg.tensor([0.5, 2.0], requires_grad=True) for _ in range(3))
    for _ in range(6):
        y = (a * b * b).sum()
        gradients = wg.grad_of(y, [unused, a, wg.tensor([1, 2]), b, a], allow_unused=True)
        assert [None if g is None else g.tolist() for g in gradients] == [
            None, [0.25, 4.0], None, [0.5, 8.0], [0.25, 4.0],
        ]  # fmt: skip
        gradients[1].mul_(0.0)
        assert gradients[4].tolist() == [0.25, 4.0]
        assert wg.grad_of((a * 2.0).sum(), [unused], allow_unused=True) == (None,)


def test_sources_inside_the_graph_are_walked_to() -> None:
    a = wg.tensor([0.5, 2.0], requires_grad=True)
    for _ in range(6):
        h = wg.exp(a)
        at_h, at_a = wg.grad_of((h * h).sum(), [h, a])
        np.testing.assert_allclose(at_h.numpy(), 2 * np.exp(a.numpy()), rtol=1e-6)
        np.testing.assert_allclose(at_a.numpy(), 2 * np.exp(2 * a.numpy()), rtol=1e-6)


def test_tapes_are_joined() -> None:
    """Their handles are leaves. What persistent ones compute is recorded, so they are walked."""
    w = wg.tensor([1.5, -2.0])

    def gradients(persistent: bool) -> list[bytes | None]:
        found = []
        for k in range(8):
            x = wg.tensor([0.5 + k, 2.0])
            with wg.GradientTape(persistent=persistent) as tape:
                y = (wg.sin(x) * x * w).sum()
            found += bits(g.detach() for g in tape.gradient(y, [x, w]))
            found += bits([tape.gradient(y, w).detach()]) if persistent else []
        return found

    for persistent in (False, True):
        walked = after(-1, lambda: gradients(persistent))
        before = runs()
        assert after(0, lambda: gradients(persistent)) == after(2, lambda: gradients(persistent)) == walked
        assert (runs() > before) is not persistent


def test_backward_to_inputs_accumulates() -> None:
    a, b = (wg.tensor([0.5, 2.0], requires_grad=True) for _ in range(2))
    before = runs()
    for k in range(1, 7):
        gradients = (a * b).sum().backward(inputs=[a])
        assert gradients[a].tolist() == [0.5, 2.0]
        assert a.grad.tolist() == [0.5 * k, 2.0 * k]
        assert b.grad is None
    assert runs() > before


def test_graphs_to_some_leaves_are_retained_or_freed() -> None:
    a, b = (wg.tensor([0.5, 2.0], requires_grad=True) for _ in range(2))
    for _ in range(6):
        y = (wg.exp(a) * b).sum()
        first = bits(wg.grad_of(y, [a], retain_graph=True))
        assert bits(wg.grad_of(y, [a])) == first
        with pytest.raises(wg.GradientError, match="freed by an earlier backward"):
            wg.grad_of(y, [a])


def test_passes_to_all_and_to_some_leaves_do_not_disturb_each_other() -> None:
    """Both begin at one place of the program, in turns."""
    a, b = (wg.tensor([0.5, 2.0], requires_grad=True) for _ in range(2))
    for k in range(8):
        before = runs()
        y = (wg.sin(a) * b).sum()
        (g,) = wg.grad_of(y, [b], retain_graph=True)
        b.grad = None
        y.backward()
        assert bits([g]) == bits([b.grad])
        assert k < 4 or runs() - before == 2


def test_nested_gradients() -> None:
    """The inner gradients are recorded; the walk through all of them can be joined."""
    second = wg.grad(wg.grad(lambda x: wg.sin(x) * x))
    third = wg.grad(lambda x: wg.grad(lambda x: wg.grad(lambda x: wg.sin(x) * x)(x) * 2.0)(x))
    hvp = lambda x: wg.hvp(lambda x: (wg.sin(x) * x * x).sum(), wg.ones(3) * x, wg.ones(3))
    xs = [wg.tensor(0.1 * k) for k in range(1, 9)]
    for f in (second, third, hvp):
        everything = lambda f=f: bits(map(f, xs))
        assert after(0, everything) == after(2, everything) == after(-1, everything)
    before = runs()
    bits(map(second, xs))
    assert runs() > before


def test_gradients_inside_tapes_and_beside_parameters() -> None:
    """What is to be differentiated again is recorded, so that pass is walked."""
    w = wg.tensor([1.5, -2.0], requires_grad=True)
    gradient = wg.grad(lambda z: (wg.sin(z) * z * w).sum())

    def everything() -> list[bytes | None]:
        found = []
        for k in range(6):
            x = wg.tensor([0.5 + k, 2.0])
            with wg.GradientTape() as tape:
                tape.watch(x)
                y = (gradient(x) ** 2).sum()
            found += bits([tape.gradient(y, x)])
            g = gradient(x)
            found += bits([g.detach(), *wg.grad_of(g.sum(), [w])])
            with wg.no_grad():
                found += bits([gradient(x)])
        return found

    before = runs()
    assert after(0, everything) == after(2, everything) == after(-1, everything)
    assert runs() > before


@pytest.mark.parametrize("several", [False, True])
def test_pushes_and_pulls_of_one_recording(several: bool) -> None:
    """A recorded graph is walked again and again: by pushes of `linearize` and by pulls of `vjp`."""
    rng = np.random.default_rng(0)
    x, w = (wg.tensor(rng.standard_normal(5)) for _ in range(2))
    f = (lambda x: (wg.sin(x * w), x[1:] * x[:-1])) if several else (lambda x: wg.cumsum(wg.sin(x * w)) * x)
    dots = [wg.tensor(rng.standard_normal(5)) for _ in range(8)]
    dots[5] = wg.zeros(5, dtype=wg.float64)

    def everything() -> list[bytes | None]:
        _, push = wg.linearize(f, x)
        y, pull = wg.vjp(f, x)
        pushed = [y_dot for d in dots for y_dot in (push(d) if several else [push(d)])]
        return bits(pushed) + bits(pull((d, d[1:]) if several else d)[0] for d in dots)

    before = runs()
    assert after(0, everything) == after(2, everything) == after(-1, everything)
    assert runs() > before


def test_a_push_that_is_differentiated() -> None:
    """Recorded pushes are walked, also between joined ones."""
    x, v = wg.tensor([0.5, 2.0]), wg.tensor([1.0, 3.0], requires_grad=True)
    _, push = wg.linearize(lambda x: wg.sin(x) * x, x)
    slope = (np.cos(x.numpy()) * x.numpy() + np.sin(x.numpy())).tolist()
    for _ in range(8):
        push(v.detach())
        v.grad = None
        push(v).sum().backward()
        assert v.grad.tolist() == pytest.approx(slope)


def test_saved_values_of_a_retained_graph_are_checked() -> None:
    """A joined pass reads what was recorded, not what was written since."""
    numbers = np.ones(2, "f4")
    w = wg.from_dlpack(numbers)
    _, pull = wg.vjp(lambda x: (x * w).sum(), wg.tensor([0.5, 2.0]))
    for _ in range(6):
        assert pull(wg.tensor(1.0))[0].tolist() == [1.0, 1.0]
    w += 1.0  # through the array's memory
    for _ in range(3):
        with pytest.raises(wg.InPlaceError, match="was changed in place"):
            pull(wg.tensor(1.0))


def test_a_seed_that_others_write_to_is_not_returned() -> None:
    _, pull = wg.vjp(lambda x: -(-x), wg.tensor([0.5, 2.0]))
    numbers = np.ones(2, "f4")
    gradients = []
    for k in range(6):
        numbers[:] = k
        gradients += pull(wg.from_dlpack(numbers))
    assert [g.tolist() for g in gradients] == [[float(k)] * 2 for k in range(6)]


def test_a_zero_gradient_to_some_leaves_is_explained() -> None:
    x, w = (wg.tensor([-1.0, -2.0], requires_grad=True) for _ in range(2))
    for _ in range(6):
        loss = (wg.relu(x) * w).sum()
        assert [g.tolist() for g in wg.grad_of(loss, [x])] == [[0.0, 0.0]]
    assert "zero" in wg.explain(loss, x)


def test_budgets_and_checks_are_walked() -> None:
    gradient = wg.grad(lambda x: (wg.sqrt(x) * x).sum())
    x = wg.tensor([1.0, 4.0])
    for _ in range(6):
        gradient(x)
    before = runs()
    with wg.detect_anomaly():
        gradient(x)
        with pytest.raises(wg.AnomalyError):
            gradient(wg.tensor([1.0, -4.0]))
    with wg.memory_budget(1024):
        gradient(x)
    assert runs() == before


def test_gradients_in_threads_beside_shared_parameters() -> None:
    w = wg.tensor(np.linspace(0.5, 1.5, 50), requires_grad=True)
    failures = []

    def work(seed: int) -> None:
        a = np.random.default_rng(seed).standard_normal((40, 50))
        for _ in range(40):
            with wg.no_grad():
                g = wg.grad(lambda x: (wg.sin(x) * x * w).sum())(wg.tensor(a))
            if not np.allclose(g.numpy(), (np.cos(a) * a + np.sin(a)) * w.detach().numpy()):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert w.grad is None


@pytest.fixture
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_threads_take_turns_often")
@pytest.mark.parametrize("passes", [-1, 0, 2])
def test_one_recording_in_many_threads(passes: int) -> None:
    """Passes over the same nodes overlap, because large work runs without the GIL."""
    x = wg.tensor(np.linspace(0.5, 1.5, 20000))
    slope = np.cos(x.numpy()) * x.numpy() + np.sin(x.numpy())
    failures = []

    def work(push: Any, k: int) -> None:
        for _ in range(10):
            if not np.allclose(push(wg.full(20000, float(k), dtype=wg.float64)).numpy(), k * slope):
                failures.append(k)

    def pushes() -> None:
        for _ in range(20):
            _, push = wg.linearize(lambda x: wg.sin(x) * x, x)
            threads = [threading.Thread(target=work, args=(push, k)) for k in range(1, 5)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()

    after(passes, pushes)
    assert not failures


@pytest.mark.usefixtures("_threads_take_turns_often")
@pytest.mark.parametrize("passes", [-1, 0, 2])
def test_one_leaf_in_many_threads(passes: int) -> None:
    """Each thread has a graph of its own, and the passes meet at the leaf."""
    w = wg.tensor(np.linspace(0.5, 1.5, 20000), requires_grad=True)
    at = w.detach().numpy()
    rising, growing = np.cos(at) * at + np.sin(at), np.exp(at)
    failures = []

    def work(k: int) -> None:
        for i in range(40):
            y = (wg.sin(w) * w * float(k) + wg.exp(w)).sum()
            g = wg.grad_of(y, [w])[0] if i % 2 else y.backward()[w]
            if not np.allclose(g.numpy(), k * rising + growing):
                failures.append((k, i))

    def train() -> None:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    after(passes, train)
    assert not failures
    np.testing.assert_allclose(w.grad.numpy(), 20 * (10 * rising + 4 * growing), rtol=1e-9)


def test_nothing_is_left_behind_by_gradients() -> None:
    w = wg.tensor(np.ones((64, 64), "f4"), requires_grad=True)
    gradient = wg.grad(lambda x: wg.tanh(x * w).sum())
    x = wg.tensor(np.ones((64, 64), "f4"))
    with wg.no_grad():
        for _ in range(8):
            gradient(x)
        gc.collect()
        live = wg.memory_stats().live_bytes
        for _ in range(20):
            gradient(x)
    gc.collect()
    assert wg.memory_stats().live_bytes <= live
