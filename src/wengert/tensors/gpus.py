"""The GPUs of this machine: whether there are any, and their device numbers in the core."""

from __future__ import annotations

import functools
import importlib.util

from wengert import _core
from wengert.errors import DeviceError


@functools.cache
def look_for_libraries() -> None:
    """Tell the core where NVIDIA's Python packages are installed."""
    spec = importlib.util.find_spec("nvidia")
    _core.cuda_set_library_folders(list(spec.submodule_search_locations or []) if spec else [])


def require() -> None:
    """Raise a `DeviceError` that says what is missing if no GPU is available."""
    look_for_libraries()
    if reason := _core.cuda_why_unavailable():
        raise DeviceError(f"cuda: {reason}; tensors can be computed with on 'cpu'")


@functools.cache
def device_number(index: int) -> int:
    """The device number of a GPU in the core. Raises a `DeviceError` that says what is missing."""
    require()
    return int(_core.cuda_open_device(index))
