"""Writing under no_grad: the numbers are new, the derivative is that of what was there before, in every mode.

Forward mode is not switched off by no_grad: tangents follow the write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg

X = np.array([0.7, -1.2, 2.0, 0.4])
V = np.array([0.5, -1.0, 2.0, 0.25])


def t(x: Any) -> Any:
    return wg.tensor(x, dtype=wg.float64)


def straight(old: Any, new: Any) -> Any:
    """The numbers of `new` with the derivative of `old`, written out."""
    return old + (new - old).detach()


Write = Callable[[Any, Any, Any], Any]  # (y, a view of y that was made before, x): writes to y

WRITES: dict[str, Write] = {
    "y.mul_": lambda y, v, x: y.mul_(3.0),
    "y += 1": lambda y, v, x: y.__iadd__(1.0),
    "y[1:].mul_": lambda y, v, x: y[1:].mul_(3.0),
    "y[1:] = x": lambda y, v, x: y.__setitem__(slice(1, None), x[1:] * 5.0),
    "y[1:] = 7": lambda y, v, x: y.__setitem__(slice(1, None), 7.0),
    "y[...] = x": lambda y, v, x: y.__setitem__(..., x * 5.0),
    "y[[0, 2]] = x": lambda y, v, x: y.__setitem__([0, 2], x[:2] * 5.0),
    "copy_": lambda y, v, x: y.copy_(x * 5.0),
    "copy_ of an argument": lambda y, v, x: y.copy_(x),
    "fill_": lambda y, v, x: y.fill_(2.0),
    "out=": lambda y, v, x: wg.sin(x, out=y),
    "an older view": lambda y, v, x: v.mul_(3.0),
    "a part of a view": lambda y, v, x: v[1:].add_(x[0]),
    "a transposed view": lambda y, v, x: y.reshape(2, 2).T[0].mul_(3.0),
    "twice": lambda y, v, x: (y.mul_(3.0), v.sub_(x[1:])),
}


def program(write: Write) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        y = x * x
        v = y[1:]
        before = (wg.sin(y) * x).sum()
        with wg.no_grad():
            write(y, v, x)
        return before + (y * y * x).sum() + (wg.exp(v * 0.1) * x[1:]).sum()

    return f


def meaning(write: Write) -> Callable[[Any], Any]:
    """The same without writing to what is differentiated."""

    def f(x: Any) -> Any:
        old = x * x
        new = old.detach().clone()
        write(new, new[1:], x.detach())
        y = straight(old, new)
        return (wg.sin(old) * x).sum() + (y * y * x).sum() + (wg.exp(y[1:] * 0.1) * x[1:]).sum()

    return f


REVERSE: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "value": lambda f: f,
    "grad": wg.grad,
    "grad of grad": lambda f: wg.grad(lambda x: (wg.grad(f)(x) * t(V)).sum()),
}
COMPILED: dict[str, list[Callable[[Any], Callable[[Any], Any]]]] = {
    "value": [wg.compile],
    "grad": [lambda f: wg.grad(wg.compile(f)), lambda f: wg.compile(wg.grad(f))],
    "grad of grad": [
        lambda f: REVERSE["grad of grad"](wg.compile(f)),
        lambda f: wg.compile(REVERSE["grad of grad"](f)),
        lambda f: wg.grad(lambda x: (wg.compile(wg.grad(f))(x) * t(V)).sum()),
    ],
}


@pytest.mark.parametrize("mode", list(REVERSE))
@pytest.mark.parametrize("name", list(WRITES))
def test_reverse_mode_has_the_derivative_of_what_was_there(name: str, mode: str) -> None:
    f, expected = program(WRITES[name]), REVERSE[mode](meaning(WRITES[name]))(t(X)).numpy()
    for transform in (REVERSE[mode], *COMPILED[mode]):
        x = t(X)
        np.testing.assert_allclose(transform(f)(x).numpy(), expected, rtol=1e-12, atol=1e-12)
        assert x.tolist() == X.tolist()


@pytest.mark.parametrize("name", list(WRITES))
def test_backward_by_a_leaf(name: str) -> None:
    x = wg.tensor(X, dtype=wg.float64, requires_grad=True)
    expected = wg.grad(meaning(WRITES[name]))(t(X)).numpy()
    np.testing.assert_allclose(program(WRITES[name])(x).backward()[x].numpy(), expected, rtol=1e-12, atol=1e-12)


def along(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: wg.jvp(f, (x,), (t(V),))[1]


@pytest.mark.parametrize("name", list(WRITES))
def test_forward_mode_is_not_switched_off(name: str) -> None:
    f = program(WRITES[name])
    expected = (f(t(X + 1e-6 * V)).item() - f(t(X - 1e-6 * V)).item()) / 2e-6
    for g in (along(f), along(wg.compile(f)), wg.compile(along(f))):
        assert g(t(X)).item() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("name", list(WRITES))
def test_forward_and_reverse_together(name: str) -> None:
    f = program(WRITES[name])
    g = wg.grad(f)
    expected = along(g)(t(X)).numpy()
    for h in (along(wg.grad(wg.compile(f))), along(wg.compile(g)), wg.compile(along(g)), wg.grad(wg.compile(along(f)))):
        np.testing.assert_allclose(h(t(X)).numpy(), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(wg.grad(along(f))(t(X)).numpy(), expected, rtol=1e-12, atol=1e-12)


def test_a_tensor_without_history_stays_without() -> None:
    x = wg.tensor(X, dtype=wg.float64, requires_grad=True)
    y, z = wg.zeros((4,), dtype=wg.float64), x * 3.0
    with wg.no_grad():
        y.copy_(z)
    assert y.tolist() == z.tolist() and not y.requires_grad


def test_detached_writes_leave_the_derivative() -> None:
    def f(x: Any) -> Any:
        y = x * x
        y.detach().mul_(3.0)
        return (y * y).sum()

    for g in (wg.grad(f), wg.grad(wg.compile(f)), wg.compile(wg.grad(f))):
        np.testing.assert_allclose(g(t(X)).numpy(), 2 * 3 * X * X * 2 * X, rtol=1e-12)
    assert wg.compile(f)(t(X)).item() == pytest.approx(float((9 * X**4).sum()))


def test_an_argument_of_grad_is_written_under_no_grad() -> None:
    def f(x: Any) -> Any:
        with wg.no_grad():
            x.mul_(3.0)
        return (x * x).sum()

    for g in (wg.grad(f), wg.grad(wg.compile(f)), wg.compile(wg.grad(f))):
        x = t(X)
        np.testing.assert_allclose(g(x).numpy(), 6 * X, rtol=1e-12)
        assert x.tolist() == X.tolist()


def test_examples_of_vmap_are_written_under_no_grad() -> None:
    g = wg.grad(program(WRITES["y[1:] = x"]))
    rows = np.stack([X, X + 1.0])
    np.testing.assert_allclose(wg.vmap(g)(t(rows)).numpy(), np.stack([g(t(r)).numpy() for r in rows]), rtol=1e-12)
