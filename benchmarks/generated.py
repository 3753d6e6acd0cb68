"""Generated code beside the executor and JAX: `python -m benchmarks.generated`.

Loops over numbers and tiny tensors, where dispatching instructions takes longer than computing them. All programs are
compiled before they are timed; contenders run in turns in one process. Prints a table with goals, and writes
benchmarks/results/generated.json and generated.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("WENGERT_NUM_THREADS", "2")

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import wengert as wg
from benchmarks import command_line, measure
from benchmarks.measure import Row, interleave, statement
from wengert import _core

EXECUTOR, JAX = "executor", "JAX jit"
SAMPLE_S = 0.002  # calls take microseconds on one thread: among many short samples some are undisturbed
RNG = np.random.default_rng(0)


@dataclass
class Library:
    """The functions that a workload is written in, for either library."""

    np: Any
    sigmoid: Callable[[Any], Any]
    loop: Callable[[int, Callable[[Any], Any], Any], Any]  # turns, body, what is carried
    scan: Callable[[Callable[[Any, Any], Any], Any, Any], Any]
    cond: Callable[..., Any]
    while_loop: Callable[..., Any]


def scalar_loop(m: Library, x: Any) -> Any:
    """A map of one number onto itself, 1,000 times."""
    return m.loop(1000, lambda c: m.np.sin(c) * 0.99 + 0.01 * c, x)


def pendulum(m: Library, y: Any, k: Any) -> Any:
    """Runge–Kutta, 200 steps of two numbers."""

    def slope(y: Any) -> Any:
        return m.np.stack([y[1], -k * m.np.sin(y[0])])

    def step(y: Any) -> Any:
        a = slope(y)
        b = slope(y + 0.005 * a)
        c = slope(y + 0.005 * b)
        d = slope(y + 0.01 * c)
        return y + (0.01 / 6) * (a + 2 * b + 2 * c + d)

    return (m.loop(200, step, y) ** 2).sum()


def lorenz(m: Library, x: Any, y: Any, z: Any) -> Any:
    """Euler, 1,000 steps of three numbers."""

    def step(s: Any) -> Any:
        x, y, z = s
        return (x + 0.001 * (10.0 * (y - x)), y + 0.001 * (x * (28.0 - z) - y), z + 0.001 * (x * y - 2.5 * z))

    return sum(m.loop(1000, step, (x, y, z)))


def cells(m: Library, w: Any, u: Any, xs: Any) -> Any:
    """An LSTM of 8 units on 100 steps of 4 numbers."""

    def turn(carry: Any, x: Any) -> Any:
        h, c = carry
        gates = x @ w + h @ u
        i, f, g, o = (gates[8 * k : 8 * k + 8] for k in range(4))
        c = m.sigmoid(f) * c + m.sigmoid(i) * m.np.tanh(g)
        h = m.sigmoid(o) * m.np.tanh(c)
        return (h, c), h.sum()

    start = xs[0, 0] * m.np.zeros(8, dtype="float32")
    (h, _), sums = m.scan(turn, (start, start), xs)
    return h.sum() + sums.sum()


def chain(m: Library, x: Any) -> Any:
    """200 elementwise ops on 8×8."""
    for k in range(50):
        x = m.np.tanh(x * (1 + 0.001 * k) + 0.1) - 0.3 * x
    return x


def newton(m: Library, a: Any) -> Any:
    """Square roots of 100 numbers, each until it has converged."""

    def root(carry: Any, a: Any) -> Any:
        x = m.while_loop(lambda x: abs(x * x - a) > 1e-5 * a, lambda x: 0.5 * (x + a / x), a)
        return carry + x, None

    return m.scan(root, a[0] * 0.0, a)[0]


def branches(m: Library, x: Any) -> Any:
    """1,000 turns with a branch in each."""
    return m.loop(1000, lambda c: m.cond(c > 0.0, lambda c: c - 0.75, lambda c: c * 0.5 + 1.0, c), x)


def normal(*shape: int) -> Any:
    """Numbers in float32."""
    return RNG.normal(size=shape).astype("float32")


@dataclass
class Work:
    """A function of a library and arrays, whether its gradient is timed, and the goal as a factor over JAX."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    gradient: bool = False
    goal: float | None = None


POINT = (normal(), normal(), normal())
CELLS = (0.5 * normal(4, 32), 0.5 * normal(8, 32), normal(100, 4))
WORK = (
    Work("scalar loop, 1,000 turns", scalar_loop, (normal(),)),
    Work("scalar loop, value and gradient", scalar_loop, (normal(),), True, 1.5),
    Work("Lorenz, 1,000 Euler steps", lorenz, POINT),
    Work("Lorenz, value and gradient", lorenz, POINT, True),
    Work("pendulum, 200 Runge–Kutta steps", pendulum, (normal(2), normal())),
    Work("pendulum, value and gradient", pendulum, (normal(2), normal()), True),
    Work("LSTM of 8 units, 100 steps", cells, CELLS),
    Work("LSTM, value and gradient", cells, CELLS, True),
    Work("chain of 200 ops, 8×8", chain, (normal(8, 8),), goal=3.0),
    Work("Newton while loops, 100 roots", newton, (abs(normal(100)) + 0.1,)),
    Work("branches, 1,000 turns", branches, (normal(),)),
)


def ours() -> Library:
    """This library."""

    def loop(n: int, body: Any, init: Any) -> Any:
        return wg.fori_loop(0, n, lambda i, c: body(c), init)

    return Library(wg, wg.sigmoid, loop, wg.scan, wg.cond, wg.while_loop)


def jax_library() -> Library | None:
    """JAX, if it is installed."""
    try:
        import jax
    except ImportError:
        return None
    lax = jax.lax

    def loop(n: int, body: Any, init: Any) -> Any:  # a scan, whose gradient JAX has
        return lax.scan(lambda c, _: (body(c), None), init, None, length=n)[0]

    return Library(jax.numpy, jax.nn.sigmoid, loop, lax.scan, lax.cond, lax.while_loop)


def _with_gradient(work: Work, library: Library, transform: Any) -> Callable[..., Any]:
    def f(*args: Any) -> Any:
        return work.function(library, *args)

    return transform(f, tuple(range(len(work.arguments)))) if work.gradient else f


def _row(work: Work, rounds: int) -> Row:
    given = [wg.tensor(a) for a in work.arguments]
    executor, generated = (wg.compile(_with_gradient(work, ours(), wg.value_and_grad)) for _ in range(2))
    _core.set_tier("generated")
    generated(*given)
    _core.set_tier("executor")
    executor(*given)
    names = {"f": generated, "g": executor, "a": given, "tier": _core.set_tier}
    calls = {
        "wengert": statement("f(*a)", names, setup='tier("generated")'),
        EXECUTOR: statement("g(*a)", names, setup='tier("executor")'),
    }
    peer = jax_library()
    if peer is not None:
        import jax

        f = jax.jit(_with_gradient(work, peer, jax.value_and_grad))
        arrays = [jax.numpy.asarray(a) for a in work.arguments]
        expected, got = jax.tree.leaves(f(*arrays)), wg.tree.flatten(generated(*given))[0]
        for e, y in zip(expected, got):
            np.testing.assert_allclose(np.asarray(e), y.numpy(), rtol=2e-3, atol=1e-4)
        calls[JAX] = statement("wait(f(*a))", {"f": f, "a": arrays, "wait": jax.block_until_ready})
    timings, load = interleave(calls, rounds, SAMPLE_S)
    goals = {} if work.goal is None else {JAX: work.goal}
    row = measure.timed_row(work.name, timings, load, goals=goals, missing=[] if peer else [JAX])
    row.note = generated.report()[0].tier if generated.report()[0].tier != "generated code" else row.note
    return row


def main() -> None:
    """Run the rows that were asked for; all by default."""
    options = command_line.parse("benchmarks.generated", __doc__, [w.name for w in WORK], rounds=40)
    rows = []
    for work in WORK:
        if work.name in options.rows:
            rows.append(_row(work, options.rounds))
            ratios = ", ".join(f"{k} {v:.2f}×" for k, v in rows[-1].ratios.items())
            print(f"{work.name}: {rows[-1].values['wengert']:,.4g} {rows[-1].unit} ({ratios})", flush=True)
    measure.show(rows)
    if not options.dry:
        title = "Generated code for loops and tiny tensors"
        measure.write("generated", title, rows, measure.machine(measure.versions()))


if __name__ == "__main__":
    main()
