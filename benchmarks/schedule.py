"""How well the hybrid scheduler chooses: `python -m benchmarks.schedule`.

Jacobians of networks from wide to narrow and back, in every mode, compiled, in turns in one process. The last rows count
how often the choice was the fastest (or within 5 % of it), and how often predictions were within a factor of two of what was
measured. Prints a table, and writes benchmarks/results/schedule.json and schedule.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WENGERT_NUM_THREADS", "1")  # what is estimated is work

import contextlib
import io
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import wengert as wg
from benchmarks import command_line, measure
from benchmarks.measure import Row, Timing, interleave, statement

SAMPLE_S = 1e-3  # short, so that some of many samples are not disturbed
MODES = ("forward", "reverse", "mixed")
EVERYTHING = wg.SchedulerConfig(forward_mode_threshold=1e9, reverse_mode_threshold=1e-9)  # is estimated
GRID = [
    *((n, 60, m) for n in (10, 50, 250) for m in (10, 50, 250)),
    *((300, waist, 300) for waist in (2, 10, 40, 100, 200, 280)),
    *((200, 150, waist, 150, 200) for waist in (3, 30, 90)),
]


def network(sizes: tuple[int, ...]) -> Callable[[Any], Any]:
    """Dense layers of these sizes."""
    rng = np.random.default_rng(0)
    pairs = itertools.pairwise(sizes)
    weights = [wg.asarray((rng.normal(size=s) / np.sqrt(s[0])).astype(np.float32)) for s in pairs]

    def f(x: Any) -> Any:
        for w in weights[:-1]:
            x = wg.tanh(x @ w)
        return x @ weights[-1]

    return f


def _name(sizes: tuple[int, ...]) -> str:
    return "network " + "-".join(map(str, sizes))


def _row(sizes: tuple[int, ...], rounds: int) -> tuple[Row, bool, list[float]]:
    """The row, whether the choice was right, and predicted over measured seconds of each mode."""
    f, x = network(sizes), wg.ones((sizes[0],))
    with contextlib.redirect_stdout(io.StringIO()):
        plan = wg.HybridScheduler(EVERYTHING).plan(f, x)
    modes = [mode for mode in MODES if mode in plan.costs]
    calls = {mode: statement("f(x)", dict(f=wg.compile(wg.jacobian(f, mode)), x=x)) for mode in modes}
    measured, load = interleave(calls, rounds, SAMPLE_S)
    timings: dict[str, Timing] = {"wengert": measured[plan.mode], **measured}
    goals = {"forward": 0.77, "reverse": 0.77}
    row = measure.timed_row(_name(sizes), timings, load, goals=goals, note=f"chosen: {plan.mode}")
    right = measured[plan.mode].best <= 1.05 * min(t.best for t in measured.values())
    return row, right, [plan.costs[mode] / measured[mode].best for mode in modes]


def _summary(right: list[bool], ratios: np.ndarray[Any, Any]) -> list[Row]:
    """Rows that hold the choices and the predictions to their goals."""
    chosen, near = 100.0 * np.mean(right), 100.0 * np.mean((ratios > 0.5) & (ratios < 2.0))
    extremes = f"predicted over measured seconds: {ratios.min():.2f} to {ratios.max():.2f}"
    return [
        Row("choices that are right", "%", {"wengert": chosen}, goal="≥ 95 %", met=bool(chosen >= 95.0)),
        Row(
            "predictions within a factor of two",
            "%",
            {"wengert": near},
            goal="≥ 95 %",
            met=bool(near >= 95.0),
            note=extremes,
        ),
    ]


def main() -> None:
    """Run the rows that were asked for; all by default."""
    options = command_line.parse("benchmarks.schedule", __doc__, map(_name, GRID), rounds=40)
    found = [_row(sizes, options.rounds) for sizes in GRID if _name(sizes) in options.rows]
    rows = [row for row, _, _ in found]
    rows += _summary([right for _, right, _ in found], np.array([ratio for _, _, of_row in found for ratio in of_row]))
    measure.show(rows)
    if not options.dry:
        measure.write("schedule", "Modes of Jacobians", rows, measure.machine(measure.versions()))


if __name__ == "__main__":
    main()
