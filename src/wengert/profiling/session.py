"""`wg.profile`: where the time and the memory of a program go."""

from __future__ import annotations

import functools
import json
import os
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import wengert
from wengert import _core
from wengert.errors import ArgumentError, WengertError
from wengert.profiling import gradient_log, module_names
from wengert.profiling.events import PHASES, PREPARING, PROFILER, Recording, read
from wengert.profiling.findings import findings
from wengert.profiling.gradient_log import GradientLog
from wengert.profiling.memory_use import MemoryUse
from wengert.profiling.page import page
from wengert.profiling.report_data import report_data
from wengert.profiling.tables import Row, Sums, bytes_text, count_text, seconds_text, text_table
from wengert.profiling.trace_file import trace_events
from wengert.profiling.work import Machine, machine
from wengert.tensors.html import escaped, table

MOST_EVENTS = 2_000_000


def profile(*, inside: bool = False, gradients: bool = True, max_events: int = MOST_EVENTS) -> Profile:
    """Profile what runs in a `with` block: time, bytes and arithmetic by operation, by module and by source line.

    - `inside`: also time each instruction and fused group of compiled functions, which otherwise count as one
      operation.
    - `gradients`: collect statistics of gradients before steps of optimizers, for at most a hundredth of the time.
    - `max_events`: how many operations to keep; the profile says how many came after that.

    `print(p)` shows the tables, `p.report("report.html")` writes a page, and `p.by_op()`, `p.by_line()` and
    `p.by_module()` are the rows.

    >>> import wengert as wg
    >>> x, w = wg.ones((64, 64), requires_grad=True), wg.ones((64, 8))
    >>> with profile() as p:
    ...     grads = (x @ w).tanh().sum().backward()
    >>> sorted(row.name for row in p.by_op())
    ['matmul', 'sum', 'tanh']
    >>> [row.calls for row in p.by_op() if row.name == "matmul"]  # one forward, one backward
    [2]
    """
    if max_events < 1:
        raise ArgumentError(f"profile: max_events must be positive, got {max_events}")
    return Profile(inside, gradients, max_events)


class Totals(NamedTuple):
    """A profile in a few numbers."""

    seconds: float
    in_ops: float  # of the thread that ran first
    ops: int
    phases: dict[str, float]
    flops: float
    bytes: int  # read and written
    roofline: float | None  # the time that the machine would need at best, as a part of the time in ops
    preparing: float  # tracing functions and deriving rules, once for each signature
    looking: float  # the profiler itself, at gradients


class Profile:
    """What `profile` recorded; complete when its `with` block is left. `print` shows the tables.

    >>> import wengert as wg
    >>> with wg.profile() as p:
    ...     y = wg.exp(wg.ones(1000))
    >>> [row.calls for row in p.by_op() if row.name == "exp"]
    [1]
    """

    def __init__(self, inside: bool, gradients: bool, max_events: int) -> None:
        self._inside = inside
        self._looks = gradients
        self._max_events = max_events
        self._mark: Any = None
        self._recording: Recording | None = None

    def __enter__(self) -> Self:
        if self._mark is not None or self._recording is not None:
            raise WengertError("profile: a profile records one block; make another one for the next")
        self._names = module_names.watch()
        self.gradients = gradient_log.watch() if self._looks else GradientLog()
        self._started = datetime.now()
        self._mark = _core.profile_start(self._inside, self._max_events)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        recorded = _core.profile_stop(self._mark)
        module_names.unwatch()
        if self._looks:
            gradient_log.unwatch(self.gradients)
        self._mark = None
        self._recording = read(recorded, list(self._names.found))
        self.parameter_names = _parameter_names(self._names.outermost)

    # ---------------------------------------------------------------------------------------- what it says

    @property
    def recording(self) -> Recording:
        """The events themselves."""
        if self._recording is None:
            raise WengertError("profile: nothing is known before the with block has ended")
        return self._recording

    @functools.cached_property
    def sums(self) -> Sums:
        """The events, ready to be added up."""
        return Sums(self.recording, machine)

    @functools.cached_property
    def memory(self) -> MemoryUse:
        """Memory over time, and the contents of its peak."""
        return MemoryUse(self.recording)

    @property
    def machine(self) -> Machine:
        """What this machine does at best, measured when it is first asked for."""
        return machine()

    @property
    def seconds(self) -> float:
        """How long the block took."""
        return self.recording.seconds

    def by_op(self) -> list[Row]:
        """One row per op or compiled function, the longest first.

        >>> import wengert as wg
        >>> with profile() as p:
        ...     y = wg.ones((8,)).exp()
        >>> [row.name for row in p.by_op()][-1] in ("exp", "full")
        True
        """
        return self.sums.by_op()

    def by_line(self) -> list[Row]:
        """One row per line of the caller's code, the longest first; backward counts at the line that was differentiated."""
        return self.sums.by_line()

    def by_module(self) -> list[Row]:
        """One row per module, by its path; `inclusive` is the time with all modules inside."""
        return self.sums.by_module()

    def totals(self) -> Totals:
        """Everything added up."""
        events = self.recording.outermost
        lengths = (events["end"] - events["start"]) * 1e-9
        sums = self.sums
        in_all = float(self.recording.events["self"].sum()) * 1e-9
        return Totals(
            seconds=self.seconds,
            in_ops=float(lengths[events["thread"] == events["thread"][0]].sum()) if len(events) else 0.0,
            ops=len(events),
            phases={name: float(lengths[events["phase"] == k].sum()) for k, name in enumerate(PHASES)},
            flops=float(sums.flops_of_events.sum()),
            bytes=int(sums.moved().sum()),
            roofline=float(sums.bounds().sum()) / in_all if in_all else None,
            preparing=sums.spent[PREPARING],
            looking=sums.spent[PROFILER],
        )

    def summary(self) -> str:
        """The totals, in a few lines."""
        t = self.totals()
        share = t.in_ops / t.seconds if t.seconds else 0.0
        phases = ", ".join(f"{name} {seconds_text(s)}" for name, s in t.phases.items())
        lines = [
            f"{seconds_text(t.seconds)} in all; {t.ops:,} ops in {seconds_text(t.in_ops)} ({share:.0%}), the rest between "
            "them: Python, recording, waiting",
            *(
                [f"of it {seconds_text(t.preparing)} for tracing functions and deriving rules, which happens once"]
                if t.preparing > 0.01 * t.seconds
                else []
            ),
            *(
                [f"and {seconds_text(t.looking)} for this profile's own look at gradients"]
                if t.looking > 0.01 * t.seconds
                else []
            ),
            f"{phases}; {count_text(t.flops)}FLOP, {bytes_text(t.bytes)} moved",
            f"memory: at most {bytes_text(self.memory.peak_bytes)}, {seconds_text(self.memory.peak_time)} after the start",
        ]
        if t.ops:
            m = self.machine
            lines.append(
                f"this machine, measured with {m.threads} threads: {count_text(m.flops)}FLOP/s in float32, "
                f"{count_text(m.double_flops)}FLOP/s in float64, {bytes_text(m.bytes_per_second)}/s"
            )
        lines += [f"! {f.text} {f.line}".rstrip() for f in findings(self)]
        return "\n".join(lines)

    def table(self, by: str = "op", limit: int = 20) -> str:
        """The table by "op", "line" or "module" as text."""
        rows = {"op": self.sums.by_op, "line": self.sums.by_line, "module": self.sums.by_module}.get(by)
        if rows is None:
            raise ArgumentError(f'profile: tables are by "op", "line" or "module", got {by!r}')
        return text_table(f"by {by}", rows(), limit, by=by)

    def __str__(self) -> str:
        if self._recording is None:
            return "a profile whose with block has not ended"
        parts = [self.summary()]
        if len(self.recording.events):
            parts += [self.table("op", 12), self.table("line", 12)]
            if len(self.recording.modules) > 1:
                parts.append(self.table("module", 20))
            parts.append(self._peak_text())
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        if self._recording is None:
            return "<Profile, not ended>"
        return f"<Profile of {seconds_text(self.seconds)}, {len(self.recording.outermost):,} ops>"

    # ---------------------------------------------------------------------------------------- files

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Totals, tables, memory and tape as JSON: returned, and written to a path.

        >>> import json
        >>> with profile() as p:
        ...     pass
        >>> json.loads(p.to_json())["totals"]["ops"]
        0
        """
        data = self._data("profile")
        text = json.dumps({k: v for k, v in data.items() if k != "flames"}, allow_nan=False)
        return _written(text, path)

    def to_chrome_trace(self, path: str | os.PathLike[str] | None = None) -> str:
        """The events as a trace that ui.perfetto.dev and chrome://tracing open: returned, and written to a path."""
        trace = trace_events(self.recording, self.sums.flops, self.memory)
        return _written(json.dumps(trace, separators=(",", ":"), allow_nan=False), path)

    def report(self, path: str | os.PathLike[str], title: str = "Profile") -> None:
        """Write a page to look at: summary, timeline, flame graph, memory, tape, gradients, tables. One file, no network."""
        _written(page(self._data(title)), path)

    def _data(self, title: str) -> dict[str, Any]:
        data = report_data(self, title)
        data["when"] = f"{self._started:%Y-%m-%d %H:%M:%S}, wengert {wengert.__version__}"
        return data

    def _repr_html_(self) -> str:
        rows = [
            [
                r.name,
                seconds_text(r.seconds),
                f"{r.share:.1%}",
                seconds_text(r.forward),
                seconds_text(r.backward),
                r.calls,
            ]
            for r in self.sums.by_op()[:12]
        ]
        head = ["op", "time", "share", "forward", "backward", "calls"]
        summary = "<br>".join(escaped(line) for line in self.summary().splitlines())
        return f"<p>{summary}</p>{table(head, rows)}"

    def _peak_text(self) -> str:
        held = self.memory.contents()
        lines = [f"at the peak of memory, {bytes_text(self.memory.peak_bytes)}:"]
        lines += [f"  {bytes_text(h.bytes):>10}  {h.category:<10}  {h.line}" for h in held[:8]]
        if len(held) > 8:
            lines.append(f"  {bytes_text(sum(h.bytes for h in held[8:])):>10}  in {len(held) - 8} more")
        return "\n".join(lines)


def _written(text: str, path: str | os.PathLike[str] | None) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _parameter_names(modules: list[Any]) -> dict[int, tuple[str, str]]:
    """Of the tensors that are parameters, by id: the path of the module, and the name in it."""
    names: dict[int, tuple[str, str]] = {}
    for root in modules:
        for full, p in root.named_parameters():
            path, _, name = f"{type(root).__name__}.{full}".rpartition(".")
            names.setdefault(p.id, (path, name))
    return names
