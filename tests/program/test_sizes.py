"""Sizes that guards found equal are one symbol, so that what is of one size runs in one pass."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.errors import ShapeError


def data(*shape: int, number: int = 0) -> Any:
    return wg.tensor(np.random.default_rng([5, number]).uniform(0.5, 2.0, shape))


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m = m + (g - m) * 0.1
    v = v * 0.999 + g * g * 0.001
    return p - m * 0.01 / (wg.sqrt(v) + 1e-8), m, v


def test_an_update_of_four_tensors_is_one_pass() -> None:
    compiled = wg.compile(adam)
    for shape in ((5, 3), (7, 2), (2, 2)):
        given = [data(*shape, number=k) for k in range(4)]
        for got, expected in zip(compiled(*given), adam(*given)):
            np.testing.assert_array_equal(got.numpy(), expected.numpy())
    (report,) = compiled.report()  # other sizes do not trace again
    assert report.passes == 1
    with pytest.raises(ShapeError, match="do not broadcast"):
        compiled(*(data(n, 3) for n in (4, 4, 5, 4)))


def test_the_derivative_too() -> None:
    compiled = wg.compile(adam)
    results = []
    for f in (adam, compiled):
        xs = [data(4, 3, number=k) for k in range(4)]
        for x in xs:
            x.requires_grad = True
        y, m, v = f(*xs)
        (y * data(4, 3, number=9) + m * v).sum().backward()
        results.append([x.grad.numpy() for x in xs])
    for got, expected in zip(*results):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_sizes_inside_expressions_are_replaced() -> None:
    @wg.compile
    def f(a: Any, b: Any, c: Any) -> Any:
        return (a + b).reshape((-1,)) * (b.reshape((-1,)) + c)

    for n, m in ((2, 3), (5, 4)):
        a, b, c = data(n, m), data(n, m, number=1), data(n * m, number=2)
        expected = (a.numpy() + b.numpy()).reshape(-1) * (b.numpy().reshape(-1) + c.numpy())
        np.testing.assert_array_equal(f(a, b, c).numpy(), expected)
    assert len(f.report()) == 1


def test_where_sizes_differ_another_program_runs() -> None:
    @wg.compile
    def f(a: Any, b: Any) -> Any:
        if a.shape[0] == b.shape[0]:
            return a * 2.0 + b
        return a.sum() + b

    a, equal, other = data(4), data(4, number=1), data(6, number=2)
    for _ in range(2):
        np.testing.assert_array_equal(f(a, equal).numpy(), a.numpy() * 2.0 + equal.numpy())
        np.testing.assert_allclose(f(a, other).numpy(), a.numpy().sum() + other.numpy(), rtol=1e-15)
    assert len(f.report()) == 2


def test_a_size_that_was_compared_with_a_number() -> None:
    @wg.compile
    def f(a: Any, b: Any) -> Any:
        return a * b if a.shape[1] == 3 else a - b

    x, y = data(2, 3), data(2, 3, number=1)
    np.testing.assert_array_equal(f(x, y).numpy(), x.numpy() * y.numpy())
    z, w = data(2, 4), data(2, 4, number=1)
    np.testing.assert_array_equal(f(z, w).numpy(), z.numpy() - w.numpy())
    assert [r.passes for r in f.report()] == [1, 1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize(
    "f",
    [
        lambda x, n: x * n,
        lambda x, n: n * x,
        lambda x, n: x / n,
        lambda x, n: n - x,
        lambda x, n: x // n,
        lambda x, n: n + x,
        lambda x, n: x < n,
        lambda x, n: n <= x,
        lambda x, n: x == n,
        lambda x, n: wg.maximum(x, n),
        lambda x, n: wg.where(x > 1, x, n),
    ],
)
def test_a_size_is_an_operand_as_the_integer_is(f: Any, dtype: str) -> None:
    captured = wg.tensor([2, 1, 3], dtype=dtype)
    compiled = wg.compile(lambda x: (f(x, x.shape[0]), f(captured, x.shape[0])))
    for n in (3, 5):  # the second time the program is there already
        x = wg.arange(n).astype(dtype)
        for y, expected in zip(compiled(x), (f(x, n), f(captured, n))):
            assert y.dtype == expected.dtype and y.tolist() == expected.tolist()


def test_gradients_of_a_mean_by_hand() -> None:
    f = wg.compile(lambda x: (x * x).sum() / x.shape[0])
    for n in (2, 4):
        x = wg.tensor(np.arange(1.0, n + 1), requires_grad=True)
        np.testing.assert_allclose(f(x).backward()[x].numpy(), 2 * np.arange(1.0, n + 1) / n)


@pytest.mark.parametrize("others_first", [False, True])
def test_sizes_that_happen_to_be_one_broadcast(others_first: bool) -> None:
    def plain(x: Any, z: Any) -> Any:
        return x[:, 1:] * z

    f, z = wg.compile(plain), data(3, 5, number=1)
    for n in (6, 2) if others_first else (2, 6):
        x, x_dot, z_dot = data(3, n), data(3, n, number=2), data(3, 5, number=3)

        def loss(g: Any, x: Any) -> Any:
            return (g(x, z) ** 2 * z).sum()

        for transform in (
            lambda g: wg.jvp(g, (x, z), (x_dot, z_dot))[1],
            lambda g: wg.grad(lambda x: loss(g, x))(x),
            lambda g: wg.hvp(lambda x: loss(g, x), x, x_dot),
            lambda g: wg.grad(lambda x: (wg.grad(lambda x: loss(g, x))(x) * x_dot).sum())(x),
        ):
            np.testing.assert_allclose(transform(f).numpy(), transform(plain).numpy(), rtol=1e-12)


def test_groups_of_one_channel_are_another_tangent() -> None:
    for channels in (2, 4):
        x, weight = data(3, channels, 7), data(channels, number=1)
        _, y_dot = wg.jvp(lambda x, w: wg.group_norm(x, 2, weight=w), (x, weight), (x, weight))
        _, expected = wg.jvp(lambda x, w: wg.group_norm(x, 2) * w.reshape((-1, 1)), (x, weight), (x, weight))
        np.testing.assert_allclose(y_dot.numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: wg.arange(x.shape[0]),
        lambda x: wg.arange(1, x.shape[0] + 1, dtype=wg.float32),
        lambda x: wg.arange(0, x.shape[0], 2),
        lambda x: x[wg.arange(x.shape[0]) % 2],
        lambda x: wg.pad(x, ((0, x.shape[0]), (0, 0))),
        lambda x: wg.repeat(x, x.shape[0], axis=1),
        lambda x: divmod(x, x.shape[0]),
        lambda x: x * (5 % x.shape[0]),
    ],
)
def test_sizes_stay_sizes(f: Any) -> None:
    compiled = wg.compile(f)
    for n in (3, 5, 4):
        assert_equal(compiled(data(n, 2)), f(data(n, 2)))
    assert len(compiled.traces) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: wg.softmax(x @ x.T / x.shape[-1] ** 0.5, axis=-1),
        lambda x: x * (1 / x.shape[0]) + x.shape[0] / 2,
        lambda x: x[: round(x.shape[0] * 0.5)] * (0.5 + x.shape[0]) * (x.shape[0] - 0.25),
        lambda x: x ** x.shape[0],
        lambda x: x * divmod(x.shape[0], 2)[1] * divmod(7, x.shape[0])[0],
        lambda x: x if x.shape[0] > 3.5 else -x,
        lambda x: wg.linspace(0, x.shape[0], 5),
        lambda x: wg.full((2,), x.shape[0]),
        lambda x: (wg.tensor(x.shape), wg.asarray([[x.shape[0], 0.5]]), wg.tensor(x.shape[0])),
        lambda x: wg.arange(x.shape[0], 0, -1),
        lambda x: np.float32(2.0) * x.shape[0] * x,
        lambda x: x * (x.shape[0] == "a") + x * (x.shape[0] != None),  # noqa: E711
    ],
)
def test_sizes_are_numbers_beside_others(f: Any) -> None:
    compiled = wg.compile(f)
    for n in (3, 5, 3, 2):
        assert_equal(compiled(data(n, 2)), f(data(n, 2)))


def assert_equal(given: Any, expected: Any) -> None:
    for a, b in zip(given, expected) if isinstance(expected, tuple) else [(given, expected)]:
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)


@pytest.mark.parametrize("others_first", [False, True])
@pytest.mark.parametrize(
    ("f", "error", "match"),
    [
        (lambda x: wg.zeros((x.shape[0] // x.shape[1],)), ZeroDivisionError, "by zero"),
        (lambda x: wg.zeros((7 // x.shape[1],)), ZeroDivisionError, "by zero"),
        (lambda x: wg.zeros((x.shape[0] % x.shape[1],)), ZeroDivisionError, "by zero"),
        (lambda x: wg.zeros((7 % x.shape[1],)), ZeroDivisionError, "by zero"),
        (lambda x: x.reshape((x.shape[1] * x.shape[1], -1)), ShapeError, "-1 is ambiguous"),
    ],
)
def test_division_by_a_size_of_zero(f: Any, error: Any, match: str, others_first: bool) -> None:
    compiled = wg.compile(f)
    for n in (1, 3, 2) if others_first else ():
        assert compiled(wg.zeros((12, n))).shape == f(wg.zeros((12, n))).shape
    for g in (f, compiled):
        with pytest.raises(error, match=match):
            g(wg.zeros((12, 0)))


def test_division_of_a_size_by_the_number_zero() -> None:
    for f in (lambda x: wg.zeros((x.shape[0] // 0,)), lambda x: wg.zeros((x.shape[0] % 0,))):
        with pytest.raises(ZeroDivisionError, match="by zero"):
            wg.compile(f)(wg.zeros((3,)))


@pytest.mark.parametrize("shift", [0, 1, -1, 5, -7])
def test_rolls_of_any_size(shift: int) -> None:
    f = wg.compile(lambda x: wg.roll(x, shift, axis=0))
    for n in (2, 0, 1, 7):
        x = data(n, 3)
        np.testing.assert_array_equal(f(x).numpy(), np.roll(x.numpy(), shift, axis=0))
        np.testing.assert_array_equal(wg.jvp(f, (x,), (x,))[1].numpy(), np.roll(x.numpy(), shift, axis=0))


DERIVED: dict[str, Any] = {
    "squeeze": lambda x: wg.squeeze(x[:, 1:], axis=1) if x.shape[1] == 2 else x[:, 1:],
    "squeeze all": lambda x: wg.squeeze(x[:, 1:]),
    "einsum with itself": lambda x: wg.einsum("ij,ij->i", x[:, 1:], x[:, :1]),
    "einsum": lambda x: wg.einsum("ij,kj->ik", x[:, 1:], x[:, :1]),
    "einsum of a vector": lambda x: wg.einsum("ij,j->i", x, x[0, 1:]) if x.shape[1] == 2 else x,
    "diagonal": lambda x: wg.einsum("ii->i", x[:1, : x.shape[1] - 1]) if x.shape[1] == 2 else x,
    "product": lambda x: x[:, 1:] * x[:, :1] + x.sum(axis=1, keepdims=True),
    "write": lambda x: _written(x),
}


def _written(x: Any) -> Any:
    y = x.clone()
    y[0] = x[1:2, :1].reshape((1,))
    return y


@pytest.mark.parametrize("name", DERIVED)
def test_expressions_that_are_one_for_some_sizes(name: str) -> None:
    """Sizes such as n - 1 are compared with 1 by guards, whichever of the outcomes comes first."""
    f = DERIVED[name]
    for columns in ([3, 2, 4, 2], [2, 3, 2]):
        compiled = wg.compile(f)
        for n in columns:
            x = wg.asarray(np.random.default_rng(n).standard_normal((4, n)))
            expected = f(x)
            np.testing.assert_allclose(compiled(x).numpy(), expected.numpy(), rtol=1e-14)
            assert compiled(x).shape == expected.shape
            np.testing.assert_allclose(
                wg.grad(lambda x: wg.sin(compiled(x)).sum())(x).numpy(),
                wg.grad(lambda x: wg.sin(f(x)).sum())(x).numpy(),
                rtol=1e-12,
            )


def test_sizes_of_operands_are_compared_with_one_by_the_signature() -> None:
    f = wg.compile(lambda x: wg.squeeze(x) * 2.0)
    for shape in ((2, 3), (5, 7), (9, 4)):
        f(wg.ones(shape))
    assert len(f.traces) == 1
    assert not f.traces[0].guards


@pytest.mark.parametrize("compiled", [False, True])
def test_sums_of_many_sizes(compiled: bool) -> None:
    """Where each of many operands begins is a sum of the sizes of all before it; one derivation serves all sizes."""

    def joined(*xs: Any) -> Any:
        y = wg.concat(xs, axis=0)
        return y * wg.arange(y.shape[0], dtype=wg.float64)

    f = wg.compile(joined) if compiled else joined
    for sizes in ([2 + k % 5 for k in range(40)], [3 + k % 4 for k in range(40)]):
        xs = [wg.asarray(np.full(n, float(n))) for n in sizes]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        np.testing.assert_array_equal(
            f(*xs).numpy(), np.concatenate([np.asarray(x) for x in xs]) * np.arange(starts[-1])
        )
        gradients = wg.grad(lambda *xs: (f(*xs) ** 2).sum(), tuple(range(40)))(*xs)
        for k, g in enumerate(gradients):
            np.testing.assert_array_equal(g.numpy(), 2.0 * sizes[k] * np.arange(starts[k], starts[k + 1]) ** 2.0)
    if compiled:
        assert len(f.traces) == 1


@pytest.mark.parametrize("join", [wg.concat, wg.stack])
def test_deriving_takes_work_in_proportion_to_the_operands(join: Any) -> None:
    """Counted in calls of Python functions, which a rule that starts over for each operand makes many more of."""
    counts = []
    for n in (60, 240):
        xs = [wg.tensor(np.ones((2, 3)), requires_grad=True) for _ in range(n)]
        counts.append(0)

        def count(frame: Any, event: str, argument: Any) -> None:
            counts[-1] += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            y = join(xs)
        finally:
            sys.setprofile(None)
        y.sum().backward()
        assert xs[-1].grad.shape == (2, 3)
    assert counts[1] < 5 * counts[0]
