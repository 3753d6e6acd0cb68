"""Training steps as people write them, compiled whole: each is compared with the same step that runs op by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn

Step = Callable[..., Any]


class World:
    """A network, an optimizer, and what else a step changes; two of them are built alike."""

    def __init__(self, optimizer: Callable[[Any], Any] | None = None, net: Any = None) -> None:
        wg.manual_seed(0)
        self.net = small_net() if net is None else net()
        self.optimizer = (optimizer or (lambda p: wg.optim.Adam(p, lr=1e-2)))(self.net.parameters())
        self.more: dict[str, Any] = {}

    def state(self) -> dict[str, Any]:
        found = {f"net.{k}": v.numpy() for k, v in self.net.state_dict().items()}
        found.update({f"{k}.grad": grad_of(p) for k, p in self.net.named_parameters()})
        found.update(flat("optimizer", self.optimizer.state_dict()))
        for name, x in self.more.items():
            found.update(flat(name, x.state_dict()))
        return found


def grad_of(p: Any) -> Any:
    return None if p.grad is None else p.grad.numpy().copy()


def flat(name: str, x: Any) -> dict[str, Any]:
    if isinstance(x, dict):
        return {k: v for key, y in x.items() for k, v in flat(f"{name}.{key}", y).items()}
    if isinstance(x, (list, tuple)):
        return {k: v for i, y in enumerate(x) for k, v in flat(f"{name}.{i}", y).items()}
    return {name: x.detach().numpy().copy() if isinstance(x, wg.Tensor) else x}


def small_net() -> Any:
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3), nn.LayerNorm(3)
    )


def vectors(k: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(k)
    return wg.asarray(rng.normal(size=(16, 6)).astype(np.float32)), wg.asarray(rng.integers(0, 3, 16))


def assert_same(a: dict[str, Any], b: dict[str, Any], rtol: float) -> None:
    assert a.keys() == b.keys()
    for key, x in a.items():
        if isinstance(x, np.ndarray) and rtol:
            np.testing.assert_allclose(b[key], x, rtol=rtol, atol=rtol, err_msg=key)
        elif isinstance(x, np.ndarray):
            np.testing.assert_array_equal(b[key], x, err_msg=key)
        else:
            assert b[key] == x, key


def compare(
    make: Callable[[], World],
    step: Callable[[World], Step],
    *,
    calls: int = 8,
    batch: Callable[[int], Any] = vectors,
    between: Callable[[World, int], None] | None = None,
    traces: int | None = 1,
    rtol: float = 0.0,
) -> Any:
    """Run the step on two worlds, op by op and compiled; everything is the same after every call."""
    plain, own = make(), make()
    eager, compiled = step(plain), wg.compile(step(own))
    generators: list[Any] = []
    for w, f in ((plain, eager), (own, compiled)):
        wg.manual_seed(1)
        results = []
        for k in range(calls):
            if between is not None:
                between(w, k)
            y = f(*batch(k))
            results.append((flat("result", y), w.state()))
        generators.append(wg.rand(4).tolist())
        if w is plain:
            expected = results
    for (y, s), (own_y, own_s) in zip(expected, results):
        assert_same(y, own_y, rtol)
        assert_same(s, own_s, rtol)
    assert generators[0] == generators[1], "as many random numbers are drawn"
    assert traces is None or len(compiled.traces) == traces
    return compiled


# ------------------------------------------------------------------------------------------------- ways to write a step


def usual(w: World) -> Step:
    def step(x: Any, t: Any) -> Any:
        w.optimizer.zero_grad()
        loss = wg.cross_entropy(w.net(x), t)
        loss.backward()
        w.optimizer.step()
        return loss

    return step


def zero_last(w: World) -> Step:
    def step(x: Any, t: Any) -> Any:
        loss = wg.cross_entropy(w.net(x), t)
        loss.backward()
        w.optimizer.step()
        w.net.zero_grad()
        return loss

    return step


def zeros_instead_of_none(w: World) -> Step:
    def step(x: Any, t: Any) -> Any:
        w.optimizer.zero_grad(set_to_none=False)
        loss = wg.cross_entropy(w.net(x), t)
        loss.backward()
        w.optimizer.step()
        return loss

    return step


def clipped_by_norm(w: World) -> Step:
    def step(x: Any, t: Any) -> Any:
        w.optimizer.zero_grad()
        loss = wg.cross_entropy(w.net(x), t)
        loss.backward()
        wg.optim.clip_grad_norm(w.net.parameters(), 0.3)
        w.optimizer.step()
        return loss

    return step


def clipped_by_value(w: World) -> Step:
    def step(x: Any, t: Any) -> Any:
        w.optimizer.zero_grad()
        loss = wg.cross_entropy(w.net(x), t)
        loss.backward()
        wg.optim.clip_grad_value(w.net.parameters(), 0.01)
        w.optimizer.step()
        return loss

    return step


def by_hand(w: World) -> Step:
    def step(x: Any, t: Any) -> Any:
        loss = wg.cross_entropy(w.net(x), t)
        loss.backward()
        norms = []
        with wg.no_grad():
            for p in w.net.parameters():
                p.grad.mul_(0.5)
                p.grad[0] = p.grad[0] * 2.0
                p -= 0.1 * p.grad
                norms.append((p.grad**2).sum())
                p.grad = None
        return loss, norms

    return step


def assigned(w: World) -> Step:
    def step(x: Any, t: Any) -> Any:
        loss = wg.cross_entropy(w.net(x), t)
        grads = loss.backward()
        for p in w.net.parameters():
            assert p.grad is not None
            p.grad = grads[p] * 2.0
            kept = p.grad
            kept += 1.0  # the same tensor: seen in .grad
            kept = kept * 3.0
        w.optimizer.step()
        return loss

    return step


def two_losses(w: World) -> Step:
    def step(x: Any, t: Any) -> Any:
        w.optimizer.zero_grad()
        y = w.net(x)
        loss = wg.cross_entropy(y, t)
        loss.backward(retain_graph=True)
        (y * y).mean().backward()
        w.optimizer.step()
        return loss

    return step


def two_steps(w: World) -> Step:
    def step(x: Any, t: Any) -> Any:
        for _ in range(2):
            w.optimizer.zero_grad()
            loss = wg.cross_entropy(w.net(x), t)
            loss.backward()
            w.optimizer.step()
        return loss

    return step


def frozen_layer(w: World) -> Step:
    for p in w.net[0].parameters():
        p.requires_grad = False
    return usual(w)


def unused_layer(w: World) -> Step:
    w.net.extra = nn.Linear(2, 2)
    wg.nn.init.ones(w.net.extra.weight), wg.nn.init.ones(w.net.extra.bias)
    w.optimizer.add_param_group({"params": w.net.extra.parameters(), "lr": 0.5})
    return usual(w)


def averaged(w: World) -> Step:
    w.more["ema"] = ema = wg.optim.EMA(w.net, decay=0.9, warmup=True, debias=True)
    inner = usual(w)

    def step(x: Any, t: Any) -> Any:
        loss = inner(x, t)
        ema.update()
        return loss

    return step


def scheduled(w: World) -> Step:
    w.more["scheduler"] = scheduler = wg.optim.Scheduler(w.optimizer, wg.optim.schedules.warmup_cosine(2, 6))
    inner = usual(w)

    def step(x: Any, t: Any) -> Any:
        scheduler.step()
        loss = inner(x, t)
        scheduler.step()
        inner(x, t)
        return loss

    return step


def looking_ahead(w: World) -> Step:
    w.more["lookahead"] = lookahead = wg.optim.Lookahead(w.optimizer, k=3)

    def step(x: Any, t: Any) -> Any:
        lookahead.zero_grad()
        loss = wg.cross_entropy(w.net(x), t)
        loss.backward()
        lookahead.step()
        return loss

    return step


def sharpness_aware(w: World) -> Step:
    sam = wg.optim.SAM(w.optimizer, rho=0.05)

    def step(x: Any, t: Any) -> Any:
        def closure() -> Any:
            sam.zero_grad()
            loss = wg.cross_entropy(w.net(x), t)
            loss.backward()
            return loss

        return sam.step(closure)

    return step


def with_hooks(w: World) -> Step:
    w.net[0].weight.register_hook(lambda g: g * 0.5)

    def update(p: Any) -> None:
        with wg.no_grad():
            p -= 0.1 * p.grad
        p.grad = None

    w.net[4].bias.register_post_accumulate_hook(update)
    return usual(w)


def intermediate(w: World) -> Step:
    def step(x: Any, t: Any) -> Any:
        w.optimizer.zero_grad()
        y = w.net(x)
        y.retain_grad()
        grads = wg.cross_entropy(y, t).backward()
        w.optimizer.step()
        return y.grad * 1.0, grads[y] * 1.0

    return step


STEPS: list[Callable[[World], Step]] = [
    usual, zero_last, clipped_by_norm, clipped_by_value, by_hand, two_losses, two_steps, frozen_layer, unused_layer,
    averaged, scheduled, looking_ahead, sharpness_aware, with_hooks, intermediate,
]  # fmt: skip


@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_as_without_compile(step: Callable[[World], Step]) -> None:
    compare(World, step)


@pytest.mark.parametrize("step", [zeros_instead_of_none, assigned], ids=lambda f: f.__name__)
def test_whether_there_is_a_gradient_is_assumed_where_it_is_read(step: Callable[[World], Step]) -> None:
    compare(World, step, traces=2)


OPTIMIZERS = {
    name: getattr(wg.optim, name)
    for name in (
        "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Lion", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop",
        "SGD", "Shampoo",
    )
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_that_takes_gradients(name: str) -> None:
    chosen = (lambda p: p.ndim > 1) if name == "Muon" else (lambda p: True)
    compare(lambda: World(lambda ps: OPTIMIZERS[name]([p for p in ps if chosen(p)])), usual)


# ------------------------------------------------------------------------------------------------------------- networks


def cnn() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


class Recurrent(nn.Module):
    def __init__(self) -> None:
        self.lstm, self.head = nn.LSTM(4, 6), nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


class Attending(nn.Module):
    def __init__(self) -> None:
        self.block, self.head = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.block(x).mean(axis=1))


NETWORKS = {"cnn": (cnn, (5, 1, 8, 8)), "lstm": (Recurrent, (5, 7, 4)), "transformer": (Attending, (5, 6, 8))}


@pytest.mark.parametrize("name", NETWORKS)
def test_twenty_steps_of_a_network(name: str) -> None:
    build, shape = NETWORKS[name]

    def batch(k: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(k)
        return wg.asarray(rng.normal(size=shape).astype(np.float32)), wg.asarray(rng.integers(0, 3, shape[0]))

    compare(lambda: World(net=build), usual, calls=20, batch=batch)


# ------------------------------------------------------------------------------------------ what happens between the calls


def change_weights(w: World, k: int) -> None:
    if k == 2:
        with wg.no_grad():
            w.net[0].weight.mul_(0.5)
    if k == 4:
        w.net.load_state_dict({key: v * 0.9 if v.dtype == wg.float32 else v for key, v in w.net.state_dict().items()})


def freeze(w: World, k: int) -> None:
    if k in (2, 5):
        w.net[0].weight.requires_grad = k == 5
    if k == 3:
        w.net[4].requires_grad_(False)


def change_options(w: World, k: int) -> None:
    w.optimizer.param_groups[0]["lr"] *= 0.9
    if k == 3:
        w.optimizer.param_groups[0]["weight_decay"] = 0.1
    if k == 4:
        w.optimizer.param_groups[0]["weight_decay"] = 0.2
    if k == 6:
        w.optimizer.param_groups[0]["betas"] = (0.8, 0.99)


def reload_optimizer(w: World, k: int) -> None:
    if k in (1, 3, 6):
        w.optimizer.load_state_dict(w.optimizer.state_dict())


def run_without_compile(w: World, k: int) -> None:
    if k % 3 == 1:
        usual(w)(*vectors(100 + k))


def set_gradients(w: World, k: int) -> None:
    if k == 3:
        for p in w.net.parameters():
            p.grad = wg.ones_like(p)
    if k == 5:
        w.net[0].weight.grad = None
    if k == 6:
        w.net.zero_grad(set_to_none=False)


def evaluate(w: World, k: int) -> None:
    w.net.train(k % 3 != 2)


def add_hook(w: World, k: int) -> None:
    if k == 2:
        w.more_hook = w.net[0].weight.register_hook(lambda g: g * 0.0)  # type: ignore[attr-defined]
    if k == 5:
        w.more_hook.remove()  # type: ignore[attr-defined]


def thaw_late(w: World, k: int) -> None:
    """A parameter that gets its state steps after the others."""
    if k in (0, 4):
        w.net[4].requires_grad_(k == 4)


BETWEEN = [
    change_weights, freeze, change_options, reload_optimizer, run_without_compile, set_gradients, evaluate, add_hook,
    thaw_late,
]  # fmt: skip


PAIRS = [
    (step, between)
    for step in (usual, zeros_instead_of_none, by_hand)
    for between in BETWEEN
    if not (step is by_hand and between in (freeze, thaw_late))  # it reads the gradient of every parameter
]


@pytest.mark.parametrize(("step", "between"), PAIRS, ids=lambda f: f.__name__)
def test_what_happens_between_calls_is_seen(step: Any, between: Any) -> None:
    compare(World, step, between=between, traces=None)


def test_the_learning_rate_and_the_count_do_not_trace_again() -> None:
    def between(w: World, k: int) -> None:
        w.optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)
        w.optimizer.param_groups[0]["weight_decay"] = 0.01 * (k + 1)

    compare(World, usual, between=between, traces=1)


def test_gradients_are_accumulated_over_calls() -> None:
    worlds = []
    for compiled in (False, True):
        w = World()

        def add(x: Any, t: Any, w: World = w) -> Any:
            loss = wg.cross_entropy(w.net(x), t) / 4
            loss.backward()
            return loss

        def update(w: World = w) -> None:
            w.optimizer.step()
            w.optimizer.zero_grad()

        micro, finish = (wg.compile(add), wg.compile(update)) if compiled else (add, update)
        wg.manual_seed(1)
        states = []
        for k in range(12):
            micro(*vectors(k))
            if k % 4 == 3:
                states.append(w.state())
                finish()
        states.append(w.state())
        worlds.append(states)
        assert not compiled or (len(micro.traces), len(finish.traces)) == (1, 1)
    for a, b in zip(*worlds):
        assert_same(a, b, 0.0)


def test_gradients_are_accumulated_within_a_call() -> None:
    def step(w: World) -> Step:
        def run(x: Any, t: Any) -> Any:
            w.optimizer.zero_grad()
            total: Any = 0.0
            for part in range(4):
                rows = slice(4 * part, 4 * part + 4)
                loss = wg.cross_entropy(w.net(x[rows]), t[rows]) / 4
                loss.backward()
                total = total + loss.detach()
            w.optimizer.step()
            return total

        return run

    compare(World, step)


def test_leaves_that_are_arguments() -> None:
    def step(w: Any, b: Any, x: Any) -> Any:
        loss = ((x @ w + b) ** 2).mean()
        loss.backward()
        with wg.no_grad():
            for p in (w, b):
                p -= 0.1 * p.grad
                p.grad = None
        return loss

    results = []
    for run in (step, wg.compile(step)):
        w, b = wg.ones((3, 2), requires_grad=True), wg.zeros(2, requires_grad=True)
        losses = [run(w, b, wg.ones((4, 3)) * k).item() for k in range(4)]
        v = wg.ones((3, 2), requires_grad=True)
        frozen = wg.zeros(2)
        with pytest.raises(TypeError):  # frozen.grad is None
            run(v, frozen, wg.ones((4, 3)))
        results.append((losses, w.tolist(), b.tolist(), w.grad, b.grad, w.is_leaf and w.requires_grad))
    assert results[0] == results[1]


# ------------------------------------------------------------------------------------------------------------ exceptions


def test_an_exception_while_tracing_leaves_everything_as_it_was() -> None:
    w = World()
    w.more["ema"] = ema = wg.optim.EMA(w.net)
    w.more["scheduler"] = scheduler = wg.optim.Scheduler(w.optimizer, wg.optim.schedules.exponential(0.5))
    for p in w.net.parameters():
        p.grad = wg.full(p.shape, 3.0)
    before = w.state()

    @wg.compile
    def step(x: Any, t: Any) -> Any:
        loss = wg.cross_entropy(w.net(x), t)
        loss.backward()
        w.optimizer.step()
        scheduler.step()
        ema.update()
        w.net.zero_grad()
        raise KeyError("while tracing")

    with pytest.raises(KeyError):
        step(*vectors(0))
    assert_same(before, w.state(), 0.0)
    usual(w)(*vectors(0))  # and training goes on


def test_an_exception_in_a_call_leaves_everything_as_it_was() -> None:
    @wg.custom_op
    def picky(x: Any) -> Any:
        if float(x.numpy().max()) > 100.0:
            raise ValueError("too large")
        return x * 1.0

    @picky.defvjp
    def _(bar: Any, y: Any, x: Any) -> Any:
        return bar

    w = World()
    w.more["scheduler"] = scheduler = wg.optim.Scheduler(w.optimizer, wg.optim.schedules.exponential(0.5))

    @wg.compile
    def step(x: Any, t: Any) -> Any:
        w.optimizer.zero_grad()
        scheduler.step()
        loss = wg.cross_entropy(w.net(picky(x)), t)
        loss.backward()
        w.optimizer.step()
        return loss

    x, t = vectors(0)
    step(x, t)
    before = w.state()
    with pytest.raises(ValueError, match="too large"):
        step(x * 1000.0, t)
    assert_same(before, w.state(), 0.0)


def test_hooks_on_what_a_step_computes() -> None:
    def run(compiled: bool) -> list[Any]:
        w = wg.tensor([1.0, 2.0], requires_grad=True)
        seen = []

        def step(x: Any) -> Any:
            h = wg.sin(w * x)
            y = h * h
            handles = [h.register_hook(lambda g: g * 3), h.register_hook(lambda g: seen.append(g.shape))]
            y.register_hook(lambda g: wg.clip(g, -0.5, 0.5)).remove()
            loss = (y * x + h).sum()
            loss.backward()
            handles[0].remove()
            return loss

        run = wg.compile(step) if compiled else step
        for k in range(3):
            run(wg.tensor([0.3, -0.7]) * (k + 1))
        assert seen
        return [w.grad.numpy()]

    np.testing.assert_allclose(run(True)[0], run(False)[0], rtol=1e-6)


def test_norms_of_gradient_maps() -> None:
    w = World()

    def step(x: Any, t: Any) -> Any:
        grads = wg.cross_entropy(w.net(x), t).backward()
        return grads.global_norm(), grads.all_finite()

    w.net.eval()
    expected = step(*vectors(0))
    norm, finite = wg.compile(step)(*vectors(0))
    assert norm.item() == pytest.approx(expected[0], rel=1e-6)
    assert finite.item() is expected[1] is True


def test_sizes_are_results() -> None:
    f = wg.compile(lambda x: (x.sum(), x.shape[0], 2 * x.shape[1]))
    for shape in ((3, 4), (5, 2)):
        assert [int(n.item()) for n in f(wg.ones(shape))[1:]] == [shape[0], 2 * shape[1]]
