"""What stands out in a profile, in words, with the line to look at."""

from __future__ import annotations

from typing import Any, NamedTuple

from wengert.debug.profile.tables import bytes_text, seconds_text

_SMALL = 5e-6  # seconds: ops below it cost more around them than in them
_MANY = 200  # such ops from one line


class Finding(NamedTuple):
    """Something that a reader of the profile would want to know."""

    text: str
    line: str


def findings(profile: Any) -> list[Finding]:
    """The findings, those that cost the most first."""
    found = [*_python_loops(profile), *_dropped(profile), *_slow_ops(profile), *_old_memory(profile)]
    return found


def _python_loops(profile: Any) -> list[Finding]:
    """Lines that run very many small ops one by one."""
    found = []
    for row in profile.sums.by_line(measured=False):
        # Medians: on a busy machine a few ops wait for long, and say nothing about the others.
        small = row.calls >= _MANY and row.median < _SMALL and row.median_around > row.median / 2
        share = (row.around + row.seconds) / profile.seconds
        if small and share > 0.1:
            found.append(Finding(
                f"{row.calls:,} ops of {seconds_text(row.median)} each come from one line, and {seconds_text(row.around)} "
                f"passed between them: {share:.0%} of the time. Work on whole tensors instead of a loop over elements, or "
                "compile the function around it (wg.compile).",
                f"{row.name}  {row.note}".rstrip(),
            ))  # fmt: skip
    return found[:3]


def _slow_ops(profile: Any) -> list[Finding]:
    """Ops that take much of the time and stay far below what the machine can do."""
    found = []
    for row in profile.by_line():
        long = row.seconds / row.calls > 50e-6
        if long and row.roofline is not None and row.roofline < 0.1 and row.seconds > 0.15 * profile.seconds:
            found.append(Finding(
                f"One line takes {row.seconds / profile.seconds:.0%} of the time, at {row.roofline:.1%} of what the machine "
                "can do.",
                f"{row.name}  {row.note}".rstrip(),
            ))  # fmt: skip
    return found[:3]


def _old_memory(profile: Any) -> list[Finding]:
    """Memory that was allocated in the profile and is mostly from one line."""
    memory = profile.memory
    held = [h for h in memory.contents() if h.tensors]
    if not held or held[0].bytes < 0.5 * memory.peak_bytes or memory.peak_bytes < 2**24:
        return []
    h = held[0]
    return [
        Finding(
            f"{bytes_text(h.bytes)} of the {bytes_text(memory.peak_bytes)} at the peak of memory come from one line "
            f"({h.tensors:,} {h.category} tensors).",
            h.line,
        )
    ]


def _dropped(profile: Any) -> list[Finding]:
    n = profile.recording.dropped
    if not n:
        return []
    return [Finding(f"{n:,} ops came after the most that are kept, and are in no table: raise max_events.", "")]
