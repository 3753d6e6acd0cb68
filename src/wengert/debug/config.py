"""What this installation is and runs on."""

from __future__ import annotations

import platform
import sys

import numpy as np

from wengert import _core
from wengert.tensors.gpus import look_for_libraries
from wengert.version import VERSION


def installation() -> dict[str, str]:
    """Versions, instruction set, threads."""
    return {
        "wengert": VERSION,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "platform": platform.platform(),
        "instruction set": _core.instruction_set(),
        "threads": str(_core.num_threads()),
        "blas": f"OpenBLAS (scipy-openblas32), {_core.blas_kernels()} kernels, one thread, tiled by wengert",
        "devices": _devices(),
    }


def _devices() -> str:
    look_for_libraries()
    return ", ".join(["cpu", *(f"cuda:{k}" for k in range(_core.cuda_device_count()))])


def show_config() -> dict[str, str]:
    """Versions, instruction set, threads: printed, and returned as a dictionary.

    >>> facts = show_config()  # doctest: +ELLIPSIS
    wengert ...
    >>> "threads" in facts
    True
    """
    facts = installation()
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")
    return facts
