"""The source of CUDA kernels: compiled as plain C++ and run on the CPU, its results are those of the CPU's kernels."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from tests.cuda import chains
from tests.cuda.emulation import COMPILER, plan, run_all
from wengert import _core
from wengert.cli.ops import on_gpus
from wengert.ops import OPS

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler on this machine")

# Formulas instead of the C library's functions: both are within a few units of the exact value.
COMPLEX_TOLERANCE = {"complex64": 1e-6, "complex128": 1e-12}
# Sums in another order: a unit in the last place for each doubling of the length.
SUM_TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-13, **COMPLEX_TOLERANCE}


def test_no_op_is_without_a_kernel() -> None:
    """Its own, or CuPy's."""
    assert [name for name in OPS if on_gpus(name) not in ("yes", "yes: by CuPy, where it is installed")] == []


def test_results_are_those_of_the_cpu(tmp_path: Path) -> None:
    cases = list(itertools.chain(chains.elementwise(), chains.casts(), chains.reductions(), chains.chains(60)))
    kernels = [plan(chain, shape) for _, chain, shape, _ in cases]
    run_all(kernels, tmp_path)
    exact = "v2" not in _core.instruction_set()  # which has no fused multiply-add
    wrong = []
    for (name, _, _, expected), kernel in zip(cases, kernels, strict=True):
        for got, wanted in zip(kernel.outputs, expected(), strict=True):
            tolerance = _tolerance(name, str(wanted.dtype), exact)
            with np.errstate(all="ignore"):
                same = _close(got, wanted, tolerance)
            if not same.all():
                at = np.argmin(same)
                wrong.append(f"{name}: {got.flat[at]} instead of {wanted.flat[at]} ({(~same).sum()} of {same.size})")
    assert not wrong, "\n".join(wrong[:40])


def _tolerance(name: str, dtype: str, exact: bool) -> float:
    if name.startswith(("chain", "sum", "prod")):
        return SUM_TOLERANCE.get(dtype, 0.0)
    if dtype in COMPLEX_TOLERANCE or "complex" in name:
        return COMPLEX_TOLERANCE["complex64" if "64" in name or dtype == "float32" else "complex128"]
    return 0.0 if exact or dtype not in SUM_TOLERANCE else SUM_TOLERANCE[dtype]


def _close(got: np.ndarray, wanted: np.ndarray, tolerance: float) -> np.ndarray:
    wide = np.complex128 if got.dtype.kind == "c" else np.float64 if got.dtype.kind in "fV" else got.dtype
    a, b = got.astype(wide), wanted.astype(wide)
    same = (a == b) | ((a != a) & (b != b))
    if not tolerance or got.dtype.kind not in "fcV":
        return np.asarray(same)
    return np.asarray(same | (np.abs(a - b) <= tolerance * np.maximum(np.abs(b), 1e-2)))
