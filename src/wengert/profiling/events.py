"""What the core recorded during a profile, as columns: events in the order in which they began, memory by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

PHASES = ("forward", "backward", "update")
PREPARING, PROFILER = 0, 1  # kinds of spans, as core/profile.h
# The order of the core's categories.
CATEGORIES = ("other", "activation", "parameter", "gradient", "optimizer", "workspace")

# The layout is that of core/bind/profile.cpp.
_EVENT = np.dtype([
    ("start", "i8"), ("end", "i8"), ("node", "u8"), ("bytes", "i8"), ("live", "i8"), ("signature", "u4"), ("line", "u4"),
    ("module", "u4"), ("thread", "u2"), ("phase", "u1"), ("depth", "u1"), ("on_device", "i8"),
])  # fmt: skip
_COLUMNS = list(_EVENT.names or ())
_MEMORY = np.dtype([
    ("time", "i8"), ("bytes", "i8"), ("buffer", "i8"), ("line", "u4"), ("category", "u1"), ("unused", "V3"),
])  # fmt: skip


class Line(NamedTuple):
    """A place in the user's source."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


UNKNOWN_LINE = Line("an unknown line", 0, "")


class Part(NamedTuple):
    """An op on operands of these types: (dtype code, shape) each."""

    op: str
    operands: list[tuple[int, tuple[int, ...]]]
    attributes: list[Any]
    results: list[tuple[int, tuple[int, ...]]]


class Signature(NamedTuple):
    """What many events have in common: what ran, on which types."""

    kind: str  # "op", "group" (fused instructions) or "program"
    name: str
    parts: list[Part]
    inner: dict[int, int]  # of a program: what ran inside of its first run, by signature, and how often


class Span(NamedTuple):
    """Time between ops that is not the user's, in nanoseconds since the start."""

    kind: int  # PREPARING: functions are traced and rules derived, once for each signature; PROFILER: it looks at gradients
    thread: int
    start: int
    end: int


class TapeNode(NamedTuple):
    """A recorded instruction, or a leaf, that the first backward pass came to."""

    number: int  # in the order of recording
    leaf_id: int  # of the tensor; 0: no leaf
    name: str
    line: int
    module: int
    type: tuple[int, tuple[int, ...]]
    saved_bytes: int
    sources: list[int]


@dataclass
class Recording:
    """All events of a profile. Times are nanoseconds since it started."""

    seconds: float
    events: Any  # of the columns above, and `self`: time that is not that of events inside
    memory: Any
    signatures: list[Signature]
    lines: list[Line]  # by number
    modules: Sequence[tuple[str, str]]  # by number: path and class
    dropped: int  # events that came after the most that are kept
    live_before: dict[str, int]  # bytes by category
    tape: list[TapeNode]
    spans: list[Span]

    @property
    def outermost(self) -> Any:
        """The events that ran by themselves, not inside of a program."""
        return self.events[self.events["depth"] == 0]


def read(recorded: dict[str, Any], modules: Sequence[tuple[str, str]]) -> Recording:
    """The answer of the core, read."""
    rows = np.frombuffer(recorded["events"], _EVENT)
    events = np.empty(len(rows), np.dtype([(n, _EVENT[n]) for n in _COLUMNS] + [("self", "i8")]))
    order = np.lexsort((rows["depth"], -rows["end"], rows["start"]))
    for name in _COLUMNS:
        events[name] = rows[name][order]
    memory = np.frombuffer(recorded["memory"], _MEMORY).copy()
    for times in (events["start"], events["end"], memory["time"]):
        times -= recorded["start"]
    events["self"] = events["end"] - events["start"]
    _subtract_inner(events)
    events["on_device"][events["depth"] > 0] = 0  # the program that it ran inside of has counted it
    return Recording(
        seconds=(recorded["end"] - recorded["start"]) * 1e-9,
        events=events,
        memory=memory,
        signatures=[_named(Signature(*s), recorded["signatures"]) for s in recorded["signatures"]],
        lines=[UNKNOWN_LINE, *(Line(*line) for line in recorded["lines"])],
        modules=modules,
        dropped=recorded["dropped"],
        live_before=dict(recorded["live_before_by_category"]),
        tape=[TapeNode(*node) for node in recorded["tape"]],
        spans=[Span(k, t, a - recorded["start"], b - recorded["start"]) for k, t, a, b in recorded["spans"]],
    )


def parents(events: Any) -> Any:
    """Of each event, the position of the one that it ran inside of; -1: of none."""
    found = np.full(len(events), -1)
    for thread in np.unique(events["thread"]):
        mine = np.flatnonzero(events["thread"] == thread)
        above = mine[events["depth"][mine] == 0]
        for depth in range(1, int(events["depth"][mine].max(initial=0)) + 1):
            level = mine[events["depth"][mine] == depth]
            around = np.searchsorted(events["start"][above], events["start"][level], "right") - 1
            found[level] = np.where(around >= 0, above[around], -1) if len(above) else -1
            above = level
    return found


def _subtract_inner(events: Any) -> None:
    inside = events["depth"] > 0
    if inside.any():
        around = parents(events)
        known = inside & (around >= 0)
        np.subtract.at(events["self"], around[known], (events["end"] - events["start"])[known])


_SHOWN = 4  # ops in the name of something that has none


def _named(s: Signature, all_signatures: list[Any]) -> Signature:
    """With a name: that of a fused group is made of its ops, and so is that of a program of nothing in particular."""
    if s.name:
        return s._replace(name=s.name.lstrip("_"))  # functions behind public ones have an underscore
    ops = [p.op for p in map(Part._make, s.parts)]
    if s.kind == "program":
        ops = [p[0] for number in s.inner for p in all_signatures[number][2]]
    distinct = list(dict.fromkeys(ops))
    text = "+".join(distinct[:_SHOWN]) + ("+…" if len(distinct) > _SHOWN else "")
    return s._replace(name=f"fused {text}" if s.kind == "group" else text or "program")
