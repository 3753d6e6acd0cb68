"""Minimum vertex cut, for choosing which values a backward pass keeps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from wengert import _core

V = TypeVar("V", bound=Hashable)


def minimum_vertex_cut(
    edges: Iterable[tuple[V, V]],
    weights: Mapping[V, float],
    sources: Iterable[V],
    sinks: Iterable[V],
) -> set[V]:
    """The lightest set of vertices that meets every path from a source to a sink (both may be in it).

    Of equally light cuts it is the one nearest to the sinks: it leaves the least to be computed again. `core/cut.h` says
    how it is found, and what holds for graphs in which that would take long.
    """
    vertices = list(weights)
    number = {v: k for k, v in enumerate(vertices)}
    tails, heads = [], []
    for a, b in edges:
        tails.append(number[a])
        heads.append(number[b])
    cut, _ = _core.minimum_vertex_cut(
        list(weights.values()), tails, heads, [number[s] for s in sources], [number[t] for t in sinks]
    )
    return {vertices[k] for k in cut}
