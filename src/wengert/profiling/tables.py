"""Sums of a profile by op, by line and by module, and how they print."""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wengert.profiling.events import PHASES, Recording, Span
from wengert.profiling.work import Machine, computes_in_double, flops_of


@dataclass(slots=True)
class Row:
    """What one op, line or module did. Times are seconds."""

    name: str
    seconds: float  # in ops
    forward: float
    backward: float
    update: float
    calls: int
    bytes: int  # read and written
    flops: float
    share: float = 0.0  # of the time in all ops
    around: float = 0.0  # before its ops, where Python, recording and waiting are
    roofline: float | None = None  # the time that the machine would need at best, as a part of the time it took
    note: str = ""  # the source of a line, the class of a module
    inclusive: float = 0.0  # of a module: with all modules inside
    median: float = 0.0  # seconds of an op
    usual: float = 0.0  # seconds in ops, had each taken as long as the median one of its kind
    on_device: float = 0.0  # seconds that a GPU worked, beside what the host did to start that

    @property
    def flops_per_second(self) -> float:
        """Floating-point operations per second of the time in ops."""
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes moved per second of the time in ops."""
        return self.bytes / self.seconds if self.seconds else 0.0


class Sums:
    """The events of a recording in columns, ready to be added up."""

    def __init__(self, recording: Recording, machine: Callable[[], Machine]) -> None:
        self.recording = recording
        self.events = recording.events
        self.flops = np.asarray(flops_of(recording.signatures) or [0.0])
        self._double = np.asarray([computes_in_double(s) for s in recording.signatures] or [False])
        self._machine = machine
        self.around, self.spent = _gaps(self.events, recording.spans)
        self._bounds: Any = None

    @property
    def flops_of_events(self) -> Any:
        """Of each event; those inside of a program are counted there, and the program by itself does nothing."""
        flops = self.flops[self.events["signature"]].copy()
        programs = np.asarray([s.kind == "program" for s in self.recording.signatures] or [False])
        if self.events["depth"].any():
            flops[programs[self.events["signature"]]] = 0.0
        return flops

    def bounds(self) -> Any:
        """Of each event, the seconds that the machine would need at best."""
        if self._bounds is None:
            m = self._machine()
            peak = np.where(self._double, m.double_flops, m.flops)[self.events["signature"]]
            self._bounds = np.maximum(self.flops_of_events / peak, self.moved() / m.bytes_per_second)
        return self._bounds

    def moved(self) -> Any:
        """Bytes that each event read and wrote; a program that was looked into moves nothing besides what is inside."""
        moved = self.events["bytes"].copy()
        if self.events["depth"].any():
            kinds = np.asarray([s.kind == "program" for s in self.recording.signatures])
            moved[kinds[self.events["signature"]]] = 0
        return moved

    def rows(self, keys: Any, names: Sequence[tuple[str, str]], measured: bool = True) -> list[Row]:
        """One row per key, the longest first. `keys` numbers the names."""
        n = len(names)
        seconds = self.events["self"] * 1e-9

        def add(weights: Any, where: Any = slice(None)) -> Any:
            return np.bincount(keys[where], weights=weights[where], minlength=n)

        total = float(seconds.sum()) or 1.0
        in_all, around = add(seconds), add(self.around)
        phases = [add(seconds, self.events["phase"] == k) for k in range(len(PHASES))]
        calls, moved, flops = np.bincount(keys, minlength=n), add(self.moved()), add(self.flops_of_events)
        on_device = add(self.events["on_device"] * 1e-9)
        bounds = add(self.bounds()) if measured and len(self.events) else None
        medians, usual = _medians(keys, seconds, n), add(self._usual(keys, seconds))
        rows = []
        for k, (name, note) in enumerate(names):
            if not calls[k]:
                continue
            spent = float(in_all[k])
            forward, backward, update = (float(p[k]) for p in phases)
            row = Row(name, spent, forward, backward, update, int(calls[k]), int(moved[k]), float(flops[k]))
            row.share, row.around, row.note = spent / total, float(around[k]), note
            row.median, row.usual, row.on_device = float(medians[k]), float(usual[k]), float(on_device[k])
            row.roofline = float(bounds[k]) / spent if bounds is not None and spent else None
            rows.append(row)
        return sorted(rows, key=lambda r: -r.seconds)

    def _usual(self, keys: Any, seconds: Any) -> Any:
        """Of each event, the median time of those with its key, signature and phase: on a busy machine, a few wait."""
        kinds = (
            (keys.astype(np.uint64) << 34) | (self.events["signature"].astype(np.uint64) << 2) | self.events["phase"]
        )
        known, which = np.unique(kinds, return_inverse=True)
        return _medians(which, seconds, len(known))[which]

    def by_op(self, measured: bool = True) -> list[Row]:
        """Rows by name of the op or function."""
        names: dict[str, int] = {}
        number = [names.setdefault(s.name, len(names)) for s in self.recording.signatures]
        keys = np.asarray(number or [0])[self.events["signature"]]
        return self.rows(keys, [(name, "") for name in names], measured)

    def by_line(self, measured: bool = True) -> list[Row]:
        """Rows by line of the user; notes are the source."""
        names: dict[str, int] = {}
        notes: list[tuple[str, str]] = []
        numbers = []
        for line in self.recording.lines:
            text = shown_line(line.file, line.line)
            if text not in names:
                names[text] = len(names)
                notes.append((text, linecache.getline(line.file, line.line).strip()))
            numbers.append(names[text])
        return self.rows(np.asarray(numbers)[self.events["line"]], notes, measured)

    def by_module(self, measured: bool = True) -> list[Row]:
        """Rows by path of the module, each with what is inside in `inclusive`; notes are the classes."""
        names: dict[str, int] = {}
        notes = []
        numbers = []
        for path, kind in self.recording.modules:
            text = path or "(no module)"
            if text not in names:
                names[text] = len(names)
                notes.append((text, kind))
            numbers.append(names[text])
        rows = self.rows(np.asarray(numbers or [0])[self.events["module"]], notes, measured)
        known = {r.name for r in rows}
        for name, kind in notes:  # a module whose children do all the work
            if name not in known and any(r.name.startswith(f"{name}.") for r in rows):
                rows.append(Row(name, 0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, note=kind))
        for r in rows:
            r.inclusive = sum(o.seconds for o in rows if o.name == r.name or o.name.startswith(f"{r.name}."))
        return sorted(rows, key=lambda r: (-r.inclusive, r.name))


def _medians(keys: Any, values: Any, n: int) -> Any:
    """The median of the values of each of n keys; 0 for a key without any."""
    order = np.lexsort((values, keys))
    first = np.searchsorted(keys[order], np.arange(n + 1))
    middle = np.minimum((first[:-1] + first[1:]) // 2, max(0, len(values) - 1))
    return np.where(first[1:] > first[:-1], values[order][middle], 0.0) if len(values) else np.zeros(n)


def _gaps(events: Any, spans: Sequence[Span]) -> tuple[Any, tuple[float, float]]:
    """The seconds between each outermost event and the one before it in the same thread, without those of spans; and the
    seconds of the spans outside of events in the first thread, by kind."""
    gaps = np.zeros(len(events))
    spent = [0.0, 0.0]
    for thread in np.unique([*events["thread"].tolist(), *(s.thread for s in spans)]):
        mine = np.flatnonzero((events["thread"] == thread) & (events["depth"] == 0))
        starts, ends = events["start"][mine], events["end"][mine]
        before = np.concatenate([starts[:1] if thread else [0], ends[:-1]])[: len(mine)]
        gaps[mine] = np.maximum(0, starts - before) * 1e-9
        for s in spans:
            if s.thread != thread:
                continue
            # Ops that ran inside of it count as ops.
            first, last = np.searchsorted(ends, s.start, "right"), np.searchsorted(starts, s.end, "left")
            inside = np.minimum(ends[first:last], s.end) - np.maximum(starts[first:last], s.start)
            if thread == 0:
                spent[s.kind] += (s.end - s.start - int(inside.sum())) * 1e-9
            for k in range(int(first), min(int(last) + 1, len(mine))):  # the gaps that it covers parts of
                covered = min(s.end, int(starts[k])) - max(s.start, int(before[k]))
                gaps[mine[k]] = max(0.0, gaps[mine[k]] - max(0, covered) * 1e-9)
    return gaps, (spent[0], spent[1])


def shown_line(file: str, line: int) -> str:
    """A place as it is shown: the path from the working directory where that is shorter."""
    if not line:
        return file
    near = os.path.relpath(file) if os.path.isabs(file) and os.path.splitdrive(file)[0] == "" else file
    return f"{near if len(near) < len(file) else file}:{line}"


# ------------------------------------------------------------------------------------------ text


def seconds_text(s: float) -> str:
    """A time with its unit.

    >>> seconds_text(0.00123), seconds_text(12.0)
    ('1.23 ms', '12 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if s >= size:
            return f"{s / size:.3g} {unit}" if s / size < 1000 else f"{s / size:,.0f} {unit}"
    return f"{s * 1e9:.3g} ns" if s else "0"


def bytes_text(n: float) -> str:
    """A number of bytes with its unit.

    >>> bytes_text(1536)
    '1.5 KiB'
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(n) >= size:
            return f"{n / size:.4g} {unit}"
    return f"{n:.0f} B"


def count_text(n: float) -> str:
    """A large number with its prefix.

    >>> count_text(2.5e9)
    '2.5 G'
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:.3g} "


_WIDEST = 60


def text_table(title: str, rows: Sequence[Row], limit: int, *, by: str) -> str:
    """The first rows as text, columns aligned."""
    shown = list(rows[:limit])
    head = [by, "time", "share", "forward", "backward", "calls", "per call", "FLOP/s", "moved/s", "of roofline"]
    if by == "line":
        head.insert(3, "around")
    if by == "module":
        head[1:3] = ["with inside", "time"]
    cells = [_cells(r, by) for r in shown]
    if any(r.on_device for r in rows):
        head.append("on the GPU")
        for row, texts in zip(shown, cells, strict=True):
            texts.append(seconds_text(row.on_device))
    widths = [max(len(c[k]) for c in [head, *cells]) for k in range(len(head))]
    lines = [title, _aligned(head, widths), *(_aligned(c, widths) for c in cells)]
    if len(rows) > limit:
        rest = sum(r.seconds for r in rows[limit:])
        lines.append(f"… and {len(rows) - limit} more, {seconds_text(rest)} together")
    return "\n".join(lines)


def _cells(r: Row, by: str) -> list[str]:
    name = f"{r.name}  {r.note}" if r.note else r.name
    if len(name) > _WIDEST:
        name = name[: _WIDEST - 1] + "…"
    cells = [
        name, seconds_text(r.seconds), f"{r.share:.1%}", seconds_text(r.forward), seconds_text(r.backward),
        f"{r.calls:,}", seconds_text(r.seconds / r.calls) if r.calls else "",
        f"{count_text(r.flops_per_second)}" if r.flops else "", f"{bytes_text(r.bytes_per_second)}" if r.bytes else "",
        "" if r.roofline is None else f"{r.roofline:.0%}",
    ]  # fmt: skip
    if by == "line":
        cells.insert(3, seconds_text(r.around))
    if by == "module":
        cells[1:3] = [seconds_text(r.inclusive), seconds_text(r.seconds)]
    return cells


def _aligned(cells: Iterable[str], widths: Sequence[int]) -> str:
    return "  ".join(c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(cells, widths))).rstrip()
