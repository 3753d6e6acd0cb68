from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest

import wengert as wg
from tests.debug.faults.lines import line_at_fault
from tests.debug.faults.numbers import BACKWARD, FORWARD
from wengert import _core

MODES = ("full", "light")


class _Module(wg.nn.Module):
    def __init__(self, f, leaf):
        super().__init__()
        self.weight = wg.Parameter(wg.tensor(leaf))
        self.f = f

    def forward(self):
        return self.f(self.weight)


def _plain(f, leaf, mode):
    with wg.detect_anomaly(mode):
        f(wg.tensor(leaf, requires_grad=True)).backward()


def _module(f, leaf, mode):
    with wg.detect_anomaly(mode):
        wg.nn.Sequential(_Module(f, leaf))[0]().backward()


def _compiled(f, leaf, mode):
    compiled = wg.compile(f)
    with wg.detect_anomaly(mode):
        compiled(wg.tensor(leaf, requires_grad=True)).backward()


def _mapped(f, leaf, mode):
    with wg.detect_anomaly(mode):
        wg.vmap(f)(wg.tensor([leaf, leaf], requires_grad=True)).sum().backward()


def _gradient(f, leaf, mode):
    with wg.detect_anomaly(mode):
        wg.grad(f)(wg.tensor(leaf))


def _backward_alone(f, leaf, mode):
    loss = f(wg.tensor(leaf, requires_grad=True))
    with wg.detect_anomaly(mode):
        loss.backward()


def _compiled_backward_alone(f, leaf, mode):
    loss = wg.compile(f)(wg.tensor(leaf, requires_grad=True))
    with wg.detect_anomaly(mode):
        loss.backward()


def _compiled_step(f, leaf, mode):
    w = wg.Parameter(wg.tensor(leaf))
    optimizer = wg.optim.Adam([w], lr=0.1)

    @wg.compile
    def step():
        optimizer.zero_grad()
        loss = f(w)
        loss.backward()
        optimizer.step()
        return loss

    with wg.detect_anomaly(mode):
        step()


WAYS = [_plain, _module, _compiled, _mapped, _gradient, _backward_alone, _compiled_backward_alone, _compiled_step]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BACKWARD)
def test_the_op_whose_derivative_is_not_finite_is_named_with_its_line(name, way, mode):
    f, leaf, op = BACKWARD[name]
    with pytest.raises(wg.AnomalyError) as caught:
        way(f, leaf, mode)
    e = caught.value
    assert e.line == line_at_fault(f), str(e)
    assert e.line in str(e)
    assert op in e.op or (way is _mapped and f"(in {op})" in str(e))  # a mapped rule is a program
    assert e.backward


@pytest.mark.parametrize("way", [_plain, _module, _compiled, _mapped, _gradient, _compiled_step])
@pytest.mark.parametrize("name", FORWARD)
def test_the_op_that_made_the_loss_infinite_is_named_with_its_line(name, way):
    f, leaf, op = FORWARD[name]
    with pytest.raises(wg.AnomalyError) as caught:
        way(f, leaf, "full")
    e = caught.value
    assert e.line == line_at_fault(f), str(e)
    assert op in e.op or (way is _mapped and e.op == "broadcast_to")  # of what is the same for all examples
    assert not e.backward
    assert e.index is not None
    assert e.operands
    assert any(line_at_fault(f) in step for step in e.chain)
    assert e.chain[-1] == "the loss"


# Operations that keep nothing for backward from which it could be told; then the message says so.
_KEEP_TOO_LITTLE = {"cast_to_float16_overflows", "sum_overflows", "a_custom_op_gives_nan"}


@pytest.mark.parametrize("way", [_plain, _module, _compiled, _gradient, _backward_alone, _compiled_backward_alone])
@pytest.mark.parametrize("name", FORWARD)
def test_light_mode_finds_the_op_by_what_is_kept_for_backward(name, way):
    f, leaf, op = FORWARD[name]
    with pytest.raises(wg.AnomalyError) as caught:
        way(f, leaf, "light")
    e = caught.value
    if name in _KEEP_TOO_LITTLE:
        assert "or before" in str(e)
        assert "mode='full'" in str(e)
    else:
        assert e.line == line_at_fault(f), str(e)
        assert op in e.op


@pytest.mark.parametrize("name", FORWARD)
def test_light_mode_runs_a_compiled_step_again_that_went_wrong(name):
    f, leaf, op = FORWARD[name]
    with pytest.raises(wg.AnomalyError) as caught:
        _compiled_step(f, leaf, "light")
    assert caught.value.line == line_at_fault(f)
    assert op in caught.value.op


# -------------------------------------------------------------------------------- what is no anomaly


def masked_attention(x):
    scores = wg.where(wg.tensor([[True, False], [True, True]]), x, -wg.inf)
    return (wg.softmax(scores) * x).sum()


def branch_not_taken(x):
    positive = x > 0
    return wg.where(positive, wg.log(x), 0.0).sum() + wg.where(positive, 1.0 / x, 1.0).sum()


def safe_root(x):
    positive = x > 0
    return wg.where(positive, wg.sqrt(wg.where(positive, x, 0.0)), 0.0).sum()


def safe_division(x):
    n = wg.where(x > 2, x, 0.0)
    return wg.where(n == 0, 0.0, x / n).sum()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("f", [masked_attention, branch_not_taken, safe_root, safe_division])
def test_what_never_reaches_the_gradient_is_not_reported(f, way, mode):
    way(f, [[1.0, 0.0], [-1.0, 3.0]], mode)


def test_results_that_nobody_uses_are_looked_at_when_the_block_ends():
    with pytest.raises(wg.AnomalyError, match="a result") as caught, wg.detect_anomaly():
        wg.zeros(3) / wg.zeros(3)
    assert caught.value.op == "div"


def test_an_error_of_the_users_is_not_covered():
    with pytest.raises(KeyError), wg.detect_anomaly():
        wg.log(wg.zeros(2))
        raise KeyError("x")


def test_the_chain_leads_from_the_op_to_the_loss():
    x = wg.tensor([1.0, 0.0], requires_grad=True)
    with pytest.raises(wg.AnomalyError) as caught, wg.detect_anomaly():
        (wg.log(x) * 2.0).sum().backward()
    ops = [step.split(" at ")[0] for step in caught.value.chain]
    assert ops == ["log", "mul", "sum", "the loss"]
    assert caught.value.index == (1,)
    assert "0 there" in caught.value.operands[0]


def test_nothing_is_accumulated_when_a_gradient_is_bad():
    x, w = wg.tensor([4.0, 0.0], requires_grad=True), wg.tensor([1.0, 2.0], requires_grad=True)
    for mode in MODES:
        with pytest.raises(wg.AnomalyError), wg.detect_anomaly(mode):
            (wg.sqrt(x) * w).sum().backward()
        assert x.grad is None
        if mode == "light":
            assert w.grad is None


def test_light_mode_frees_the_graph_as_backward_does():
    x = wg.tensor([4.0, 1.0], requires_grad=True)
    with wg.detect_anomaly("light"):
        loss = wg.sqrt(x).sum()
        saved = wg.memory_stats().saved_bytes
        loss.backward()
        assert wg.memory_stats().saved_bytes < saved
        with pytest.raises(wg.GradientError, match="freed"):
            loss.backward()


def test_it_holds_for_its_thread_and_its_block_only():
    x = wg.tensor([4.0, 0.0], requires_grad=True)
    with wg.detect_anomaly():
        other = threading.Thread(target=lambda: wg.sqrt(x).sum().backward())
        other.start()
        other.join()
    assert wg.isinf(x.grad).any()
    wg.sqrt(x).sum().backward()


def test_as_a_decorator():
    @wg.detect_anomaly
    def f(x):
        return wg.sqrt(x).sum().backward()

    @wg.detect_anomaly(mode="light")
    def g(x):
        return wg.sqrt(x).sum().backward()

    for h in (f, g):
        with pytest.raises(wg.AnomalyError):
            h(wg.tensor([0.0], requires_grad=True))
    with pytest.raises(wg.ArgumentError, match="'full' or 'light'"):
        wg.detect_anomaly("loud")


def test_recorded_backward_is_looked_at():
    x = wg.tensor([4.0, 0.0], requires_grad=True)
    with pytest.raises(wg.AnomalyError) as caught, wg.detect_anomaly():
        (g,) = wg.grad_of((x**1.5).sum(), [x], create_graph=True)
        g.sum().backward()
    assert caught.value.backward


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("n", [1, 7, 1000, 4097, 40_000])
def test_one_bad_element_is_seen_wherever_it_is(n, dtype):
    a = np.linspace(-3, 3, n).astype(dtype)
    a[0], a[-1] = np.finfo(dtype).max, -np.finfo(dtype).tiny
    assert _core.all_finite(wg.asarray(a.copy()))
    for bad in (np.inf, -np.inf, np.nan, -np.nan):
        for k in {0, n // 2, n - 1}:
            b = a.copy()
            b[k] = bad
            assert not _core.all_finite(wg.asarray(b)), (bad, k)


def test_functions_that_run_after_their_call_are_refused():
    async def later():
        return wg.log(wg.zeros(2))

    def one_by_one():
        yield wg.log(wg.zeros(2))

    for f in (later, one_by_one):
        with pytest.raises(wg.ArgumentError, match="context manager inside"):
            wg.detect_anomaly(f)


def test_tangents_that_are_not_finite_have_a_name():
    """Forward mode, where nothing is recorded."""
    for f in (lambda x: wg.jvp(wg.sqrt, (x,), (wg.ones(2),)), wg.jacobian(wg.sqrt)):
        with pytest.raises(wg.AnomalyError, match="the tangent of sqrt .*made the first infinity") as caught:
            wg.detect_anomaly()(f)(wg.zeros(2))
        assert caught.value.op == "sqrt"
        assert "test_anomaly.py" in caught.value.line


def test_loops_are_one_step_of_what_is_shown():
    x = wg.zeros(3, requires_grad=True)
    y = x
    for _ in range(50):
        y = y * 1.0
    with pytest.raises(wg.AnomalyError) as caught, wg.detect_anomaly():
        wg.sqrt(y).sum().backward()
    assert ", 50 times" in str(caught.value)
    assert len(caught.value.chain) == 52


def test_a_compiled_step_that_goes_wrong_has_written_nothing():
    """Parameters and what the optimizer keeps are as before, although steps write over old values."""
    w = wg.Parameter(wg.tensor([4.0, 1.0, 9.0]))
    running = wg.zeros(3)
    optimizer = wg.optim.Adam([w], lr=0.1)

    @wg.compile
    def step(x):
        optimizer.zero_grad()
        with wg.no_grad():
            running[:] = 0.5 * running + x
        loss = (wg.sqrt(w * x) * w).sum()
        loss.backward()
        optimizer.step()
        return loss

    def state():
        moments = wg.tree.leaves(optimizer.state_dict())
        return [np.asarray(v).copy() for v in [w.detach(), *(m for m in moments if isinstance(m, wg.Tensor))]]

    good = wg.tensor([1.0, 2.0, 3.0])
    with wg.detect_anomaly("light"):
        for _ in range(3):
            step(good)
        before = state()
        with pytest.raises(wg.AnomalyError, match="sqrt"):
            step(wg.tensor([1.0, 0.0, 3.0]))
    assert len(before) > 2
    for a, b in zip(before, state(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("way", ["result", "by hand"])
def test_steps_whose_results_can_be_differentiated_again_are_looked_at(way):
    """As those are that return predictions, or updated their parameters by hand."""
    w = wg.Parameter(wg.tensor([4.0, 1.0, 9.0]))
    optimizer = wg.optim.SGD([w], lr=0.1)

    @wg.compile
    def step(x):
        predicted = wg.sqrt(w * x)
        loss = predicted.sum()
        if way == "result":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss, wg.sqrt(w * x)
        (g,) = wg.grad_of(loss, [w], retain_graph=True)
        with wg.no_grad():
            w[:] = w - 0.1 * g
        return loss

    with wg.detect_anomaly("light"):
        step(wg.tensor([1.0, 2.0, 3.0]))
        before = w.numpy().copy()
        with pytest.raises(wg.AnomalyError, match="sqrt"):
            step(wg.tensor([1.0, 0.0, 3.0]))
    np.testing.assert_array_equal(w.numpy(), before)


@pytest.mark.parametrize("kept", [True, False])
def test_light_mode_steps_to_the_same_bits(kept):
    """Gradients are looked at where they are kept, and parameters otherwise."""

    def trained(mode):
        wg.manual_seed(0)
        net = wg.nn.Sequential(wg.nn.Linear(4, 8), wg.nn.BatchNorm1d(8), wg.nn.ReLU(), wg.nn.Linear(8, 3))
        optimizer = wg.optim.Adam(net.parameters(), lr=0.01)

        @wg.compile
        def step(x, t):
            if kept:
                optimizer.zero_grad()
            loss = wg.cross_entropy(net(x), t)
            loss.backward()
            optimizer.step()
            if not kept:
                optimizer.zero_grad()
            return loss

        x, t = wg.randn(16, 4), wg.randint(0, 3, (16,))
        with wg.detect_anomaly(mode) if mode else contextlib.nullcontext():
            losses = [step(x, t).item() for _ in range(5)]
        return losses, [v.numpy().copy() for v in net.state_dict().values()]

    (losses, state), (expected, plain) = trained("light"), trained(None)
    assert losses == expected
    for a, b in zip(state, plain, strict=True):
        np.testing.assert_array_equal(a, b)
