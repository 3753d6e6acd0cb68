"""What this installation is and runs on."""

from __future__ import annotations

import platform
import sys

import numpy as np

from wengert import _core
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
        "devices": "cpu",
    }


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
