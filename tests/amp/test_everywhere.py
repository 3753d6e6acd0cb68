"""Autocast beside the rest of the library: layers, compiled steps, control flow, Jacobians; and what it leaves behind."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(cls: Any) -> None:
    net, x = cls(8, 5), wg.randn(4, 7, 8)
    with wg.autocast():
        y, _ = net(x)
    grads = y.astype(wg.float32).sum().backward()
    assert y.dtype == wg.bfloat16 and all(grads[p].dtype == wg.float32 for p in net.parameters())


def test_running_statistics_stay_float32() -> None:
    net, x = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), wg.randn(2, 1, 6, 6)
    for _ in range(2):
        with wg.autocast():
            assert net(x).dtype == wg.float32
        assert net[1].running_mean.dtype == wg.float32
        net.eval()


def test_training_steps_compiled_and_eager() -> None:
    start, x = wg.randn(8, 8), wg.randn(3, 8)

    def trained(compiled: bool, inside: bool) -> str:
        w = wg.Parameter(start.clone())
        opt = wg.optim.Adam([w], lr=0.01)

        def step(x: Any) -> Any:
            with wg.autocast() if inside else contextlib.nullcontext():
                loss = wg.mse_loss(wg.tanh(x @ w), x)
            opt.step(loss.backward())
            return loss

        run = wg.compile(step) if compiled else step
        for _ in range(4):
            if inside:
                loss = run(x)
            else:
                with wg.autocast():
                    loss = run(x)
        return wg.fingerprint([loss.detach(), w.detach()])

    assert len({trained(c, i) for c in (False, True) for i in (False, True)}) == 1


def test_control_flow() -> None:
    w, xs = wg.randn(4, 4), wg.ones((3, 2))

    def body(carry: Any, x: Any) -> Any:
        return (carry @ w).astype(wg.float32), x

    with wg.autocast():
        eager = wg.scan(body, wg.ones((4, 4)), xs)[0]
        compiled = wg.compile(lambda c: wg.scan(body, c, xs)[0])(wg.ones((4, 4)))
        assert wg.cond(wg.tensor(True), lambda a: a @ w, lambda a: a @ w @ w, w).dtype == wg.bfloat16
    assert wg.fingerprint(eager) == wg.fingerprint(compiled) != wg.fingerprint(wg.scan(body, wg.ones((4, 4)), xs)[0])


def test_functions_that_are_traced_unasked_know_the_mode() -> None:
    w, v = wg.randn(6, 5), wg.randn(6)

    def f(v: Any) -> Any:
        return wg.tanh(v @ w)

    plain = wg.jacobian(f)(v)
    with wg.autocast():
        cast = [wg.jacobian(f)(v), wg.jacobian(f)(v)]
    assert wg.fingerprint(cast[0]) == wg.fingerprint(cast[1]) != wg.fingerprint(plain)
    assert wg.fingerprint(wg.jacobian(f)(v)) == wg.fingerprint(plain) and cast[0].dtype == wg.float32


def test_operands_that_are_no_tensors() -> None:
    a = np.ones((2, 2), np.float32)
    with wg.autocast():
        assert wg.linear(a, a).dtype == wg.matmul(a, a).dtype == (wg.ones((2, 2)) @ a).dtype == wg.bfloat16


def test_casts_do_not_pile_up() -> None:
    w, x = wg.Parameter(wg.randn(64, 64)), wg.randn(8, 64)

    def live(rounds: int) -> int:
        for _ in range(rounds):
            with wg.autocast():
                (wg.gelu(x @ w) @ w).sum().backward()
            w.grad = None
        with wg.autocast():
            for _ in range(rounds):
                (x @ w).sum().backward()
                w.grad = None
                with wg.no_grad():
                    w.mul_(0.999)
        gc.collect()
        return wg.memory_stats().live_bytes

    before = live(20)
    assert live(500) <= before + 4096
