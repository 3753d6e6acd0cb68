"""Budgets, strategies and checkpoints in deep networks: `python -m benchmarks.memory`.

Training steps of an MLP, a transformer and a recurrent net without a budget and under budgets of parts of their activation
memory (`benchmarks.budgets`), strategies, and checkpoints beside PyTorch's: the most memory that a process of its own takes
beyond what it has after building the network, and the processor time of a step. Prints a table, and writes
benchmarks/results/memory.json and memory.md.
"""

from __future__ import annotations

import os

# Before any library starts its threads: one each, since processor time is measured, whatever else the machine does.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["WENGERT_NUM_THREADS"] = "1"

import ctypes
import functools
import hashlib
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks import budgets, command_line, measure
from benchmarks.measure import Row


class Network(NamedTuple):
    """Sizes of an MLP."""

    layers: int
    width: int
    batch: int

    def weights(self) -> list[np.ndarray[Any, Any]]:
        """One matrix for each layer."""
        rng, shape = np.random.default_rng(0), (self.width, self.width)
        return [(rng.standard_normal(shape) * self.width**-0.5).astype(np.float32) for _ in range(self.layers)]

    def inputs(self) -> np.ndarray[Any, Any]:
        """A batch of samples."""
        return np.random.default_rng(1).standard_normal((self.batch, self.width)).astype(np.float32)


SMALL, LARGE = Network(4, 8, 8), Network(64, 256, 1024)
SEGMENTS = {f"{LARGE.layers}-layer MLP, no checkpoints": 0}
SEGMENTS |= {f"{LARGE.layers}-layer MLP, {n} checkpoints": n for n in (4, 8, 16, LARGE.layers)}
PYTORCH = "PyTorch"
BUDGETS = {f"budgets: {name}": name for name in budgets.GOALS}
# The network, the strategy, by how much less is to be kept, and how much more time that may take.
STRATEGIES: dict[str, tuple[str, dict[str, Any], float, float | None]] = {
    "strategy: selective": ("12-block transformer", {"strategy": "selective"}, 0.4, 0.05),
    "strategy: full": ("1,000-layer MLP", {"strategy": "full"}, 0.9, None),
}
HOW = (
    "Budgets: peaks are counted by the core, in MiB beside what was there before the step (parameters and inputs), with "
    "gradients; what the process itself had at the most (VmHWM) stands in the notes. A budget of 1/3 of the activations "
    "leaves a third of what recorded operations keep for backward, and room for all else; nothing is wrapped. "
    f"Checkpoints: layers of {LARGE.width} units with tanh, a batch of {LARGE.batch}, float32: a layer's result takes "
    f"{LARGE.batch * LARGE.width * 4 / 2**20:.0f} MiB, all weights {LARGE.layers * LARGE.width**2 * 4 / 2**20:.0f} MiB. "
    "Every number comes from processes of its own, one thread each. Times are processor time, the best of all steps, since "
    "other programs kept the machine busy. Memory is the high-water mark of the process (VmHWM) during the first step, "
    "gradients of the weights included, less what it held before."
)
# Run in a process of its own, with the library, the number of segments and the number of steps as arguments.
_WORKER = "import sys; from benchmarks.memory import work; work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))"


def in_wengert(network: Network, segments: int) -> Callable[[], Any]:
    """A step, which returns the gradients."""
    import wengert as wg

    weights = [wg.Parameter(wg.tensor(w)) for w in network.weights()]
    x = wg.tensor(network.inputs())
    layers = [lambda h, w=w: wg.tanh(h @ w) for w in weights]

    def step() -> Any:
        h = wg.checkpoint_sequential(layers, segments, x) if segments else functools.reduce(_call, layers, x)
        grads = (h * h).mean().backward()
        found = [grads[w] for w in weights]
        for w in weights:
            w.grad = None
        return found

    return step


def in_torch(network: Network, segments: int) -> Callable[[], Any]:
    """The same step."""
    import torch
    from torch.utils.checkpoint import checkpoint_sequential

    torch.set_num_threads(1)
    weights = [torch.tensor(w, requires_grad=True) for w in network.weights()]
    x = torch.tensor(network.inputs())
    layers = [lambda h, w=w: torch.tanh(h @ w) for w in weights]

    def step() -> Any:
        if segments:
            h = checkpoint_sequential(layers, segments, x, use_reentrant=False)
        else:
            h = functools.reduce(_call, layers, x)
        (h * h).mean().backward()
        found = [w.grad for w in weights]
        for w in weights:
            w.grad = None
        return found

    return step


def _call(h: Any, layer: Callable[[Any], Any]) -> Any:
    return layer(h)


def _status(field: str) -> int:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def work(library: str, segments: int, steps: int) -> None:
    """Measure one contender, and print what was found."""
    build = in_wengert if library == "wengert" else in_torch
    build(SMALL, min(segments, SMALL.layers))()  # loads what is loaded at first use
    step = build(LARGE, segments)
    ctypes.CDLL(None).malloc_trim(0)  # what was freed is not to be used again unseen
    before = _status("VmRSS")
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    found = step()
    most = _status("VmHWM") - before
    bits = hashlib.sha256(b"".join(np.asarray(g).tobytes() for g in found)).hexdigest()
    del found
    times = []
    for _ in range(steps):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    print(json.dumps({"peak": most, "times": times, "bits": bits}))


def measured(library: str, segments: int, steps: int) -> dict[str, Any]:
    """What a process of its own found."""
    command = [sys.executable, "-c", _WORKER, library, str(segments), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a measuring process failed:\n{done.stderr}")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def rows_of(name: str, segments: int, libraries: list[str], steps: int, plain: dict[str, Any]) -> list[Row]:
    """The time and the memory of one way to do it; `plain` is what wengert found without checkpoints."""
    load = measure.ForeignLoad().start()
    found = {k: measured(k, segments, steps) for k in libraries}
    busy = load.stop()
    ours = found["wengert"]
    if not plain:
        plain.update(ours)
    extra = min(ours["times"]) / min(plain["times"]) - 1
    same = "the same bits" if ours["bits"] == plain["bits"] else "OTHER BITS"
    note = f"{extra:+.0%} beside no checkpoints; {same}" if segments else ""
    best = {k: min(f["times"]) for k, f in found.items()}
    medians = {k: statistics.median(f["times"]) for k, f in found.items()}
    peaks = {k: f["peak"] / 2**20 for k, f in found.items()}
    ratios = [{k: v[k] / v["wengert"] for k in v if k != "wengert"} for v in (best, peaks)]
    share = f"{ours['peak'] / plain['peak']:.0%} of that without checkpoints" if segments else ""
    met = peaks["wengert"] <= peaks[PYTORCH] if PYTORCH in peaks else None
    return [
        Row(f"{name}: time", "s", best, medians, ratios[0], foreign_load=busy, note=note),
        Row(f"{name}: memory", "MiB", peaks, {}, ratios[1], "≤ PyTorch's", met, note=share),
    ]


def main() -> None:
    """Run the rows that were asked for; all by default."""
    options = command_line.parse("benchmarks.memory", __doc__, [*BUDGETS, *STRATEGIES, *SEGMENTS], rounds=5)
    libraries = ["wengert", *([PYTORCH] if importlib.util.find_spec("torch") else [])]
    rows: list[Row] = []
    for name in options.rows:
        if name in BUDGETS:
            rows += budgets.budget_rows(BUDGETS[name], options.rounds, PYTORCH in libraries)
        elif name in STRATEGIES:
            rows += budgets.strategy_rows(*STRATEGIES[name], options.rounds)
    plain: dict[str, Any] = {}
    wanted = [name for name in SEGMENTS if name in options.rows]
    for name, segments in SEGMENTS.items():
        if not wanted or (segments and name not in wanted):
            continue
        rows += rows_of(name, segments, libraries, options.rounds, plain)
        print(f"{name}: {rows[-2].values['wengert']:.3g} s, {rows[-1].values['wengert']:.3g} MiB", flush=True)
    measure.show(rows)
    if not options.dry:
        described = {**measure.machine(measure.versions()), "threads": "1"}
        measure.write("memory", "Memory budgets, strategies and checkpoints", rows, described, HOW)


if __name__ == "__main__":
    main()
