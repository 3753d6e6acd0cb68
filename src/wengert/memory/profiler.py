"""A profiler of memory: named points in time, what each line of a program keeps alive, and what it should not."""

from __future__ import annotations

import gc
import itertools
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from wengert import _core
from wengert.errors import ArgumentError

_MB = 2**20


class LineUse(NamedTuple):
    """Memory that one line of a program made and that is alive."""

    line: str
    bytes: int
    buffers: int


class Moment(NamedTuple):
    """What was alive at a named point."""

    name: str
    seconds: float  # since profiling started
    live_bytes: int
    peak_bytes: int  # since the point before
    saved_bytes: int
    by_line: dict[str, LineUse]


@dataclass(frozen=True)
class Leak:
    """Memory that a line made again and again, and that nothing gave back.

    kind:
        - `cycle`: objects that refer to each other kept it alive until the garbage collector came.
        - `growth`: there is more of it at every point.
    """

    line: str
    kind: str
    bytes: int
    buffers: int

    def __str__(self) -> str:
        what = "only a reference cycle keeps alive" if self.kind == "cycle" else "grew by"
        return f"{self.line}: {what} {self.bytes / _MB:.3f} MB in {self.buffers} tensors"


@dataclass(frozen=True)
class LeakReport:
    """Lines whose tensors stay alive without need, the largest first."""

    leaks: tuple[Leak, ...] = field(default=())

    @property
    def num_suspicious(self) -> int:
        """How many lines there are."""
        return len(self.leaks)

    def __str__(self) -> str:
        return "\n".join(map(str, self.leaks)) or "no leaks found"


class GradientMemoryProfiler:
    """Records what is alive at named points, by the lines that made it.

    While it runs, every tensor remembers the line that made it, which costs about as much as recording an operation does.

    >>> import wengert as wg
    >>> p = GradientMemoryProfiler()
    >>> p.start_profiling()
    >>> p.record_checkpoint("before")
    >>> x = wg.zeros((1024, 1024))
    >>> p.record_checkpoint("after")
    >>> p.get_memory_delta("before", "after")
    4.0
    >>> p.get_memory_delta("before", "never") is None
    True
    >>> p.detect_leaks().num_suspicious
    0
    >>> p.stop_profiling()
    """

    def __init__(self) -> None:
        self._moments: list[Moment] = []
        self._start = 0.0
        self._running = False

    def start_profiling(self) -> None:
        """Forget what was recorded, and note lines from here on."""
        self._moments = []
        self._start = time.perf_counter()
        self._running = True
        _core.note_lines(True)
        _core.reset_peak()

    def stop_profiling(self) -> None:
        """Note no more lines. What was recorded stays."""
        self._running = False
        _core.note_lines(False)

    def __enter__(self) -> GradientMemoryProfiler:
        self.start_profiling()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop_profiling()

    def record_checkpoint(self, name: str) -> None:
        """Remember what is alive now under this name; a name may be used again, and then means its latest point."""
        if not self._running:
            raise ArgumentError(f"record_checkpoint({name!r}): call start_profiling() first")
        stats = _core.memory_stats()
        seconds = time.perf_counter() - self._start
        self._moments.append(
            Moment(name, seconds, stats["live_bytes"], stats["peak_bytes"], stats["saved_bytes"], _lines())
        )
        _core.reset_peak()

    @property
    def timeline(self) -> tuple[Moment, ...]:
        """The points, in the order of time."""
        return tuple(self._moments)

    def get_memory_delta(self, first: str, last: str) -> float | None:
        """By how many MB the live bytes grew between two points; None if one of them was not recorded."""
        before, after = self._find(first), self._find(last)
        return None if before is None or after is None else (after.live_bytes - before.live_bytes) / _MB

    def peak_by_line(self) -> list[LineUse]:
        """What was alive when most was, since profiling started, within one percent; the largest first."""
        return [LineUse(*entry) for entry in _core.peak_by_line()]

    def detect_leaks(self) -> LeakReport:
        """Lines whose tensors are kept alive by reference cycles alone, or are more at every recorded point.

        Record a point in each round of a loop, and call this after three of them at least: what a line makes once and
        keeps is no leak. Runs the garbage collector.
        """
        before = _lines()
        gc.collect()
        after = _lines()
        leaks = [
            Leak(use.line, "cycle", use.bytes - _bytes(after, use.line), use.buffers - _count(after, use.line))
            for use in before.values()
            if _count(after, use.line) < use.buffers
        ]
        if len(self._moments) >= 3:
            counts = [m.by_line for m in self._moments] + [after]
            for use in after.values():
                seen = [_count(by_line, use.line) for by_line in counts[:-1]]
                grew = sum(b > a for a, b in itertools.pairwise(seen))
                if grew >= 2 and grew >= 0.5 * (len(seen) - 1) and use.buffers > seen[0] + 1:
                    first = counts[0]
                    leaks.append(Leak(use.line, "growth", use.bytes - _bytes(first, use.line), use.buffers - seen[0]))
        return LeakReport(tuple(sorted(leaks, key=lambda leak: -leak.bytes)))

    def diff(self, other: GradientMemoryProfiler) -> dict[str, float]:
        """By how many MB the live bytes at points of the same name are more in the other run."""
        found = {}
        for moment in self._moments:
            theirs = other._find(moment.name)
            if theirs is not None:
                found[moment.name] = (theirs.live_bytes - moment.live_bytes) / _MB
        return found

    def diff_by_line(self, other: GradientMemoryProfiler, name: str) -> dict[str, float]:
        """By how many MB each line keeps more alive at a point in the other run; lines without a difference are left out."""
        mine, theirs = self._find(name), other._find(name)
        if mine is None or theirs is None:
            raise ArgumentError(f"diff_by_line: {name!r} was not recorded in both runs")
        lines = mine.by_line | theirs.by_line
        changes = {k: (_bytes(theirs.by_line, k) - _bytes(mine.by_line, k)) / _MB for k in lines}
        return dict(sorted(((k, v) for k, v in changes.items() if v), key=lambda item: -abs(item[1])))

    def report(self, lines: int = 10) -> str:
        """The timeline and the lines of the peak, as text."""
        rows = [
            f"{m.seconds:9.3f} s  live {m.live_bytes / _MB:9.2f} MB  peak {m.peak_bytes / _MB:9.2f} MB  "
            f"saved {m.saved_bytes / _MB:9.2f} MB  {m.name}"
            for m in self._moments
        ]
        rows += [f"{u.bytes / _MB:9.2f} MB in {u.buffers} tensors at {u.line}" for u in self.peak_by_line()[:lines]]
        return "\n".join(rows)

    def _find(self, name: str) -> Moment | None:
        return next((m for m in reversed(self._moments) if m.name == name), None)


def _lines() -> dict[str, LineUse]:
    found: dict[str, LineUse] = {}
    for line, size, buffers in _core.live_by_line():  # instructions of one line are told apart there
        known = found.get(line, LineUse(line, 0, 0))
        found[line] = LineUse(line, known.bytes + size, known.buffers + buffers)
    return found


def _bytes(by_line: dict[str, LineUse], line: str) -> int:
    return by_line[line].bytes if line in by_line else 0


def _count(by_line: dict[str, LineUse], line: str) -> int:
    return by_line[line].buffers if line in by_line else 0


__all__ = ["GradientMemoryProfiler", "Leak", "LeakReport", "LineUse", "Moment"]
