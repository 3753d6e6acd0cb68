"""One GPU, beside PyTorch and JAX in one process: `python -m benchmarks.cuda`.

Times are medians of repeated measurements after warm-up, in microseconds, on random data; the losses of all libraries after
ten steps are compared first. "pipelined" is the time of many calls followed by one synchronisation, by their number;
"synchronised" has one after each call. `--write` writes benchmarks/results/cuda.json and cuda.md; `--try` runs every row
once, small and on the CPU, to see that it runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

import wengert as wg
from benchmarks.gpu import in_wengert, shapes
from benchmarks.gpu.shapes import Sizes

REPEATS = 7
RESULTS = Path(__file__).parent / "results"
SMALL, LARGE = [64, 64, 64, 10], [784, 1024, 1024, 10]
# Relative; of the losses after ten steps. ReLU's kinks and 16-bit numbers make different ways of ten steps of Adam.
AGREEMENT = {"float32": 1e-2, "bfloat16": 5e-2}


@dataclass
class Row:
    """What was measured: by library, microseconds pipelined and synchronised, or why there are none."""

    name: str
    goal: str = ""
    pipelined: dict[str, float] = field(default_factory=dict)
    synchronised: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


@dataclass
class Plan:
    """A row to be measured: `make` gives each library's call; `kind` and what follows, of a step that is checked."""

    name: str
    make: Callable[[Any], Any]
    goal: str = ""
    checked: str = ""  # the precision in which losses are compared


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


def plans(sizes: Sizes) -> Iterator[Plan]:
    """All rows but the first calls."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    a, b = normal(8, 8), normal(8, 8)
    yield Plan("a * b, 8×8", lambda lib: lib.eager_op(a, b), "a bare launch + 0.5")
    yield Plan("a * b, 8×8, recorded", lambda lib: lib.recorded_op(a, b))
    for n in sizes.chain:
        x, w, c = (normal(n) for _ in range(3))
        power = f"2^{round(math.log2(n))}"
        yield Plan(f"copy, {power}", lambda lib, x=x: lib.copy(x))
        yield Plan(f"tanh(x·w + b), {power}", lambda lib, o=(x, w, c): lib.chain(*o), "95 % of a copy's bandwidth")
    x, y_bar, w, b = normal(*sizes.rows), normal(*sizes.rows), normal(sizes.rows[1]), normal(sizes.rows[1])
    shape = "×".join(map(str, sizes.rows))
    for both, seed in (("", None), (", forward + backward", y_bar)):
        yield Plan(f"softmax {shape}{both}", lambda lib, s=seed: lib.softmax(x, s), "1.3× PyTorch")
        yield Plan(f"layer norm {shape}{both}", lambda lib, s=seed: lib.layer_norm(x, s, w, b), "1.3× PyTorch")
    for heads in sizes.heads:
        q, k, v, y_bar = (normal(*heads) for _ in range(4))
        for precision in ("bfloat16", "float32"):
            for both, seed in (("", None), (", forward + backward", y_bar)):
                yield Plan(
                    f"causal attention {'×'.join(map(str, heads))}, {precision}{both}",
                    lambda lib, o=(q, k, v), s=seed, p=precision: lib.attention(*o, s, p),
                    "1.0× the best" if precision == "bfloat16" else "",
                )
    yield from steps(sizes)


def steps(sizes: Sizes) -> Iterator[Plan]:
    """Training steps with Adam."""
    big, n = sizes.big
    cases = [
        ("MLP 64-64-64-10, B 32", "mlp", SMALL, 32, "float32", "≤ 20, ≥ 5× JAX"),
        ("MLP 784-1024-1024-10, B 128", "mlp", LARGE, 128, "float32", "≤ 80, ≥ 2× JAX"),
        (f"MLP {len(big) - 1}×{big[0]}, B {n}", "mlp", big, n, "float32", "≥ 0.95× the best"),
        (f"MLP {len(big) - 1}×{big[0]}, B {n}", "mlp", big, n, "bfloat16", "≥ 0.95× the best"),
        (f"CNN, {sizes.images}×1×28×28", "cnn", [], 0, "float32", "≥ 8× PyTorch eager"),
        ("LSTM, {}×{}×{} → {}".format(*sizes.sequences), "lstm", [], 0, "float32", "≤ 600"),
        ("transformer, {} blocks, width {}, batch {}×{}".format(*(sizes.writer[k] for k in (0, 1, 4, 5))),)
        + ("writer", [], 0, "bfloat16", "≥ 1.0× the best, ≥ 3× our float32"),
        ("transformer, {} blocks, width {}, batch {}×{}".format(*(sizes.writer[k] for k in (0, 1, 4, 5))),)
        + ("writer", [], 0, "float32", ""),
    ]
    for name, kind, widths, batch, precision, goal in cases:
        for compiled in (True, False):
            how = "compiled" if compiled else "eager"
            yield Plan(
                f"{name}, {precision}, {how}",
                lambda lib, o=(kind, widths, batch, precision, compiled): lib.step(*o),
                goal if compiled else "",
                precision,
            )


def measure(plan: Plan, libraries: list[Any], run_once: bool) -> Row:
    """One row. What one library cannot do is said in its cell."""
    row = Row(plan.name, plan.goal)
    losses: dict[str, float] = {}
    for library in libraries:
        try:
            call = plan.make(library)
            if call is None:
                continue
            if plan.checked:
                losses[library.name] = [float(call()) for _ in range(10)][-1]
            if run_once:
                library.wait(call())
                row.pipelined[library.name] = row.synchronised[library.name] = 0.0
            else:
                row.pipelined[library.name], row.synchronised[library.name] = timed(call, library.wait)
            del call
        except Exception as error:  # one library's failure is a result, too
            row.notes[library.name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        gc.collect()
    ours = losses.get("wengert")
    for name, loss in losses.items():
        if ours is not None and not abs(loss - ours) <= AGREEMENT[plan.checked] * max(1.0, abs(ours)):
            row.notes[name] = f"loss {loss:.5g} after ten steps, ours {ours:.5g}"
    return row


FIRST_CALL = """
import sys, time
from benchmarks.cuda import LIBRARIES, SMALL, shapes
import importlib
where, which, device = sys.argv[1:]
library = getattr(importlib.import_module(where), which)(device, shapes.MEASURED)
library.wait(library.array([1.0]))
step = library.step("mlp", SMALL, 32, "float32", True)
start = time.perf_counter()
library.wait(step())
library.wait(step())
print(time.perf_counter() - start)
"""


def first_calls(device: str) -> Iterator[Row]:
    """The first two calls of the small compiled step, in processes of their own: with an empty cache, and again."""
    goals = {"empty cache": "≤ 1.5 s", "filled cache": "≤ 0.1 s"}
    rows = {state: Row(f"first two calls of the small step, {state}", goal) for state, goal in goals.items()}
    for where, which, name in LIBRARIES:
        with tempfile.TemporaryDirectory() as folder:
            kept = {"WENGERT_CACHE_DIR": "wg", "TORCHINDUCTOR_CACHE_DIR": "ti", "JAX_COMPILATION_CACHE_DIR": "jax"}
            environment = {**os.environ, **{k: f"{folder}/{v}" for k, v in kept.items()}, "CUDA_CACHE_DISABLE": "1"}
            environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
            for row in rows.values():
                command = [sys.executable, "-c", FIRST_CALL, where, which, device]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                if done.returncode == 0:
                    row.synchronised[name] = row.pipelined[name] = 1e6 * float(done.stdout.split()[-1])
                elif which != "Compiled" or "eager" not in done.stderr:
                    row.notes[name] = done.stderr.strip().splitlines()[-1][:200] if done.stderr else "failed"
    yield from rows.values()


LIBRARIES = [
    ("benchmarks.gpu.in_wengert", "Library", "wengert"),
    ("benchmarks.gpu.in_torch", "Library", "PyTorch eager"),
    ("benchmarks.gpu.in_torch", "Compiled", "torch.compile"),
    ("benchmarks.gpu.in_jax", "Library", "JAX jit"),
]


def opened(device: str, sizes: Sizes, without: str) -> list[Any]:
    """The libraries that are there."""
    import importlib

    made: list[Any] = []
    for where, which, name in LIBRARIES:
        if without and any(part in name.lower() for part in without.lower().split(",")):
            continue
        try:
            made.append(getattr(importlib.import_module(where), which)(device, sizes))
        except ImportError as error:
            print(f"{name}: {error}")
    return made


def show(row: Row, names: list[str]) -> str:
    """A line of the Markdown table."""
    cells = []
    for name in names:
        text = f"{row.pipelined[name]:,.1f} ({row.synchronised[name]:,.1f})" if name in row.pipelined else ""
        cells.append(" ".join(filter(None, [text, "†" if name in row.notes else ""])))
    return f"| {row.name} | {' | '.join(cells)} | {row.goal} |"


def report(rows: list[Row], names: list[str], facts: dict[str, Any]) -> str:
    """The page of results."""
    lines = [
        f"# One {facts['device']}",
        "",
        "`python -m benchmarks.cuda`, " + facts["when"] + ". " + facts["versions"] + ".",
    ]
    lines += ["Medians of seven, after warm-up. A bare launch of an empty kernel takes the driver "]
    lines[-1] += f"{facts['bare launch']:.2f} µs." if facts["bare launch"] else "(not measured)."
    lines += ["", f"| µs, pipelined (synchronised) | {' | '.join(names)} | goal |"]
    lines.append("| --- |" + " --- |" * (len(names) + 1))
    lines += [show(row, names) for row in rows]
    notes = [f"- {row.name}: {name}: {text}" for row in rows for name, text in row.notes.items()]
    return "\n".join(lines + (["", "†:", "", *notes] if notes else [])) + "\n"


def versions() -> str:
    """Of all libraries."""
    import importlib.metadata as metadata

    found = []
    for package in ("wengert", "torch", "jax"):
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows with one of these words in their names, separated by commas")
    parser.add_argument("--without", default="", help="no libraries with one of these words in their names")
    parser.add_argument("--try", dest="small", action="store_true", help="run every row once, small and on the CPU")
    parser.add_argument("--write", nargs="?", const=RESULTS, type=Path, help="a folder for cuda.json and cuda.md")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no row after this time")
    options = parser.parse_args()
    device, sizes = ("cpu", shapes.SMALL) if options.small else ("cuda", shapes.MEASURED)
    if not options.small:
        wg.cuda.get_device_name()  # raises where there is no GPU
    libraries = opened(device, sizes, options.without)
    names = [library.name for library in libraries]
    facts: dict[str, Any] = {
        "device": "CPU, to see that the rows run" if options.small else wg.cuda.get_device_name(),
        "when": time.strftime("%d %B %Y"),
        "versions": versions(),
        "bare launch": in_wengert.Library(device, sizes).bare_launch(),
    }
    wanted = [word for word in options.only.split(",") if word]
    begin, rows = time.perf_counter(), []

    def save() -> None:
        if options.write:
            options.write.mkdir(parents=True, exist_ok=True)
            text = json.dumps({**facts, "rows": [asdict(r) for r in rows]}, indent=1, ensure_ascii=False)
            (options.write / "cuda.json").write_text(text + "\n", encoding="utf-8")
            (options.write / "cuda.md").write_text(report(rows, names, facts), encoding="utf-8")

    for plan in plans(sizes):
        if wanted and not any(word in plan.name for word in wanted):
            continue
        if time.perf_counter() - begin > options.seconds:
            break
        rows.append(measure(plan, libraries, options.small))
        print(show(rows[-1], names), *rows[-1].notes.items(), flush=True)
        save()
    if not wanted or any(word in "first two calls" for word in wanted):
        for row in first_calls(device):
            rows.append(row)
            print(show(row, names), *row.notes.items(), flush=True)
        save()


if __name__ == "__main__":
    main()
