"""Lookahead and SAM by NumPy, their states, and schedules over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import optim

TARGET = np.array([1.0, -2.0, 3.0])


def trained(make: Any, steps: int = 12) -> tuple[Any, Any]:
    p = wg.Parameter(np.zeros(3))
    opt = make(p)
    for _ in range(steps):
        p.set_grad((p.numpy() - TARGET) * np.array([1.0, 2.0, 3.0]))
        opt.step()
    return p.numpy(), opt


def test_lookahead() -> None:
    found, _ = trained(lambda p: optim.Lookahead(optim.SGD([p], lr=0.1, momentum=0.5), k=5, alpha=0.3))
    x = slow = np.zeros(3)
    b = 0.0
    for t in range(1, 13):
        b = 0.5 * b + (x - TARGET) * np.array([1.0, 2.0, 3.0])
        x = x - 0.1 * b
        if t % 5 == 0:
            slow = slow + 0.3 * (x - slow)
            x = slow
    np.testing.assert_allclose(found, x, rtol=1e-12)


def test_lookahead_goes_on_where_it_was() -> None:
    make = lambda p: optim.Lookahead(optim.Adam([p], lr=0.1), k=4)
    whole, _ = trained(make)
    p = wg.Parameter(np.zeros(3))
    first = make(p)
    for t in range(12):
        if t == 6:
            state = first.state_dict()
            first = make(p)
            first.load_state_dict(state)
        p.set_grad((p.numpy() - TARGET) * np.array([1.0, 2.0, 3.0]))
        first.step()
    np.testing.assert_array_equal(p.numpy(), whole)
    with pytest.raises(wg.ArgumentError, match=r"shapes \[\(3,\)\], here they are \[\(2,\)\]"):
        make(wg.Parameter(np.zeros(2))).load_state_dict(first.state_dict())


def test_groups_and_schedules_are_those_inside() -> None:
    p, q = wg.Parameter(np.zeros(3)), wg.Parameter(np.ones(2))
    opt = optim.Lookahead(optim.SGD([p], lr=0.5), k=2)
    opt.add_param_group({"params": [q], "lr": 0.25})
    opt.param_groups[0]["lr"] = 1.0
    for _ in range(2):
        grads = ((p - 1.0).sum() + q.sum()).backward()
        opt.step(grads)
    assert p.tolist() == [-1.0] * 3 and q.tolist() == [0.75] * 2


@pytest.mark.parametrize("adaptive", [False, True])
def test_sam(adaptive: bool) -> None:
    x, y = np.array([1.0, -2.0]), np.array([0.5])
    p, q = wg.Parameter(x), wg.Parameter(y)
    opt = optim.SAM(optim.SGD([p, q], lr=0.1), rho=0.3, adaptive=adaptive)

    def loss(a: Any, b: Any) -> Any:
        return (a**4).sum() + (a * a).sum() * (b * b).sum()

    def closure() -> Any:
        opt.zero_grad()
        value = loss(p, q)
        value.backward()
        return value

    def slopes(a: Any, b: Any) -> tuple[Any, Any]:
        return 4 * a**3 + 2 * a * (b * b).sum(), 2 * b * (a * a).sum()

    for _ in range(3):
        expected = loss(x, y)
        g = slopes(x, y)
        moves = [v * v * d if adaptive else d for v, d in zip((x, y), g)]
        norm = np.sqrt(sum((m * d).sum() for m, d in zip(moves, g)))
        there = slopes(*(v + 0.3 * m / norm for v, m in zip((x, y), moves)))
        x, y = (v - 0.1 * d for v, d in zip((x, y), there))
        assert opt.step(closure).item() == pytest.approx(expected)
        np.testing.assert_allclose(p.numpy(), x, rtol=1e-12)
        np.testing.assert_allclose(q.numpy(), y, rtol=1e-12)


def test_sam_puts_the_weights_back_if_the_closure_fails() -> None:
    p, calls = wg.Parameter(np.ones(2)), []
    opt = optim.SAM(optim.SGD([p], lr=0.1))

    def closure() -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of data")
        opt.zero_grad()
        (p * p).sum().backward()
        return 0.0

    with pytest.raises(RuntimeError, match="out of data"):
        opt.step(closure)
    assert p.tolist() == [1.0, 1.0]


def test_bad_arguments_are_named() -> None:
    sgd = optim.SGD([wg.Parameter(np.ones(2))])
    for call, message in [
        (lambda: optim.Lookahead(sgd, k=0), "k must be at least 1"),
        (lambda: optim.Lookahead(sgd, alpha=0.0), "alpha in"),
        (lambda: optim.Lookahead([1]), "wraps an optimizer, got list"),  # type: ignore[arg-type]
        (lambda: optim.SAM(sgd, rho=0.0), "rho must be positive"),
        (lambda: optim.SAM(sgd).step(), "takes a function"),
        (lambda: optim.SAM(sgd).step(lambda: 0.0), "must call backward"),
    ]:
        with pytest.raises((wg.ArgumentError, wg.GradientError), match=message):
            call()
