"""Tapes: what they track, when they stop, how often they may be asked."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import wengert as wg


def values(*x: float) -> wg.Tensor:
    return wg.tensor(list(x), dtype=wg.float64)


def test_every_floating_tensor_is_tracked_inside() -> None:
    x, w = values(1.0, 2.0), values(3.0, 4.0)
    with wg.GradientTape() as tape:
        y = (x * w).sum()
    dx, dw = tape.gradient(y, [x, w])
    assert dx.tolist() == [3.0, 4.0] and dw.tolist() == [1.0, 2.0]
    assert x.grad is None and w.grad is None
    assert not x.requires_grad


def test_one_source_one_gradient_a_list_a_list() -> None:
    x = values(1.0, 2.0)
    with wg.GradientTape(persistent=True) as tape:
        y = (x * x).sum()
    assert isinstance(tape.gradient(y, x), wg.Tensor)
    assert isinstance(tape.gradient(y, [x]), list)
    assert isinstance(tape.gradient(y, (x,)), (list, tuple))


def test_several_targets_are_summed() -> None:
    x = values(2.0)
    with wg.GradientTape() as tape:
        a, b = x * x, x * 3.0
    assert tape.gradient([a, b], x).tolist() == [7.0]


def test_output_gradients() -> None:
    x = values(1.0, 2.0)
    with wg.GradientTape() as tape:
        y = x * x
    assert tape.gradient(y, x, output_gradients=values(1.0, 10.0)).tolist() == [2.0, 40.0]


def test_intermediates_as_sources() -> None:
    x = values(2.0)
    with wg.GradientTape() as tape:
        h = x * x
        y = h * h
    dh, dx = tape.gradient(y, [h, x])
    assert dh.tolist() == [8.0] and dx.tolist() == [32.0]


def test_unconnected_is_none() -> None:
    x, other = values(1.0), values(2.0)
    with wg.GradientTape(persistent=True) as tape:
        y = x * x
        z = other * 2.0
    assert tape.gradient(y, other) is None
    assert tape.gradient(y, values(1.0)) is None
    assert tape.gradient(z, [x, other])[0] is None
    with wg.GradientTape() as tape:
        c = wg.argmax(x)
        y = x * 2.0
    assert tape.gradient(y, [x])[0].tolist() == [2.0] and not c.requires_grad


def test_explicit_false_is_never_tracked() -> None:
    data = wg.tensor([1.0, 2.0], requires_grad=False)
    frozen = wg.tensor([3.0, 4.0])
    frozen.requires_grad = False
    w = wg.tensor([5.0, 6.0])
    with wg.GradientTape() as tape:
        only_frozen = data * frozen
        y = (only_frozen * w).sum()
    assert not only_frozen.requires_grad
    grads = tape.gradient(y, [data, frozen, w])
    assert grads[0] is None and grads[1] is None and grads[2].tolist() == [3.0, 8.0]


@pytest.mark.parametrize("used", [False, True])
def test_a_target_may_be_a_source(used: bool) -> None:
    x, numbers = wg.tensor([1.0, 2.0]), wg.tensor([1, 2])
    with wg.GradientTape(persistent=True) as tape:
        y = (x * x).sum() if used else x[0].detach()
    assert tape.gradient(x, x).tolist() == [1.0, 1.0]
    assert tape.gradient([x, x], [x], [x, None])[0].tolist() == [2.0, 3.0]
    if used:
        assert tape.gradient([x, y], x).tolist() == [3.0, 5.0]
    assert tape.forward_gradient(x, x).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert tape.gradient(numbers, numbers) is None


def test_integers_are_not_tracked() -> None:
    i = wg.tensor([1, 2])
    x = values(1.0, 2.0)
    with wg.GradientTape() as tape:
        y = (x * i).sum()
    dx, di = tape.gradient(y, [x, i])
    assert dx.tolist() == [1.0, 2.0] and di is None


def test_backward_maps_all_leaves_and_leaves_grad_alone() -> None:
    x = wg.tensor([1.0], requires_grad=True)
    w = wg.tensor([2.0])
    with wg.GradientTape() as tape:
        y = (x * w).sum()
    grads = tape.backward(y)
    assert grads[x].tolist() == [2.0] and grads[w].tolist() == [1.0]
    assert x.grad is None


def test_consumed() -> None:
    x = values(2.0)
    for again in (lambda t, y: t.gradient(y, x), lambda t, y: t.backward(y)):
        for first in (lambda t, y: t.gradient(y, x), lambda t, y: t.backward(y)):
            with wg.GradientTape() as tape:
                y = (x * x).sum()
            first(tape, y)
            with pytest.raises(wg.TapeConsumedError, match="persistent"):
                again(tape, y)


def test_retain_graph_keeps_the_tape() -> None:
    x = values(2.0)
    with wg.GradientTape() as tape:
        y = (x * x).sum()
    assert tape.backward(y, retain_graph=True)[x].tolist() == [4.0]
    assert tape.backward(y)[x].tolist() == [4.0]
    with pytest.raises(wg.TapeConsumedError):
        tape.backward(y)


def test_entering_again_starts_anew() -> None:
    x, tape = values(2.0), wg.GradientTape()
    for factor in (1.0, 3.0):
        with tape:
            y = (x * x * factor).sum()
        assert tape.gradient(y, x).tolist() == [4.0 * factor]


def test_entering_again_forgets_what_was_recorded() -> None:
    x, tape = values(2.0), wg.GradientTape(persistent=True)
    with tape:
        first = (x * x).sum()
    with tape:
        second = (x * 3.0).sum()
    assert tape.gradient(second, x).tolist() == [3.0]
    try:
        stale = tape.gradient(first, x)
    except wg.GradientError:
        return
    assert stale is None or stale.tolist() == [4.0]


def test_persistent() -> None:
    x = values(2.0)
    with wg.GradientTape(persistent=True) as tape:
        y = x * x
        z = y * x
    assert tape.gradient(y, x).tolist() == [4.0]
    assert tape.gradient(z, x).tolist() == [12.0]
    assert tape.gradient(z, y).tolist() == [2.0]
    assert tape.gradient(z, x).tolist() == [12.0]


def test_gradients_of_gradients_in_one_persistent_tape() -> None:
    x = values(2.0)
    with wg.GradientTape(persistent=True) as tape:
        y = x**4
        g = tape.gradient(y, x)
        h = tape.gradient(g, x)
    np.testing.assert_allclose(tape.gradient(h, x).numpy(), [48.0])
    np.testing.assert_allclose(h.numpy(), [48.0])


def test_nested_tapes() -> None:
    x = values(2.0)
    with wg.GradientTape() as outer:
        with wg.GradientTape() as inner:
            y = x**3
        g = inner.gradient(y, x)
        z = (g * 2.0).sum()
    assert outer.gradient(z, x).tolist() == [24.0]
    with wg.GradientTape() as a, wg.GradientTape() as b, wg.GradientTape() as c:
        y = x**3
        dy = c.gradient(y, x)
        ddy = b.gradient(dy, x)
    np.testing.assert_allclose(a.gradient(ddy, x).numpy(), [6.0])


def test_inner_tape_does_not_take_from_the_outer() -> None:
    x, w = values(2.0), values(5.0)
    with wg.GradientTape() as outer:
        a = x * x
        with wg.GradientTape() as inner:
            b = a * w
        dw = inner.gradient(b, w)
        y = (b + dw).sum()
    dx = outer.gradient(y, x)
    assert dw.tolist() == [4.0]
    assert dx.tolist() == [2 * 2 * 5 + 2 * 2.0]


def test_the_same_tape_does_not_nest() -> None:
    tape = wg.GradientTape()
    with tape, pytest.raises(wg.GradientError, match="recording already"), tape:
        pass


def test_start_and_stop() -> None:
    x, tape = values(2.0), wg.GradientTape()
    assert not tape.recording
    tape.start_recording()
    assert tape.recording
    with pytest.raises(wg.GradientError):
        tape.start_recording()
    y = x * x
    tape.stop_recording()
    outside = y * 1.0
    assert tape.gradient(y, x).tolist() == [4.0]
    assert outside.tolist() == [4.0]


def test_pausing() -> None:
    x, tape = values(2.0), wg.GradientTape()
    tape.start_recording()
    y = x * x
    tape.stop_recording()
    c = x * 100.0  # between stop and start nothing is tracked
    tape.start_recording()
    z = y * x + c.sum()
    tape.stop_recording()
    assert tape.gradient(z, x).tolist() == [12.0]


def test_stale_leaves_are_not_recorded_after_the_scope() -> None:
    x = values(2.0)
    with wg.GradientTape() as tape:
        y = x * x
    z = x * 3.0
    assert not z.requires_grad, "x was tracked by the tape only while it recorded"
    assert tape.gradient(y, x).tolist() == [4.0]
    w = x * x
    assert not w.requires_grad


def test_intermediates_of_a_closed_tape() -> None:
    x = values(2.0)
    with wg.GradientTape() as tape:
        h = x * x
    outside = h * 3.0
    assert tape.gradient(outside, x) is None or tape.gradient(outside, x).tolist() == [12.0]


def test_no_grad_inside_a_tape() -> None:
    x = values(2.0)
    with wg.GradientTape() as tape:
        with wg.no_grad():
            c = x * x
        y = c * x
    assert tape.gradient(y, x).tolist() == [4.0]


def test_tape_inside_no_grad() -> None:
    x = values(2.0)
    with wg.no_grad(), wg.GradientTape() as tape:
        y = x * x
    g = tape.gradient(y, x)
    assert g is None or g.tolist() == [4.0]


def test_handles_record_anywhere() -> None:
    x, tape = values(2.0), wg.GradientTape(persistent=True)
    v = tape.watch(x)
    y = v * v
    assert tape.gradient(y, v).tolist() == tape.gradient(y, x).tolist() == [4.0]
    assert not (x * x).requires_grad
    u = tape.variable(values(3.0))
    assert tape.gradient(u * v, [u, v])[0].tolist() == [2.0]
    with pytest.raises(wg.DTypeError, match="int64"):
        tape.watch(wg.tensor([1]))


def test_watch_inside_the_block() -> None:
    x = values(2.0)
    with wg.GradientTape() as tape:
        v = tape.watch(x)
        y = v * x
    dv, dx = tape.gradient(y, [v, x])
    assert dv is not None


def test_watched_frozen_tensor() -> None:
    x = wg.tensor([2.0], requires_grad=False)
    with wg.GradientTape() as tape:
        v = tape.watch(x)
        y = v * v
    assert tape.gradient(y, x).tolist() == [4.0]


def test_in_place_inside_a_tape() -> None:
    x = values(1.0, 2.0)
    with wg.GradientTape() as tape:
        y = x * 2.0
        y += x
        y[0] = x[1] * 5.0
        z = (y * y).sum()
    # y = (5 x1, 3 x1)
    assert tape.gradient(z, x).tolist() == [0.0, 50 * 2.0 + 18 * 2.0]


def test_a_source_written_into_a_tensor_inside_a_tape() -> None:
    x = wg.tensor([2.0, 3.0])
    for write in (
        lambda y: y.copy_(x),
        lambda y: y.__setitem__(slice(None), x),
        lambda y: y.__setitem__(0, x[0]),
        lambda y: y[:1].copy_(x[:1]),
    ):
        with wg.GradientTape() as tape:
            y = x * x
            write(y)
            loss = (y * y).sum()
        expected = [2 * 2.0, 2 * 3.0 if y[1] == 3.0 else 4 * 27.0]  # x², or x⁴ where nothing was written
        assert tape.gradient(loss, x).tolist() == expected


def test_forward_gradient() -> None:
    x = values(1.0, 2.0, 3.0)
    w = wg.tensor(np.arange(6.0).reshape(2, 3))
    with wg.GradientTape(persistent=True) as tape:
        y = wg.tanh(w @ x)
    jacobian = tape.forward_gradient(x, y)
    expected = (1 - np.tanh(w.numpy() @ x.numpy()) ** 2)[:, None] * w.numpy()
    np.testing.assert_allclose(jacobian.numpy(), expected, atol=1e-12)
    assert tape.forward_gradient(values(1.0), y).tolist() == [[0.0], [0.0]]


def test_forward_gradient_of_matrices() -> None:
    x = wg.tensor(np.arange(4.0).reshape(2, 2) + 1)
    with wg.GradientTape(persistent=True) as tape:
        y = x @ x
    j = tape.forward_gradient(x, y).numpy()
    assert j.shape == (2, 2, 2, 2)
    np.testing.assert_allclose(j, wg.jacrev(lambda z: z @ z)(x).numpy())


def test_program() -> None:
    x, w = values(1.0, 2.0), values(3.0, 4.0)
    with wg.GradientTape() as tape:
        y = (wg.tanh(x * w) + 1.0).sum()
    program = tape.program()
    program.verify()
    text = str(program)
    for name in ("mul", "tanh", "add", "sum"):
        assert name in text
    assert "float64[2]" in text
    assert y.shape == ()


def test_program_of_a_network() -> None:
    x, w1, w2 = wg.randn(4, 5), wg.randn(5, 6), wg.randn(6, 3)
    with wg.GradientTape() as tape:
        h = wg.relu(x @ w1 + wg.zeros((6,)))
        wg.softmax(h @ w2).sum()
    tape.program().verify()


def test_one_tape_per_thread() -> None:
    x = values(2.0)
    failures: list[Any] = []
    barrier = threading.Barrier(4)

    def work(k: int) -> None:
        try:
            with wg.GradientTape() as tape:
                barrier.wait()
                y = x * float(k)
                for _ in range(50):
                    y = y + x
                barrier.wait()
            g = tape.gradient(y, x).tolist()
            if g != [k + 50.0]:
                failures.append((k, g))
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_another_thread_is_not_recorded() -> None:
    x = values(2.0)
    made = {}
    with wg.GradientTape():
        t = threading.Thread(target=lambda: made.update(y=x * x))
        t.start()
        t.join()
    assert not made["y"].requires_grad


def test_a_dropped_tape_frees_its_records() -> None:
    from wengert import _core

    gc.collect()
    before = _core.memory_stats()["live_bytes"]
    x = wg.tensor(np.ones(10_000))
    with wg.GradientTape() as tape:
        y = wg.exp(x).sum()
    del x, y, tape
    gc.collect()
    assert _core.memory_stats()["live_bytes"] == before


def test_an_exception_inside_stops_recording() -> None:
    x = values(2.0)
    tape = wg.GradientTape()
    with pytest.raises(KeyError), tape:
        raise KeyError
    assert not tape.recording
    assert not (x * x).requires_grad


def test_exceptions_in_gradient_leave_the_tape_usable() -> None:
    x = values(1.0, 2.0)
    with wg.GradientTape(persistent=True) as tape:
        y = x * x
    with pytest.raises(wg.ShapeError):
        tape.gradient(y, x, output_gradients=values(1.0))
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]


def test_requires_grad_beside_tapes() -> None:
    """A leaf of its own and a tape at once: each gets its gradient."""
    x = wg.tensor([3.0], requires_grad=True)
    with wg.GradientTape(persistent=True) as tape:
        y = (x * x).sum()
    assert tape.gradient(y, x).tolist() == [6.0]
    y.backward()
    assert x.grad.tolist() == [6.0]


def test_custom_op_on_a_tape() -> None:
    class Double(wg.CustomOp):
        def forward(self, x: Any) -> Any:
            return x * 2

        def backward(self, y_bar: Any, x: Any) -> Any:
            return y_bar * 20

    x = values(3.0)
    with wg.GradientTape() as tape:
        y = tape.custom_op(Double(), x)
        z = (y * y).sum()
    assert tape.gradient(z, x).tolist() == [12.0 * 20]


def test_repr() -> None:
    tape = wg.GradientTape()
    assert "ready" in repr(tape)
    with tape:
        assert "recording" in repr(tape)


def test_wrong_arguments_do_not_consume_a_tape() -> None:
    x = wg.tensor([1.0, 2.0])
    with wg.GradientTape() as tape:
        y = (x * x).sum()
    for target, sources in ((3, x), (y, 3), (y, {"x": x}), (y, [3])):
        with pytest.raises(TypeError, match="a tensor or a sequence of tensors, got "):
            tape.gradient(target, sources)
    with pytest.raises(wg.GradientError, match="2 targets, but 1 output_gradients"):
        tape.gradient([y, y], x, [wg.tensor(1.0)])
    with pytest.raises(TypeError, match="watch: takes a tensor, got float"):
        tape.watch(3.0)  # type: ignore[arg-type]
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]
