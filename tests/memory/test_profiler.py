"""The profiler of memory: points, deltas, lines, planted leaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import wengert as wg

N = 1 << 16  # float32 elements: 256 KiB


@pytest.fixture
def profiler() -> Iterator[wg.GradientMemoryProfiler]:
    p = wg.GradientMemoryProfiler()
    p.start_profiling()
    yield p
    p.stop_profiling()


def test_deltas_in_megabytes(profiler: Any) -> None:
    profiler.record_checkpoint("a")
    x = wg.zeros((4 * N,))
    profiler.record_checkpoint("b")
    del x
    profiler.record_checkpoint("c")
    assert profiler.get_memory_delta("a", "b") == 1.0
    assert profiler.get_memory_delta("b", "c") == -1.0
    assert profiler.get_memory_delta("a", "z") is None
    assert [m.name for m in profiler.timeline] == ["a", "b", "c"]
    assert profiler.timeline[1].peak_bytes >= profiler.timeline[1].live_bytes


def test_points_need_a_start() -> None:
    with pytest.raises(wg.ArgumentError, match="call start_profiling"):
        wg.GradientMemoryProfiler().record_checkpoint("a")


def test_the_peak_is_explained_by_lines(profiler: Any) -> None:
    small = wg.zeros((N,))
    large = wg.zeros((8 * N,))  # the line that makes most
    del large
    largest = profiler.peak_by_line()[0]
    assert "test_profiler.py" in largest.line and largest.bytes == 8 * N * 4
    assert "test_profiler.py" in profiler.report()
    assert small.shape == (N,)


class _Node:
    def __init__(self, tensor: Any) -> None:
        self.tensor, self.itself = tensor, self


def _rounds(profiler: Any, body: Any, n: int = 5) -> Any:
    for k in range(n):
        body(k)
        profiler.record_checkpoint(f"round {k}")
    return profiler.detect_leaks()


def test_planted_leaks_are_found_with_their_lines(profiler: Any) -> None:
    w = wg.Parameter(wg.ones((N,)))
    losses: list[Any] = []
    cache: dict[int, Any] = {}
    hooked: list[Any] = []
    total = [wg.zeros(())]

    def body(k: int) -> None:
        y = wg.sin(w * 1.5)
        losses.append((y * y).sum())  # 1: losses with their graphs
        cache[k] = wg.zeros((N,))  # 2: a cache without an end
        _Node(wg.ones((N,)))  # 3: a cycle
        seen = wg.cos(w)
        seen.register_hook(lambda g: hooked.append(g))  # 4: gradients that a hook collects
        seen.sum().backward()
        total[0] = total[0] + wg.exp(w).sum()  # 5: a sum that keeps its history

    report = _rounds(profiler, body)
    lines = "\n".join(leak.line for leak in report.leaks)
    code = body.__code__.co_firstlineno
    for offset in (2, 3, 4, 7, 8):
        assert f"test_profiler.py:{code + offset}" in lines or f"line {code + offset}" in lines, (offset, lines)
    assert report.num_suspicious == len(report.leaks) >= 5
    assert any(leak.kind == "cycle" for leak in report.leaks)


def test_a_clean_loop_has_no_leaks(profiler: Any) -> None:
    w = wg.Parameter(wg.ones((N,)))
    optimizer = wg.optim.Adam([w], lr=0.1)

    def body(k: int) -> None:
        loss = (wg.sin(w) ** 2).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    assert _rounds(profiler, body).num_suspicious == 0
    assert str(profiler.detect_leaks()) == "no leaks found"


def test_two_runs_are_compared() -> None:
    def run(n: int) -> wg.GradientMemoryProfiler:
        with wg.GradientMemoryProfiler() as p:
            p.record_checkpoint("start")
            kept = wg.zeros((n * N * 4,))
            p.record_checkpoint("end")
            del kept
        return p

    one, two = run(1), run(3)
    assert two.diff(one)["end"] == -2.0
    by_line = one.diff_by_line(two, "end")
    assert list(by_line.values()) == [2.0] and "test_profiler.py" in next(iter(by_line))
    with pytest.raises(wg.ArgumentError, match="was not recorded"):
        one.diff_by_line(two, "middle")


def test_running_out_of_memory_names_lines_and_the_remedy() -> None:
    x = wg.ones((N,), requires_grad=True)
    kept = wg.sin(wg.exp(x))
    with pytest.raises(MemoryError, match=r"(?s)out of memory.*saved for backward.*test_profiler.*memory_budget"):
        wg.zeros((1 << 40,)) + kept[0]
