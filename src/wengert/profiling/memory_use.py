"""Memory over the time of a profile, and what it was used for when most of it was."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from wengert.profiling.events import CATEGORIES, Recording
from wengert.profiling.tables import shown_line


class LiveTensors(NamedTuple):
    """Tensors that were alive at the peak, from one line and of one category."""

    line: str
    category: str
    bytes: int
    tensors: int  # 0: not known, as they are older than the profile


class MemoryUse:
    """Bytes of live tensors over time."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        rows = recording.memory
        before = sum(recording.live_before.values())
        self.times = np.concatenate([[0], rows["time"]]) * 1e-9  # seconds since the start
        self.live = np.concatenate([[before], before + np.cumsum(rows["bytes"])])
        self._peak = int(np.argmax(self.live))

    @property
    def peak_bytes(self) -> int:
        """The most bytes that were alive at a time."""
        return int(self.live[self._peak])

    @property
    def peak_time(self) -> float:
        """When that was, in seconds since the start."""
        return float(self.times[self._peak])

    @property
    def allocations(self) -> int:
        """Tensors that were allocated."""
        return int((self._recording.memory["bytes"] >= 0).sum())

    def contents(self) -> list[LiveTensors]:
        """What the memory was used for at the peak, the most first: by line that allocated it, and by category."""
        rows = self._recording.memory[: self._peak]
        older = dict(self._recording.live_before)
        freed_older = rows[(rows["bytes"] < 0) & (rows["buffer"] < 0)]
        for k, bytes_ in zip(freed_older["category"], freed_older["bytes"]):
            older[CATEGORIES[k]] += int(bytes_)
        alive = rows["bytes"] >= 0
        freed = rows["buffer"][(rows["bytes"] < 0) & (rows["buffer"] >= 0)]
        alive[freed] = False
        sums: dict[tuple[int, int], list[int]] = {}
        for row in rows[alive]:
            entry = sums.setdefault((int(row["line"]), int(row["category"])), [0, 0])
            entry[0] += int(row["bytes"])
            entry[1] += 1
        merged: dict[tuple[str, str], list[int]] = {}
        for (line, category), (bytes_, tensors) in sums.items():
            place = self._recording.lines[line]
            entry = merged.setdefault((shown_line(place.file, place.line), CATEGORIES[category]), [0, 0])
            entry[0] += bytes_
            entry[1] += tensors
        held = [LiveTensors(line, category, b, n) for (line, category), (b, n) in merged.items() if b]
        held += [LiveTensors("before the profile", category, b, 0) for category, b in older.items() if b > 0]
        return sorted(held, key=lambda h: -h.bytes)

    def by_category(self, points: int = 400) -> tuple[Any, dict[str, Any]]:
        """(times, bytes of each category at those times), at so many times that show every rise: each is the highest in
        its part of the profile."""
        chosen = _highest(self.live, points)
        rows = self._recording.memory
        columns = {}
        for k, name in enumerate(CATEGORIES):
            owner = np.where(rows["buffer"] >= 0, rows["buffer"], np.arange(len(rows)))
            category = rows["category"][owner] if len(rows) else rows["category"]
            changes = np.where(category == k, rows["bytes"], 0)
            start = self._recording.live_before.get(name, 0)
            columns[name] = np.concatenate([[start], start + np.cumsum(changes)])[chosen]
        return self.times[chosen], columns


def _highest(values: Any, points: int) -> Any:
    """Positions of the highest and the last value in each of so many parts, in order."""
    if len(values) <= 2 * points:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), points + 1).astype(int)
    found = {0, len(values) - 1}
    for a, b in itertools.pairwise(edges.tolist()):
        found.add(a + int(np.argmax(values[a:b])))
        found.add(a + int(np.argmin(values[a:b])))
    return np.asarray(sorted(found))
