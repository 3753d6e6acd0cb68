"""Compiled programs beside JAX `jit`, `torch.compile` and PyTorch: `python -m benchmarks.programs`.

Training steps as people write them (zero_grad, backward, step), compiled and eager; a chain of 200 small ops; loops; and how
long the first call takes, which traces. `--torch-compile` measures `torch.compile` beside the small network, which takes
minutes. Prints a table with goals, and writes benchmarks/results/programs.json and programs.md.
"""

from __future__ import annotations

import os

# Before any library starts its threads: two each, as in benchmarks.eager.
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("WENGERT_NUM_THREADS", "2")

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import command_line, measure
from benchmarks.measure import Row, interleave, statement, timed_row
from benchmarks.workloads import Workload, data, in_wengert, networks
from wengert import _core

PYTORCH, JAX, COMPILED = "PyTorch", "JAX jit", "torch.compile"
Make = Callable[[], Workload]


def _module(name: str) -> Any:
    """The workloads of a library, or None where it is not installed."""
    try:
        module: Any = importlib.import_module(f"benchmarks.workloads.{name}")
    except ImportError:
        return None
    if name == "in_torch":
        module.torch.set_num_threads(2)
    return module


def _mlp(sizes: tuple[int, ...], n: int, compiled: bool) -> dict[str, Make]:
    torch, jax = _module("in_torch"), _module("in_jax")
    made: dict[str, Make] = {"wengert": lambda: in_wengert.mlp(sizes, n, compiled)}
    if torch:
        made[PYTORCH] = lambda: torch.mlp(sizes, n)
    if jax:
        made[JAX] = lambda: jax.mlp(sizes, n)
    if torch and "--torch-compile" in sys.argv and n == 32:
        made[COMPILED] = lambda: torch.mlp(sizes, n, compiled=True)
    return made


def _network(which: str) -> dict[str, Make]:
    torch, jax, network = _module("in_torch"), _module("in_jax"), networks.NETWORKS[which]
    made: dict[str, Make] = {"wengert": lambda: in_wengert.network(network, compiled=True)}
    if torch:
        made[PYTORCH] = lambda: torch.network(network)
    if jax:
        shapes = {k: tuple(p.shape) for k, p in network.build(in_wengert.wg.nn).named_parameters()}
        made[JAX] = lambda: jax.network(network, shapes)
    return made


def _function(name: str, ours: Make) -> dict[str, Make]:
    made: dict[str, Make] = {"wengert": ours}
    for library, module in ((PYTORCH, _module("in_torch")), (JAX, _module("in_jax"))):
        if module and hasattr(module, name):
            made[library] = getattr(module, name)
    return made


# name: (contenders, goals, whether the first call is measured, note)
ROWS: dict[str, tuple[Callable[[], dict[str, Make]], dict[str, float], bool, str]] = {
    "small MLP step, compiled": (lambda: _mlp(data.SMALL, 32, True), {JAX: 4.0}, True, ""),
    "small MLP step, eager": (lambda: _mlp(data.SMALL, 32, False), {JAX: 3.0}, False, ""),
    "large MLP step, compiled": (lambda: _mlp(data.LARGE, 128, True), {JAX: 1.0, PYTORCH: 1.0}, True, ""),
    "CNN step, compiled": (lambda: _network("cnn"), {JAX: 1.0, PYTORCH: 1.0}, True, ""),
    "transformer step, compiled": (lambda: _network("transformer"), {JAX: 1.0, PYTORCH: 1.0}, True, ""),
    "LSTM step, compiled": (lambda: _network("lstm"), {JAX: 1.0, PYTORCH: 3.0}, True, ""),
    "chain of 200 ops on 8×8, with gradient": (
        lambda: _function("chain", lambda: in_wengert.chain(compiled=True)), {JAX: 3.0}, True, "",
    ),
    "loop of 1,000 turns over a number, with gradient": (
        lambda: _function("scalar_loop", in_wengert.scalar_loop), {JAX: 1.5}, True, "",
    ),
    "while loop in a gradient in a while loop": (
        lambda: _function("nested_loops", in_wengert.nested_loops), {}, False,
        "JAX has no reverse mode for while loops",
    ),
}  # fmt: skip
FASTER_FIRST = 10.0  # times JAX's first call
WARM_S, WARM_CALLS = 4.0, 110_000  # hot programs are compiled to machine code after 100,000 calls


def timed(name: str, rounds: int) -> Row:
    """One row: all libraries in turns, after checking that they compute the same."""
    contenders, goals, _, note = ROWS[name]
    workloads = {k: make() for k, make in contenders().items()}
    results = {k: w.result() for k, w in workloads.items()}
    ours = results["wengert"]
    wrong = [k for k, x in results.items() if abs(x - ours) > 5e-3 * max(1.0, abs(ours))]
    calls = {k: statement(w.statement, w.names, w.finish) for k, w in workloads.items()}
    notes = [note] if note else []
    if _generated(calls["wengert"]):
        notes.append("generated code")
    timings, load = interleave(calls, rounds)
    notes += [f"results differ from ours: {', '.join(wrong)}"] if wrong else []
    missing = [k for k in goals if k not in workloads]
    return timed_row(name, timings, load, goals=goals, missing=missing, note="; ".join(notes))


def _generated(call: measure.Call) -> bool:
    """Whether generated code runs it, once it has been called for as long as that takes to be made."""
    until, calls = time.perf_counter() + WARM_S, 0
    while calls < WARM_CALLS and time.perf_counter() < until:
        call(10)
        calls += 10
    _core.wait_for_compiler()
    before = _core.tier_counters()["runs"]
    call(1)
    return _core.tier_counters()["runs"] > before


def first_call(name: str, times: int = 3) -> Row:
    """How long the first call takes, at best: everything that a library does before it has a result."""
    makes = {k: make for k, make in ROWS[name][0]().items() if k in ("wengert", JAX)}
    seconds = {k: min(_first(make) for _ in range(times)) for k, make in makes.items()}
    timings = {k: measure.Timing(s, s, times) for k, s in seconds.items()}
    missing = [k for k in (JAX,) if k not in makes]
    return timed_row(f"first call: {name}", timings, None, goals={JAX: FASTER_FIRST}, missing=missing)


def _first(make: Make) -> float:
    workload = make()
    start = time.perf_counter()
    exec(workload.statement, dict(workload.names))
    workload.finish()
    return time.perf_counter() - start


def main() -> None:
    """Run the rows that were asked for; all by default."""
    sys.argv, given = [a for a in sys.argv if a != "--torch-compile"], list(sys.argv)
    options = command_line.parse("benchmarks.programs", __doc__, ROWS, rounds=15)
    sys.argv = given
    rows = []
    for name in options.rows:
        rows.append(timed(name, options.rounds))
        if ROWS[name][2]:
            rows.append(first_call(name))
        print(f"{name}: {rows[-1].values['wengert']:,.4g} {rows[-1].unit}", flush=True)
    measure.show(rows)
    if not options.dry:
        measure.write("programs", "Compiled programs beside JAX and PyTorch", rows, measure.machine(measure.versions()))


if __name__ == "__main__":
    main()
