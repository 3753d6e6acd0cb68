"""What stands out in a profile, in words, with the line to look at."""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from wengert.profiling.events import Part
from wengert.profiling.tables import bytes_text, seconds_text, shown_line

_SMALL = 5e-6  # seconds: ops below it cost more around them than in them
_MANY = 200  # such ops from one line
_BODY = 16  # ops of a loop's body, at most: what comes again only after more of them is no loop over elements
_MOST = 3  # findings of a kind
_MUCH_LARGER = 64  # elements: smaller results of broadcasting cost nothing


class Finding(NamedTuple):
    """Something that a reader of the profile would want to know."""

    text: str
    line: str


def findings(profile: Any) -> list[Finding]:
    """The findings, those that cost the most first."""
    kinds = (_dropped, _python_loops, _slow_ops, _old_memory, _accidental_broadcasts, _layers_without_gradient)
    return [f for kind in kinds for f in list(kind(profile))[:_MOST]]


def _python_loops(profile: Any) -> Iterator[Finding]:
    """Lines that run very many small ops one by one, and a program that consists of small ops."""
    looped = _ops_of_loops(profile.recording)
    found = False
    for row in profile.sums.by_line(measured=False):
        # The median: on a busy machine a few ops wait for long, and say nothing about the others.
        small = row.calls >= _MANY and row.median < _SMALL
        share = (row.around + row.seconds) / profile.seconds
        if small and share > 0.1 and looped.get(row.name, 0) > row.calls / 2:
            found = True
            yield Finding(
                f"{row.calls:,} ops of {seconds_text(row.median)} each come from one line, and {seconds_text(row.around)} "
                f"passed between them: {share:.0%} of the time. Work on whole tensors instead of a loop over elements, or "
                "compile the function around it (wg.compile).",
                _place(row),
            )
    ops = profile.recording.outermost
    between = float(profile.sums.around.sum())
    if found or len(ops) < _MANY or between < 0.5 * profile.seconds:
        return
    median = float(np.median(ops["end"] - ops["start"])) * 1e-9
    if median < _SMALL:
        yield Finding(
            f"{between / profile.seconds:.0%} of the time passed between ops, of which half take less than "
            f"{seconds_text(median)}: compile the step (wg.compile), or use larger batches.",
            "",
        )


def _ops_of_loops(recording: Any) -> dict[str, int]:
    """By line, how many ops are of a kind that came again shortly after, very many times in a row: those of a loop. A
    function of the library runs several ops at its line, too, but no such series; and a compiled step that is called in a
    loop is what a loop should be."""
    events = recording.outermost
    names: dict[str, int] = {}
    number = np.asarray([names.setdefault(s.name, len(names)) for s in recording.signatures] or [0])
    kinds = (events["line"].astype(np.int64) << 32) | number[events["signature"]]
    order = np.lexsort((np.arange(len(kinds)), kinds, events["thread"]))  # the ops of a kind, one after the other
    large = np.asarray([sum(s.inner.values()) > _BODY for s in recording.signatures] or [False])
    steps = np.cumsum(large[events["signature"]])  # compiled ones, up to each event
    near = (
        (np.diff(order) <= _BODY) & (np.diff(kinds[order]) == 0) & (np.diff(order) > 0) & (np.diff(steps[order]) == 0)
    )
    ends = np.flatnonzero(~np.concatenate([near, [False]]))
    counts: dict[str, int] = {}
    begin = 0
    for end in ends.tolist():
        if end - begin >= _MANY // 4:
            line = recording.lines[events["line"][order[begin]]]
            name = shown_line(line.file, line.line)
            counts[name] = counts.get(name, 0) + end - begin + 1
        begin = end + 1
    return counts


def _slow_ops(profile: Any) -> Iterator[Finding]:
    """Ops that take much of the time and stay far below what the machine can do."""
    for row in profile.by_line():
        # The usual time: a few ops that waited on a busy machine do not make a line slow.
        if row.roofline is None or row.usual < max(50e-6 * row.calls, 5e-3, 0.15 * profile.seconds):
            continue
        reached = row.roofline * row.seconds / row.usual
        if reached < 0.1:
            share = min(row.usual, row.seconds) / profile.seconds
            yield Finding(
                f"One line takes {share:.0%} of the time, at {reached:.1%} of what the machine can do.", _place(row)
            )


def _old_memory(profile: Any) -> Iterator[Finding]:
    """Memory that was allocated in the profile and is mostly from one line."""
    memory = profile.memory
    held = [h for h in memory.contents() if h.tensors]
    if not held or held[0].bytes < 0.5 * memory.peak_bytes or memory.peak_bytes < 2**24:
        return
    h = held[0]
    yield Finding(
        f"{bytes_text(h.bytes)} of the {bytes_text(memory.peak_bytes)} at the peak of memory come from one line "
        f"({h.tensors:,} {h.category} tensors).",
        h.line,
    )


def _accidental_broadcasts(profile: Any) -> Iterator[Finding]:
    """A column and a row of equal length that met in a matrix: (n, 1) and (n,), where elements were to meet one by one."""
    recording = profile.recording
    columns, rows = (_lines_that_broadcast(recording, dimensions) for dimensions in (2, 1))
    for line, sizes in columns.items():
        for n in sorted(sizes & rows.get(line, set())):
            place = recording.lines[line]
            yield Finding(
                f"A column ({n}, 1) and a row ({n},) were broadcast to ({n}, {n}). If their elements were to meet one by "
                "one, reshape one of them.",
                f"{shown_line(place.file, place.line)}  {linecache.getline(place.file, place.line).strip()}".rstrip(),
            )


def _lines_that_broadcast(recording: Any, dimensions: int) -> dict[int, set[int]]:
    """By line: each n of which a column (of two dimensions) or a row (of one) was broadcast to a square."""
    sizes: dict[int, set[int]] = {}
    for number, s in enumerate(recording.signatures):
        found = set()
        for part in (Part._make(p) for k in (number, *s.inner) for p in recording.signatures[k].parts):
            if part.op == "broadcast_to" and len(made := part.results[0][1]) == 2 and made[0] == made[1]:
                given, n = part.operands[0][1], made[0]
                if given == ((n, 1) if dimensions == 2 else (n,)) and n * n >= _MUCH_LARGER:
                    found.add(n)
        if found:
            for line in np.unique(recording.events["line"][recording.events["signature"] == number]).tolist():
                sizes.setdefault(line, set()).update(found)
    return sizes


def _layers_without_gradient(profile: Any) -> Iterator[Finding]:
    """Parameters that no gradient reached, or only zeros, or numbers that are not finite."""
    rows = profile.gradients.latest()
    kinds: dict[str, list[str]] = {
        "no gradient reached": [],
        "gradients are zero in": [],
        "gradients are not finite in": [],
    }
    for row in rows:
        module, name = profile.parameter_names.get(int(row.name), ("", ""))
        shown = f"{module}.{name}" if module else name or f"a tensor {list(row.shape)}"
        if math.isnan(row.gradient_norm) and not row.not_finite:
            kinds["no gradient reached"].append(shown)
        elif row.not_finite:
            kinds["gradients are not finite in"].append(shown)
        elif row.dead == 1.0:
            kinds["gradients are zero in"].append(shown)
    remedy = {
        "no gradient reached": "wg.explain(loss, parameter) says where its path ends",
        "gradients are zero in": "wg.explain(loss, parameter) says where they became zero",
        "gradients are not finite in": "wg.detect_anomaly() says which op made them",
    }
    for kind, names in kinds.items():
        if names:
            shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            yield Finding(f"{kind[0].upper()}{kind[1:]} {shown}: {remedy[kind]}.", "")


def _dropped(profile: Any) -> Iterator[Finding]:
    if n := profile.recording.dropped:
        yield Finding(f"{n:,} ops came after the most that are kept, and are in no table: raise max_events.", "")


def _place(row: Any) -> str:
    return f"{row.name}  {row.note}".rstrip()
