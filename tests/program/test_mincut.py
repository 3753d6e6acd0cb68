"""Minimum vertex cuts: the lightest set of values that a backward pass keeps."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from wengert import _core
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


def stream(n: int) -> tuple[list[float], list[int], list[int], list[int], list[int]]:
    """A residual stream: every third value is an addend from a product, which is a source; both sums are needed."""
    tails, heads = [], []
    for k in range(3, 3 * n, 3):
        tails += [k - 3, k + 1, k]
        heads += [k, k, k + 2]
    needed = [v for v in range(3 * n) if v % 3 != 1]
    return [2.0] * (3 * n), tails, heads, [0, *range(1, 3 * n, 3)], needed


def chain(n: int) -> tuple[list[float], list[int], list[int], list[int], list[int]]:
    """Everything follows from the first value, and all of it is needed."""
    return [2.0] * n, list(range(n - 1)), list(range(1, n)), [0], list(range(n))


@pytest.mark.parametrize("graph", [stream, chain])
def test_long_graphs_take_linear_time(graph: Any) -> None:
    visits = {n: _core.minimum_vertex_cut(*graph(n))[1] for n in (100, 10_000)}
    assert visits[10_000] <= 110 * visits[100]


def test_where_a_lightest_cut_takes_long_what_is_needed_is_kept() -> None:
    """Heavy values in a chain, light ones that hang on it and are needed: each path leads back to the start."""
    n = 4000
    weights = [1e9] * n + [1.0] * n
    tails, heads = [*range(n - 1), *range(n)], [*range(1, n), *range(n, 2 * n)]
    cut, visits = _core.minimum_vertex_cut(weights, tails, heads, [0], list(range(n, 2 * n)))
    assert cut == list(range(n, 2 * n))
    assert visits <= 300 * (len(weights) + len(tails))
