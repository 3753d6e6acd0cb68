"""Measuring: contenders in turns, foreign load beside every number, results as table, JSON and Markdown."""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import platform
import statistics
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
SAMPLE_S = 0.04  # one sample of one contender: long enough to time, short enough that all see the same machine
SETTLE_S = 0.005  # between contenders: worker threads that spin after their work (OpenMP's do) would slow the next one
QUIET = 0.1  # foreign load, in cores, up to which a number with several threads means something


# ---------------------------------------------------------------------------------------------- foreign load


class ForeignLoad:
    """How many cores others kept busy between `start` and `stop`: /proc/stat minus our own time."""

    def start(self) -> ForeignLoad:
        """Begin to watch."""
        self._wall, self._busy, self._own = time.perf_counter(), _busy_seconds(), _own_seconds()
        return self

    def stop(self) -> float | None:
        """Cores that others used since; None where the system does not say."""
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        wall = time.perf_counter() - self._wall
        others = busy - self._busy - (_own_seconds() - self._own)
        return max(0.0, others / max(wall, 1e-9))


def _busy_seconds() -> float | None:
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(x) for x in fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


# --------------------------------------------------------------------------------------------------- timing


@dataclass
class Timing:
    """Seconds per call of one contender."""

    best: float
    median: float
    samples: int


Call = Callable[[int], float]  # runs n times, returns seconds


def statement(
    code: str, names: Mapping[str, Any], finish: Callable[[], Any] = lambda: None, setup: str = "pass"
) -> Call:
    """A call that times `code` in a loop of its own, after `setup`, as timeit does; `finish` waits for what was only
    started."""
    timer = timeit.Timer(code, setup, globals=dict(names))

    def call(n: int) -> float:
        seconds = timer.timeit(n)
        start = time.perf_counter()
        finish()
        return seconds + time.perf_counter() - start

    return call


def interleave(
    contenders: Mapping[str, Call], rounds: int, sample_s: float = SAMPLE_S
) -> tuple[dict[str, Timing], float | None]:
    """Time contenders in turns: every round, one sample of each. Also the foreign load meanwhile, in cores.

    While others keep the machine busy, rounds are repeated, up to four times as many; the quietest ones count.
    """
    counts = {name: _calibrate(call, sample_s) for name, call in contenders.items()}
    taken: list[tuple[float, dict[str, float]]] = []
    gc.collect()
    while len(taken) < rounds or (len(taken) < 4 * rounds and sum(load <= QUIET for load, _ in taken) < rounds):
        order = list(contenders) if len(taken) % 2 == 0 else list(contenders)[::-1]
        load = ForeignLoad().start()
        times = {name: _sample(contenders[name], counts[name]) for name in order}
        taken.append((load.stop() or 0.0, times))
    quietest = sorted(taken, key=lambda t: max(t[0], QUIET))[:rounds]  # sorted is stable: among quiet ones, the first
    samples = {name: [times[name] for _, times in quietest] for name in contenders}
    timings = {name: Timing(min(ts), statistics.median(ts), len(ts)) for name, ts in samples.items()}
    return timings, None if _busy_seconds() is None else statistics.mean(load for load, _ in quietest)


def _sample(call: Call, n: int) -> float:
    time.sleep(SETTLE_S)
    call(1)  # its own threads are awake again
    return call(n) / n


def _calibrate(call: Call, sample_s: float) -> int:
    n = 1
    call(1)
    while (seconds := call(n)) < sample_s / 4:
        n *= 4
    return max(1, round(n * sample_s / seconds))


# ----------------------------------------------------------------------------------------------------- rows


@dataclass
class Row:
    """One line of the report: what was measured, beside whom, and what the goal is."""

    name: str
    unit: str
    values: dict[str, float]  # by contender; ours is "wengert"
    medians: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)  # how many times faster than each peer, best against best
    goal: str = ""
    met: bool | None = None  # None: could not be judged
    foreign_load: float | None = None
    note: str = ""


def timed_row(
    name: str,
    timings: Mapping[str, Timing],
    load: float | None,
    *,
    per: float = 1.0,
    goals: Mapping[str, float],
    missing: Sequence[str] = (),
    note: str = "",
) -> Row:
    """A row of times, `per` ops a call, with goals as factors over peers."""
    scale, unit = _unit(timings["wengert"].best / per)
    ratios = {k: t.best / timings["wengert"].best for k, t in timings.items() if k != "wengert"}
    judged = [ratios[k] >= g for k, g in goals.items() if k in ratios]
    notes = [note] if note else []
    notes += [f"{m} is not installed" for m in missing]
    return Row(
        name,
        unit,
        {k: t.best / per * scale for k, t in timings.items()},
        {k: t.median / per * scale for k, t in timings.items()},
        ratios,
        ", ".join(f"≥ {g:g}× {k}" for k, g in goals.items()),
        all(judged) if goals and len(judged) == len(goals) else None,
        load,
        "; ".join(notes),
    )


def _unit(seconds: float) -> tuple[float, str]:
    if seconds < 1e-6:
        return 1e9, "ns"
    return (1e6, "µs") if seconds < 1e-3 else (1e3, "ms")


def bounded_row(name: str, unit: str, value: float, most: float, **more: Any) -> Row:
    """A row of one number that must not exceed a bound."""
    return Row(name, unit, {"wengert": value}, goal=f"≤ {most:g} {unit}", met=value <= most, **more)


# -------------------------------------------------------------------------------------------------- reports


def versions() -> dict[str, str]:
    """Of wengert and of the packages beside it."""
    import wengert as wg

    found = {
        "wengert": wg.__version__,
        "instruction set": wg._core.instruction_set(),
        "BLAS kernels": wg._core.blas_kernels(),
        "threads": "2",
    }
    for package in ("numpy", "torch", "jax"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine(versions: Mapping[str, str]) -> dict[str, Any]:
    """What the numbers were measured on: no names, no paths."""
    model = ""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        pass
    return {
        "cpu": model or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **versions,
    }


def _cells(row: Row) -> list[str]:
    ours = row.values.get("wengert")
    peers = [f"{k} {v:,.3g} ({row.ratios[k]:.2f}×)" for k, v in row.values.items() if k in row.ratios]
    verdict = {True: "met", False: "not met", None: "" if not row.goal else "not judged"}[row.met]
    load = "" if row.foreign_load is None else f"{row.foreign_load:.2f}"
    return [
        row.name,
        "" if ours is None else f"{ours:,.3g} {row.unit}",
        "\n".join(peers),
        row.goal,
        verdict,
        load,
        row.note,
    ]


HEADERS = ["row", "wengert", "beside it", "goal", "", "foreign load", "note"]


def show(rows: Sequence[Row]) -> None:
    """A table on the terminal."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(markdown_table(rows))
        return
    table = Table(*HEADERS, show_lines=True)
    for row in rows:
        cells = _cells(row)
        colour = {"met": "green", "not met": "red"}.get(cells[4])
        cells[4] = f"[{colour}]{cells[4]}[/]" if colour else cells[4]
        table.add_row(*cells)
    Console(width=None if os.isatty(1) else 160).print(table)


def markdown_table(rows: Sequence[Row]) -> str:
    """The same table in Markdown."""
    lines = ["| " + " | ".join(HEADERS) + " |", "|" + " --- |" * len(HEADERS)]
    lines += ["| " + " | ".join(c.replace("\n", "<br>") for c in _cells(row)) + " |" for row in rows]
    return "\n".join(lines)


IN_TURNS = (
    "Contenders run in turns in one process; times are the best of all samples (medians are in the JSON file). "
    "The foreign load is the number of cores that other processes kept busy meanwhile: above "
    f"{QUIET:g}, a time with two threads says little."
)


def write(name: str, title: str, rows: Sequence[Row], described: Mapping[str, Any], how: str = IN_TURNS) -> None:
    """Both reports, into benchmarks/results/, naming the files; `how` says how it was measured."""
    RESULTS.mkdir(exist_ok=True)
    on = ", ".join(f"{k} {v}" for k, v in described.items())
    text = [
        f"# {title}",
        "",
        f"Measured on: {on}.",
        "",
        how,
        "",
        markdown_table(rows),
        "",
    ]
    paths = [RESULTS / f"{name}.json", RESULTS / f"{name}.md"]
    content = {"title": title, "machine": described, "rows": [asdict(r) for r in rows]}
    paths[0].write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    paths[1].write_text("\n".join(text))
    for path in paths:
        print("wrote", path.relative_to(RESULTS.parent.parent))
