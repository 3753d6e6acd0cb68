"""Programs and entries of tapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg


def test_results_are_what_is_not_used_again() -> None:
    x = wg.ones((3,))
    with wg.GradientTape() as tape:
        a = x * 2.0
        wg.gelu(a), a.sum()
    program = tape.program()
    program.verify()
    assert [str(o.type) for o in program.outputs] == ["float32[3]", "float32[]"]


def test_entries() -> None:
    x = wg.tensor([1.0, 2.0])
    with wg.GradientTape(persistent=True) as tape:
        y = wg.exp(x)
        y.sum()
    exp, total = tape.entries
    assert (exp.op, total.op) == ("exp", "sum")
    assert [str(t) for t in exp.inputs + exp.outputs + total.outputs] == ["float32[2]", "float32[2]", "float32[]"]
    assert [s.tolist() for s in exp.saved] == [y.tolist()] and total.saved == ()
    assert "test_recorded.py" in exp.line and "exp(float32[2]) -> float32[2] at" in repr(exp)


def test_entries_of_custom_ops_and_of_what_was_freed() -> None:
    class Twice(wg.CustomOp):
        def forward(self, x: Any) -> Any:
            return 2.0 * x

        def backward(self, y_bar: Any, x: Any) -> Any:
            return 2.0 * y_bar

    x = wg.tensor([1.0, 2.0])
    with wg.GradientTape() as tape:
        y = wg.exp(Twice()(x)).sum()
    entries = tape.entries
    assert [e.op for e in entries][-2:] == ["exp", "sum"]
    assert [str(t) for e in entries for t in e.outputs] == ["float32[2]", "float32[2]", "float32[]"]
    tape.gradient(y, x)
    assert all(e.saved == () for e in entries)


# --------------------------------------------------------------------------------------------- running it again


def _network(x: Any, w: Any, labels: Any) -> Any:
    h = wg.gelu(x @ w[:4] + 0.5)
    h = wg.where(h > h.mean(), h, 0.1 * h)
    h = wg.layer_norm(h, h.shape[-1:])
    return wg.cross_entropy(h, labels) + h[wg.arange(3), h.argmax(axis=1)].sum() + 3.0


def _arguments(seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return (
        wg.tensor(rng.normal(size=(3, 4))),
        wg.tensor(rng.normal(size=(5, 6))),
        wg.tensor(rng.integers(0, 6, size=3)),
    )


def _recorded(f: Any, *args: Any) -> tuple[Any, Any]:
    with wg.GradientTape() as tape:
        y = f(*args)
    program = tape.program(y)
    program.verify()
    return program, y


def test_a_program_runs_again_to_the_same_bits() -> None:
    program, y = _recorded(_network, *_arguments(0))
    assert program().numpy().tobytes() == y.numpy().tobytes()
    x, w, labels = _arguments(1)
    assert [a.shape for a in program.arguments] == [w.shape, x.shape, labels.shape]  # as they are read first
    again = program(w, x, labels)
    assert again.numpy().tobytes() == _network(x, w, labels).numpy().tobytes()


def test_comparisons_indices_and_detached_values_are_computed_again() -> None:
    def f(x: Any) -> Any:
        rank = wg.argsort(x)
        return wg.where(x > 0, x * x, -x)[rank].cumsum(0).sum() + (x.detach() * x).sum() + (2 * x).detach()[0] * x[1]

    program, _ = _recorded(f, wg.tensor([1.0, -2.0, 3.0], dtype=wg.float64))
    x = wg.tensor([-4.0, 5.0, 0.5], dtype=wg.float64)
    assert len(program.inputs) == 1
    assert program(x).item() == f(x).item()
    assert wg.grad(program)(x).tolist() == wg.grad(f)(x).tolist()
    direction = wg.tensor([1.0, 2.0, 3.0], dtype=wg.float64)
    for ours, theirs in zip(wg.jvp(program, (x,), (direction,)), wg.jvp(f, (x,), (direction,))):
        assert abs(ours.item() - theirs.item()) < 1e-12
    assert wg.compile(program)(x).item() == f(x).item()


def test_what_no_grad_computed_has_no_derivative() -> None:
    def f(x: Any) -> Any:
        with wg.no_grad():
            scale = x.sum()
        return (x * scale).sum()

    program, _ = _recorded(f, wg.tensor([1.0, 2.0]))
    x = wg.tensor([3.0, 4.0])
    assert program(x).item() == 49.0
    assert wg.grad(program)(x).tolist() == [7.0, 7.0]


def test_what_is_created_inside_is_part_of_the_program() -> None:
    def f(x: Any) -> Any:
        return (x * wg.arange(3) + wg.zeros((3,)) + wg.randn(3) + wg.tensor([1.0, 2.0, 3.0])).sum() + wg.eye(3)[0, 0]

    program, y = _recorded(f, wg.ones((3,)))
    assert len(program.inputs) == 1 and program().item() == y.item()


def test_random_numbers_are_those_that_were_drawn() -> None:
    x = wg.ones((1000,))
    program, y = _recorded(lambda z: wg.dropout(z, 0.5, training=True).sum(), x)
    assert len(program.inputs) == 1
    assert program().item() == y.item() == program(x).item()


def test_derivatives_that_were_recorded_run_again() -> None:
    def f(x: Any) -> Any:
        return wg.grad(lambda z: (wg.softmax(wg.tanh(z) * z) * z).sum())(x).sum()

    program, y = _recorded(f, wg.tensor([0.3, -0.2, 0.7], dtype=wg.float64))
    assert program().item() == y.item()
    x = wg.tensor([1.3, 0.1, -0.4], dtype=wg.float64)
    assert len(program.inputs) == 1
    assert program(x).item() == f(x).item()


def test_custom_ops_are_called_again_unless_they_are_impure() -> None:
    calls = []

    @wg.custom_op
    def cube(x: Any) -> Any:
        calls.append(x.tolist())
        return wg.asarray(x.numpy() ** 3)

    @cube.defjvp
    def _(x_dot: Any, y: Any, x: Any) -> Any:
        return 3 * x**2 * x_dot

    program, _ = _recorded(lambda z: (cube(z) * 2.0).sum(), wg.tensor([1.0, 2.0]))
    x = wg.tensor([3.0, 4.0])
    assert program(x).item() == 2 * (27 + 64)
    assert calls == [[1.0, 2.0], [3.0, 4.0]]
    assert wg.grad(program)(x).tolist() == [54.0, 96.0]

    @wg.custom_op(pure=False)
    def clock(x: Any) -> Any:
        return x + 1.0

    clock.defjvp(lambda x_dot, y, x: x_dot)
    program, _ = _recorded(lambda z: clock(z).sum(), wg.tensor([1.0, 2.0]))
    with pytest.raises(wg.CustomOpError, match="clock cannot be run again: it was declared with pure=False"):
        program()


def test_an_argument_that_was_overwritten_is_refused() -> None:
    x = wg.asarray(np.array([1.0, 2.0]))  # NumPy's memory, which is written where it lies
    program, y = _recorded(lambda z: (z * z).sum(), x)
    x.add_(1.0)
    with pytest.raises(wg.InPlaceError, match=r"read at .*test_recorded.py.* and overwritten at .*test_recorded.py"):
        program()
    assert program(x).item() == 13.0 and y.item() == 5.0


def test_an_argument_that_is_changed_later_is_kept() -> None:
    x = wg.tensor([1.0, 2.0])
    program, y = _recorded(lambda z: (z * z).sum(), x)
    x.add_(1.0)
    assert program().item() == y.item() == 5.0


def _writing(x: Any) -> Any:
    mask = x > 1.5
    mask[0] = True
    y = wg.where(mask, x, 0.0) * 1.0
    part = y[1:]
    part.mul_(3.0)
    y[0] += 2.0
    with wg.no_grad():
        y[1:].mul_(5.0)
    count = wg.zeros((2,))
    view = count[:1]
    with wg.no_grad():
        view.add_(x[0])
        count.mul_(2.0)
    return (y * y).sum() + part.sum() + (view * count).sum()


def test_writes_in_place_are_done_again() -> None:
    program, y = _recorded(_writing, wg.tensor([1.0, 2.0]))
    assert len(program.inputs) == 1 and program().item() == y.item()
    x = wg.tensor([-4.0, 1.0])
    assert program(x).item() == _writing(x).item()
    x = wg.tensor([3.0, 7.0])
    assert program(x).item() == _writing(x).item()
    np.testing.assert_allclose(wg.grad(program)(x).numpy(), wg.grad(_writing)(x).numpy())


def test_results_that_the_tape_does_not_know_are_refused() -> None:
    x = wg.tensor([1.0, 2.0])
    with wg.GradientTape() as tape:
        y = x * x
    assert str(tape.program(y)) == str(tape.program())
    with pytest.raises(wg.ArgumentError, match="not computed while this tape recorded"):
        tape.program(x)
    with pytest.raises(wg.ArgumentError, match="not computed while this tape recorded"):
        tape.program(y + 1.0)


def test_inputs_of_another_type_are_refused() -> None:
    program, _ = _recorded(lambda z: (z * z).sum(), wg.tensor([1.0, 2.0]))
    with pytest.raises(wg.ShapeError, match=r"input 0 was recorded as float32\[2\], got float32\[3\]"):
        program(wg.ones((3,)))
    with pytest.raises(wg.DTypeError, match=r"got float64\[2\]; convert it with astype"):
        program(wg.ones((2,), dtype=wg.float64))
    with pytest.raises(wg.ArgumentError, match="takes 1 inputs, got 2"):
        program(wg.ones((2,)), wg.ones((2,)))


def test_recording_keeps_no_intermediate_results() -> None:
    x = wg.ones((1000, 100))
    with wg.GradientTape() as tape:
        before = wg.memory_stats().live_bytes
        ((x + 1.0) + 2.0).sum()  # no derivative reads these sums
        assert wg.memory_stats().live_bytes - before < 10_000
    assert tape.program()().item() == 400_000.0
