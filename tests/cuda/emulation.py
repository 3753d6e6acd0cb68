"""Generated CUDA kernels, compiled as plain C++ and run on the CPU."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wengert import _core
from wengert.dtypes import ALL, as_dtype

CORE = Path(__file__).resolve().parents[2] / "core"
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
Array = np.ndarray[Any, Any]


def code_of(dtype: Any) -> int:
    """The number of a dtype in the core."""
    return as_dtype(dtype).code


def storage(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype of this one."""
    return as_dtype(dtype).to_numpy()


@dataclass
class Chain:
    """Registers and code of a kernel under construction, as `_core.cuda_kernel` takes them."""

    registers: list[tuple[int, bool, str, bytes]] = field(default_factory=list)
    code: list[tuple[str, str, list[int], int]] = field(default_factory=list)
    inputs: list[Array] = field(default_factory=list)
    row_axes: int = 0

    def add(self, dtype: Any, role: str = "", row: bool = False, value: bytes = b"") -> int:
        self.registers.append((code_of(dtype), row, role, value))
        return len(self.registers) - 1

    def input(self, array: Array, row: bool = False) -> int:
        self.inputs.append(array)
        return self.add(array.dtype, "input", row)

    def constant(self, dtype: Any, value: Any) -> int:
        return self.add(dtype, "constant", value=np.array(value, storage(dtype)).tobytes())

    def step(self, kind: str, name: str, operands: Sequence[int], dtype: Any, role: str = "", row: bool = False) -> int:
        out = self.add(dtype, role, row)
        self.code.append((kind, name, list(operands), out))
        return out


@dataclass
class Kernel:
    """One kernel with the words of one launch."""

    source: str
    words: Array
    grid: int
    block: int
    outputs: list[Array]
    inputs: list[Array]  # kept alive


def plan(chain: Chain, shape: Sequence[int]) -> Kernel:
    """The kernel of a chain over an iteration space, with fresh outputs."""
    outer = tuple(shape[: len(shape) - chain.row_axes])
    outputs, inputs = [], []
    for dtype, row, role, _ in chain.registers:
        if role == "output":
            made = aligned(outer if row else shape, storage(ALL[dtype]))
            outputs.append(made)
    for array in chain.inputs:
        inputs.append((array.ctypes.data, [s // array.itemsize for s in array.strides]))
    made = _core.cuda_kernel(
        chain.registers, chain.code, chain.row_axes, list(shape), inputs, [o.ctypes.data for o in outputs]
    )
    words = np.array(made["words"], np.int64)
    return Kernel(made["source"], words, made["grid"], made["block"], outputs, chain.inputs)


def numbered(source: str, number: int) -> str:
    """The functions of a kernel's source under names of their own, without what it includes."""
    body = source[source.index("WENGERT_INLINE") :]
    return re.sub(r"\b(?:\w+_)?(body|kernel)\(", rf"\1_{number}(", body)


def aligned(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array at an address that packs can have; its bytes are no numbers that one would expect."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.full(size + 64, 0xA5, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(tuple(shape))


def run_all(kernels: Sequence[Kernel], folder: Path) -> None:
    """Compile all sources as one file and run each kernel once."""
    numbers: dict[str, int] = {}
    for k in kernels:
        numbers.setdefault(k.source, len(numbers))
    text = ['#include "emulator.h"', '#include "device_series.h"', "using namespace wengert;"]
    text.append("using namespace wengert::device;")
    for source, number in numbers.items():
        body = numbered(source, number)
        count = re.search(r"Words<(\d+)>", body)[1]  # type: ignore[index]
        text.append(body)
        text.append(
            f'extern "C" void run_{number}(const void* words, int64_t grid, int block) {{ emulator::run('
            f"[](const void* w) {{ kernel_{number}(*static_cast<const Words<{count}>*>(w)); }}, words, grid, block); }}"
        )
    (folder / "kernels.cpp").write_text("\n".join(text))
    options = ["-std=c++20", "-O0", "-w", "-shared", "-fPIC", "-ffp-contract=off", "-fno-math-errno"]
    options += ["-DWENGERT_DEVICE_CODE", "-DWENGERT_ISA_NAMESPACE=device", f"-I{Path(__file__).parent}"]
    options += [f"-I{CORE / 'kernels'}", f"-I{CORE / 'cuda'}"]
    target = folder / "kernels.so"
    assert COMPILER
    done = subprocess.run(
        [COMPILER, *options, str(folder / "kernels.cpp"), "-o", str(target)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    library = ctypes.CDLL(str(target))
    for k in kernels:
        function = getattr(library, f"run_{numbers[k.source]}")
        function(ctypes.c_void_p(k.words.ctypes.data), ctypes.c_int64(k.grid), ctypes.c_int(k.block))
