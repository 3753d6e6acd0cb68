"""CUDA: NVIDIA's GPUs as devices.

The driver and NVIDIA's libraries are opened when they are first asked for; nothing is linked. The libraries come with
`pip install "wengert[cuda]"` (CUDA 13) or `"wengert[cuda12]"`.

>>> isinstance(is_available(), bool)
True
"""

from __future__ import annotations

import functools
import importlib.util

from wengert import _core
from wengert.errors import DeviceError

__all__ = ["device_count", "is_available"]


@functools.cache
def _open() -> None:
    """Tell the core where Python packages of NVIDIA lie."""
    spec = importlib.util.find_spec("nvidia")
    _core.cuda_set_library_folders(list(spec.submodule_search_locations or []) if spec else [])


def is_available() -> bool:
    """Whether this machine has a driver and a GPU that it can use. Never raises."""
    _open()
    return not _core.cuda_why_unavailable()


def device_count() -> int:
    """How many GPUs there are; 0 on a machine without one."""
    _open()
    return int(_core.cuda_device_count())


def device_number(index: int) -> int:
    """The number of a GPU among the devices of the core. Raises a `DeviceError` that says what is missing."""
    require()
    raise DeviceError(f"cuda:{index}: tensors cannot be on a GPU yet; use 'cpu'")


def require() -> None:
    """Raise a `DeviceError` that says what is missing, if there is no GPU to be had."""
    _open()
    if reason := _core.cuda_why_unavailable():
        raise DeviceError(f"cuda: {reason}; tensors can be computed with on 'cpu'")
