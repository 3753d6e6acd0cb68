"""Measurements that need a process of their own: imports, instruction counts, deep graphs, long loops."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import wengert as wg

_IMPORT = """
import time, numpy
start = time.perf_counter()
import wengert
print(time.perf_counter() - start)
"""

_LOOP = """
import sys, wengert as wg
def loop(x, b, n):
    for _ in range(n):
        x * b
wg.set_grad_enabled(sys.argv[1] == "recorded")
loop(wg.ones((8, 8), requires_grad=True), wg.ones((8, 8)), int(sys.argv[2]))
"""

_CHAIN = """
import gc, json, resource, sys, time
import wengert as wg
from benchmarks.measure import ForeignLoad

n = int(sys.argv[1])
def chain(n):
    x = wg.ones((8,), requires_grad=True)
    y = x
    for _ in range(n // 2):
        y = wg.tanh(y * x)
    return x, y.sum()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
chain(1000)[1].backward()
gc.disable()
load, before = ForeignLoad().start(), resident()
t0 = time.perf_counter(); x, y = chain(n)
t1 = time.perf_counter(); peak = resident(); y.backward()
t2 = time.perf_counter(); finite = bool(wg.isfinite(x.grad).all()); del x, y
x, y = chain(n)
t3 = time.perf_counter(); del y
t4 = time.perf_counter()
del x
wg.empty_pool()
print(json.dumps(dict(forward=t1 - t0, backward=t2 - t1, free=t4 - t3, bytes=peak - before, left=resident() - before,
                      finite=finite, foreign_load=load.stop())))
"""

_TRAINING = """
import resource, sys
from benchmarks.workloads import data, in_wengert
names = in_wengert.mlp(data.SMALL, 32).names
step = lambda: names["step"](names["x"], names["target"])
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
n = int(sys.argv[1])
for _ in range(n // 10):
    step()
before = resident()
for _ in range(n):
    step()
print(resident() - before)
"""


def _run(code: str, *args: Any, under: tuple[str, ...] = (), **environment: str) -> str:
    command = [*under, sys.executable, "-c", code, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if done.returncode:
        raise RuntimeError(f"a measuring process failed:\n{done.stderr}")
    return done.stdout


def import_ms(times: int) -> list[float]:
    """Milliseconds of `import wengert` where NumPy is there already and all is compiled to bytecode, sorted."""
    with tempfile.TemporaryDirectory() as folder:
        cached = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        _run(_IMPORT, **cached)
        return sorted(float(_run(_IMPORT, **cached)) * 1e3 for _ in range(times))


def instructions_per_op() -> dict[str, float] | None:
    """Instructions of an 8×8 multiply and the loop around it, recorded and not; None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    few, many = 2_000, 42_000
    return {
        mode: (_instructions(mode, many) - _instructions(mode, few)) / (many - few) for mode in ("recorded", "no_grad")
    }


def _instructions(mode: str, n: int) -> int:
    # One thread, and the same start every time: what differs is the loop.
    alone = {"WENGERT_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        _run(_LOOP, mode, n, under=("valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "-q"), **alone)
        found = re.search(r"^(?:totals|summary): (\d+)", out.read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError("callgrind wrote no total")
    return int(found.group(1))


def long_chain(n: int) -> dict[str, Any]:
    """Seconds to build, differentiate and free a chain of n ops, and its bytes."""
    measured: dict[str, Any] = json.loads(_run(_CHAIN, n))
    return measured


def training_growth(steps: int) -> float:
    """Megabytes that resident memory grows by during many training steps."""
    return float(_run(_TRAINING, steps)) / 1e6


def installed_mb() -> float:
    """Megabytes of the package's own files: Python sources and the native module."""
    package = Path(wg.__file__).parent
    files = {p for p in package.rglob("*") if p.suffix in (".py", ".pyi", ".typed") or p.name == "py.typed"}
    files.add(Path(wg._core.__file__))
    return sum(p.stat().st_size for p in files) / 1e6
