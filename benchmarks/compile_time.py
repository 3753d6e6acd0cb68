"""Compile time per instruction as programs grow: `python -m benchmarks.compile_time`.

Each workload is traced at several sizes. `compile` is the first call of the compiled function: trace, simplify, fuse, lower
(and one run on small tensors); `derive` makes its derivative: linearise, transpose, simplify, cut, lower. Both are divided
by the number of instructions of the traced program: what is linear has the same numbers at all sizes. Beside them, where it
is installed, is what JAX takes for `jit` of the function and of its gradient. Options: names of workloads, --sizes N ...,
--passes (time simplify, fuse and lower on their own), --cpu (time of this process, for busy machines), --no-jax.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import wengert as wg
from wengert.program.fuse import fuse
from wengert.program.lower import lower
from wengert.program.simplify import simplify

Function = Callable[..., Any]
SIZES = (100, 1_000, 10_000)
WIDTH = 4  # of all matrices: compile time does not depend on it
ALL = (1 << 64) - 1  # a mask of inputs
MOST_LAYERS = 15_000  # with their own parameters: a derivative saves at most 65,535 values


# ------------------------------------------------------------------------------------------------- workloads
# Each takes a library, `wengert` or `jax.numpy`, and how often its body is repeated; all return a number.


def chain(lib: Any, repeats: int) -> Function:
    """Layers of tanh(y @ w)."""

    def f(x: Any, w: Any) -> Any:
        for _ in range(repeats):
            x = lib.tanh(x @ w)
        return x.sum()

    return f


def transformer(lib: Any, repeats: int) -> Function:
    """Blocks of attention with one head, normalisation and a two-layer network, written out in basic operations."""

    def normalise(x: Any) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        return centred / lib.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)

    def f(x: Any, w: Any) -> Any:
        for _ in range(repeats):
            h = normalise(x)
            q, k, v = h @ w, h @ (w + 1.0), h @ (w + 2.0)
            scores = lib.exp(q @ k.T - (q @ k.T).max(axis=-1, keepdims=True))
            x = x + (scores / scores.sum(axis=-1, keepdims=True)) @ v
            x = x + lib.tanh(normalise(x) @ w) @ w
        return x.sum()

    return f


def lstm(lib: Any, repeats: int) -> Function:
    """An unrolled LSTM."""

    def sigmoid(x: Any) -> Any:
        return 1.0 / (1.0 + lib.exp(-x))

    def f(x: Any, w: Any) -> Any:
        h = c = x
        for _ in range(repeats):
            z = x @ w + h @ w
            c = sigmoid(z + 1.0) * c + sigmoid(z) * lib.tanh(z)
            h = sigmoid(z - 1.0) * lib.tanh(c)
        return h.sum()

    return f


def wide(lib: Any, repeats: int) -> Function:
    """One value that many products read, whose results one sum gathers."""

    def f(x: Any, w: Any) -> Any:
        hub = lib.tanh(x)
        total = hub
        for k in range(repeats):
            total = total + lib.sin(hub * float(k)) @ w
        return total.sum()

    return f


def parameters(lib: Any, repeats: int) -> Function:
    """Layers of tanh(y @ w + b) with parameters that are captured: their own, but for very many layers."""
    w, b = operands()[1], np.zeros(WIDTH, np.float32)
    own = [(lib.asarray(w), lib.asarray(b)) for _ in range(min(repeats, MOST_LAYERS))]
    layers = [own[k % len(own)] for k in range(repeats)]

    def f(x: Any, w: Any) -> Any:
        for v, b in layers:
            x = lib.tanh(x @ v + b)
        return (x @ w).sum()

    return f


WORKLOADS: dict[str, Callable[[Any, int], Function]] = {
    f.__name__: f for f in (chain, transformer, lstm, wide, parameters)
}


# ------------------------------------------------------------------------------------------------- measuring


@dataclass
class Measured:
    """Seconds for one workload at one size."""

    instructions: int
    seconds: dict[str, float]


Clock = Callable[[], float]


def seconds(f: Callable[[], Any], clock: Clock) -> float:
    """The time of one call, which does not collect the garbage of earlier ones."""
    gc.collect()
    start = clock()
    f()
    return clock() - start


def operands() -> list[Any]:
    """A square x and w, small enough that nothing overflows."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH for _ in range(2)]


def repeats_for(make: Callable[[Any, int], Function], size: int) -> int:
    """How many repetitions make a program of about this many instructions."""
    few, many = (_instructions(make(wg, n)) for n in (1, 3))
    return max(1, round((size - few) / ((many - few) / 2)) + 1)


def _instructions(f: Function) -> int:
    compiled: Any = wg.compile(f)
    compiled(*map(wg.asarray, operands()))
    return len(compiled.traces[0].program.instructions)


def in_wengert(f: Function, passes: bool, clock: Clock) -> Measured:
    """Compile and derive f by both operands."""
    compiled: Any = wg.compile(f)
    x, w = map(wg.asarray, operands())
    taken = {"compile": seconds(lambda: compiled(x, w), clock)}
    (traced,) = compiled.traces
    taken["derive"] = seconds(lambda: traced.derive(ALL), clock)
    if passes:
        program = traced.program
        for run in (simplify, fuse, lower):
            taken[run.__name__] = seconds(functools.partial(run, program), clock)
    return Measured(len(traced.program.instructions), taken)


def in_jax(make: Callable[[Any, int], Function], repeats: int, clock: Clock) -> dict[str, float]:
    """Trace, lower and compile the function, and its gradient, in JAX."""
    import jax

    f, args = make(jax.numpy, repeats), operands()
    return {
        "JAX jit": seconds(lambda: jax.jit(f).lower(*args).compile(), clock),
        "JAX jit of grad": seconds(lambda: jax.jit(jax.value_and_grad(f, (0, 1))).lower(*args).compile(), clock),
    }


def main() -> None:
    """Measure the workloads that were asked for; all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help=f"any of {', '.join(WORKLOADS)}")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="instructions of the programs, about")
    parser.add_argument("--passes", action="store_true", help="also time simplify, fuse and lower on their own")
    parser.add_argument("--cpu", action="store_true", help="time of this process instead of wall time")
    parser.add_argument(
        "--no-jax", action="store_true", help="leave JAX out: it takes minutes from 10,000 instructions on"
    )
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    if unknown := [w for w in options.workloads if w not in WORKLOADS]:
        parser.error(f"unknown workload {unknown[0]}; there are {', '.join(WORKLOADS)}")
    beside_jax = not options.no_jax and importlib.util.find_spec("jax") is not None
    for name in options.workloads or WORKLOADS:
        print(f"{name}: µs per instruction")
        for n, size in enumerate(options.sizes):
            repeats = repeats_for(WORKLOADS[name], size)
            measured = in_wengert(WORKLOADS[name](wg, repeats), options.passes, clock)
            if beside_jax:
                measured.seconds |= in_jax(WORKLOADS[name], repeats, clock)
            if n == 0:
                print(f"{'instructions':>14}" + "".join(f"{key:>17}" for key in measured.seconds))
            per = [1e6 * s / measured.instructions for s in measured.seconds.values()]
            print(f"{measured.instructions:>14,}" + "".join(f"{x:>17,.1f}" for x in per), flush=True)


if __name__ == "__main__":
    main()
