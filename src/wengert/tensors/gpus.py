"""The GPUs of this machine: whether there are any, which is the current one, and their device numbers in the core."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import threading
from collections.abc import Iterator

from wengert import _core
from wengert.errors import DeviceError

_thread = threading.local()  # .index: of the current GPU


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
    number = int(_core.cuda_open_device(index))
    from wengert.cuda import cupy_kernels

    cupy_kernels.install()
    return number


def current_index() -> int:
    """The index of this thread's current GPU, which "cuda" means."""
    return getattr(_thread, "index", 0)


def set_current_index(index: int) -> None:
    """Make a GPU the current one of this thread."""
    device_number(index)  # raises where there is none
    _thread.index = index


@contextlib.contextmanager
def current_gpu(index: int) -> Iterator[None]:
    """A scope in which this GPU is the current one of this thread."""
    before = current_index()
    set_current_index(index)
    try:
        yield
    finally:
        _thread.index = before
