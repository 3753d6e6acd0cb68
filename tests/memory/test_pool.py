"""The pool of buffers: what it keeps, and that it can be switched off."""

from __future__ import annotations

import os
import subprocess
import sys

KEPT = """
import wengert as wg
for size in (3, 1000, 2**19 + 5):  # in lines, in a class with slack, mapped
    x = wg.ones((size,), dtype="float64") * 2.0
    assert (x.sum() == 2.0 * size).item()
    del x
print(wg.memory_stats().live_bytes, wg.memory_stats().pooled_bytes)
"""


def kept(**environment: str) -> tuple[int, int]:
    command = [sys.executable, "-c", KEPT]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    live, pooled = done.stdout.split()
    return int(live), int(pooled)


def test_freed_buffers_are_kept_for_the_next() -> None:
    live, pooled = kept()
    assert live == 0 and pooled > 8 * 2**19


def test_a_pool_without_bytes_gives_every_buffer_back() -> None:
    assert kept(WENGERT_POOL_BYTES="0") == (0, 0)


def test_the_pool_keeps_no_more_than_it_may() -> None:
    live, pooled = kept(WENGERT_POOL_BYTES="20000")
    assert live == 0 and 0 < pooled <= 20000
