"""Backward passes that come again run as one joined program: with the walk's bits, gradients and errors."""

from __future__ import annotations

import gc
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
    for after in (0, 2):
        _core.join_after(after)
        before = runs()
        assert train(100, steps) == walked
        assert runs() - before >= 96


def gradients_of(f: Callable[..., Any], arrays: Any, after: int) -> list[bytes | None]:
    xs = [wg.tensor(a, requires_grad=True) for a in arrays]
    before = _core.join_after(after)
    try:
        f(*xs).sum().backward()
    finally:
        _core.join_after(before)
    return [None if x.grad is None else x.grad.numpy().tobytes() for x in xs]


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
