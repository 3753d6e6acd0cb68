"""Loops: `scan` and `fori_loop`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd

RNG = np.random.default_rng(0)


def real(*shape: int) -> Any:
    return wg.tensor(RNG.normal(size=shape))


def recurrent(w: Any, h: Any, xs: Any, reverse: bool = False) -> Any:
    def turn(carry: Any, x: Any) -> Any:
        h, count = carry
        h = wg.tanh(h @ w + x)
        return (h, count + 1), (h * h).sum()

    (h, count), ys = wg.scan(turn, (h, wg.tensor(0)), xs, reverse=reverse)
    return (h * wg.arange(h.size)).sum() + (ys * wg.arange(ys.size)).sum() * count


ARGUMENTS = (real(3, 3), real(3), real(5, 3))


@pytest.mark.parametrize("reverse", [False, True])
class TestModes:
    def test_values_and_gradients(self, reverse: bool) -> None:
        def f(*args: Any) -> Any:
            return recurrent(*args, reverse=reverse)

        compiled = wg.compile(f)
        assert compiled(*ARGUMENTS).item() == pytest.approx(f(*ARGUMENTS).item(), rel=1e-14)
        expected = fd.gradient(lambda *a: f(*map(wg.asarray, a)).item(), [x.numpy() for x in ARGUMENTS])
        for g in (f, compiled):
            for ours, e in zip(wg.grad(g, (0, 1, 2))(*ARGUMENTS), expected):
                np.testing.assert_allclose(ours.numpy(), e, rtol=1e-6, atol=1e-7)

    def test_forward(self, reverse: bool) -> None:
        def f(*args: Any) -> Any:
            return recurrent(*args, reverse=reverse)

        dots = (real(3, 3), real(3), real(5, 3))
        for a, b in zip(wg.jvp(f, ARGUMENTS, dots), wg.jvp(wg.compile(f), ARGUMENTS, dots)):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)

    def test_second_order(self, reverse: bool) -> None:
        def f(h: Any) -> Any:
            return recurrent(ARGUMENTS[0], h, ARGUMENTS[2], reverse=reverse)

        compiled, h = wg.compile(f), ARGUMENTS[1]
        expected = wg.hessian(f)(h).numpy()
        for hessian in (wg.hessian(compiled), wg.jacfwd(wg.grad(compiled)), wg.jacrev(wg.grad(compiled))):
            np.testing.assert_allclose(hessian(h).numpy(), expected, rtol=1e-10, atol=1e-12)
        whole = wg.compile(wg.hessian(f))(h)
        np.testing.assert_allclose(whole.numpy(), expected, rtol=1e-10, atol=1e-12)


def test_other_lengths_and_sizes_do_not_trace_again() -> None:
    f = wg.compile(recurrent)
    for n, d in ((5, 3), (7, 3), (4, 6)):
        args = (real(d, d), real(d), real(n, d))
        assert f(*args).item() == pytest.approx(recurrent(*args).item(), rel=1e-12)
        for ours, theirs in zip(wg.grad(f, (0, 1, 2))(*args), wg.grad(recurrent, (0, 1, 2))(*args)):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-10, atol=1e-12)
    assert len(f.traces) == 1


def test_loops_without_slices_or_results() -> None:
    def power(x: Any) -> Any:
        return wg.fori_loop(1, 6, lambda i, c: c * x + i, wg.tensor(1.0, dtype=wg.float64)).sum()

    x = wg.tensor(1.3, dtype=wg.float64)
    assert wg.compile(power)(x).item() == pytest.approx(power(x).item(), rel=1e-14)
    assert wg.grad(wg.compile(power))(x).item() == pytest.approx(wg.grad(power)(x).item(), rel=1e-13)
    carry, ys = wg.compile(lambda c: wg.scan(lambda c, x: (c * 2.0, c), c, length=4))(wg.tensor(1.0))
    assert carry.item() == 16.0 and ys.tolist() == [1.0, 2.0, 4.0, 8.0]


def test_a_loop_of_no_turns() -> None:
    f = wg.compile(lambda c, xs: wg.scan(lambda c, x: (c + x, c * x), c, xs))
    carry, ys = f(wg.ones((3,)), wg.ones((0, 3)))
    assert carry.tolist() == [1.0, 1.0, 1.0] and ys.shape == (0, 3)
    gradient = wg.grad(lambda c: f(c, wg.ones((0, 3)))[0].sum())(wg.ones((3,)))
    assert gradient.tolist() == [1.0, 1.0, 1.0]


def test_a_long_loop_is_one_instruction() -> None:
    f = wg.compile(lambda x: wg.fori_loop(0, 10_000, lambda i, c: c + x * 1e-4, wg.zeros(())))
    assert f(wg.tensor(1.0)).item() == pytest.approx(1.0, rel=1e-3)
    assert f.report()[0].instructions < 10
    assert wg.grad(f)(wg.tensor(1.0)).item() == pytest.approx(1.0, rel=1e-3)


def test_forward_mode_keeps_nothing() -> None:
    f = wg.compile(lambda x: wg.fori_loop(0, 2_000, lambda i, c: wg.sin(c) + x, wg.zeros((100,))).sum())
    x = wg.ones((100,))
    wg.jvp(f, (x,), (x,))
    wg.empty_pool()
    wg.reset_peak()
    before = wg.memory_stats().live_bytes
    wg.jvp(f, (x,), (x,))
    assert wg.memory_stats().peak_bytes - before < 100_000  # 2,000 turns of 400 bytes would be 800,000


def test_arguments_are_not_overwritten_by_what_is_carried_on() -> None:
    f = wg.compile(lambda c: wg.scan(lambda c, x: (c * 2.0 + 1.0, None), c, length=3)[0])
    c = wg.ones((4,))
    assert f(c).tolist() == [15.0] * 4 and c.tolist() == [1.0] * 4


def test_nested_loops_and_branches_inside() -> None:
    def f(x: Any) -> Any:
        def turn(c: Any, row: Any) -> Any:
            inner, _ = wg.scan(lambda s, v: (s * 0.5 + wg.sin(v * c), None), c, row)
            return wg.cond(inner > 0, lambda i: i * 2.0, lambda i: i * i, inner), inner

        carry, ys = wg.scan(turn, wg.tensor(0.4, dtype=wg.float64), x)
        return carry + (ys * ys).sum()

    x = real(3, 4)
    compiled = wg.compile(f)
    assert compiled(x).item() == pytest.approx(f(x).item(), rel=1e-13)
    np.testing.assert_allclose(wg.grad(compiled)(x).numpy(), wg.grad(f)(x).numpy(), rtol=1e-11, atol=1e-13)
    tangents = [wg.jvp(g, (x,), (wg.ones_like(x),))[1].item() for g in (f, compiled)]
    assert tangents[0] == pytest.approx(tangents[1], rel=1e-12)


def test_parameters_that_the_body_closes_over() -> None:
    cell = wg.nn.Linear(4, 4)

    def loss(xs: Any) -> Any:
        h, _ = wg.scan(lambda h, x: (wg.tanh(cell(h) + x), None), wg.zeros((4,)), xs)
        return (h * h).sum()

    xs, gradients = wg.randn(6, 4), []
    for f in (loss, wg.compile(loss)):
        cell.zero_grad()
        f(xs).backward()
        gradients.append([p.grad.numpy().copy() for p in cell.parameters()])
    for a, b in zip(*gradients):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_batches_of_loops() -> None:
    w, hs, xs = real(3, 3), real(4, 3), real(4, 5, 3)
    for f in (recurrent, wg.grad(recurrent, 1)):
        expected = np.stack([f(w, h, x).numpy() for h, x in zip(hs, xs)])
        np.testing.assert_allclose(wg.vmap(f, in_axes=(None, 0, 0))(w, hs, xs).numpy(), expected, rtol=1e-10)
        shared = np.stack([f(w, h, xs[0]).numpy() for h in hs])
        np.testing.assert_allclose(wg.vmap(f, in_axes=(None, 0, None))(w, hs, xs[0]).numpy(), shared, rtol=1e-10)


def test_a_recorded_loop_runs_again() -> None:
    compiled, args = wg.compile(recurrent), ARGUMENTS
    with wg.GradientTape() as tape:
        y = compiled(*args)
    program = tape.program(y)
    program.verify()
    assert program().item() == y.item()
    assert wg.grad(program)(*program.arguments).shape == program.arguments[0].shape


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("wrap", [lambda f: f, wg.compile], ids=["eager", "compiled"])
def test_what_is_carried_keeps_its_type(wrap: Any) -> None:
    x = wg.ones((3,))
    with pytest.raises(wg.ShapeError, match=r"entry 0 was float32\[\], a turn made float32\[.*\]"):
        wrap(lambda x: wg.scan(lambda c, _: (c + x, None), wg.tensor(0.0), length=2))(x)
    with pytest.raises(wg.DTypeError, match=r"entry 0 was int64\[\], a turn made float32\[\]; use astype"):
        wrap(lambda x: wg.scan(lambda c, v: (c + v, None), 0, x))(x)
    with pytest.raises(wg.ArgumentError, match="the carry must keep its structure"):
        wrap(lambda x: wg.scan(lambda c, v: ((c, c), None), wg.tensor(0.0), x))(x)
    with pytest.raises(wg.ArgumentError, match="body_fn must return a pair"):
        wrap(lambda x: wg.scan(lambda c, v: c, wg.tensor(0.0), x))(x)
    with pytest.raises(wg.DTypeError, match=r"fori_loop: the carry must keep its types; entry 0 was int64\[\]"):
        wrap(lambda x: wg.fori_loop(0, 3, lambda i, c: c + x[0], 0))(x)


def test_lengths_that_do_not_fit() -> None:
    body = lambda c, x: (c, None)
    with pytest.raises(wg.ShapeError, match="must have the same size, got 3, 4"):
        wg.scan(body, wg.zeros(()), (wg.ones((3,)), wg.ones((4,))))
    with pytest.raises(wg.ShapeError, match="length is 5, but xs has 3 slices"):
        wg.scan(body, wg.zeros(()), wg.ones((3,)), length=5)
    with pytest.raises(wg.ShapeError, match="one has no axes"):
        wg.scan(body, wg.zeros(()), wg.ones(()))
    with pytest.raises(wg.ArgumentError, match="takes xs, or the length of the loop"):
        wg.scan(body, wg.zeros(()))
    with pytest.raises(wg.ArgumentError, match="length must be an integer that is not negative, got -1"):
        wg.scan(body, wg.zeros(()), length=-1)
    with pytest.raises(wg.ArgumentError, match="fori_loop: upper must be an integer, got a tensor; use while_loop"):
        wg.fori_loop(0, wg.tensor(3), body, wg.zeros(()))
    with pytest.raises(wg.ArgumentError, match="fori_loop: upper must be an integer, got float"):
        wg.fori_loop(0, 2.5, body, wg.zeros(()))


def test_random_numbers_in_the_body_are_refused() -> None:
    with pytest.raises(wg.TraceError, match="draws random numbers, which would be the same in every turn"):
        wg.compile(lambda c: wg.scan(lambda c, x: (c + wg.randn(3), None), c, length=2))(wg.zeros((3,)))


def test_the_gradient_of_a_compiled_loop_runs_it_once() -> None:
    g = wg.compile(wg.grad(recurrent, (0, 1, 2)))
    g(*ARGUMENTS)
    (trace,) = g.traces
    loops = [i for i in trace.program.instructions if i.op.name.startswith("scan")]
    assert len(loops) == 2, "one that keeps what it carries, and one back"
