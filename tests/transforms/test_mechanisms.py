"""Counters prove the mechanisms: what is saved, what is computed, what is freed."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import _core
from wengert.passes.derive import derive
from wengert.program.ir import Instruction, Program, Type, Var
from wengert.registry.record import OPS

N = 4096


def saved_by(f: Any, *xs: Any) -> int:
    """Bytes that recording f saves beyond its inputs and outputs being there anyway: what the core counts."""
    before = _core.memory_stats()["saved_bytes"]
    y = f(*xs)
    after = _core.memory_stats()["saved_bytes"]
    del y
    return int(after - before)


def live_by(f: Any, *xs: Any) -> int:
    """Bytes alive through the result of f: its value, and what was saved for it."""
    gc.collect()
    gc.collect()  # what the first one has freed may have been all that kept other cycles
    before = _core.memory_stats()["live_bytes"]
    y = f(*xs)
    gc.collect()
    after = _core.memory_stats()["live_bytes"]
    del y
    return int(after - before)


@pytest.fixture
def x() -> wg.Tensor:
    return wg.tensor(np.linspace(-1, 1, N), dtype=wg.float32, requires_grad=True)


def test_relu_keeps_a_mask(x: wg.Tensor) -> None:
    h = x * 2.0
    f = lambda h: wg.relu(h)
    f(h)
    assert live_by(f, h) == 4 * N + N, "the output, and one byte per element"


def test_tanh_keeps_its_output_and_nothing_new(x: wg.Tensor) -> None:
    h = x * 2.0
    for f in (wg.tanh, wg.exp, wg.sigmoid, wg.sqrt):
        f(h)
        assert live_by(f, h) == 4 * N


def test_what_is_kept_does_not_depend_on_an_empty_first_example() -> None:
    for name in ("tanh", "exp", "sigmoid", "sqrt"):
        variable = Var(Type(wg.float32.code, (0,)))
        y = Var(variable.type)
        program = Program([variable], [Instruction(OPS[name], (variable,), (), (y,))], [y])
        assert derive(program, 1, name).n_residuals == 0


def test_linear_ops_keep_nothing(x: wg.Tensor) -> None:
    for f in (lambda z: z + 1.0, lambda z: -z, lambda z: z.sum(), lambda z: z * 3.0, lambda z: wg.concat([z, z])):
        f(x)
        assert saved_by(f, x) <= 8, "at most a number"


def test_views_keep_nothing(x: wg.Tensor) -> None:
    for f in (lambda z: z[::2], lambda z: z.reshape((64, 64)), lambda z: wg.broadcast_to(z, (3, N))):
        f(x)
        assert live_by(f, x) == 0
        assert saved_by(f, x) == 0


def test_a_frozen_operand_is_saved_and_the_other_is_not(x: wg.Tensor) -> None:
    frozen = wg.ones((N,))
    h = x * 2.0
    f = lambda h: h * frozen
    f(h)
    assert live_by(f, h) == 4 * N


def test_layer_norm_keeps_two_numbers_a_row() -> None:
    rows, columns = 64, 256
    x = wg.randn(rows, columns, requires_grad=True)
    h = x * 2.0
    f = lambda h: wg.layer_norm(h, (columns,))
    f(h)
    extra = live_by(f, h) - 4 * rows * columns
    assert extra <= 2 * 4 * rows


def test_softmax_keeps_two_numbers_a_row() -> None:
    x = wg.randn(64, 256, requires_grad=True)
    h = x * 2.0
    wg.softmax(h)
    assert live_by(wg.softmax, h) <= 4 * 64 * 256 + 2 * 4 * 64


def test_gelu_keeps_its_input_only(x: wg.Tensor) -> None:
    h = x * 2.0
    wg.gelu(h)
    assert live_by(wg.gelu, h) == 4 * N


def test_no_grad_keeps_nothing(x: wg.Tensor) -> None:
    def f(z: Any) -> Any:
        with wg.no_grad():
            return wg.sin(z) * z

    assert saved_by(f, x) == 0


def test_frozen_inputs_are_pruned() -> None:
    x, w1, w2 = wg.randn(8, 16), wg.randn(16, 32, requires_grad=True), wg.randn(32, 4, requires_grad=True)
    y = (wg.relu(x @ w1) @ w2).sum()
    one = wg.ones(())
    *_, nodes, edges = _core.backward([(y, one)], None, True, False, True)
    assert (nodes, edges) == (4, 5), "sum, product (two), relu, product (w1 alone: x is data)"
    *_, nodes, edges = _core.backward([(y, one)], [_core.node_of(w2)], True, False, False)
    assert (nodes, edges) == (2, 2), "sum, and the product for w2 alone; the relu is not entered"


def test_compiled_functions_prune_too() -> None:
    f = wg.compile(lambda x, w: wg.tanh(x @ w).sum())
    x, w = wg.randn(8, 16), wg.randn(16, 4, requires_grad=True)
    y = f(x, w)
    before = _core.run_counters()
    y.backward()
    after = _core.run_counters()
    assert after[2] - before[2] == 1, "one matrix product: the gradient of x is not computed"


def test_dropped_losses_free_their_graphs(x: wg.Tensor) -> None:
    gc.collect()
    before = _core.memory_stats()["live_bytes"]
    for _ in range(3):
        loss = (wg.tanh(wg.sin(x) * x) ** 2).sum()
    del loss
    assert _core.memory_stats()["live_bytes"] == before
    f = wg.compile(lambda z: (wg.tanh(wg.sin(z) * z) ** 2).sum())
    f(x)
    gc.collect()
    before = _core.memory_stats()["live_bytes"]
    f(x)
    assert _core.memory_stats()["live_bytes"] == before


def test_transformations_leave_nothing_behind() -> None:
    z = wg.tensor(np.linspace(0.1, 1, 100))
    f = lambda a: (wg.tanh(a) * a).sum()
    v = wg.ones_like(z)

    def everything() -> None:
        wg.grad(f)(z)
        wg.hvp(f, z, v)
        wg.grad(lambda a: (wg.grad(f)(a) * v).sum())(z)
        wg.linearize(f, z)[1](v)
        wg.jvp(wg.grad(f), (z,), (v,))

    everything()
    gc.collect()
    before = _core.memory_stats()["live_bytes"]
    for _ in range(5):
        everything()
    gc.collect()
    assert _core.memory_stats()["live_bytes"] == before
    assert _core.memory_stats()["saved_bytes"] == 0 or _core.memory_stats()["saved_bytes"] < 10_000_000


def test_backward_peak_is_not_all_gradients_at_once() -> None:
    """Cotangents are freed as the walk goes: a long chain needs a few, not one per op."""
    x = wg.tensor(np.ones(100_000, np.float32), requires_grad=True)
    y = x
    for _ in range(50):
        y = y + 1.0
    loss = y.sum()
    del y
    _core.reset_peak()
    live = _core.memory_stats()["live_bytes"]
    loss.backward()
    assert _core.memory_stats()["peak_bytes"] - live <= 4 * 400_000


def test_sizes_that_only_a_folded_broadcast_reads_are_known_at_second_order() -> None:
    """1/n is a value without axes; that it is broadcast to b's size is folded away when the program is lowered."""

    @wg.compile
    def f(a: Any, b: Any) -> Any:
        return ((b * 0.8 + 0.2 / wg.sum(wg.ones_like(a))) * a).sum()

    a, b = wg.asarray(np.array([0.5, 2.0, -1.0])), wg.asarray(np.array([1.0, 3.0, 2.0]))

    def gradient(x: Any, y: Any) -> Any:
        return wg.vjp(f, x, y)[1](wg.asarray(np.array(1.0)))

    pulled = wg.vjp(gradient, a, b)[1]((a, b))
    np.testing.assert_allclose(pulled[0].numpy(), 0.8 * b.numpy())
    np.testing.assert_allclose(pulled[1].numpy(), 0.8 * a.numpy())
