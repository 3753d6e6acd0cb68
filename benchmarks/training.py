"""Training steps beside PyTorch (eager) and JAX (`jit`): `python -m benchmarks.training`.

Time of one step of Adam, and the most memory that a process of its own takes beyond what it has after building the network.
Prints a table with goals, and writes benchmarks/results/training.json and training.md.
"""

from __future__ import annotations

import os

# Before any library starts its threads: two each, as in benchmarks.eager.
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("WENGERT_NUM_THREADS", "2")

import importlib
import subprocess
import sys
from typing import Any

from benchmarks import command_line, measure
from benchmarks.measure import Row, interleave, statement, timed_row
from benchmarks.workloads import Workload, data, in_wengert, networks

PYTORCH, JAX = "PyTorch", "JAX jit"
MODULES = {"wengert": "in_wengert", PYTORCH: "in_torch", JAX: "in_jax"}

# name: (workload, goal over PyTorch)
STEPS = {
    "MLP 64-64-64-10, batch 32": ("mlp small", 12.0),
    "MLP 784-1024-1024-10, batch 128": ("mlp large", 1.3),
    networks.CNN.name: ("cnn", 1.2),
    networks.TRANSFORMER.name: ("transformer", 1.2),
    networks.LSTM.name: ("lstm", 3.0),
}

# Run in a process of its own, with the library and the workload as arguments.
_PEAK = """
import sys
from benchmarks.training import workload
def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
w = workload(sys.argv[1], sys.argv[2])
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")
w.result()
print(status("VmHWM") - before)
"""


def workload(library: str, which: str) -> Workload:
    """One training step in one library."""
    module: Any = importlib.import_module(f"benchmarks.workloads.{MODULES[library]}")
    if library == PYTORCH:
        module.torch.set_num_threads(2)
    if which.startswith("mlp"):
        sizes, n = (data.SMALL, 32) if which == "mlp small" else (data.LARGE, 128)
        return module.mlp(sizes, n)  # type: ignore[no-any-return]
    network = networks.NETWORKS[which]
    if library == JAX:
        return module.network(network, _shapes(network))  # type: ignore[no-any-return]
    return module.network(network)  # type: ignore[no-any-return]


def _shapes(network: networks.Network) -> dict[str, tuple[int, ...]]:
    return {k: tuple(p.shape) for k, p in network.build(in_wengert.wg.nn).named_parameters()}


def installed() -> list[str]:
    """The libraries that are there."""
    found = []
    for name, module in MODULES.items():
        try:
            importlib.import_module(f"benchmarks.workloads.{module}")
        except ImportError:
            continue
        found.append(name)
    return found


def peak_mb(library: str, which: str) -> float | None:
    """Megabytes beyond those after building, at the most, over twenty steps; None where the system does not say."""
    if not os.path.exists("/proc/self/clear_refs"):
        return None
    done = subprocess.run([sys.executable, "-c", _PEAK, library, which], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a measuring process failed:\n{done.stderr}")
    return int(done.stdout) / 1e6


def timed(name: str, which: str, goal: float, rounds: int) -> Row:
    """One row: all libraries in turns, after checking that they compute the same."""
    libraries = installed()
    workloads = {k: workload(k, which) for k in libraries}
    losses = {k: w.result() for k, w in workloads.items()}
    wrong = [k for k, x in losses.items() if abs(x - losses["wengert"]) > 5e-3 * max(1.0, abs(losses["wengert"]))]
    calls = {k: statement(w.statement, w.names, w.finish) for k, w in workloads.items()}
    timings, load = interleave(calls, rounds)
    peaks = {k: peak_mb(k, which) for k in libraries}
    notes = [f"peak memory: {', '.join(f'{k} {v:.1f} MB' for k, v in peaks.items() if v is not None)}"]
    notes += [f"results differ from ours: {', '.join(wrong)}"] if wrong else []
    missing = [k for k in MODULES if k not in libraries]
    return timed_row(name, timings, load, goals={PYTORCH: goal}, missing=missing, note="; ".join(notes))


def main() -> None:
    """Run the rows that were asked for; all by default."""
    options = command_line.parse("benchmarks.training", __doc__, (which for which, _ in STEPS.values()), rounds=15)
    rows = []
    for name, (which, goal) in STEPS.items():
        if which not in options.rows:
            continue
        rows.append(timed(name, which, goal, options.rounds))
        print(f"{name}: {rows[-1].values['wengert']:,.4g} {rows[-1].unit}", flush=True)
    measure.show(rows)
    if not options.dry:
        title = "Training steps beside PyTorch and JAX"
        measure.write("training", title, rows, measure.machine(measure.versions()))


if __name__ == "__main__":
    main()
