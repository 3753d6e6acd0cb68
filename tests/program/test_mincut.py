"""Minimum vertex cuts: the lightest set of values that a backward pass keeps."""

from __future__ import annotations

import itertools
import random

import pytest

from wengert.program.mincut import minimum_vertex_cut


def test_a_chain_is_cut_at_its_lightest() -> None:
    cut = minimum_vertex_cut([("a", "b"), ("b", "c")], {"a": 5, "b": 1, "c": 3}, ["a"], ["c"])
    assert cut == {"b"}


def test_sources_and_sinks_may_be_cut() -> None:
    assert minimum_vertex_cut([("a", "b")], {"a": 1, "b": 5}, ["a"], ["b"]) == {"a"}
    assert minimum_vertex_cut([("a", "b")], {"a": 5, "b": 1}, ["a"], ["b"]) == {"b"}
    assert minimum_vertex_cut([], {"a": 2}, ["a"], ["a"]) == {"a"}


def test_ties_are_cut_near_the_sinks() -> None:
    assert minimum_vertex_cut([("a", "b"), ("b", "c")], {"a": 1, "b": 1, "c": 1}, ["a"], ["c"]) == {"c"}


def test_a_diamond() -> None:
    edges = [("x", "a"), ("x", "b"), ("a", "y"), ("b", "y")]
    assert minimum_vertex_cut(edges, {"x": 10, "a": 1, "b": 1, "y": 10}, ["x"], ["y"]) == {"a", "b"}
    assert minimum_vertex_cut(edges, {"x": 10, "a": 6, "b": 6, "y": 20}, ["x"], ["y"]) == {"x"}


def test_nothing_to_cut() -> None:
    assert minimum_vertex_cut([("a", "b")], {"a": 1, "b": 1}, ["b"], ["a"]) == set()
    assert minimum_vertex_cut([], {"a": 1}, [], ["a"]) == set()


def _meets_all_paths(cut: set[int], edges: list[tuple[int, int]], sources: list[int], sinks: list[int]) -> bool:
    seen = {s for s in sources if s not in cut}
    todo = list(seen)
    while todo:
        a = todo.pop()
        if a in sinks:
            return False
        for p, q in edges:
            if p == a and q not in cut and q not in seen:
                seen.add(q)
                todo.append(q)
    return True


@pytest.mark.parametrize("seed", range(30))
def test_against_all_subsets(seed: int) -> None:
    rng = random.Random(seed)
    n = 7
    edges = [(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < 0.4]
    weights = {v: float(rng.randint(1, 9)) for v in range(n)}
    sources, sinks = [0, 1], [n - 1, n - 2]
    cut = minimum_vertex_cut(edges, weights, sources, sinks)
    assert _meets_all_paths(cut, edges, sources, sinks)
    best = min(
        sum(weights[v] for v in subset)
        for k in range(n + 1)
        for subset in itertools.combinations(range(n), k)
        if _meets_all_paths(set(subset), edges, sources, sinks)
    )
    assert sum(weights[v] for v in cut) == best
