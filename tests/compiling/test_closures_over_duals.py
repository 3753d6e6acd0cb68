"""Compiled functions that close over tensors of a transformation around the call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg

X = np.linspace(-1.0, 1.0, 6).reshape(2, 3)
W = np.linspace(0.5, 2.0, 6).reshape(2, 3)
W_DOT = np.cos(W)


def product(w: Any, x: Any) -> Any:
    return wg.compile(lambda h: wg.sin(h) * w)(x)


def gradient(w: Any, x: Any) -> Any:
    return wg.compile(wg.grad(lambda h: (h * h * w).sum()))(x)


def inner_argument_too(w: Any, x: Any) -> Any:
    return wg.compile(lambda h, v: h * w + wg.tanh(v) * w)(x, w * w)


def in_a_container(w: Any, x: Any) -> Any:
    return wg.compile(lambda tree: tree["h"] * w)({"h": x})


def layers(w: Any, x: Any) -> Any:
    return wg.softplus(wg.compile(lambda h: wg.layer_norm(h * w, (3,)) * w)(x))


_compiled = wg.compile

FUNCTIONS = [product, gradient, inner_argument_too, in_a_container, layers]


def plain(f: Any) -> Any:
    """The same function without compiling anything."""

    def run(w: Any, x: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wg, "compile", lambda g: g)
            return f(w, x)

    return run


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_every_mode(f: Any) -> None:
    x, w, w_dot = (wg.asarray(a) for a in (X, W, W_DOT))

    def total(g: Any) -> Any:
        return lambda v: (wg.sin(g(v, x))).sum()

    for transform in (
        lambda g: wg.jvp(lambda v: g(v, x), (w,), (w_dot,))[1],
        lambda g: wg.grad(total(g))(w),
        lambda g: wg.hvp(total(g), w, w_dot),
        lambda g: wg.jacfwd(lambda v: g(v, x))(w),
        lambda g: wg.jvp(lambda v: wg.jvp(lambda u: g(u, x), (v,), (w_dot,))[1], (w,), (w_dot,))[1],
        lambda g: _compiled(lambda v: wg.jvp(lambda u: g(u, x), (v,), (w_dot,))[1])(w),
    ):
        np.testing.assert_allclose(transform(f).numpy(), transform(plain(f)).numpy(), rtol=1e-12, atol=1e-13)


def test_a_handler_of_the_function_does_not_see_it() -> None:
    """Closing over a dual is no error of the function."""

    def careful(h: Any, w: Any) -> Any:
        try:
            return h * w
        except Exception:
            return h

    x, w, w_dot = (wg.asarray(a) for a in (X, W, W_DOT))
    _, y_dot = wg.jvp(lambda v: wg.compile(lambda h: careful(h, v))(x), (w,), (w_dot,))
    np.testing.assert_array_equal(y_dot.numpy(), X * W_DOT)


def test_a_function_is_compiled_again_for_plain_tensors() -> None:
    box = [wg.asarray(W)]
    f = wg.compile(lambda h: h * box[0])
    x, w, w_dot = (wg.asarray(a) for a in (X, W, W_DOT))

    def through_the_box(v: Any) -> Any:
        box[0] = v
        return f(x)

    np.testing.assert_array_equal(wg.jvp(through_the_box, (w,), (w_dot,))[1].numpy(), X * W_DOT)
    assert not f.traces
    box[0] = w
    np.testing.assert_array_equal(f(x).numpy(), X * W)
    assert len(f.traces) == 1


def test_in_place_writes_in_functions_that_close_over_duals() -> None:
    x, v = wg.tensor([1.0, 3.0]), wg.tensor([0.5, 2.0])

    def f(w: Any) -> Any:
        def g(h: Any) -> Any:
            a = w * 2.0
            a.zero_()
            a += w
            b = h * 1.0
            b.copy_(w)
            b[0] = a[1]
            return a * b * h

        return wg.compile(g)(x)

    # w₀ w₁ x₀ and w₁ w₁ x₁
    assert wg.jvp(f, (x,), (v,))[1].tolist() == [0.5 * 3.0 + 2.0 * 1.0, 2 * 3.0 * 2.0 * 3.0]
    assert wg.vjp(f, x)[1](wg.ones((2,)))[0].tolist() == [3.0, 1.0 + 18.0]


def test_a_tensor_of_the_trace_that_was_given_a_value_from_outside_can_be_changed_again() -> None:
    x, v, c = (wg.tensor(a, dtype=wg.float64) for a in ([1.0, 3.0], [0.5, 2.0], [4.0, 5.0]))

    def f(w: Any) -> Any:
        def g() -> Any:
            a, b = w * w, w * 2.0
            a.copy_(w)
            a.mul_(w)
            b.copy_(c)
            b[1:].add_(w[1:])
            return a * b

        return wg.compile(g)()

    # 4 w₀² and w₁² (5 + w₁)
    assert wg.jvp(f, (x,), (v,))[1].tolist() == [8 * 1.0 * 0.5, (2 * 3.0 * 8.0 + 9.0) * 2.0]
    assert wg.hvp(lambda w: f(w).sum(), x, v).tolist() == [8 * 0.5, (10.0 + 6 * 3.0) * 2.0]
