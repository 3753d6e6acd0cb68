"""The eager engine beside PyTorch and JAX: `python -m benchmarks.eager`.

Prints a table with goals, and writes benchmarks/results/eager.json and eager.md.
"""

from __future__ import annotations

import os

# Before any library starts its threads: two each. OMP_WAIT_POLICY is the user's: `passive` keeps PyTorch's waiting threads
# from taking a core from the others, but triples its time for small steps.
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("WENGERT_NUM_THREADS", "2")

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import wengert as wg
from benchmarks import command_line, measure, processes
from benchmarks.measure import Row, Timing, bounded_row, interleave, statement, timed_row
from benchmarks.workloads import Workload, data, in_wengert

PYTORCH, JAX = "PyTorch", "JAX jit"


def _peers() -> dict[str, Any]:
    """The workloads of the other libraries, where these are installed."""
    found = {}
    for name, module in ((PYTORCH, "in_torch"), (JAX, "in_jax")):
        try:
            found[name] = importlib.import_module(f"benchmarks.workloads.{module}")
        except ImportError:
            continue
    if PYTORCH in found:
        found[PYTORCH].torch.set_num_threads(2)
    return found


PEERS = _peers()


def _compare(
    name: str,
    ours: Workload,
    theirs: dict[str, Callable[[Any], Workload]],
    goals: dict[str, float],
    rounds: int,
    per: float = 1.0,
) -> Row:
    """Time our workload beside the others', after checking that all compute the same."""
    workloads = {"wengert": ours}
    for label, make in theirs.items():
        library = JAX if label.startswith("JAX") else PYTORCH
        if library in PEERS:
            workloads[label] = make(PEERS[library])
    missing = [label for label in goals if label not in workloads]
    results = {label: w.result() for label, w in workloads.items()}
    reference = results["wengert"]
    wrong = [k for k, r in results.items() if abs(r - reference) > 2e-3 * max(1.0, abs(reference))]
    calls = {label: statement(w.statement, w.names, w.finish) for label, w in workloads.items()}
    timings, load = interleave(calls, rounds)
    note = f"results differ from ours: {', '.join(wrong)}" if wrong else ""
    return timed_row(name, timings, load, per=per, goals=goals, missing=missing, note=note)


# ------------------------------------------------------------------------------------------ beside the others


def multiply(rounds: int) -> Iterator[Row]:
    """One recorded op."""
    yield _compare(
        "recorded multiply, 8×8", in_wengert.multiply(), {PYTORCH: lambda t: t.multiply()}, {PYTORCH: 25}, rounds
    )


def chain(rounds: int) -> Iterator[Row]:
    """Many ops, forward and backward."""
    yield _compare(
        "chain of 200 ops x = tanh(x*b), 8×8, forward + backward, per op",
        in_wengert.chain(),
        {PYTORCH: lambda t: t.chain()},
        {PYTORCH: 30},
        rounds,
        per=2 * data.CHAIN,
    )


def small_mlp(rounds: int) -> Iterator[Row]:
    """A training step dominated by overhead."""
    yield _compare(
        "MLP 64-64-64-10 step, batch 32, Adam, eager",
        in_wengert.mlp(data.SMALL, 32),
        {
            PYTORCH: lambda t: t.mlp(data.SMALL, 32),
            "PyTorch, fused Adam": lambda t: t.mlp(data.SMALL, 32, fused=True),
            JAX: lambda j: j.mlp(data.SMALL, 32),
        },
        {PYTORCH: 12, JAX: 2.5},
        rounds,
    )
    yield _compare(
        "the same step, compiled as a whole",
        in_wengert.mlp(data.SMALL, 32, compiled=True),
        {PYTORCH: lambda t: t.mlp(data.SMALL, 32), JAX: lambda j: j.mlp(data.SMALL, 32)},
        {},
        rounds,
    )


def affine_tanh(rounds: int) -> Iterator[Row]:
    """Memory traffic."""
    for label, compiled, goal in (("op by op", False, 2), ("compiled", True, 3)):
        yield _compare(
            f"tanh(x*w+b), 10⁶ floats, forward + backward, {label}",
            in_wengert.affine_tanh(compiled),
            {PYTORCH: lambda t: t.affine_tanh()},
            {PYTORCH: goal},
            rounds,
        )


def large_mlp(rounds: int) -> Iterator[Row]:
    """Matrix products and the optimizer's memory traffic."""
    yield _compare(
        "MLP 784-1024-1024-10 step, batch 128, Adam, eager",
        in_wengert.mlp(data.LARGE, 128),
        {
            PYTORCH: lambda t: t.mlp(data.LARGE, 128),
            "PyTorch, fused Adam": lambda t: t.mlp(data.LARGE, 128, fused=True),
            JAX: lambda j: j.mlp(data.LARGE, 128),
        },
        {PYTORCH: 1.3, JAX: 1.0},
        rounds,
    )


# ------------------------------------------------------------------------------------------ what recording adds

# Ops that save nothing new: what their derivatives read exists anyway.
_OPS = {"add": "x + b", "sub": "x - b", "mul": "x * b", "neg": "-x", "tanh": "tanh(x)", "exp": "exp(x)"}


def _recording(n: int, rounds: int) -> Iterator[tuple[str, dict[str, Timing], float | None]]:
    x, b, _ = (wg.tensor(a, requires_grad=True) for a in data.operands(n))
    names = {"x": x, "b": b, "tanh": wg.tanh, "exp": wg.exp}

    def unrecorded(call: measure.Call) -> measure.Call:
        def run(k: int) -> float:
            with wg.no_grad():
                return call(k)

        return run

    for op, code in _OPS.items():
        call = statement(code, names)
        timings, load = interleave({"recorded": call, "no_grad": unrecorded(call)}, rounds)
        yield op, timings, load


def recording(rounds: int) -> Iterator[Row]:
    """The cost of the tape: per op, in instructions, and relative at a size where kernels dominate."""
    added, loads = {}, []
    for op, t, load in _recording(64, rounds):
        added[op] = (t["recorded"].best - t["no_grad"].best) * 1e9
        loads.append(load or 0.0)
    worst = max(added, key=lambda op: added[op])
    each = ", ".join(f"{op} {v:.1f}" for op, v in added.items())
    name = "recording over no_grad, 64 elements, worst op"
    yield bounded_row(name, "ns", added[worst], 40, foreign_load=max(loads), note=each)

    counted = processes.instructions_per_op()
    if counted is None:
        yield Row("recording over no_grad, instructions", "", {}, note="valgrind is not installed")
    else:
        note = ", ".join(f"{k} {v:.0f}" for k, v in counted.items())
        value = counted["recorded"] - counted["no_grad"]
        yield Row("recording over no_grad, 8×8 multiply", "instructions", {"wengert": value}, note=note)

    relative, loads = {}, []
    for op, t, load in _recording(65_536, rounds):
        relative[op] = (t["recorded"].best / t["no_grad"].best - 1.0) * 100
        loads.append(load or 0.0)
    worst = max(relative, key=lambda op: relative[op])
    each = ", ".join(f"{op} {v:.1f}" for op, v in relative.items())
    name = "recording over no_grad, 65,536 elements, worst op"
    yield bounded_row(name, "%", relative[worst], 5, foreign_load=max(loads), note=each)


# ------------------------------------------------------------------------------------------ long runs, footprint


def million(rounds: int) -> Iterator[Row]:
    """Graphs as deep as memory."""
    short, long = processes.long_chain(100_000), processes.long_chain(1_000_000)
    for what in ("forward", "backward", "free"):
        growth = long[what] / short[what]
        yield Row(
            f"chain of 1,000,000 ops, {what}",
            "s",
            {"wengert": long[what]},
            goal="time linear: 10× that of 100,000, ± 50 %",
            met=growth <= 15.0,
            foreign_load=long["foreign_load"],
            note=f"{growth:.1f}× that of 100,000 ops; {long[what]:.2f} µs per op",
        )
    per_op = long["bytes"] / 1e6
    growth = long["bytes"] / short["bytes"]
    yield Row(
        "chain of 1,000,000 ops, memory",
        "bytes per op",
        {"wengert": per_op},
        goal="memory linear",
        met=growth <= 12.0,
        note=f"{growth:.1f}× that of 100,000 ops; {long['left'] / 1e6:.1f} MB more than before when freed",
    )


def flat(rounds: int) -> Iterator[Row]:
    """A long training loop."""
    grown = processes.training_growth(100_000)
    yield bounded_row("memory growth over 100,000 training steps", "MB", grown, 1)


def footprint(rounds: int) -> Iterator[Row]:
    """What it costs to have the library around."""
    load = measure.ForeignLoad().start()
    imports = processes.import_ms(2 * rounds)
    row = bounded_row("import wengert, over numpy", "ms", imports[0], 50, foreign_load=load.stop())
    row.medians = {"wengert": imports[len(imports) // 2]}
    row.note = f"median {row.medians['wengert']:.1f} ms"
    yield row
    yield bounded_row("installed size", "MB", processes.installed_mb(), 30)


SECTIONS = (multiply, chain, small_mlp, affine_tanh, large_mlp, recording, million, flat, footprint)


def main() -> None:
    """Run the rows that were asked for; all by default."""
    sections = {section.__name__: section for section in SECTIONS}
    options = command_line.parse("benchmarks.eager", __doc__, sections, rounds=15)
    rows = []
    for name in options.rows:
        for row in sections[name](options.rounds):
            print(f"{row.name}: {row.values.get('wengert', float('nan')):,.4g} {row.unit}", flush=True)
            rows.append(row)
    measure.show(rows)
    if not options.dry:
        title = "The eager engine beside PyTorch and JAX"
        measure.write("eager", title, rows, measure.machine(measure.versions()))


if __name__ == "__main__":
    main()
