"""A profile as a file for trace viewers, in the format that Chrome and Perfetto read.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from typing import Any

from wengert.dtypes import ALL as DTYPES
from wengert.profiling.events import PHASES, PREPARING, Recording
from wengert.profiling.memory_use import MemoryUse
from wengert.profiling.tables import shown_line


def trace_events(recording: Recording, flops: Any, memory: MemoryUse) -> dict[str, Any]:
    """The trace: one complete event per op, and a counter of live bytes."""
    lines = [shown_line(line.file, line.line) for line in recording.lines]
    described = [types_text(s) for s in recording.signatures]
    events: list[dict[str, Any]] = [_named("process_name", "wengert", 0)]
    events += [
        _named("thread_name", "Python" if t == 0 else f"thread {t}", t)
        for t in sorted(set(recording.events["thread"].tolist())) or [0]
    ]
    for e in recording.events:
        number = int(e["signature"])
        arguments: dict[str, Any] = {"line": lines[e["line"]], "bytes": int(e["bytes"]), "flops": float(flops[number])}
        if described[number]:
            arguments["types"] = described[number]
        if e["module"]:
            arguments["module"] = recording.modules[e["module"]][0]
        events.append({
            "name": recording.signatures[number].name, "cat": PHASES[e["phase"]], "ph": "X", "pid": 1,
            "tid": int(e["thread"]), "ts": e["start"] / 1e3, "dur": (e["end"] - e["start"]) / 1e3, "args": arguments,
        })  # fmt: skip
    for s in recording.spans:
        name = "tracing and deriving" if s.kind == PREPARING else "this profile looks at gradients"
        events.append({
            "name": name, "cat": "between", "ph": "X", "pid": 1, "tid": s.thread, "ts": s.start / 1e3,
            "dur": (s.end - s.start) / 1e3, "args": {},
        })  # fmt: skip
    times, live = memory.by_category()
    for k, t in enumerate(times):
        values = {name: int(column[k]) for name, column in live.items()}
        events.append({"name": "memory", "ph": "C", "pid": 1, "tid": 0, "ts": t * 1e6, "args": values})
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _named(kind: str, name: str, thread: int) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}


def types_text(signature: Any) -> str:
    """The operands and results of an op: "float32[2, 3], float32[3, 4] → float32[2, 4]"."""
    if signature.kind != "op" or not signature.parts:
        return ""
    part = signature.parts[0]
    return f"{_list(part[1])} → {_list(part[3])}"


def _list(types: Any) -> str:
    return ", ".join(f"{DTYPES[dtype].name}{list(shape)}" for dtype, shape in types)
