"""A walk through a trace runs the rules once for instructions of one form, and copies what they made."""

import numpy as np
import pytest

import wengert as wg
from wengert.registry.record import OPS

X = np.linspace(0.2, 1.3, 6).reshape(2, 3)


def same_bits(f, *args):
    """The gradients by all arguments, compiled as a whole and eager; they have the same bits."""
    g = wg.grad(lambda *xs: f(*xs).sum(), tuple(range(len(args))))
    args = [wg.tensor(a) for a in args]
    compiled = wg.compile(g)
    for a, b in zip(compiled(*args), g(*args)):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    return compiled.traces[0].program


def repeated(body, n=5):
    def f(x, *others):
        for _ in range(n):
            x = body(x, *others)
        return x

    return f


@pytest.mark.parametrize(
    "body",
    [
        lambda x, y: wg.tanh(x * y),
        lambda x, y: wg.sin(x * x) * y * y,  # the same value twice, in some of the products
        lambda x, y: x**3 + x**2 / y,  # literals
        lambda x, y: wg.clip(x, 0.0, 1.0) + wg.clip(x, 0.5, 2.0) * y,
        lambda x, y: x.T.reshape(2, 3) - x.detach() * y,  # views, and operands without a gradient
        lambda x, y: wg.concat([x * y, x], axis=1)[:, :3] + x.sum(1, keepdims=True),
        lambda x, y: wg.where(x > y, x, 0.5) * wg.maximum(x, y),
    ],
)
def test_copies_are_what_the_rules_make(body):
    same_bits(repeated(body), X, X[::-1].copy() + 0.1)


def test_copies_follow_dtypes_and_shapes():
    def f(x, y):
        for a in (x, y, x[0], x.astype(wg.float32), x[:, :1]):
            y = y + wg.tanh(wg.tanh(a)).sum() + wg.exp(a * a).sum()
        return y

    same_bits(f, X, X + 0.3)


def test_a_second_derivative_goes_through_copies():
    inner = wg.grad(lambda x: repeated(lambda x: wg.tanh(x * x))(x).sum())
    same_bits(inner, X)


def test_a_rule_runs_once(monkeypatch):
    met, rule = [], OPS["tanh"].jvp
    monkeypatch.setattr(OPS["tanh"], "jvp", lambda *a: met.append(a) or rule(*a))
    both = wg.compile(wg.grad(lambda x: repeated(wg.tanh, 20)(x).sum()))
    both(wg.tensor(X))
    assert len(met) == 1


def test_a_copy_belongs_to_the_line_of_its_instruction():
    def f(x):
        x = wg.tanh(x)
        x = wg.tanh(x)
        return x

    program = same_bits(f, X)
    lines = [str(i.origin.line) for i in program.instructions if i.origin is not None and i.origin.op == "tanh"]
    assert len({*lines}) == 2


def test_hooks_see_copied_cotangents():
    seen = []

    def f(x):
        for _ in range(3):
            x = wg.tanh(x)
            x.register_hook(lambda g: seen.append(g) or 2.0 * g)
        return x

    same_bits(f, X)
    assert len(seen) == 6  # three while tracing, and three eager ones


def test_a_custom_op_is_asked_every_time():
    asked = []

    @wg.custom_op
    def double(x):
        return 2.0 * x

    @double.defvjp
    def _rule(y_bar, y, x):
        asked.append(y_bar)
        return (2.0 * y_bar,)

    same_bits(repeated(double, 2), X)
    assert len(asked) == 4  # twice while tracing, and twice eagerly
