"""What differentiated functions return: tensors and numbers; and None, where a return was forgotten."""

from __future__ import annotations

from typing import Any

import pytest

import wengert as wg

X = wg.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    "call",
    [
        lambda f: wg.grad(f)(X),
        lambda f: wg.value_and_grad(f)(X),
        lambda f: wg.vjp(f, X),
        lambda f: wg.jvp(f, (X,), (X,)),
        lambda f: wg.linearize(f, X),
        lambda f: wg.jacobian(f)(X),
        lambda f: wg.hessian(f)(X),
        lambda f: wg.hvp(f, X, X),
    ],
)
def test_a_forgotten_return_is_named(call: Any) -> None:
    def f(x: Any) -> None:
        (x * x).sum()

    with pytest.raises(wg.GradientError, match="the function returned None; it must return a tensor"):
        call(f)


def test_numbers_are_results() -> None:
    with pytest.warns(UserWarning, match="does not depend on the argument"):
        assert wg.grad(lambda x: 1.0)(X).tolist() == [0.0, 0.0]
    y, y_dot = wg.jvp(lambda x: (1.0, x), (X,), (X,))
    assert y[0] == 1.0 and y_dot[0] == 0.0 and y_dot[1].tolist() == [1.0, 2.0]
