"""Deep networks under memory budgets and checkpoint strategies, each measured in a process of its own.

`python -m benchmarks.memory` runs these rows; `python -m benchmarks.budgets` draws peak and time against the budget
from the results that it has written (needs matplotlib).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WENGERT_NUM_THREADS", "1")

import argparse
import ctypes
import functools
import hashlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import budget_peers
from benchmarks.measure import Row

MB = 2**20
SHARES = {"1/2": 1 / 2, "1/3": 1 / 3, "1/5": 1 / 5}
MOST_TIME = 2.0  # of the plot
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
    blocks: int = 12, width: int = 256, batch: int = 24, length: int = 64
) -> tuple[Callable[[], Any], list[Any]]:
    """Encoder blocks with attention of four heads."""
    import wengert as wg

    wg.manual_seed(0)
    options = {"dropout": 0.1, "activation": "gelu", "batch_first": True}
    layers = [wg.nn.TransformerEncoderLayer(width, 4, 4 * width, **options) for _ in range(blocks)]
    x = wg.tensor(_random(batch, length, width))

    def loss() -> Any:
        wg.manual_seed(1)  # the same dropout in every step
        h = functools.reduce(lambda h, layer: layer(h), layers, x)
        return (h * h).mean()

    return loss, [p for layer in layers for p in layer.parameters()]


def recurrent(steps: int = 1000, width: int = 256, batch: int = 64) -> tuple[Callable[[], Any], list[Any]]:
    """A recurrent net, step by step: one product forward, two backward."""
    import wengert as wg

    w = wg.Parameter(wg.tensor(_random(width, width) * width**-0.5))
    xs = wg.tensor(_random(steps, batch, width) * np.float32(0.1))

    def loss() -> Any:
        h = wg.zeros((batch, width))
        for t in range(steps):
            h = wg.tanh(h @ w + xs[t])
        return (h * h).mean()

    return loss, [w]


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
PYTORCH = "PyTorch"
LEAST = "least budget"
TOLERATED = 0.05, 16 * MB  # by which a process may hold more than what is counted


def _status(field: str) -> int:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _step(loss: Callable[[], Any], parameters: list[Any]) -> list[Any]:
    loss().backward()
    found = [p.grad for p in parameters]
    for p in parameters:
        p.grad = None
    return found


def _config(how: dict[str, Any], live: int) -> Any:
    import wengert as wg

    if "budget" in how:
        return wg.memory_budget(mb=(live + how["budget"]) / MB)
    return wg.checkpointing(wg.CheckpointConfig(**how.get("config", {"strategy": "none"})))


def _first_step(step: Callable[[], list[Any]]) -> tuple[str, int, float]:
    """The bits of the gradients, what the process held at the most beside what it held before, and the seconds."""
    ctypes.CDLL(None).malloc_trim(0)
    resident = _status("VmRSS")
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    start = time.process_time()
    found = step()
    seconds, process = time.process_time() - start, _status("VmHWM") - resident
    bits = hashlib.sha256(b"".join(np.asarray(g.detach()).tobytes() for g in found)).hexdigest()
    return bits, process, seconds


def _times(step: Callable[[], Any], rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return times


def work(name: str, how: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Steps of one network under one setting: peaks, processor times, bits, and how much ran again. Without rounds the
    first step is timed."""
    import wengert as wg

    with wg.checkpointing(wg.CheckpointConfig("full")):
        _step(*NETWORKS[name](**SMALL[name]))
    loss, parameters = NETWORKS[name]()
    wg.empty_pool()
    live = wg.memory_stats().live_bytes
    with _config(how, live):
        wg.reset_peak()
        before = wg.memory_stats().recomputed
        bits, process, first = _first_step(lambda: _step(loss, parameters))
        again, most = wg.memory_stats().recomputed - before, wg.memory_stats().peak_bytes - live
        times = _times(lambda: _step(loss, parameters), rounds) or [first]
        made = loss()
        saved = wg.memory_stats().live_bytes - live
        del made
    return {"peak": most, "process": process, "times": times, "bits": bits, "recomputed": again, "saved": saved}


def work_of_peer(name: str, how: dict[str, Any], rounds: int) -> dict[str, Any]:
    """The same in PyTorch."""
    import torch

    torch.set_num_threads(1)
    build = functools.partial(budget_peers.NETWORKS[name], _random, how["checkpointed"])
    _step(*build(**SMALL[name]))
    loss, parameters = build()
    _, process, _ = _first_step(lambda: _step(loss, parameters))
    return {"process": process, "times": _times(lambda: _step(loss, parameters), rounds)}


_WORKER = (
    "import sys, json; from benchmarks.budgets import {0}; "
    "print(json.dumps({0}(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))))"
)


def measured(name: str, how: dict[str, Any], rounds: int) -> dict[str, Any] | None:
    """What a process of its own found; None if the budget could not be met."""
    worker = _WORKER.format("work_of_peer" if "checkpointed" in how else "work")
    done = subprocess.run(
        [sys.executable, "-c", worker, name, json.dumps(how), str(rounds)], capture_output=True, text=True, check=False
    )
    if "BudgetError" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(f"a measuring process failed:\n{done.stderr}")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def in_turns(name: str, ways: dict[str, dict[str, Any]], rounds: int) -> dict[str, dict[str, Any]]:
    """What processes find that are started in turns, so that all see the same machine; ways that fail are left out. What
    a process held at the most is the median: of PyTorch's, it differs from process to process by up to a half."""
    found: dict[str, dict[str, Any]] = {}
    held: dict[str, list[int]] = {}
    for _ in range(rounds):
        for label, how in ways.items():
            # With the least that works, a step takes minutes.
            one = measured(name, how, 0 if label == LEAST else 3)
            if one is not None:
                found.setdefault(label, one)["times"] += one["times"]
                held.setdefault(label, []).append(one["process"])
                print(f"{name}, {label}: {min(one['times']):.3g} s, {one['process'] / MB:.4g} MiB", flush=True)
    for label, processes in held.items():
        found[label]["process"] = int(statistics.median(processes))
    return found


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
    best, extra = min(found["times"]), min(found["times"]) / min(plain["times"]) - 1
    same = "the same bits" if found["bits"] == plain["bits"] else "OTHER BITS"
    unlike = found["process"] - found["peak"]
    explained = unlike <= TOLERATED[0] * found["peak"] + TOLERATED[1]
    share = f"{found['peak'] / plain['peak']:.0%} of that without; the process held {found['process'] / MB:.1f} MiB"
    return [
        Row(
            f"{name}, {label}: time", "s", {"wengert": best}, goal="" if goal is None else f"≤ +{goal:.0%}",
            met=None if goal is None else extra <= goal,
            note=f"{extra:+.0%}; {found['recomputed']} operations again; {same}",
        ),
        Row(
            f"{name}, {label}: peak", "MiB", {"wengert": found["peak"] / MB},
            goal=(f"≤ {limit / MB:.1f} MiB; " if limit else "") + "VmHWM within 5 % + 16 MB",
            met=(limit is None or found["peak"] <= limit) and explained, note=share,
        ),
    ]  # fmt: skip


def _rows_of_peer(
    name: str, label: str, found: dict[str, Any], plain: dict[str, Any], ours: dict[str, Any]
) -> list[Row]:
    extra = min(found["times"]) / min(plain["times"]) - 1
    times = {"wengert": min(ours["times"]), PYTORCH: min(found["times"])}
    peaks = {"wengert": ours["process"] / MB, PYTORCH: found["process"] / MB}
    ratios = [{PYTORCH: v[PYTORCH] / v["wengert"]} for v in (times, peaks)]
    note = "both without" if found is plain else f"{extra:+.0%} beside PyTorch without; wengert has no budget"
    met = peaks["wengert"] <= peaks[PYTORCH] if found is plain else None
    return [
        Row(f"{name}, beside PyTorch {label}: time", "s", times, ratios=ratios[0], note=note),
        Row(
            f"{name}, beside PyTorch {label}: peak of the process", "MiB", peaks, ratios=ratios[1],
            goal="≤ PyTorch's" if found is plain else "", met=met,
        ),
    ]  # fmt: skip


def budget_rows(name: str, rounds: int, peers: bool) -> list[Row]:
    """A network without a budget, at parts of its activation memory, and at the least that works; and PyTorch's."""
    once = measured(name, {}, 0)
    assert once is not None
    limits = {f"{k} of the activations": int(once["peak"] - (1 - s) * once["saved"]) for k, s in SHARES.items()}
    reached = [limit for limit in limits.values() if measured(name, {"budget": limit}, 0) is not None]
    limits[LEAST] = least_budget(name, min(reached))
    ways: dict[str, dict[str, Any]] = {"no budget": {}, **{label: {"budget": limit} for label, limit in limits.items()}}
    if peers:
        ways |= {"without checkpoints": {"checkpointed": False}, "with checkpoints": {"checkpointed": True}}
    found = in_turns(name, ways, rounds)
    plain = found["no budget"]
    rows = _rows(name, "no budget", plain, plain, None, None)
    for label, limit in limits.items():
        if label in found:
            rows += _rows(name, label, found[label], plain, limit, GOALS[name] if label.startswith("1/3") else None)
    for label in ("without checkpoints", "with checkpoints") if peers else ():
        rows += _rows_of_peer(name, label, found[label], found["without checkpoints"], plain)
    return rows


def strategy_rows(name: str, config: dict[str, Any], less: float, goal: float | None, rounds: int) -> list[Row]:
    """A network under a strategy beside none."""
    found = in_turns(name, {"none": {}, "it": {"config": config}}, rounds)
    plain, it = found["none"], found["it"]
    label = ", ".join(str(v) for v in config.values())
    share = it["saved"] / plain["saved"]
    kept = Row(
        f"{name}, {label}: kept after the forward pass", "MiB", {"wengert": it["saved"] / MB}, goal=f"≥ {less:.0%} less",
        met=share <= 1 - less, note=f"{1 - share:.0%} less than {plain['saved'] / MB:.1f} MiB",
    )  # fmt: skip
    return [kept, *_rows(name, label, it, plain, None, goal)]


def plot(results: dict[str, Any], to: Path) -> None:
    """Peak and time of every network against the budget."""
    import matplotlib.pyplot as plt

    figure, (peaks, times) = plt.subplots(1, 2, figsize=(10, 4))
    peaks.plot([0, 1], [0, 1], "--", color="grey", label="the budget")
    for name in GOALS:
        rows = {r["name"].removeprefix(f"{name}, "): r for r in results["rows"] if r["name"].startswith(name)}
        free_peak, free_time = (rows[f"no budget: {what}"]["values"]["wengert"] for what in ("peak", "time"))
        points = []
        for label in (LEAST, *(f"{k} of the activations" for k in reversed(SHARES))):
            if (row := rows.get(f"{label}: peak")) and (limit := re.match(r"≤ ([\d.]+) MiB", row["goal"])):
                time = rows[f"{label}: time"]["values"]["wengert"]
                points.append((float(limit[1]) / free_peak, row["values"]["wengert"] / free_peak, time / free_time))
        points.append((1.0, 1.0, 1.0))
        shares = [x for x, _, _ in points]
        (line,) = peaks.plot(shares, [y for _, y, _ in points], "o-", label=name)
        times.plot(shares, [t for _, _, t in points], "o-", color=line.get_color(), label=name)
        for share, _, time in points:
            if time > MOST_TIME:
                times.text(share + 0.02, MOST_TIME * 0.97, f"{time:.0f}× with {share:.0%}", color=line.get_color())
    peaks.set(xlabel="budget, relative to the peak without one", ylabel="peak, relative to that without a budget")
    times.set(xlabel="budget, relative to the peak without one", ylabel="time, relative to that without a budget")
    times.set_ylim(0.9, MOST_TIME)
    peaks.legend()
    figure.tight_layout()
    figure.savefig(to)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.budgets",
        description="Draw peaks and times against budgets, from the last results of benchmarks.memory.",
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        default=RESULTS.parents[1] / "docs" / "images" / "budgets.svg",
        help="what to write (default: docs/images/budgets.svg)",
    )
    to = parser.parse_args().file
    plot(json.loads((RESULTS / "memory.json").read_text(encoding="utf-8")), to)
    print(f"wrote {os.path.relpath(to)}")


if __name__ == "__main__":
    main()
