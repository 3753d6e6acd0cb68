"""Random programs: eager, compiled and differentiated in every mode, they say the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wengert as wg
from tests import finite_differences as fd
from wengert import _core
from wengert.compiling.compile import summarize
from wengert.program.fuse import Group, fuse

SETTINGS = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

# Smooth, and tame for any real argument: finite differences stay honest however deep the program is.
UNARY: list[Callable[[Any], Any]] = [
    wg.sin, wg.tanh, wg.sigmoid, lambda x: wg.exp(-x * x), lambda x: x * 0.5, lambda x: x + 0.25, lambda x: 1.0 - x,
    lambda x: wg.sqrt(x * x + 1.0), lambda x: wg.erf(x), lambda x: wg.log1p(x * x), lambda x: -x,
    lambda x: (x * x + 0.5) ** 1.5 * 0.1, lambda x: x / (1.0 + x * x), wg.atan,
]  # fmt: skip
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * wg.tanh(b), lambda a, b: a / (b * b + 1.0),
    lambda a, b: wg.hypot(a, wg.sqrt(b * b + 0.5)),
]  # fmt: skip
ROWS: list[Callable[[Any], Any]] = [
    lambda x: wg.softmax(x, axis=-1), lambda x: x - x.mean(axis=-1, keepdims=True),
    lambda x: wg.logsumexp(x, axis=-1, keepdims=True) + x, lambda x: x.sum(axis=-1, keepdims=True) * wg.sin(x),
]  # fmt: skip
SHAPES: list[Callable[[Any], Any]] = [
    lambda x: x.T, lambda x: x[::-1], lambda x: wg.concat([x, x[:1]], axis=0)[1:],
    lambda x: x.reshape((-1,)).reshape(x.shape),
    lambda x: wg.roll(x, 1, axis=0), lambda x: wg.cumsum(x, axis=-1) * 0.3, lambda x: x[:, ::-1],
    lambda x: wg.broadcast_to(x.sum(axis=0, keepdims=True), x.shape) * 0.2,
]  # fmt: skip
STEPS = ["unary"] * 4 + ["binary"] * 3 + ["rows", "shapes", "matmul"]


@st.composite
def programs(
    draw: Any, kinds: list[str]
) -> tuple[Callable[..., Any], list[tuple[str, int, int, int]], tuple[int, int]]:
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from(kinds), st.integers(0, 40), st.integers(0, 10), st.integers(0, 10)),
            min_size=1,
            max_size=9,
        )
    )
    return make(steps), steps, shape


def product(a: Any, b: Any) -> Any:
    """A matrix product of whichever sides fit."""
    if a.shape[1] == b.shape[0]:
        return a @ b
    if a.shape[1] == b.shape[1]:
        return a @ b.T
    return a.T @ b if a.shape[0] == b.shape[0] else a


def make(steps: list[tuple[str, int, int, int]]) -> Callable[..., Any]:
    def f(x: Any, y: Any) -> Any:
        values = [x, y]
        for kind, which, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            if kind == "unary":
                values.append(UNARY[which % len(UNARY)](a))
            elif kind == "rows":
                values.append(ROWS[which % len(ROWS)](a))
            elif kind == "shapes":
                values.append(SHAPES[which % len(SHAPES)](a))
            elif kind == "matmul":
                values.append(product(a, b) * 0.3)
            elif a.shape == b.shape:
                values.append(BINARY[which % len(BINARY)](a, b))
            else:  # a row or a column of the other broadcasts
                values.append(BINARY[which % len(BINARY)](a, b.sum()))
        return values[-1]

    return f


def inputs(shape: tuple[int, int], dtype: Any = np.float64) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng([*shape, 11])
    return [rng.uniform(-1.5, 1.5, shape).astype(dtype) for _ in range(2)]


@given(programs(["unary", "binary", "rows"]))
@SETTINGS
def test_compiled_chains_have_the_bits_of_eager_ones(drawn: Any) -> None:
    f, _, shape = drawn
    for dtype in (np.float32, np.float64):
        xs = [wg.asarray(a) for a in inputs(shape, dtype)]
        np.testing.assert_array_equal(wg.compile(f)(*xs).numpy(), f(*xs).numpy())


@given(programs(STEPS))
@SETTINGS
def test_compiled_programs_agree_with_eager_ones(drawn: Any) -> None:
    f, _, shape = drawn
    xs = [wg.asarray(a) for a in inputs(shape)]
    g = wg.compile(f)
    np.testing.assert_allclose(g(*xs).numpy(), f(*xs).numpy(), rtol=1e-12, atol=1e-13)
    traced = g.traces[0]
    traced.program.verify()
    made = set(traced.program.inputs)
    for unit in fuse(traced.program):
        for i in unit.members if isinstance(unit, Group) else [unit]:
            assert all(v in made for v in i.vars())
            made.update(i.outputs)
    assert summarize(traced.program).passes >= 0


@given(programs(STEPS))
@SETTINGS
def test_derivatives(drawn: Any) -> None:
    """Forward, reverse, eager, compiled, recorded: one gradient. And finite differences."""
    f, _, shape = drawn
    arrays = inputs(shape)
    xs = tuple(wg.asarray(a) for a in arrays)
    y, pull = wg.vjp(f, *xs)
    (bar,) = fd.seeds([y.shape], 1)
    seed = wg.asarray(bar)
    reverse = [g.numpy() for g in pull(seed)]
    numeric = fd.gradient(lambda *a: float(np.sum(bar * f(*map(wg.asarray, a)).numpy())), arrays)
    for g, n in zip(reverse, numeric):
        np.testing.assert_allclose(g, n, rtol=1e-6, atol=1e-7)
    compiled = [g.numpy() for g in wg.vjp(wg.compile(f), *xs)[1](seed)]
    for g, r in zip(compiled, reverse):
        np.testing.assert_allclose(g, r, rtol=1e-9, atol=1e-11)
    x_dots = fd.seeds([shape, shape], 2)
    _, y_dot = wg.jvp(f, xs, tuple(map(wg.asarray, x_dots)))
    assert abs(fd.inner([bar], [y_dot.numpy()]) - fd.inner(reverse, x_dots)) < 1e-8
    leaves = [wg.tensor(a, requires_grad=True) for a in arrays]
    result = f(*leaves)
    if result.requires_grad:
        grads = result.backward(seed)
        for leaf, r in zip(leaves, reverse):
            g = grads.get(leaf)
            np.testing.assert_allclose(np.zeros(shape) if g is None else g.numpy(), r, rtol=1e-9, atol=1e-11)


@given(programs(STEPS))
@settings(SETTINGS, max_examples=40)
def test_second_order(drawn: Any) -> None:
    f, _, shape = drawn
    x, y = (wg.asarray(a) for a in inputs(shape))
    v = wg.asarray(fd.seeds([shape], 5)[0])

    def scalar(z: Any) -> Any:
        out = f(z, y)
        return (out * out).sum() + (z * z * z).sum()

    def twice(g: Any) -> Any:
        return wg.grad(lambda z: (wg.grad(g)(z) * v).sum())(x).numpy()

    expected = wg.hvp(scalar, x, v).numpy()
    numeric = fd.directional(lambda a: wg.grad(scalar)(wg.asarray(a)).numpy(), [x.numpy()], [v.numpy()])
    np.testing.assert_allclose(expected, numeric, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(twice(scalar), expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(twice(wg.compile(scalar)), expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(wg.compile(wg.grad(scalar))(x).numpy(), wg.grad(scalar)(x).numpy(), rtol=1e-8, atol=1e-9)


@given(programs(["unary", "binary", "rows"]), st.integers(2, 9), st.integers(2, 9))
@settings(SETTINGS, max_examples=40)
def test_one_trace_serves_every_size(drawn: Any, n: int, m: int) -> None:
    f, _, _ = drawn
    g = wg.compile(f)
    for shape in ((n, m), (m, n), (n + 1, m + 2)):
        arrays = inputs(shape)
        xs = [wg.asarray(a) for a in arrays]
        np.testing.assert_array_equal(g(*xs).numpy(), f(*xs).numpy())
        leaves = [wg.tensor(a, requires_grad=True) for a in arrays]
        seed = fd.seeds([shape], 3)[0]
        eager = [t.numpy() for t in wg.vjp(f, *xs)[1](wg.asarray(seed))]
        grads = g(*leaves).backward(seed)
        for leaf, e in zip(leaves, eager):
            got = grads.get(leaf)
            np.testing.assert_allclose(np.zeros(shape) if got is None else got.numpy(), e, rtol=1e-9, atol=1e-11)
    assert len(g.traces) == 1


@given(programs(["unary", "binary", "rows"]))
@settings(SETTINGS, max_examples=25)
def test_larger_sizes_and_threads_keep_the_bits(drawn: Any) -> None:
    f, _, _ = drawn
    xs = [wg.asarray(a) for a in inputs((37, 1500), np.float32)]
    g = wg.compile(f)
    eager = f(*xs).numpy()
    for n in (1, 2):
        _core.set_num_threads(n)
        np.testing.assert_array_equal(g(*xs).numpy(), eager)


@given(programs(STEPS))
@settings(SETTINGS, max_examples=40)
def test_programs_of_tapes_run_again_to_the_bit(drawn: Any) -> None:
    f, _, shape = drawn
    arrays = inputs(shape)
    first = [wg.tensor(a) for a in arrays]
    with wg.GradientTape() as tape:
        recorded = f(*first)
    program = tape.program(recorded)
    program.verify()
    np.testing.assert_array_equal(program().numpy(), recorded.numpy())
    others = [wg.tensor(0.9 - 0.5 * a) for a in arrays]
    which = [next(k for k, x in enumerate(first) if _shared(a, x)) for a in program.arguments]
    again = program(*(others[k] for k in which)) if which else program()
    np.testing.assert_array_equal(again.numpy(), f(*others).numpy())


def _shared(a: Any, b: Any) -> bool:
    return np.shares_memory(a.numpy(), b.numpy())


@given(programs(STEPS))
@settings(SETTINGS, max_examples=25)
def test_loops_and_branches_of_random_bodies(drawn: Any) -> None:
    f, _, shape = drawn
    arrays = inputs(shape)

    def turn(c: Any, x: Any) -> Any:
        y = f(c, x).sum() * 0.1
        return wg.cond(y > 0, lambda y: wg.tanh(c + y), lambda y: wg.sin(c) * y, y), y

    def looped(c: Any, xs: Any) -> Any:
        c, ys = wg.scan(turn, c, xs)
        return (c * c).sum() + (ys * wg.arange(3)).sum()

    c, xs = wg.tensor(arrays[0]), wg.tensor(np.stack([arrays[1] * s for s in (1.0, -0.5, 0.3)]))
    compiled = wg.compile(looped)
    np.testing.assert_allclose(compiled(c, xs).numpy(), looped(c, xs).numpy(), rtol=1e-9, atol=1e-11)
    eager = wg.grad(looped, (0, 1))(c, xs)
    for g in (wg.grad(compiled, (0, 1)), wg.compile(wg.grad(looped, (0, 1)))):
        for ours, theirs in zip(g(c, xs), eager):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-7, atol=1e-9)
    dots = (wg.ones_like(c), wg.ones_like(xs))
    pushed, expected = (wg.jvp(g, (c, xs), dots)[1].numpy() for g in (compiled, looped))
    np.testing.assert_allclose(pushed, expected, rtol=1e-7, atol=1e-9)
