"""One GPU, beside PyTorch and JAX in one process: `python -m benchmarks.cuda [--markdown FILE]`.

Times are medians of repeated measurements after warm-up, in microseconds, on random data. "pipelined" is the time of many
calls followed by one synchronisation, by their number; "synchronised" has one after each call.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

import wengert as wg
from wengert import _core

REPEATS = 7


def timed(call: Callable[[], Any], wait: Callable[[Any], None], budget: float = 0.15) -> tuple[float, float]:
    """Microseconds of a call, pipelined and synchronised."""
    for _ in range(5):
        wait(call())
    start = time.perf_counter()
    wait(call())
    once = max(time.perf_counter() - start, 1e-6)
    n = int(min(max(budget / REPEATS / once, 3), 2000))
    pipelined, synchronised = [], []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(n):
            result = call()
        wait(result)
        pipelined.append((time.perf_counter() - start) / n)
        start = time.perf_counter()
        for _ in range(max(1, n // 4)):
            wait(call())
        synchronised.append((time.perf_counter() - start) / max(1, n // 4))
    return 1e6 * statistics.median(pipelined), 1e6 * statistics.median(synchronised)


class Ours:
    """This library."""

    name = "wengert"

    def __init__(self) -> None:
        self.wait = lambda _: wg.cuda.synchronize()

    def array(self, a: Any) -> Any:
        return wg.tensor(a, device="cuda")

    def eager_op(self, a: Any, b: Any) -> Callable[[], Any]:
        return lambda: a * b

    def recorded_op(self, a: Any, b: Any) -> Callable[[], Any]:
        x = a.detach().requires_grad_()
        return lambda: x * b

    def chain(self, x: Any, w: Any, b: Any) -> Callable[[], Any]:
        f = wg.compile(lambda x, w, b: wg.tanh(x * w + b))
        return lambda: f(x, w, b)

    def softmax(self, x: Any) -> Callable[[], Any]:
        return lambda: wg.softmax(x, axis=-1)

    def step(self, sizes: list[int], weights: Any, x: Any, t: Any, compiled: bool) -> Callable[[], Any]:
        layers: list[Any] = []
        for i, (n, m) in enumerate(pairwise(sizes)):
            layers += [wg.nn.Linear(n, m), wg.nn.ReLU()] if i + 2 < len(sizes) else [wg.nn.Linear(n, m)]
        net = wg.nn.Sequential(*layers)
        with wg.no_grad():
            for p, w in zip(net.parameters(), weights):
                p.copy_(wg.tensor(w))
        net.to("cuda")
        adam = wg.optim.Adam(net.parameters(), lr=1e-3)

        def step(x: Any, t: Any) -> Any:
            adam.zero_grad()
            loss = wg.cross_entropy(net(x), t)
            loss.backward()
            adam.step()
            return loss

        run = wg.compile(step) if compiled else step
        return lambda: run(x, t)


class Torch:
    """PyTorch, eager."""

    name = "PyTorch eager"

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.wait = lambda _: torch.cuda.synchronize()

    def array(self, a: Any) -> Any:
        return self.torch.tensor(a, device="cuda")

    def eager_op(self, a: Any, b: Any) -> Callable[[], Any]:
        return lambda: a * b

    def recorded_op(self, a: Any, b: Any) -> Callable[[], Any]:
        x = a.detach().requires_grad_()
        return lambda: x * b

    def chain(self, x: Any, w: Any, b: Any) -> Callable[[], Any]:
        return lambda: self.torch.tanh(x * w + b)

    def softmax(self, x: Any) -> Callable[[], Any]:
        return lambda: self.torch.softmax(x, -1)

    def step(self, sizes: list[int], weights: Any, x: Any, t: Any, compiled: bool) -> Callable[[], Any] | None:
        if compiled:
            return None
        torch, layers = self.torch, []
        for i, (n, m) in enumerate(pairwise(sizes)):
            layers += [torch.nn.Linear(n, m), torch.nn.ReLU()] if i + 2 < len(sizes) else [torch.nn.Linear(n, m)]
        net = torch.nn.Sequential(*layers)
        with torch.no_grad():
            for p, w in zip(net.parameters(), weights):
                p.copy_(torch.tensor(w))
        net.to("cuda")
        adam = torch.optim.Adam(net.parameters(), lr=1e-3)

        def step() -> Any:
            adam.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), t)
            loss.backward()
            adam.step()
            return loss.detach()

        return step


class Jax:
    """JAX, jitted, with donated state; products of float32 in full precision."""

    name = "JAX jit"

    def __init__(self) -> None:
        import jax

        jax.config.update("jax_default_matmul_precision", "highest")
        self.jax = jax
        self.wait = lambda r: jax.block_until_ready(r)

    def array(self, a: Any) -> Any:
        return self.jax.device_put(a)

    def eager_op(self, a: Any, b: Any) -> Callable[[], Any]:
        return lambda: a * b

    def recorded_op(self, a: Any, b: Any) -> None:
        return None

    def chain(self, x: Any, w: Any, b: Any) -> Callable[[], Any]:
        f = self.jax.jit(lambda x, w, b: self.jax.numpy.tanh(x * w + b))
        return lambda: f(x, w, b)

    def softmax(self, x: Any) -> Callable[[], Any]:
        f = self.jax.jit(lambda x: self.jax.nn.softmax(x, -1))
        return lambda: f(x)

    def step(self, sizes: list[int], weights: Any, x: Any, t: Any, compiled: bool) -> Callable[[], Any] | None:
        if not compiled:
            return None
        jax, jnp = self.jax, self.jax.numpy
        params = [jnp.asarray(w) for w in weights]
        state = [params, [jnp.zeros_like(p) for p in params], [jnp.zeros_like(p) for p in params], jnp.zeros(())]

        def loss_of(params: Any, x: Any, t: Any) -> Any:
            for i in range(0, len(params), 2):
                x = x @ params[i].T + params[i + 1]
                x = jax.nn.relu(x) if i + 2 < len(params) else x
            return -jnp.mean(jax.nn.log_softmax(x)[jnp.arange(len(t)), t])

        def step(state: Any, x: Any, t: Any) -> Any:
            params, m, v, k = state
            loss, g = jax.value_and_grad(loss_of)(params, x, t)
            k = k + 1
            m = [0.9 * a + 0.1 * b for a, b in zip(m, g)]
            v = [0.999 * a + 0.001 * b * b for a, b in zip(v, g)]
            params = [
                p - 1e-3 * (a / (1 - 0.9**k)) / (jnp.sqrt(b / (1 - 0.999**k)) + 1e-8) for p, a, b in zip(params, m, v)
            ]
            return [params, m, v, k], loss

        jitted = jax.jit(step, donate_argnums=0)

        def run() -> Any:
            nonlocal state
            state, loss = jitted(state, x, t)
            return loss

        return run


def rows(libraries: list[Any], only: str = "") -> list[tuple[str, list[str]]]:
    """The table: what, and for each library "pipelined (synchronised)"."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    made: list[tuple[str, list[str]]] = []

    def row(what: str, make: Callable[[Any], Any]) -> None:
        if only and only not in what:
            return
        cells = []
        for library in libraries:
            call = make(library)
            if call is None:
                cells.append("")
                continue
            pipelined, synchronised = timed(call, library.wait)
            cells.append(f"{pipelined:.1f} ({synchronised:.1f})")
        made.append((what, cells))
        print(f"{what:45}", *(f"{c:>20}" for c in cells), flush=True)

    a, b = normal(8, 8), normal(8, 8)
    row("a * b, 8×8", lambda lib: lib.eager_op(lib.array(a), lib.array(b)))
    row("a * b, 8×8, recorded", lambda lib: lib.recorded_op(lib.array(a), lib.array(b)))
    for power in (20, 24, 27):
        x, w, c = (normal(1 << power) for _ in range(3))
        row(f"tanh(x·w + b), 2^{power}", lambda lib, x=x, w=w, c=c: lib.chain(lib.array(x), lib.array(w), lib.array(c)))
    x = normal(4096, 1024)
    row("softmax 4096×1024", lambda lib: lib.softmax(lib.array(x)))
    for sizes, batch in (([64, 64, 64, 10], 32), ([784, 1024, 1024, 10], 128)):
        weights = [w for n, m in pairwise(sizes) for w in (normal(m, n) / n**0.5, normal(m) * 0.1)]
        xs, ts = normal(batch, sizes[0]), rng.integers(0, sizes[-1], batch)
        check(libraries, sizes, weights, xs, ts)
        for compiled in (True, False):
            what = f"MLP {'-'.join(map(str, sizes))}, B {batch}, Adam, {'compiled' if compiled else 'eager'}"
            given = (sizes, weights, xs, ts, compiled)
            row(what, lambda lib, g=given: lib.step(g[0], g[1], lib.array(g[2]), lib.array(g[3]), g[4]))
    return made


def check(libraries: list[Any], sizes: list[int], weights: Any, xs: Any, ts: Any) -> None:
    """Ten steps give the same loss everywhere."""
    losses = {}
    for library in libraries:
        for compiled in (True, False):
            step = library.step(sizes, weights, library.array(xs), library.array(ts), compiled)
            if step is not None:
                losses[f"{library.name} {compiled}"] = [float(step()) for _ in range(10)][-1]
    values = list(losses.values())
    if max(values) - min(values) > 1e-3 * abs(values[0]):
        raise AssertionError(f"losses differ: {losses}")


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    libraries: list[Any] = [Ours()]
    for peer in (Torch, Jax):
        try:
            libraries.append(peer())
        except ImportError as error:
            print(error)
    table = rows(libraries, options.only)
    number = wg.cuda.device_number(0)
    print(_core.cuda_counters(number))
    if options.markdown:
        lines = [f"| µs, pipelined (synchronised) | {' | '.join(lib.name for lib in libraries)} |"]
        lines.append("| --- |" + " --- |" * len(libraries))
        lines += [f"| {what} | {' | '.join(cells)} |" for what, cells in table]
        options.markdown.write_text(
            f"# One {wg.cuda.get_device_name()}\n\n" + "\n".join(lines) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
