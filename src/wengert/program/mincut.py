"""Minimum vertex cut, for choosing which values a backward pass keeps."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

INFINITE = float("inf")
V = TypeVar("V", bound=Hashable)


def minimum_vertex_cut(
    edges: Iterable[tuple[V, V]],
    weights: Mapping[V, float],
    sources: Iterable[V],
    sinks: Iterable[V],
) -> set[V]:
    """The lightest set of vertices that meets every path from a source to a sink (both may be in it).

    Each vertex is split into an entry and an exit joined by an edge of its weight; then max-flow = min-cut, by
    augmenting shortest paths (Edmonds and Karp, 1972). Graphs here have a few hundred vertices.
    """
    capacity: dict[Hashable, dict[Hashable, float]] = {}

    def add(a: Hashable, b: Hashable, c: float) -> None:
        row = capacity.setdefault(a, {})
        row[b] = row.get(b, 0.0) + c
        capacity.setdefault(b, {}).setdefault(a, 0.0)

    for v, w in weights.items():
        add((v, "in"), (v, "out"), w)
    for a, b in edges:
        add((a, "out"), (b, "in"), INFINITE)
    for s in sources:
        add("source", (s, "in"), INFINITE)
    for t in sinks:
        add((t, "out"), "sink", INFINITE)

    while (path := _augmenting_path(capacity)) is not None:
        flow = min(capacity[p][q] for p, q in path)
        for p, q in path:
            capacity[p][q] -= flow
            capacity[q][p] += flow
    # Of equally light cuts the one nearest to the sinks: it leaves the least to be computed again.
    leading = _leading_to_sink(capacity)
    return {v for v in weights if (v, "out") in leading and (v, "in") not in leading}


def _augmenting_path(
    capacity: dict[Hashable, dict[Hashable, float]],
) -> list[tuple[Hashable, Hashable]] | None:
    parent: dict[Hashable, Hashable] = {"source": "source"}
    queue: deque[Hashable] = deque(["source"])
    while queue:
        a = queue.popleft()
        for b, c in capacity.get(a, {}).items():
            if c > 1e-9 and b not in parent:
                parent[b] = a
                if b == "sink":
                    return _trail(parent)
                queue.append(b)
    return None


def _trail(parent: dict[Hashable, Hashable]) -> list[tuple[Hashable, Hashable]]:
    path: list[tuple[Hashable, Hashable]] = []
    b: Hashable = "sink"
    while b != "source":
        path.append((parent[b], b))
        b = parent[b]
    return path[::-1]


def _leading_to_sink(capacity: dict[Hashable, dict[Hashable, float]]) -> set[Hashable]:
    before: dict[Hashable, list[Hashable]] = {}
    for a, row in capacity.items():
        for b, c in row.items():
            if c > 1e-9:
                before.setdefault(b, []).append(a)
    seen: set[Hashable] = {"sink"}
    queue: deque[Hashable] = deque(["sink"])
    while queue:
        for a in before.get(queue.popleft(), ()):
            if a not in seen:
                seen.add(a)
                queue.append(a)
    return seen
