"""Deep networks under memory budgets and checkpoint strategies, each measured in a process of its own.

`python -m benchmarks.memory` runs these rows; `python -m benchmarks.budgets plot` draws peak and time against the budget
from the results that it has written (needs matplotlib).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WENGERT_NUM_THREADS", "1")

import ctypes
import functools
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Row

MB = 2**20
SHARES = {"1/2": 1 / 2, "1/3": 1 / 3, "1/5": 1 / 5}
RESULTS = Path(__file__).parent / "results"
Step = Callable[[], Any]


def _random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def mlp(layers: int = 64, width: int = 256, batch: int = 2048) -> tuple[Callable[[], Any], list[Any]]:
    """A loss and the parameters: layers of tanh."""
    import wengert as wg

    weights = [wg.Parameter(wg.tensor(_random(width, width, seed=k) * width**-0.5)) for k in range(layers)]
    x = wg.tensor(_random(batch, width, seed=1000))

    def loss() -> Any:
        h = functools.reduce(lambda h, w: wg.tanh(h @ w), weights, x)
        return (h * h).mean()

    return loss, weights


def deep_mlp(layers: int = 1000, width: int = 64, batch: int = 256) -> tuple[Callable[[], Any], list[Any]]:
    """A thousand small layers."""
    return mlp(layers, width, batch)


def transformer(
    blocks: int = 12, width: int = 128, batch: int = 8, length: int = 64
) -> tuple[Callable[[], Any], list[Any]]:
    """Encoder blocks with attention of four heads."""
    import wengert as wg

    wg.manual_seed(0)
    layers = [wg.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1) for _ in range(blocks)]
    x = wg.tensor(_random(batch, length, width))

    def loss() -> Any:
        wg.manual_seed(1)  # the same dropout in every step
        h = functools.reduce(lambda h, layer: layer(h), layers, x)
        return (h * h).mean()

    return loss, [p for layer in layers for p in layer.parameters()]


def recurrent(steps: int = 1000, width: int = 128, batch: int = 64) -> tuple[Callable[[], Any], list[Any]]:
    """A recurrent net, step by step."""
    import wengert as wg

    w, u = (wg.Parameter(wg.tensor(_random(width, width, seed=k) * width**-0.5)) for k in range(2))
    xs = wg.tensor(_random(steps, batch, width) * np.float32(0.1))

    def loss() -> Any:
        h = wg.zeros((batch, width))
        for t in range(steps):
            h = wg.tanh(xs[t] @ w + h @ u)
        return (h * h).mean()

    return loss, [w, u]


NETWORKS = {
    "64-layer MLP": mlp,
    "12-block transformer": transformer,
    "1,000-step recurrent net": recurrent,
    "1,000-layer MLP": deep_mlp,
}
SMALL: dict[str, dict[str, int]] = {  # of the same kinds, to load what is loaded at first use
    "64-layer MLP": {"layers": 2, "batch": 4},
    "12-block transformer": {"blocks": 1, "batch": 2},
    "1,000-step recurrent net": {"steps": 2, "batch": 4},
    "1,000-layer MLP": {"layers": 2, "width": 64, "batch": 4},
}
GOALS = {"64-layer MLP": 0.25, "12-block transformer": 0.20, "1,000-step recurrent net": 0.25}  # extra time at a third


def _status(field: str) -> int:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _step(loss: Callable[[], Any], parameters: list[Any]) -> list[Any]:
    grads = loss().backward()
    found = [grads[p] for p in parameters]
    for p in parameters:
        p.grad = None
    return found


def _config(how: dict[str, Any], live: int) -> Any:
    import wengert as wg

    if "budget" in how:
        return wg.memory_budget(mb=(live + how["budget"]) / MB)
    return wg.checkpointing(wg.CheckpointConfig(**how.get("config", {"strategy": "none"})))


def work(name: str, how: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Steps of one network under one setting: peaks, processor times, bits, and how much ran again."""
    import wengert as wg

    with wg.checkpointing(wg.CheckpointConfig("full")):
        _step(*NETWORKS[name](**SMALL[name]))
    loss, parameters = NETWORKS[name]()
    wg.empty_pool()
    ctypes.CDLL(None).malloc_trim(0)
    live = wg.memory_stats().live_bytes
    with _config(how, live):
        resident = _status("VmRSS")
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")
        wg.reset_peak()
        found = _step(loss, parameters)
        most, process = wg.memory_stats().peak_bytes - live, _status("VmHWM") - resident
        bits = hashlib.sha256(b"".join(np.asarray(g).tobytes() for g in found)).hexdigest()
        del found
        before, times = wg.memory_stats().recomputed, []
        for _ in range(rounds):
            start = time.process_time()
            _step(loss, parameters)
            times.append(time.process_time() - start)
        again = (wg.memory_stats().recomputed - before) // max(1, rounds)
    made = loss()
    saved = wg.memory_stats().live_bytes - live
    del made
    return {"peak": most, "process": process, "times": times, "bits": bits, "recomputed": again, "saved": saved}


_WORKER = (
    "import sys, json; from benchmarks.budgets import work; "
    "print(json.dumps(work(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))))"
)


def measured(name: str, how: dict[str, Any], rounds: int) -> dict[str, Any] | None:
    """What a process of its own found; None if the budget could not be met."""
    command = [sys.executable, "-c", _WORKER, name, json.dumps(how), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "BudgetError" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(f"a measuring process failed:\n{done.stderr}")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def least_budget(name: str, enough: int) -> int:
    """The least budget that is met, within 3 percent, by bisection."""
    low, high = 0, enough
    while high - low > 0.03 * high:
        middle = (low + high) // 2
        if measured(name, {"budget": middle}, 0) is None:
            low = middle
        else:
            high = middle
    return high


def _rows(
    name: str, label: str, found: dict[str, Any], plain: dict[str, Any], limit: int | None, goal: float | None
) -> list[Row]:
    best, base = min(found["times"]), min(plain["times"])
    extra = best / base - 1
    same = "the same bits" if found["bits"] == plain["bits"] else "OTHER BITS"
    note = f"{extra:+.0%}; {found['recomputed']} operations again; {same}"
    peak = found["peak"] / MB
    bound = f"≤ {limit / MB:.1f} MiB" if limit else ""
    process = (
        f"{found['peak'] / plain['peak']:.0%} of that without a budget; by the process {found['process'] / MB:.1f} MiB"
    )
    met = None if goal is None else extra <= goal
    return [
        Row(
            f"{name}, {label}: time", "s", {"wengert": best}, goal=f"≤ +{goal:.0%}" if goal else "", met=met, note=note
        ),
        Row(
            f"{name}, {label}: peak",
            "MiB",
            {"wengert": peak},
            goal=bound,
            met=found["peak"] <= limit if limit else None,
            note=process,
        ),
    ]


def budget_rows(name: str, rounds: int) -> list[Row]:
    """A network without a budget, at parts of its activation memory, and at the least that works."""
    plain = measured(name, {}, rounds)
    assert plain is not None
    rows = _rows(name, "no budget", plain, plain, None, None)
    budgets = {f"{k} of the activations": int(plain["peak"] - (1 - s) * plain["saved"]) for k, s in SHARES.items()}
    budgets["least budget"] = least_budget(name, min(budgets.values()))
    for label, limit in budgets.items():
        found = measured(name, {"budget": limit}, rounds)
        if found is None:
            continue
        goal = GOALS[name] if label.startswith("1/3") else None
        rows += _rows(name, label, found, plain, limit, goal)
    return rows


def strategy_rows(name: str, config: dict[str, Any], rounds: int) -> list[Row]:
    """A network under a strategy beside none."""
    plain, found = measured(name, {}, rounds), measured(name, {"config": config}, rounds)
    assert plain is not None and found is not None
    label = ", ".join(str(v) for v in config.values())
    return _rows(name, "no strategy", plain, plain, None, None) + _rows(name, label, found, plain, None, None)


def plot(results: dict[str, Any], to: Path) -> None:
    """Peak and time of every network against the budget."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    for name in GOALS:
        rows = {
            r["name"].removeprefix(f"{name}, "): r["values"]["wengert"]
            for r in results["rows"]
            if r["name"].startswith(name)
        }
        labels = [k.removesuffix(": peak") for k in rows if k.endswith(": peak")]
        peaks, times = [rows[f"{k}: peak"] for k in labels], [rows[f"{k}: time"] for k in labels]
        order = sorted(range(len(labels)), key=lambda k: peaks[k])
        share = [peaks[k] / max(peaks) for k in order]
        axes[0].plot(share, [peaks[k] for k in order], "o-", label=name)
        axes[1].plot(share, [times[k] / times[labels.index("no budget")] for k in order], "o-", label=name)
    axes[0].set(
        xlabel="peak, as a part of that without a budget", ylabel="peak beside what was there, MiB", yscale="log"
    )
    axes[1].set(
        xlabel="peak, as a part of that without a budget", ylabel="time, as a multiple of that without a budget"
    )
    axes[1].legend()
    figure.tight_layout()
    figure.savefig(to)


def main() -> None:
    """Draw the plot from the last results."""
    if sys.argv[1:2] != ["plot"]:
        raise SystemExit("usage: python -m benchmarks.budgets plot [FILE]")
    to = Path(sys.argv[2]) if len(sys.argv) > 2 else RESULTS / "memory.svg"
    plot(json.loads((RESULTS / "memory.json").read_text(encoding="utf-8")), to)
    print(f"wrote {os.path.relpath(to)}")


if __name__ == "__main__":
    main()
