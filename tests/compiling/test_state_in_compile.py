"""Tensors from outside that a compiled function changes in place: as if the function had run without compile."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn


def array(*shape: int, seed: int = 0) -> Any:
    return wg.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


# ------------------------------------------------------------------------------------------------- captured tensors


def test_an_op_on_captured_tensors_alone_is_part_of_the_program() -> None:
    w = wg.tensor([1.0, 2.0], requires_grad=True)
    f = wg.compile(lambda x: x * (w * 2))
    f(wg.ones(2))
    with wg.no_grad():
        w.mul_(10)
    y = f(wg.ones(2))
    assert y.tolist() == [20.0, 40.0]
    assert y.sum().backward()[w].tolist() == [2.0, 2.0]


def test_no_grad_inside_cuts_derivatives() -> None:
    def f(x: Any) -> Any:
        with wg.no_grad():
            y = x * 2
        return y * x

    x = wg.tensor([1.0, 3.0])
    assert wg.grad(lambda x: f(x).sum())(x).tolist() == wg.grad(lambda x: wg.compile(f)(x).sum())(x).tolist() == [2, 6]
    compiled = wg.compile(lambda x: x * x)
    with wg.no_grad():
        compiled(x)  # traced here, and the same program is used where something is recorded
    assert wg.grad(lambda x: compiled(x).sum())(x).tolist() == [2.0, 6.0]


# ------------------------------------------------------------------------------------------------ one step and more


class State:
    def __init__(self) -> None:
        self.a = wg.zeros((4, 3))
        self.row = self.a[1]
        self.n = wg.zeros((), dtype=wg.int64)


def accumulate(s: State, x: Any) -> Any:
    s.a += x
    s.n += 1
    return s.a.sum() / s.n


def write_rows(s: State, x: Any) -> Any:
    s.a[2] += x[0]
    s.a.mul_(2)
    s.a[:, 0] = 5
    s.a[[0, 3]] = x[:2] * s.a[1]
    s.a[s.a.shape[0] - 1, 1:] *= 3
    return s.a * 1


def write_through_views(s: State, x: Any) -> Any:
    column, turned, flat = s.a[:, 1], s.a.T, s.a.reshape(-1)
    column += x[:, 0]
    turned[2] = 7
    flat[0] = -1
    s.a[1:][0] *= 2
    with wg.no_grad():
        s.a.detach().add_(1)
    return column + turned[0] + flat[:4]


def copy_and_fill(s: State, x: Any) -> Any:
    before = s.a.clone()
    s.a.copy_(x)
    s.n.fill_(3)
    s.a.clip_(-1, 1)
    wg.add(s.a, before, out=s.a)
    s.a.zero_() if x.ndim == 1 else None
    return before


def own_tensors(s: State, x: Any) -> Any:
    t = wg.tensor([1.0, 2.0, 3.0])  # the function's own: new in every call
    t += x[0]
    z = wg.zeros(3)
    z[1:] = t[:2]
    s.a[0] = t + z
    return t


def change_the_argument(s: State, x: Any) -> Any:
    x += 1
    x[0] = s.a[0]
    s.a.add_(x)
    return x.sum()


STEPS: list[Callable[[State, Any], Any]] = [
    accumulate, write_rows, write_through_views, copy_and_fill, own_tensors, change_the_argument
]  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
def test_as_without_compile(step: Callable[[State, Any], Any]) -> None:
    plain, state = State(), State()
    compiled = wg.compile(lambda x: step(state, x))
    a, row, n = state.a, state.row, state.n
    for k in range(3):
        x, z = array(4, 3, seed=k), array(4, 3, seed=k)
        np.testing.assert_array_equal(compiled(z).numpy(), step(plain, x).numpy(), strict=True)
        np.testing.assert_array_equal(z.numpy(), x.numpy())
        np.testing.assert_array_equal(state.a.numpy(), plain.a.numpy())
        np.testing.assert_array_equal(state.row.numpy(), plain.row.numpy())
        assert state.n.item() == plain.n.item()
    assert state.a is a and state.row is row and state.n is n
    assert len(compiled.traces) == 1


def test_memory_from_outside_is_written_through() -> None:
    a = np.zeros(3, np.float32)
    x = wg.asarray(a)
    f = wg.compile(lambda y: x.add_(y).sum())
    f(wg.ones(3))
    assert f(wg.ones(3)).item() == 6.0
    assert a.tolist() == [2.0, 2.0, 2.0]


def test_a_view_from_outside_changes_its_base() -> None:
    base = wg.zeros((2, 3))
    row = base[1]
    f = wg.compile(lambda x: row.add_(x) * 1)
    f(wg.ones(3))
    assert f(wg.ones(3)).tolist() == [2.0, 2.0, 2.0] and base.tolist() == [[0.0] * 3, [2.0] * 3]


def test_what_the_tape_keeps_is_not_overwritten() -> None:
    s, x = wg.ones(3), wg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = (s * x * x).sum()  # needs s as it is now
    wg.compile(lambda z: s.mul_(z).sum())(wg.full((3,), 10.0))
    assert y.backward()[x].tolist() == [2.0, 4.0, 6.0]
    f = wg.compile(lambda z: (s * z).sum() + s.mul_(2).sum())
    y = f(x)
    assert f(x).item() != y.item() and y.backward()[x].tolist() == [10.0] * 3 and s.tolist() == [40.0] * 3


def test_versions_are_counted() -> None:
    a = np.ones(3, np.float32)
    s, x = wg.asarray(a), wg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = (s * x).sum()
    wg.compile(lambda z: s.mul_(z).sum())(wg.ones(3))
    with pytest.raises(wg.InPlaceError):  # memory of an array cannot be kept for backward
        y.backward()


# --------------------------------------------------------------------------------------------------------- recording


def test_a_recorded_write_is_differentiated() -> None:
    def run(f: Any, s: Any) -> Any:
        x = wg.tensor([1.0, 2.0], requires_grad=True)
        f(x)
        y = f(x)
        assert s.requires_grad
        return y.item(), y.backward()[x].tolist()

    a, b = wg.zeros(2), wg.zeros(2)
    plain = lambda x: a.add_(x * x * (a + 1)).sum()
    assert run(plain, a) == run(wg.compile(lambda x: b.add_(x * x * (b + 1)).sum()), b)


def test_what_does_not_depend_on_a_leaf_is_not_recorded() -> None:
    n, s = wg.zeros(()), wg.zeros(2)

    @wg.compile
    def f(x: Any) -> Any:
        n.add_(1.0)
        with wg.no_grad():
            s.add_(x)
        return (x * n).sum()

    x = wg.tensor([1.0, 2.0], requires_grad=True)
    f(x)
    y = f(x)
    assert y.requires_grad and not n.requires_grad and not s.requires_grad
    assert y.backward()[x].tolist() == [2.0, 2.0] and s.tolist() == [2.0, 4.0]


def test_leaves_are_refused_or_stay_leaves() -> None:
    p = wg.tensor([1.0, 2.0], requires_grad=True)
    f = wg.compile(lambda x: p.mul_(x).sum())
    with pytest.raises(wg.InPlaceError, match=r"mul_: a leaf .*float32\(2,\).*no_grad"):
        f(wg.ones(2))
    assert p.tolist() == [1.0, 2.0]
    with wg.no_grad():
        f(wg.full((2,), 3.0))
    assert p.tolist() == [3.0, 6.0] and p.is_leaf and p.requires_grad

    @wg.compile
    def halve(x: Any) -> Any:
        y = (p * x).sum()
        with wg.no_grad():
            p.mul_(0.5)
        return y

    y = halve(wg.ones(2))
    assert y.item() == 9.0 and y.backward()[p].tolist() == [1.0, 1.0]
    assert p.tolist() == [1.5, 3.0] and p.is_leaf

    @wg.compile
    def halve_first(x: Any) -> Any:
        with wg.no_grad():
            p.mul_(0.5)
        return (p * x).sum()

    y = halve_first(wg.full((2,), 3.0))
    assert y.item() == 6.75 and y.backward()[p].tolist() == [3.0, 3.0], "it is the same leaf as before"
    assert p.tolist() == [0.75, 1.5] and p.is_leaf
    with wg.no_grad():
        assert halve_first(wg.ones(2)).item() == 1.125


def test_leaves_inside_count_uses_before_and_after_a_write_under_no_grad() -> None:
    def train(p: Any, x: Any) -> Any:
        before = (p * x).sum()
        with wg.no_grad():
            p.mul_(0.5)
        return (before + (p * p).sum()).backward()[p]

    p, q = (wg.tensor([2.0, 4.0], requires_grad=True) for _ in range(2))
    x = wg.tensor([3.0, 5.0])
    compiled = wg.compile(lambda x: train(q, x))
    for _ in range(2):
        assert compiled(x).tolist() == train(p, x).tolist()
        assert q.tolist() == p.tolist() and q.is_leaf


def test_a_result_that_took_over_an_input_is_its_own_tensor() -> None:
    def overwritten(x: Any) -> Any:
        y = x * 2.0
        with wg.no_grad():
            y.copy_(x)
        return y

    x = wg.tensor([1.0, 2.0])
    y = wg.compile(overwritten)(x)
    x.mul_(7.0)
    assert y.tolist() == [1.0, 2.0]


def test_a_tracked_argument_that_is_written_under_no_grad_keeps_its_history() -> None:
    def triple(y: Any) -> Any:
        with wg.no_grad():
            y.mul_(3.0)
        return (y * y).sum()

    def f(triple: Any) -> Any:
        x = wg.tensor([1.0, 2.0], requires_grad=True)
        y = x * x
        total = triple(y)
        return (total + (y * 5.0).sum()).backward()[x].tolist(), y.tolist()

    assert f(wg.compile(triple)) == f(triple) == ([22.0, 116.0], [3.0, 12.0])


# ---------------------------------------------------------------------------------------------------------- refusals


def test_shared_memory_is_refused() -> None:
    a = wg.zeros(3)
    b = a[:2]
    f = wg.compile(lambda x: a.add_(x).sum() + b.sum())
    with pytest.raises(wg.TraceError, match=r"add_: .*float32\(3,\), that shares memory .*float32\(2,\).*clone"):
        f(wg.ones(3))
    g = wg.compile(lambda x, y: x.add_(1.0) + y)
    assert g(wg.zeros(2), wg.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(wg.TraceError, match="shares memory"):
        g(a, a)
    memory = np.zeros(4, np.float32)
    c, d = wg.asarray(memory), wg.asarray(memory[1:])
    with pytest.raises(wg.TraceError, match="shares memory"):
        wg.compile(lambda x: c.add_(x).sum() + d.sum())(wg.ones(4))
    assert a.tolist() == [0.0] * 3 and memory.tolist() == [0.0] * 4


def test_strides_of_foreign_memory_say_what_is_shared() -> None:
    g = wg.compile(lambda x, y: x.add_(1.0) + y)
    memory = np.arange(8.0)
    backwards, upper, lower = (wg.asarray(memory[k]) for k in (slice(None, 3, -1), slice(4, None), slice(0, 4)))
    assert g(backwards, lower).tolist() == [8.0, 8.0, 8.0, 8.0]
    for x, y in ((backwards, upper), (upper, backwards), (wg.asarray(memory[::2]), wg.asarray(memory[4:]))):
        with pytest.raises(wg.TraceError, match="shares memory"):
            g(x, y)
    assert memory.tolist() == [0.0, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0]


def test_reading_what_was_changed_is_refused() -> None:
    n = wg.zeros((), dtype=wg.int64)
    for read in (int, bool, float, lambda t: t.item(), lambda t: t.numpy(), lambda t: wg.nonzero(t[None])):

        def f(x: Any, read: Any = read) -> Any:
            return (read(n.add_(1)), x)[1]

        with pytest.raises(wg.TraceError):
            wg.compile(lambda x, f=f: f(x))(wg.ones(1))
    assert n.item() == 0 and n.add_(1).item() == 1  # and may be read again outside


def test_views_that_depend_on_strides_are_refused() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y.T.reshape(-1)[0] = 1.0
        return y

    with pytest.raises(wg.TraceError, match="strides"):
        wg.compile(f)(wg.ones((2, 3)))
    with pytest.raises(wg.TraceError, match="broadcast_to made cannot be changed"):
        wg.compile(lambda x: wg.broadcast_to(x, (4, 3)).add_(1.0))(wg.ones(3))


def test_nothing_is_written_when_a_call_fails() -> None:
    n, s = wg.zeros(()), wg.zeros(3)

    @wg.custom_op
    def picky(x: Any) -> Any:
        if float(x.numpy().sum()) < 0:
            raise ValueError("negative")
        return x * 1.0

    @wg.compile
    def f(x: Any) -> Any:
        n.add_(1.0)
        s.add_(x)
        return picky(x) + s

    f(wg.ones(3))
    with pytest.raises(ValueError, match="negative"):
        f(-wg.ones(3))
    assert n.item() == 1.0 and s.tolist() == [1.0] * 3

    @wg.compile
    def g(x: Any) -> Any:
        n.add_(1.0)
        raise KeyError("while tracing")

    with pytest.raises(KeyError):
        g(wg.ones(3))
    assert n.item() == 1.0
    base = wg.zeros(1)
    spread = wg.broadcast_to(base, (3,))
    h = wg.compile(lambda x: n.add_(1.0) + spread.add_(x).sum())
    with pytest.raises(wg.InPlaceError, match="share memory"):
        h(wg.ones(3))
    assert n.item() == 1.0 and base.item() == 0.0


def test_what_is_changed_is_freed_with_the_function() -> None:
    def make() -> tuple[Any, Any]:
        s = nn.Parameter(wg.zeros(3))
        f = wg.compile(lambda x: (x + s.detach().add_(x)).sum())
        f(wg.ones(3))
        return f, weakref.ref(s)

    f, reference = make()
    assert reference() is not None
    del f
    gc.collect()
    assert reference() is None


def test_threads_do_not_mix_traces() -> None:
    counters = [wg.zeros(()) for _ in range(4)]
    functions = [wg.compile(lambda x, c=c: c.add_(x.sum()) * 1) for c in counters]

    def work(f: Any) -> None:
        for n in (2, 3, 1, 5):
            for _ in range(5):
                f(wg.ones(n))

    workers = [threading.Thread(target=work, args=(f.function,)) for f in functions[:2]]
    workers += [threading.Thread(target=work, args=(f,)) for f in functions[2:]]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert [c.item() for c in counters] == [55.0] * 4


# ---------------------------------------------------------------------------------------------------------- training


def net() -> Any:
    wg.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4), nn.BatchNorm1d(4, momentum=None)
    )  # fmt: skip


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: wg.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: wg.optim.Adam(p, lr=1e-2),
    "AdamW": lambda p: wg.optim.AdamW(p, lr=wg.tensor(1e-2)),
    "RMSprop": lambda p: wg.optim.RMSprop(p, lr=1e-2),
    "Adagrad": lambda p: wg.optim.Adagrad(p, lr=1e-2),
    "Lion": lambda p: wg.optim.Lion(p, lr=1e-3),
    "Adafactor": lambda p: wg.optim.Adafactor(p),
}


def train(name: str, compiled: bool, steps: int = 9, per_call: int = 1) -> Any:
    model = net()
    optimizer = OPTIMIZERS[name](model.parameters())

    def step(x: Any, t: Any) -> Any:
        for _ in range(per_call):
            logits = model(x)
            loss = wg.cross_entropy(logits, t)
            optimizer.step(loss.backward())
        return loss, logits

    run = wg.compile(step) if compiled else step
    rng = np.random.default_rng(0)
    wg.manual_seed(1)
    losses = []
    for k in range(steps):
        n = (32, 32, 17)[k % 3]
        x, t = wg.asarray(rng.normal(size=(n, 8)).astype(np.float32)), wg.asarray(rng.integers(0, 4, n))
        optimizer.param_groups[0]["lr"] *= 0.95  # followed without tracing again
        loss, logits = (step if k == 4 else run)(x, t)  # the two forms may take turns
        losses.append((loss.item(), logits.detach().numpy()))
        assert all(p.grad is None for p in model.parameters())
    assert not compiled or len(run.traces) == 1
    return losses, model.state_dict(), optimizer.state_dict()["state"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_training_step(name: str) -> None:
    """Batch norm, dropout, backward and the optimizer in one compiled function: the same bits."""
    (losses, model, state), (own_losses, own_model, own_state) = train(name, False), train(name, True)
    for (loss, logits), (own_loss, own_logits) in zip(losses, own_losses):
        assert loss == own_loss
        np.testing.assert_array_equal(logits, own_logits)
    for key, value in model.items():
        np.testing.assert_array_equal(value.numpy(), own_model[key].numpy(), err_msg=key)
    for number, entry in state.items():
        assert entry["step"] == own_state[number]["step"] == 9
        for key in entry.keys() - {"step"}:
            np.testing.assert_array_equal(entry[key].numpy(), own_state[number][key].numpy(), err_msg=key)


def test_several_steps_in_one_call() -> None:
    (losses, model, state), (own_losses, own_model, own_state) = (train("Adam", c, per_call=2) for c in (False, True))
    assert [x for x, _ in losses] == [x for x, _ in own_losses] and state[0]["step"] == own_state[0]["step"] == 18
    for key, value in model.items():
        np.testing.assert_array_equal(value.numpy(), own_model[key].numpy(), err_msg=key)


def test_value_and_grad_with_functional_parameters() -> None:
    results = []
    for compiled in (False, True):
        wg.manual_seed(0)
        w = nn.Parameter(wg.randn(3, 2))
        optimizer = wg.optim.SGD([w], lr=0.1, momentum=0.9)

        def step(x: Any, w: Any = w, optimizer: Any = optimizer) -> Any:
            loss, g = wg.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
            optimizer.apply_gradients([(w, g)])
            return loss

        run = wg.compile(step) if compiled else step
        results.append(([run(array(5, 3, seed=k)).item() for k in range(4)], w.tolist()))
    assert results[0] == results[1]


def test_gradients_that_nobody_uses_are_accumulated() -> None:
    results = []
    for compiled in (False, True):
        w = wg.tensor([1.0, 2.0], requires_grad=True)
        f = lambda x, w=w: (x * w * w).sum().backward()[w] * 1
        run = wg.compile(f) if compiled else f
        results.append(([run(wg.ones(2)).tolist() for _ in range(3)], w.grad.tolist()))
    assert results[0] == results[1] and results[0][1] == [6.0, 12.0]


def test_backward_in_a_compiled_function() -> None:
    w = wg.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(wg.GradientError, match="depends on none"):
        wg.compile(lambda x: (x * x).sum().backward() and x)(wg.ones(2))
    f = wg.compile(lambda x: (x * x * w).sum().backward(inputs=[x])[x])
    assert f(wg.ones(2)).tolist() == [2.0, 4.0] and w.grad is None
    outside = w * 2.0
    g = wg.compile(lambda x: (x * outside).sum().backward() and x)
    with pytest.raises(wg.GradientError, match=r"computed outside.*detach\(\)"):
        g(wg.ones(2))
    assert w.grad is None


def test_a_changed_optimizer_is_followed() -> None:
    results = []
    for compiled in (False, True):
        w = nn.Parameter(wg.ones(2))
        optimizer = wg.optim.Adam([w], weight_decay=0.0)

        def step(x: Any, w: Any = w, optimizer: Any = optimizer) -> Any:
            loss = (x * w * w).sum()
            optimizer.step(loss.backward())
            return loss

        run = wg.compile(step) if compiled else step
        run(wg.ones(2))
        state = optimizer.state_dict()
        run(wg.ones(2))
        optimizer.load_state_dict(state)
        run(wg.ones(2))
        optimizer.param_groups[0]["weight_decay"] = 0.1
        run(wg.ones(2))
        optimizer.add_param_group({"params": [nn.Parameter(wg.ones(3))]})  # which gets no gradient
        run(wg.ones(2))
        results.append((w.tolist(), optimizer.state_dict()["state"][0]["step"]))
    assert results[0] == results[1]


@pytest.mark.parametrize("frozen_first", [False, True])
def test_a_parameter_that_is_frozen_is_followed(frozen_first: bool) -> None:
    results = []
    for compiled in (False, True):
        w, v = nn.Parameter(wg.ones(2)), nn.Parameter(wg.ones(2))
        v.requires_grad = not frozen_first
        optimizer = wg.optim.SGD([w, v], lr=0.1, momentum=0.9)

        def step(x: Any, w: Any = w, v: Any = v, optimizer: Any = optimizer) -> None:
            optimizer.step((x * w * v).sum().backward())

        run = wg.compile(step) if compiled else step
        run(wg.ones(2))
        v.requires_grad = frozen_first
        run(wg.ones(2))
        v.requires_grad = not frozen_first
        run(wg.ones(2))
        results.append((w.tolist(), v.tolist()))
    assert results[0] == results[1]


def test_what_was_there_before_is_kept_where_memory_is_shared_with_numpy() -> None:
    """A copy of an input is that input in the program; a write in place must not reach what was returned for it."""
    array = np.array([1.0, 2.0, 3.0], np.float32)
    state = wg.asarray(array)

    @wg.compile
    def f(x: Any) -> Any:
        before = state.clone()
        state.add_(x)
        return before, x.clone()

    x = wg.ones((3,))
    before, same = f(x)
    x += 1
    same += 10
    assert array.tolist() == [2.0, 3.0, 4.0]
    assert (before.tolist(), x.tolist(), same.tolist()) == ([1.0, 2.0, 3.0], [2.0] * 3, [11.0] * 3)
    before += 5
    assert array.tolist() == [2.0, 3.0, 4.0]


def test_modes_of_modules_are_followed() -> None:
    """After eval() dropout is off and running statistics are used; each mode is traced once."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    traced = []

    @wg.compile
    def f(x: Any) -> Any:
        traced.append(net.training)
        return net(x)

    x = wg.randn(6, 3)
    wg.manual_seed(1)
    eager = net(x)
    wg.manual_seed(1)
    assert f(x).tolist() == eager.tolist()
    net.eval()
    for _ in range(2):
        assert f(x).tolist() == net(x).tolist()
    net.train()
    wg.manual_seed(2)
    eager = net(x)
    wg.manual_seed(2)
    assert f(x).tolist() == eager.tolist()
    net[2].training = False  # one of them alone
    assert (f(x) != 0).all()
    assert traced == [True, False, True]


def test_modes_are_followed_through_functions_and_transformations() -> None:
    drop = nn.Dropout(0.5)
    inner = wg.compile(lambda x: drop(x) * 2.0)
    outer = wg.compile(lambda x: inner(x).sum())
    gradient = wg.compile(wg.grad(lambda x: inner(x).sum()))
    x = wg.ones((64,))
    assert set(gradient(x).tolist()) == {0.0, 4.0}
    outer(x), inner(x)
    drop.eval()
    assert set(gradient(x).tolist()) == {2.0}
    assert (outer(x).item(), set(inner(x).tolist())) == (128.0, {2.0})


def test_a_module_that_holds_its_compiled_function_is_freed() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.drop = nn.Dropout(0.5)
            self.fast = wg.compile(lambda x: self.drop(x))

    net = Net()
    net.fast(wg.ones((3,)))
    net.eval()
    net.fast(wg.ones((3,)))
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None
