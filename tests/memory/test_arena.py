"""The address space that blocks of 16 KiB and more are cut from."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import wengert as wg

MB = 2**20


def _process(code: str) -> Any:
    """What a process of its own prints as JSON: nobody else's memory is counted there."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("budget", [None, 20])
def test_blocks_never_overlap(budget: int | None) -> None:
    rng = np.random.default_rng(3)
    held: list[tuple[float, wg.Tensor]] = []
    limit = budget and wg.memory_stats().live_bytes / MB + budget
    with wg.memory_budget(mb=limit) if limit else wg.no_grad():
        for number in range(3000):
            size = int(2 ** rng.uniform(10, 19))
            while held and (len(held) > 40 or sum(t.nbytes for _, t in held) + 8 * size > 16 * MB):
                expected, t = held.pop(int(rng.integers(len(held))))
                assert (t.numpy() == expected).all()
            held.append((float(number), wg.full((size,), float(number), dtype="float64")))
    assert all((t.numpy() == expected).all() for expected, t in held)


_TURNS = """
import json, resource
import wengert as wg

sizes = [(3 << 20) // 4, (5 << 20) // 4, (2 << 20) // 4, (7 << 20) // 4]
wg.ones((10,))
limit = wg.memory_stats().live_bytes / 2**20 + 10

def turn():
    for a, b in zip(sizes, sizes[1:] + sizes[:1]):
        x, y = wg.full((a,), 1.0), wg.full((b,), 2.0)
        del x, y

with wg.memory_budget(mb=limit):
    for _ in range(5):
        turn()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        turn()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(json.dumps(faults))
"""


@pytest.mark.skipif(bool(os.environ.get("WENGERT_SANITIZED")), reason="the sanitizer keeps freed memory for a while")
def test_blocks_of_other_sizes_find_the_pages_of_those_before() -> None:
    assert _process(_TURNS) < 50  # one block of 7 MB from fresh pages alone costs 4 faults at least, 1,800 at the most


_PEAK = """
import json
import wengert as wg

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

wg.ones((10,))
before = status("VmRSS")
kept = [wg.full((2**18,), 1.0) for _ in range(100)]
grown = status("VmRSS") - before
del kept[::2]  # every second megabyte
wg.empty_pool()
half = status("VmRSS") - before
kept.clear()
wg.empty_pool()
print(json.dumps([grown, half, status("VmRSS") - before]))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="only Linux tells a process its memory")
@pytest.mark.skipif(bool(os.environ.get("WENGERT_SANITIZED")), reason="the sanitizer keeps freed memory for a while")
def test_an_emptied_pool_holds_what_is_used() -> None:
    grown, half, nothing = _process(_PEAK)
    assert 95 * MB < grown < 110 * MB
    assert 45 * MB < half < 60 * MB and nothing < 5 * MB


_SCARCE = """
import json, resource
import wengert as wg

wg.ones((10,)).sum()
with open("/proc/self/statm") as file:
    mapped = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (96 << 20), resource.RLIM_INFINITY))
kept, refused = [], 0
for _ in range(30):
    try:
        kept.append(wg.full((2**20,), 3.0))
    except MemoryError:
        refused += 1
ok = all((t == 3.0).all().item() for t in kept[:4])
made = len(kept)
del kept
again = wg.full((2**22,), 1.0).sum().item()  # a block of another size, from what they have left
print(json.dumps([made, refused, ok, again]))
"""


@pytest.mark.skipif(bool(os.environ.get("WENGERT_SANITIZED")), reason="the sanitizer maps terabytes")
def test_scarce_address_space() -> None:
    if not hasattr(resource, "RLIMIT_AS") or not os.path.exists("/proc/self/statm"):
        pytest.skip("only Linux limits address space")
    made, refused, ok, again = _process(_SCARCE)
    assert made >= 10 and refused > 0 and made + refused == 30 and ok and again == 2.0**22
