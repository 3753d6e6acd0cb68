"""What the page of a profile shows, as data: totals, tables, events, flame graphs, memory, the tape, gradients."""

from __future__ import annotations

import linecache
import math
from collections import Counter
from typing import Any

import numpy as np

from wengert.dtypes import ALL as DTYPES
from wengert.profiling.events import PHASES, Recording
from wengert.profiling.findings import findings
from wengert.profiling.tables import Row, shown_line
from wengert.profiling.trace_file import types_text

MOST_EVENTS = 20_000  # on the page: the longest ones
MOST_ROWS = 1_000
_MOST_OF_A_MODULE = 30  # recorded instructions that are shown side by side; more are folded by line


def report_data(profile: Any, title: str) -> dict[str, Any]:
    """Everything, ready for JSON."""
    recording: Recording = profile.recording
    places = [shown_line(line.file, line.line) for line in recording.lines]
    sources = [linecache.getline(line.file, line.line).strip() for line in recording.lines]
    return {
        "title": title,
        "totals": _totals(profile),
        "findings": [f._asdict() for f in findings(profile)],
        "tables": {
            "op": _rows(profile.by_op()),
            "line": _rows(profile.by_line()),
            "module": _rows(profile.by_module()) if len(recording.modules) > 1 else [],
        },
        "lines": [{"place": p, "source": s} for p, s in zip(places, sources)],
        "modules": [{"path": path, "kind": kind} for path, kind in recording.modules],
        "signatures": [
            {"name": s.name, "types": types_text(s), "flops": float(f)}
            for s, f in zip(recording.signatures, profile.sums.flops)
        ],
        "events": _events(recording),
        "spans": [
            {"kind": s.kind, "thread": s.thread, "start": s.start * 1e-9, "length": (s.end - s.start) * 1e-9}
            for s in recording.spans
        ],
        "flames": {"line": _flame(profile, places, sources), "module": _flame_by_module(profile)},
        "memory": _memory(profile),
        "tape": _tape(profile, places, sources),
        "gradients": _gradients(profile),
    }


def _totals(profile: Any) -> dict[str, Any]:
    t = profile.totals()
    machine = profile.machine
    return {
        "seconds": t.seconds, "in_ops": t.in_ops, "ops": t.ops, "phases": t.phases, "flops": t.flops, "bytes": t.bytes,
        "peak_bytes": profile.memory.peak_bytes, "dropped": profile.recording.dropped,
        "roofline": t.roofline, "preparing": t.preparing, "looking": t.looking, "machine": machine._asdict(),
    }  # fmt: skip


def _rows(rows: list[Row]) -> list[dict[str, Any]]:
    return [
        {
            "name": r.name, "note": r.note, "seconds": r.seconds, "forward": r.forward, "backward": r.backward,
            "update": r.update, "calls": r.calls, "share": r.share, "around": r.around, "roofline": r.roofline,
            "inclusive": r.inclusive, "each": r.seconds / r.calls if r.calls else 0.0, "rate": r.flops_per_second,
            "moved": r.bytes_per_second,
        }
        for r in rows[:MOST_ROWS]
    ]  # fmt: skip


def _events(recording: Recording) -> dict[str, Any]:
    events = recording.events
    if len(events) > MOST_EVENTS:
        lengths = events["end"] - events["start"]
        events = events[np.sort(np.argpartition(lengths, -MOST_EVENTS)[-MOST_EVENTS:])]
    columns = {
        name: events[name].tolist() for name in ("signature", "line", "module", "thread", "phase", "depth", "bytes")
    }
    columns["start"] = (events["start"] * 1e-9).round(9).tolist()
    columns["length"] = ((events["end"] - events["start"]) * 1e-9).round(9).tolist()
    return {**columns, "left_out": len(recording.events) - len(events)}


# ------------------------------------------------------------------------------------------ flame graphs


def _node(name: str, text: str = "") -> dict[str, Any]:
    return {"n": name, "v": 0.0, "t": text, "c": {}, "p": [0.0] * len(PHASES)}


def _add(root: dict[str, Any], path: list[tuple[str, str]], seconds: float, phase: int | None) -> None:
    node = root
    for name, text in [("", ""), *path]:
        if name:
            node = node["c"].setdefault(name, _node(name, text))
        node["v"] += seconds
        if phase is not None:
            node["p"][phase] += seconds


def _finished(node: dict[str, Any], whole: float) -> dict[str, Any]:
    """With the colour of the phase that it is nearly all of, and children in order of time."""
    longest = max(range(len(PHASES)), key=lambda k: node["p"][k])
    made: dict[str, Any] = {"n": node["n"], "v": node["v"]}
    if node["t"]:
        made["t"] = node["t"]
    if node["v"] and node["p"][longest] > 0.8 * node["v"]:
        made["k"] = PHASES[longest]
    shown = [c for c in sorted(node["c"].values(), key=lambda c: -c["v"]) if c["v"] > 2e-4 * whole]
    if shown:
        made["c"] = [_finished(c, whole) for c in shown]
    return made


def _grouped(profile: Any, column: str) -> Any:
    """(number in the column, signature, phase) of the events, with the seconds of each kind, and those before it."""
    events = profile.recording.events
    keys = (events[column].astype(np.uint64) << 34) | (events["signature"].astype(np.uint64) << 2) | events["phase"]
    kinds, which = np.unique(keys, return_inverse=True)
    seconds = np.bincount(which, weights=events["self"] * 1e-9, minlength=len(kinds))
    around = np.bincount(which, weights=profile.sums.around, minlength=len(kinds))
    for kind, s, a in zip(kinds.tolist(), seconds.tolist(), around.tolist()):
        yield kind >> 34, kind >> 2 & 0xFFFFFFFF, kind & 3, s, a


def _flame(profile: Any, places: list[str], sources: list[str]) -> dict[str, Any]:
    """File, function, line, op: time in ops, and before them."""
    recording = profile.recording
    root = _node("all")
    for line, signature, phase, seconds, around in _grouped(profile, "line"):
        place = recording.lines[line]
        file = places[line].rpartition(":")[0] or places[line]
        path = [
            (file, place.file),
            (f"{place.function}()" if place.function not in ("", "<module>") else "top level", ""),
        ]
        path.append((f"{place.line}: {sources[line]}" if sources[line] else f"line {place.line}", places[line]))
        name = recording.signatures[signature].name
        _add(root, [*path, (name if phase != 1 else f"{name} (backward)", "")], seconds, phase)
        if around:
            _add(
                root,
                [*path, ("between ops", "Python, recording and waiting before the ops of this line")],
                around,
                None,
            )
    return _finished(root, root["v"])


def _flame_by_module(profile: Any) -> dict[str, Any]:
    """Module by module, then ops: time in ops."""
    recording = profile.recording
    root = _node("all")
    for module, signature, phase, seconds, _ in _grouped(profile, "module"):
        path, kind = recording.modules[module]
        parts = path.split(".") if path else ["no module"]
        named = [(part, kind if k + 1 == len(parts) else "") for k, part in enumerate(parts)]
        name = recording.signatures[signature].name
        _add(root, [*named, (name if phase != 1 else f"{name} (backward)", "")], seconds, phase)
    return _finished(root, root["v"])


# ------------------------------------------------------------------------------------------ memory, tape, gradients


def _memory(profile: Any) -> dict[str, Any]:
    memory = profile.memory
    times, columns = memory.by_category()
    contents = []
    for held in memory.contents():
        file, _, line = held.line.rpartition(":")
        source = linecache.getline(file, int(line)).strip() if line.isdigit() else ""
        contents.append({**held._asdict(), "source": source})
    return {
        "times": times.round(9).tolist(),
        "categories": {name: column.tolist() for name, column in columns.items()},
        "peak_time": memory.peak_time,
        "peak_bytes": memory.peak_bytes,
        "contents": contents[:MOST_ROWS],
    }


def _tape(profile: Any, places: list[str], sources: list[str]) -> dict[str, Any]:
    tape = sorted(profile.recording.tape)
    position = {n.number: k for k, n in enumerate(tape)}
    forward, backward = _times_of_nodes(profile.recording, position)
    paths = [_path_of(profile, n) for n in tape]
    crowded = {path for path, n in Counter(map(tuple, paths)).items() if n > _MOST_OF_A_MODULE}
    nodes = []
    for k, n in enumerate(tape):
        name = profile.parameter_names.get(n.leaf_id, ("", "tensor"))[1] if n.leaf_id else n.name.lstrip("_")
        path = [*paths[k], places[n.line]] if tuple(paths[k]) in crowded and n.line else paths[k]
        dtype, shape = n.type
        nodes.append({
            "name": name, "leaf": bool(n.leaf_id), "type": f"{DTYPES[dtype].name}{list(shape)}", "path": path,
            "line": places[n.line] if n.line else "", "source": sources[n.line] if n.line else "", "saved": n.saved_bytes,
            "sources": [position[s] for s in n.sources if s in position],
            "forward": 0.0 if n.leaf_id else float(forward[k]), "backward": float(backward[k]),
        })  # fmt: skip
    return {"nodes": nodes, "truncated": any(s not in position for n in tape for s in n.sources)}


def _path_of(profile: Any, n: Any) -> list[str]:
    module = (
        profile.parameter_names.get(n.leaf_id, ("", ""))[0] if n.leaf_id else profile.recording.modules[n.module][0]
    )
    return module.split(".") if module else []


def _times_of_nodes(recording: Recording, position: dict[int, int]) -> tuple[Any, Any]:
    """Seconds of the ops that computed each recorded instruction, and of its part of the backward pass."""
    forward, backward = np.zeros(len(position)), np.zeros(len(position))
    for e in recording.outermost[np.isin(recording.outermost["node"], np.asarray(list(position), np.uint64))]:
        seconds = (int(e["end"]) - int(e["start"])) * 1e-9
        k = position[int(e["node"])]
        if e["phase"] == PHASES.index("backward"):
            backward[k] += seconds
        else:
            forward[k] = seconds  # the last op before it was recorded is the one that computed it
    return forward, backward


def _gradients(profile: Any) -> dict[str, Any]:
    log = profile.gradients
    rows = []
    for row in log.latest():
        norms = [r.gradient_norm for _, seen in log.seen for r in seen if r.name == row.name]
        module, name = profile.parameter_names.get(int(row.name), ("", f"tensor {row.name}"))
        rows.append({
            "name": f"{module}.{name}" if module else name, "shape": list(row.shape), "weight": _number(row.weight_norm),
            "norms": [_number(x) for x in norms], "largest": _number(row.largest), "dead": _number(row.dead) or 0,
            "not_finite": row.not_finite,
        })  # fmt: skip
    return {"steps": log.steps, "seen": [step for step, _ in log.seen], "rows": rows}


def _number(x: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return x if math.isfinite(x) else None
