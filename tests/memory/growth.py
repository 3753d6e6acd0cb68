"""What a loop keeps: bytes per iteration, of tensors, of Python objects and of the C++ heap."""

from __future__ import annotations

import ctypes
import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import NamedTuple

import wengert as wg
from wengert import _core


class Growth(NamedTuple):
    """Bytes per iteration."""

    tensors: float  # of tensors and their workspaces, as the pool counts them
    objects: float  # of Python's allocator
    heap: float  # of malloc: programs, tapes, signatures


class _Heap(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    ]


def heap_bytes() -> int:
    """Bytes that malloc has given out; 0 where the C library does not say."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return 0
    ask.restype = _Heap
    heap = ask()
    return int(heap.uordblks + heap.hblkhd)


def _forget_names() -> None:
    """Empty Python's table of looked up attributes: it fills up with strings, how fast depends on their addresses."""
    getattr(sys, "_clear_internal_caches" if sys.version_info >= (3, 13) else "_clear_type_cache")()


def growth(step: Callable[[int], object], iterations: int = 2000, warm: int = 200) -> Growth:
    """What `step(i)` leaves behind, after `warm` calls that may fill caches. Cycles are collected: they are no leak."""

    def measure() -> tuple[int, int, int]:
        gc.collect()
        _forget_names()
        _core.empty_pool()
        heap = heap_bytes() - tracemalloc.get_tracemalloc_memory()  # the tables of tracemalloc are on the heap, too
        return wg.memory_stats().live_bytes, tracemalloc.get_traced_memory()[0], heap

    tracemalloc.start()
    try:
        for i in range(warm):
            step(i)
        before = measure()
        for i in range(warm, warm + iterations):
            step(i)
        after = measure()
    finally:
        tracemalloc.stop()
    return Growth(*((b - a) / iterations for a, b in zip(before, after)))


# A cache that fills up, a list that doubles: a few KB over thousands of iterations. A leak is a hundred bytes in each.
SLACK = 24


def assert_bounded(step: Callable[[int], object], iterations: int = 2000, warm: int = 200) -> None:
    """Assert that a loop keeps nothing."""
    kept = growth(step, iterations, warm)
    if (
        kept.objects >= SLACK or kept.heap >= SLACK
    ):  # a table may have doubled once: a leak is there in a longer loop, too
        kept = growth(step, 8 * iterations, warm)
    assert kept.tensors == 0, kept
    assert kept.objects < SLACK and kept.heap < SLACK, kept
