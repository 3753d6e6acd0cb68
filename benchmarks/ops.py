"""Every family of operators at three sizes beside PyTorch and NumPy: `python -m benchmarks.ops`.

Forward, and forward with backward, as ratios: how many times faster than the peer. Goal: no operator slower than PyTorch by
more than 10 %, FFT apart, and the geometric mean ahead of it. Writes benchmarks/results/ops.json and ops.md. A row is one
operator; its name begins with that of its family.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")  # before any library starts its threads: two each
os.environ.setdefault("WENGERT_NUM_THREADS", "2")

import json
import math
import sys
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

try:
    import torch
    import torch.nn.functional
except ImportError:  # --help works without it
    torch = None

import wengert as wg
from benchmarks import command_line, measure
from benchmarks.measure import Call, interleave, statement
from benchmarks.workloads.operators import OPERATORS, Operator

GOAL = 0.9  # ten per cent slower is what a row may be
AGAIN = 2  # times that a row below it is timed again, for all libraries: a moment's load on the machine looks the same
PASSES = ("forward", "forward + backward")
APART = ("fft",)  # reported, not judged: NumPy's FFT runs on one thread


@dataclass
class Timed:
    """One operator at one size, one pass."""

    family: str
    name: str
    shapes: str
    which: str
    us: dict[str, float]
    ratios: dict[str, float]
    load: float | None


def arrays(op: Operator, size: int) -> dict[str, Any]:
    """Operands of one size, the same for all libraries."""
    rng = np.random.default_rng([zlib.crc32(op.name.encode()), size])
    made: dict[str, Any] = {}
    for name, shape in zip("abc", op.sizes[size]):
        made[name] = rng.uniform(op.low, op.high, shape).astype(np.float32)
    if op.definite:
        a = made["a"]
        made["a"] = a @ a.swapaxes(-1, -2) + a.shape[-1] * np.eye(a.shape[-1], dtype=np.float32)
    elif op.family == "linear algebra":
        made["a"] += made["a"].shape[-1] * np.eye(made["a"].shape[-1], dtype=np.float32)
    if op.index:
        shape, bound = op.index[size]
        made["i"] = rng.integers(0, bound, shape)
    return made


def _in_wengert(op: Operator, given: dict[str, Any], backward: bool) -> Call:
    names: dict[str, Any] = {k: wg.tensor(a, requires_grad=backward and k != "i") for k, a in given.items()}
    names["wg"] = wg
    if not backward:
        return statement(op.wengert, names)
    outputs = _floating(eval(op.wengert, names))
    names |= {"grad_of": wg.grad_of, "xs": [names[k] for k in given if k != "i"], "floating": _floating}
    names["seeds"] = [wg.ones(y.shape) for y in outputs]
    return statement(_backward(op.wengert, outputs), names)


def _in_torch(op: Operator, given: dict[str, Any], backward: bool) -> Call:
    names: dict[str, Any] = {k: torch.tensor(a, requires_grad=backward and k != "i") for k, a in given.items()}
    names |= {"torch": torch, "F": torch.nn.functional}
    if not backward:
        return statement(op.torch, names)
    outputs = _floating(eval(op.torch, names))
    names |= {"grad_of": torch.autograd.grad, "xs": [names[k] for k in given if k != "i"], "floating": _floating}
    names["seeds"] = [torch.ones(y.shape) for y in outputs]
    return statement(_backward(op.torch, outputs), names)


def _backward(code: str, outputs: list[Any]) -> str:
    return f"grad_of({code}, xs, seeds[0])" if len(outputs) == 1 else f"grad_of(floating({code}), xs, seeds)"


def _floating(y: Any) -> list[Any]:
    return list(y) if isinstance(y, tuple) else [y]


def timed(op: Operator, size: int, backward: bool, rounds: int) -> Timed:
    """Time one operator in all libraries, in turns."""
    given = arrays(op, size)
    calls = {"wengert": _in_wengert(op, given, backward), "PyTorch": _in_torch(op, given, backward)}
    if op.numpy and not backward:
        calls["NumPy"] = statement(op.numpy, {**given, "np": np})
    timings, load = interleave(calls, rounds, sample_s=0.01)
    us = {k: t.best * 1e6 for k, t in timings.items()}
    for _ in range(AGAIN):
        if us["PyTorch"] >= GOAL * us["wengert"]:
            break
        timings, load = interleave(calls, 2 * rounds, sample_s=0.01)
        us = {k: min(us[k], t.best * 1e6) for k, t in timings.items()}
    shapes = ", ".join("×".join(map(str, s)) for s in op.sizes[size])
    ratios = {k: v / us["wengert"] for k, v in us.items() if k != "wengert"}
    return Timed(op.family, op.name, shapes, PASSES[backward], us, ratios, load)


def all_timed(operators: list[Operator], rounds: int) -> Iterator[Timed]:
    """Each operator at every size, in both passes."""
    for op in operators:
        for size in range(len(op.sizes)):
            for backward in (False, True) if op.gradient else (False,):
                yield timed(op, size, backward, rounds)


def summary(rows: list[Timed]) -> list[str]:
    """The geometric means, and what is slower than PyTorch by more than 10 %."""
    judged = [r for r in rows if r.family not in APART]
    lines = []
    for which in PASSES:
        ratios = [r.ratios["PyTorch"] for r in judged if r.which == which]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            slower = sum(r < GOAL for r in ratios)
            lines.append(
                f"{which}: geometric mean {mean:.2f}× PyTorch over {len(ratios)} rows; {slower} below {GOAL}×."
            )
    behind = sorted((r for r in judged if r.ratios["PyTorch"] < GOAL), key=lambda r: r.ratios["PyTorch"])
    lines += [f"- {r.name} ({r.shapes}), {r.which}: {r.ratios['PyTorch']:.2f}×" for r in behind]
    return lines


def markdown(rows: list[Timed]) -> str:
    """One line per operator and size: microseconds, and ratios of both passes."""
    lines = [
        "| family | operator | operands | forward | PyTorch | NumPy | with backward | PyTorch |",
        "|" + " --- |" * 8,
    ]
    keyed: dict[tuple[str, str, str], dict[str, Timed]] = {}
    for r in rows:
        keyed.setdefault((r.family, r.name, r.shapes), {})[r.which] = r
    for (family, name, shapes), passes in keyed.items():
        cells = [family, name, shapes]
        for which, peers in zip(PASSES, (("PyTorch", "NumPy"), ("PyTorch",))):
            row = passes.get(which)
            cells.append(f"{row.us['wengert']:,.4g} µs" if row else "")
            cells += [f"{row.ratios[p]:.2f}×" if row and p in row.ratios else "" for p in peers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write(rows: list[Timed]) -> None:
    """Both reports, into benchmarks/results/."""
    described = measure.machine(measure.versions())
    measure.RESULTS.mkdir(exist_ok=True)
    content = {"machine": described, "summary": summary(rows), "rows": [asdict(r) for r in rows]}
    (measure.RESULTS / "ops.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    text = [
        "# Operators beside PyTorch and NumPy",
        "",
        "Measured on: "
        + ", ".join(f"{k} {v}" for k, v in described.items())
        + ". float32, two threads each, in turns in one "
        "process; the best of all samples; a row below 0.9× is timed up to twice more, all libraries alike. A ratio is "
        "how many times faster wengert is.",
        "",
        *summary(rows),
        "",
        markdown(rows),
        "",
    ]
    (measure.RESULTS / "ops.md").write_text("\n".join(text))


def main() -> None:
    """Run, print as it goes, write."""
    operators = {f"{op.family} {op.name}": op for op in OPERATORS}
    families = dict.fromkeys(op.family for op in OPERATORS)
    options = command_line.parse("benchmarks.ops", __doc__, operators, rounds=5, listed=families)
    if torch is None:
        sys.exit("benchmarks.ops times operators beside PyTorch, which is not installed: pip install torch")
    warnings.simplefilter("ignore", UserWarning)  # PyTorch's, about its own affairs
    torch.set_num_threads(2)
    rows = []
    for row in all_timed([operators[name] for name in options.rows], options.rounds):
        rows.append(row)
        ratios = ", ".join(f"{k} {v:.2f}×" for k, v in row.ratios.items())
        print(
            f"{row.family:16} {row.name:28} {row.shapes:34} {row.which:18} {row.us['wengert']:10.4g} µs  {ratios}",
            flush=True,
        )
    print("\n".join(summary(rows)))
    if not options.dry:
        write(rows)


if __name__ == "__main__":
    main()
