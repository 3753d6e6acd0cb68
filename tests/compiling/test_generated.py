"""Generated code: the bits of the executor, and what happens around the compiler."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import _core, tree

COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler on this machine")
RNG = np.random.default_rng(5)


@pytest.fixture
def tier() -> Iterator[Callable[[str], None]]:
    before = _core.set_tier("executor")

    def use(name: str) -> None:
        _core.set_tier(name)

    yield use
    _core.set_tier(before)


def real(*shape: int, dtype: str = "float32") -> Any:
    return wg.tensor(RNG.normal(size=shape).astype(dtype))


def bits(result: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Types and bits; every NaN is the same one, as compilers may exchange the operands of a sum."""
    found = []
    for x in tree.flatten(result)[0]:
        numbers = np.array(x.numpy())
        parts = numbers.view(numbers.real.dtype) if numbers.dtype.kind == "c" and numbers.ndim else numbers
        if parts.dtype.kind == "f":
            parts = np.where(np.isnan(parts), np.array(np.nan, parts.dtype), parts)
        found.append((str(x.dtype), tuple(x.shape), parts.tobytes()))
    return found


def assert_same_bits(f: Callable[..., Any], args: tuple[Any, ...], tier: Callable[[str], None]) -> None:
    """The executor, then generated code, of the same compiled function; and that code was generated."""
    compiled = wg.compile(f)
    tier("executor")
    expected = bits(compiled(*args))
    tier("generated")
    before = _core.tier_counters()
    got = bits(compiled(*args))
    after = _core.tier_counters()
    assert after["refused"] == before["refused"]
    assert after["runs"] > before["runs"]
    assert got == expected


# ------------------------------------------------------------------------------------------------------------ programs


def scalar_loop(x: Any) -> Any:
    return wg.fori_loop(0, 50, lambda i, c: wg.sin(c) * 0.99 + 0.01 * c, x)


def lstm_like(w: Any, u: Any, x: Any, h: Any) -> Any:
    def turn(carry: Any, x: Any) -> Any:
        h, c = carry
        gates = x @ w + h @ u
        i, f, g, o = (gates[..., k * 3 : k * 3 + 3] for k in range(4))
        c = wg.sigmoid(f) * c + wg.sigmoid(i) * wg.tanh(g)
        h = wg.sigmoid(o) * wg.tanh(c)
        return (h, c), h

    (h, c), hs = wg.scan(turn, (h, wg.zeros_like(h)), x)
    return (h * h).sum() + (hs * wg.arange(hs.size).reshape(hs.shape)).sum()


def branch_in_loop(x: Any) -> Any:
    def turn(c: Any, t: Any) -> Any:
        c = wg.cond(c.sum() > 0.5, lambda c: c * 0.5 - t, lambda c: c + wg.exp(-t), c)
        return c, c.max()

    last, made = wg.scan(turn, x, wg.arange(12) * 0.25)
    return last.sum() * made.sum()


def loop_in_loop(x: Any) -> Any:
    def outer(i: Any, c: Any) -> Any:
        return wg.fori_loop(0, 4, lambda j, d: d * 1.5 - wg.tanh(d * x), c) * 0.3

    return wg.fori_loop(0, 5, outer, x).sum()


def reversed_scan(x: Any) -> Any:
    (a, b), ys = wg.scan(lambda c, v: ((c[1], c[0] * v + 1.0), c[0] - v), (x[0], x[1]), x, reverse=True)
    return a * 2.0 + b + (ys * ys).sum()


def runge_kutta(y: Any, k: Any) -> Any:
    def f(y: Any) -> Any:
        return wg.stack([y[1], -k * wg.sin(y[0])])

    def step(i: Any, y: Any) -> Any:
        k1 = f(y)
        k2 = f(y + 0.05 * k1)
        k3 = f(y + 0.05 * k2)
        k4 = f(y + 0.1 * k3)
        return y + (0.1 / 6) * (k1 + 2 * k2 + 2 * k3 + k4)

    return (wg.fori_loop(0, 20, step, y) ** 2).sum()


def softmax_rows(x: Any) -> Any:
    def turn(i: Any, c: Any) -> Any:
        e = wg.exp(c - c.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) + 0.1 * c

    return (wg.fori_loop(0, 6, turn, x) * x).sum()


def transposed_carry(x: Any) -> Any:
    return (wg.fori_loop(0, 3, lambda i, c: c.T * 0.5 + c.sum(0), x.T) * x).sum()


def solved(a: Any, b: Any) -> Any:
    return wg.fori_loop(0, 3, lambda i, c: wg.linalg.solve(a + 3.0 * wg.eye(3), c), b).sum()


def chain(x: Any) -> Any:
    for k in range(40):
        x = wg.tanh(x * (1 + 0.01 * k) + 0.1) - x * 0.3
    return x.sum()


def moved(x: Any) -> Any:
    def turn(i: Any, c: Any) -> Any:
        c = wg.concat([c[2:], c[:2] * 0.5, c[::-1]])[: x.size]
        c = c.at[1:5:2].set(c[:2] * 2.0).at[-1].set(1.5)
        halves = (c * 3.0).astype("float16").astype("float32") + (c * 100).astype("int32").astype("float32")
        return c + 0.01 * halves + wg.full((x.size,), 0.25)

    return (wg.fori_loop(0, 4, turn, x) * x).sum()


def many_live(x: Any) -> Any:
    """Long groups that keep many values, of several dtypes, for elements and for rows."""

    def turn(i: Any, c: Any) -> Any:
        made = [wg.sin(c * (0.3 + 0.1 * k)) for k in range(9)]
        rows = [wg.where(m > 0.1, m, m.mean(-1, keepdims=True)) for m in made]
        whole = sum((m * 10).astype("int32") for m in made).astype(x.dtype)
        return wg.tanh(sum(wg.exp(r) * m for r, m in zip(rows, reversed(made)))) + 0.01 * whole

    return (wg.fori_loop(0, 3, turn, x) * x).sum()


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scalar_loop": (scalar_loop, (real(),)),
    "scalar_loop_float64": (scalar_loop, (real(dtype="float64"),)),
    "vector_loop": (lambda x: scalar_loop(x).sum(), (real(7),)),
    "half_loop": (lambda x: scalar_loop(x).sum(), (real(5, dtype="float16"),)),
    "complex_loop": (lambda x: abs(scalar_loop(x)).sum(), (wg.tensor(RNG.normal(size=3) + 0.2j),)),
    "lstm_like": (lstm_like, (real(2, 12), real(3, 12), real(6, 4, 2), real(4, 3))),
    "branch_in_loop": (branch_in_loop, (real(5),)),
    "loop_in_loop": (loop_in_loop, (real(3),)),
    "reversed_scan": (reversed_scan, (real(9),)),
    "runge_kutta": (runge_kutta, (real(2), real())),
    "softmax_rows": (softmax_rows, (real(3, 5),)),
    "transposed_carry": (transposed_carry, (real(4, 4),)),
    "moved": (moved, (real(6),)),
    "solved": (solved, (real(3, 3), real(3, 2))),
    "chain": (chain, (real(8, 8),)),
    "chain_of_numbers": (chain, (real(),)),
    "chain_of_odd_length": (chain, (real(3, 71),)),
    "chain_float64": (chain, (real(30, dtype="float64"),)),
    "many_live": (many_live, (real(4, 13),)),
    "many_live_numbers": (many_live, (real(1),)),
    "many_live_float64": (many_live, (real(2, 150, dtype="float64"),)),
    "long_rows": (softmax_rows, (real(2, 700),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_bits(name: str, tier: Any) -> None:
    f, args = PROGRAMS[name]
    which = tuple(range(len(args)))
    assert_same_bits(lambda *a: (f(*a), wg.grad(f, which)(*a)) if f is not solved else f(*a), args, tier)


def test_backward_of_a_compiled_function(tier: Any) -> None:
    def gradients() -> Any:
        x = wg.tensor(x_numbers, requires_grad=True)
        compiled(x).backward()
        return x.grad

    x_numbers = RNG.normal(size=6).astype("float32")
    compiled = wg.compile(branch_in_loop)
    expected = bits(gradients())
    tier("generated")
    assert bits(gradients()) == expected
    assert compiled.report()[0].tier == "generated code"


def test_forward_mode_and_second_order(tier: Any) -> None:
    x, v = real(3), real(3)
    assert_same_bits(lambda x, v: wg.jvp(loop_in_loop, (x,), (v,)), (x, v), tier)
    assert_same_bits(lambda x: wg.hessian(loop_in_loop)(x), (x,), tier)


def test_while_loops(tier: Any) -> None:
    def collatz(n: Any) -> Any:
        return wg.while_loop(
            lambda c: c[0] > 1, lambda c: (wg.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1), (n, n * 0)
        )

    for n in (1, 7, 27):
        assert_same_bits(collatz, (wg.tensor(n),), tier)

    def newton(a: Any) -> Any:
        return wg.while_loop(lambda x: abs(x * x - a) > 1e-9, lambda x: 0.5 * (x + a / x), a)

    assert_same_bits(newton, (wg.tensor(2.0, dtype="float64"),), tier)


def grow(x: Any) -> Any:
    """How often this turns depends on the numbers."""
    return wg.while_loop(lambda y: (y * y).sum() < 10.0, lambda y: 1.2 * y + 0.1 * wg.sin(y), x)


def grow_in_few_places(x: Any) -> Any:
    return wg.while_loop(
        lambda y: (y * y).sum() < 1000.0, lambda y: 1.02 * y + 0.01 * wg.sin(y), x, checkpoints=4
    ).sum()


def while_in_while(x: Any) -> Any:
    def body(c: Any) -> Any:
        z = wg.while_loop(lambda z: (z * z).sum() < 3.0, lambda z: z * 1.3 + 0.1 * wg.cos(z), c[0] * 0.3)
        return c[0] + 0.2 * z, c[1] + 1

    return wg.while_loop(lambda c: c[1] < 4, body, (x, 0))[0].sum()


def while_in_scan(x: Any) -> Any:
    def turn(c: Any, v: Any) -> Any:
        y = wg.while_loop(lambda y: (y * y).sum() < 5.0, lambda y: 1.3 * y + 0.1 * wg.sin(v * y), c)
        return y * 0.2, y.sum()

    return wg.scan(turn, x, wg.stack([x, x * 0.5, x + 1.0]))[1].sum()


def squared(x: Any) -> Any:
    return ((grow(x) - 1.0) ** 2).sum()


def slope_of(f: Any) -> Any:
    return lambda x: (wg.grad(f)(x) ** 2).sum()


WHILE_DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "gradient": wg.grad(squared),
    "jacobian": wg.jacobian(grow),
    "hessian": wg.hessian(squared),
    "gradient_of_slope": wg.grad(slope_of(squared)),
    "third_order": wg.grad(slope_of(slope_of(squared))),
    "tangent_of_gradient": lambda x: wg.jvp(wg.grad(squared), (x,), (x * 2.0,)),
    "few_checkpoints": wg.grad(grow_in_few_places),
    "hessian_with_few_checkpoints": wg.hessian(grow_in_few_places),
    "loop_in_loop": wg.grad(while_in_while),
    "hessian_of_loop_in_loop": wg.hessian(while_in_while),
    "loop_in_scan": wg.grad(while_in_scan),
    "many_examples": lambda x: wg.vmap(wg.grad(squared))(wg.stack([x, x * 0.01, x * 30.0])),
    "gradient_of_many_examples": wg.grad(lambda x: wg.vmap(squared)(wg.stack([x, x * 0.01])).sum()),
    "no_turns": lambda x: wg.grad(squared)(x * 100.0),
}


@pytest.mark.parametrize("name", WHILE_DERIVATIVES)
def test_derivatives_of_while_loops(name: str, tier: Any) -> None:
    """Reverse mode has arrays whose sizes are numbers of turns."""
    for dtype in ("float32", "float64"):
        assert_same_bits(WHILE_DERIVATIVES[name], (wg.tensor([0.5, 0.2, -0.1], dtype=dtype),), tier)


def test_what_is_written_back(tier: Any) -> None:
    """State gets the memory of the results, unless somebody else sees its own: a view, NumPy, a second result."""

    def run(seen: list[Any]) -> Any:
        state = [wg.tensor(numbers * (k + 1)) for k in range(5)]
        view, array, shares = state[1][2:4], state[2].numpy(), state[3].detach()

        @wg.compile
        def step(x: Any) -> Any:
            for k, s in enumerate(state):
                s.mul_(0.5)
                s.add_(wg.sin(x) * (k + 1))
            state[4][3:5] = state[0][:2]
            return state[0] * 2.0, state[0]

        for _ in range(4):
            made = step(x)
            seen.append(bits([*state, view, shares, *made]) + [array.tobytes()])
        kept = made[1].clone()
        state[0].zero_()
        return bits([*state, made[1], kept, view])

    numbers, x = RNG.normal(size=40).astype("float32"), real(40)
    first: list[Any] = []
    expected = run(first)
    tier("generated")
    second: list[Any] = []
    assert run(second) == expected
    assert second == first


def test_one_code_for_any_number_of_turns(tier: Any) -> None:
    compiled = wg.compile(wg.grad(squared))
    x = wg.tensor([0.5, 0.2, -0.1])
    scales = (1.0, 1e-12, 50.0, 0.3, 1e-3)
    expected = [bits(compiled(x * s)) for s in scales]
    tier("generated")
    gc.collect()
    live = _core.memory_stats()["live_bytes"]
    before = _core.tier_counters()
    assert [bits(compiled(x * s)) for s in scales] == expected
    after = _core.tier_counters()
    assert (after["programs"] - before["programs"], after["runs"] - before["runs"]) == (1, len(scales))
    assert _core.memory_stats()["live_bytes"] == live


def test_memory_of_a_long_while_loop(tier: Any) -> None:
    """About a megabyte of carried values, and those of the turns between two of them."""
    tier("generated")
    compiled = wg.compile(
        wg.grad(
            lambda x: wg.while_loop(lambda c: c[1] < 200_000, lambda c: (wg.sin(c[0]) + x, c[1] + 1), (x, 0))[0].sum()
        )
    )
    x = wg.ones((16,)) * 0.25
    compiled(x)
    live = _core.memory_stats()["live_bytes"]
    _core.reset_peak()
    compiled(x)
    assert _core.memory_stats()["peak_bytes"] - live < 6e6  # all of them take 16 MB


def test_layouts_of_operands_and_results(tier: Any) -> None:
    x = real(4, 6)

    def f(x: Any, y: Any) -> Any:
        return x.T + 1.0, (x * y).sum(0), x[::2], wg.broadcast_to(y[0], (3, 6)), wg.fori_loop(0, 0, lambda i, c: c, x)

    for a in (x, wg.clone(x.T).T, wg.flip(x, 1), x[:, :]):
        assert_same_bits(f, (a, x), tier)
    assert_same_bits(lambda x: x.sum(0), (real(0, 3),), tier)
    assert_same_bits(lambda x: wg.scan(lambda c, v: (c + v, c * v), wg.tensor(0.0), x), (real(0),), tier)


# -------------------------------------------------------------------------------------------- every elementwise op


def elementwise(n_operands: int) -> list[Any]:
    from wengert.registry.record import OPS

    return [
        op
        for op in OPS.values()
        if op.elementwise and op.n_inputs == n_operands and not (op.attrs or op.name == "clip")
    ]


EXTREME = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, -1e30, 3e5, 1e10, np.inf, -np.inf, np.nan, 0.3, -2.7, 12.5]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool", "complex128"])
def test_every_elementwise_op(dtype: str, tier: Any) -> None:
    numbers = np.array(EXTREME)
    if dtype == "int32":
        numbers = np.array([0, 1, -1, 7, -3, 2**31 - 1, -(2**31)])
    elif dtype == "bool":
        numbers = np.array([False, True])
    elif dtype == "complex128":
        numbers = numbers[:8] + 1j * numbers[7::-1]
    given = wg.dtypes.as_dtype(dtype)
    ops = []
    for op in (*elementwise(1), *elementwise(2)):
        try:
            _core.infer(op.name, [(given.code, ())] * op.n_inputs, ())
        except wg.WengertError:
            continue
        ops.append(op)

    def all_of(x: Any, y: Any) -> Any:
        return [op(x, y) if op.n_inputs == 2 else op(x) for op in ops]

    assert ops
    compiled = wg.compile(all_of)
    first = [numbers.astype(dtype)[k] for k in range(len(numbers))]
    pairs = [(a, b) for k, a in enumerate(first) for b in (first[k - 1], first[(7 * k + 3) % len(first)])]
    pairs.append((np.resize(numbers, 21).astype(dtype), np.resize(numbers[::-1], 21).astype(dtype)))
    tensors = [(wg.tensor(a), wg.tensor(b)) for a, b in pairs]
    expected = [bits(compiled(a, b)) for a, b in tensors]
    tier("generated")
    before = _core.tier_counters()["runs"]
    for (a, b), e in zip(tensors, expected):
        for op, got, wanted in zip(ops, bits(compiled(a, b)), e):
            assert got == wanted, (op.name, a, b)
    assert _core.tier_counters()["runs"] - before == len(tensors)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_angles_one_by_one(dtype: str, tier: Any) -> None:
    """A single small angle skips the reduction that vectors of them go through."""
    steps = np.arange(-40, 40) * np.spacing(np.array(0.785, dtype))
    edges = [sign * (edge + steps) for edge in (0.785, np.pi / 4, 0.7853) for sign in (1, -1)]
    scales = np.ldexp(RNG.uniform(-1, 1, size=3000), RNG.integers(-150, 30, size=3000))
    angles = np.concatenate([*edges, scales, RNG.uniform(-0.8, 0.8, size=3000), EXTREME]).astype(dtype)

    def all_of(x: Any) -> Any:
        return wg.scan(lambda c, v: (c, (wg.sin(v), wg.cos(v), wg.tan(v))), x[0], x)[1]

    assert_same_bits(all_of, (wg.tensor(angles),), tier)
    tier("executor")
    whole = bits((wg.sin(angles), wg.cos(angles), wg.tan(angles)))
    tier("generated")
    assert bits(wg.compile(all_of)(wg.tensor(angles))) == whole


def test_memory_that_a_step_exchanges_serves_the_next(tier: Any) -> None:
    def train(mode: str) -> tuple[list[bytes], list[int]]:
        tier(mode)
        p = wg.Parameter(wg.tensor([0.5, -1.0, 2.0, 4.0]))
        optimizer, seen, live, alias = wg.optim.Adam([p], lr=0.1), [], [], None
        for k in range(8):
            p.set_grad([1.0, -0.5, 0.25, float(k)])
            optimizer.step()
            alias = p.detach() if k == 3 else None if k == 5 else alias  # shared memory is written to where it is
            seen += [bits(p.detach()), *([] if alias is None else [bits(alias)])]
            live.append(wg.memory_stats().live_bytes)
        return seen, live

    expected, _ = train("executor")
    made, live = train("generated")
    assert made == expected
    assert live[1] == live[2] == live[-1]


# ---------------------------------------------------------------------------------------------------------- background


def heat(compiled: Any, x: Any) -> None:
    for _ in range(30):
        compiled(x)


def test_hot_programs_are_compiled_in_the_background(tier: Any) -> None:
    tier("automatic")
    compiled = wg.compile(lambda x: wg.fori_loop(0, 20_000, lambda i, c: wg.cos(c) * 0.9 + 0.125 * c, x))
    x = wg.tensor(0.25)
    expected = bits(compiled(x))
    assert compiled.report()[0].tier == "executor"
    heat(compiled, x)
    _core.wait_for_compiler()
    assert bits(compiled(x)) == expected
    assert compiled.report()[0].tier == "generated code"
    assert "run by generated code" in str(compiled.report()[0])


def test_programs_without_loops_are_hot_after_many_runs(tier: Any) -> None:
    tier("automatic")
    long, short = wg.compile(chain), wg.compile(lambda x: wg.tanh(x * 0.5))
    x = real(2)
    expected = bits(long(x))
    for _ in range(100_000):
        long(x)
        short(x)
    _core.wait_for_compiler()
    assert bits(long(x)) == expected
    assert long.report()[0].tier == "generated code"
    assert short.report()[0].tier == "executor"


def test_instructions_that_share_a_kernel_count_as_what_they_are(tier: Any) -> None:
    tier("automatic")
    p = wg.Parameter(wg.tensor([1.0, 2.0]))
    p.set_grad([0.5, -0.5])
    optimizer = wg.optim.Adam([p], lr=1e-6)
    for _ in range(100_010):
        optimizer.step()  # 12 instructions, of which pairs are dispatched as one
    _core.wait_for_compiler()
    before = _core.tier_counters()["runs"]
    optimizer.step()
    assert _core.tier_counters()["runs"] == before + 1


def test_cold_and_large_programs_stay_with_the_executor(tier: Any) -> None:
    tier("automatic")
    before = _core.tier_counters()["programs"]
    compiled = wg.compile(lambda x: wg.fori_loop(0, 3, lambda i, c: c * 1.5, x))
    compiled(wg.tensor(1.0))
    assert _core.tier_counters()["programs"] == before
    large = wg.compile(lambda x: wg.fori_loop(0, 100, lambda i, c: wg.tanh(c) + c, x))
    x = wg.ones((5000,))
    large(x)
    while large.report()[0].tier == "executor":
        for _ in range(200):
            large(x)
    assert large.report()[0].tier == "executor (tensors are large enough for the executor)"


def test_threads_share_generated_code(tier: Any) -> None:
    tier("generated")
    compiled = wg.compile(lambda x: wg.fori_loop(0, 200, lambda i, c: wg.linalg.solve(x, c) * 0.5 + c, x[0]))
    x = wg.eye(40) * 3.0 + 0.01
    expected = bits(compiled(x))
    failed: list[Any] = []

    def work() -> None:
        for _ in range(5):
            if bits(compiled(x)) != expected:
                failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_errors_and_memory(tier: Any) -> None:
    tier("generated")
    compiled = wg.compile(lambda a, b: wg.fori_loop(0, 3, lambda i, c: wg.linalg.solve(a, c), b))
    a, b = wg.eye(3), wg.ones((3, 2))
    compiled(a, b)
    gc.collect()  # what other tests have left
    live = _core.memory_stats()["live_bytes"]
    for _ in range(200):
        compiled(a, b)
        with pytest.raises(wg.LinAlgError):
            compiled(a * 0.0, b)
    assert compiled(a, b).sum().item() == 6.0
    assert _core.memory_stats()["live_bytes"] == live


def test_custom_ops_are_left_to_the_executor(tier: Any) -> None:
    tier("generated")
    refused = _core.tier_counters()["refused"].get("calls a Python function", 0)

    @wg.custom_op
    def double(x: Any) -> Any:
        return x * 2

    compiled = wg.compile(lambda x: double(x) + 1.0)
    assert compiled(wg.tensor(3.0)).item() == 7.0
    assert _core.tier_counters()["refused"]["calls a Python function"] >= refused


# ------------------------------------------------------------------------------------------------------ other processes

LOOP = """
import os, signal, sys, time, warnings
import wengert as wg
from wengert import _core
f = wg.compile(lambda x: wg.fori_loop(0, 20_000, lambda i, c: wg.sin(c) * 0.9 + 0.125 * c, x))
x = wg.tensor(0.25)
first = f(x).item()
"""


def run(code: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "WENGERT_CACHE_DIR": str(tmp_path), "WENGERT_TIER": "", **environment}
    return subprocess.run(
        [sys.executable, "-c", LOOP + textwrap.dedent(code)], capture_output=True, text=True, env=given, timeout=240
    )


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_cache_on_disk(tmp_path: Path) -> None:
    code = "print(_core.tier_counters()['compiled'], _core.tier_counters()['read'], first)"
    assert succeeded(run(code, tmp_path, WENGERT_TIER="generated")).startswith("1 0 ")
    (kept,) = (tmp_path / "cpu").iterdir()
    whole = kept.read_bytes()
    assert succeeded(run(code, tmp_path, WENGERT_TIER="generated")).startswith("0 1 ")
    for damaged in (whole[: len(whole) // 2], whole[:-200] + b"x" * 200):
        kept.write_bytes(damaged)
        assert succeeded(run(code, tmp_path, WENGERT_TIER="generated")).startswith("1 0 ")
        assert kept.read_bytes()[:200] == whole[:200]
    kept.chmod(0o666)  # anybody could have written it
    assert succeeded(run(code, tmp_path, WENGERT_TIER="generated")).startswith("1 0 ")
    assert [p.name for p in (tmp_path / "cpu").iterdir()] == [kept.name]


@pytest.mark.parametrize("broken", ["missing", "failing", "silent"])
def test_without_a_compiler(broken: str, tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    if broken != "missing":
        compiler.write_text("#!/bin/sh\necho no licence\nexit " + ("3" if broken == "failing" else "0"))
        compiler.chmod(0o755)
    out = succeeded(
        run(
            """
            warnings.simplefilter("always")
            with warnings.catch_warnings(record=True) as said:
                for k in range(3):
                    g = wg.compile(lambda x: wg.fori_loop(0, 9, lambda i, c: c * x, x))
                    assert g(x).item() == 0.25**10
                    f(x)
            print(len(said), f.report()[0].tier, sep="|")
            """,
            tmp_path,
            CXX=str(compiler),
            WENGERT_TIER="generated",
        )
    )
    assert out.strip() == "0|executor (no compiler)"


def test_compiler_is_said_to_be_missing_once(tmp_path: Path) -> None:
    done = run("for k in range(40): f(x)\n_core.wait_for_compiler(); f(x); f(x)", tmp_path, CXX="/nowhere/c++")
    assert done.returncode == 0
    assert done.stderr.count("the C++ compiler $CXX, /nowhere/c++, is not there") == 1
    assert "WENGERT_TIER=executor" in done.stderr


def test_leaving_while_compiling(tmp_path: Path) -> None:
    """The interpreter ends at once, and its compiler with it."""
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nsleep 100\n")
    compiler.chmod(0o755)
    out = succeeded(
        run("for k in range(40): f(x)\nprint(f.report()[0].tier)", tmp_path, CXX=str(compiler), TMPDIR=str(tmp_path))
    )
    assert out.strip() == "executor (its code is being compiled)"
    assert not list(tmp_path.glob("wengert-*"))


def test_fork_while_compiling(tmp_path: Path) -> None:
    out = succeeded(
        run(
            """
            for k in range(40): f(x)
            child = os.fork()
            for k in range(20): assert f(x).item() == first
            _core.wait_for_compiler()
            assert f(x).item() == first and f.report()[0].tier == "generated code", f.report()[0].tier
            if child == 0: os._exit(0)
            print(os.waitpid(child, 0)[1])
            """,
            tmp_path,
        )
    )
    assert out.strip() == "0"


def test_signals_interrupt_generated_loops(tmp_path: Path) -> None:
    out = succeeded(
        run(
            """
            def stop(*_): raise TimeoutError
            signal.signal(signal.SIGALRM, stop)
            signal.setitimer(signal.ITIMER_REAL, 3)
            try:
                wg.compile(lambda x: wg.scan(lambda c, _: (wg.sin(c) + x, None), x, length=2_000_000_000)[0])(x)
            except TimeoutError:
                print("stopped", f(x).item() == first)
            """,
            tmp_path,
            WENGERT_TIER="generated",
        )
    )
    assert out.strip() == "stopped True"


def test_an_unknown_tier_is_refused(tmp_path: Path) -> None:
    done = run("", tmp_path, WENGERT_TIER="fast")
    assert done.returncode != 0
    assert "WENGERT_TIER=fast: must be automatic, executor or generated" in done.stderr


def test_warnings_as_errors(tmp_path: Path) -> None:
    """A warning that raises leaves everything in order."""
    out = succeeded(
        run(
            """
            warnings.simplefilter("error")
            try:
                for k in range(1000): f(x)
            except RuntimeWarning:
                print("raised")
            print(f(x).item() == first)
            """,
            tmp_path,
            CXX="/nowhere/c++",
        )
    )
    assert out.split() == ["raised", "True"]
