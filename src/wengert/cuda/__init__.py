"""CUDA: NVIDIA's GPUs as devices.

The driver and NVIDIA's libraries are opened when they are first asked for; nothing is linked. The libraries come with
`pip install "wengert[cuda]"` (CUDA 13) or `"wengert[cuda12]"`.

>>> isinstance(is_available(), bool)
True
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from wengert import _core
from wengert.cuda.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from wengert.cuda.properties import (
    DeviceProperties,
    get_device_capability,
    get_device_name,
    get_device_properties,
)
from wengert.cuda.streams import (
    Event,
    ExternalStream,
    Stream,
    current_stream,
    default_stream,
    gpu_number,
    set_stream,
    stream,
)
from wengert.tensors.gpus import (
    current_gpu,
    current_index,
    device_number,
    look_for_libraries,
    require,
    set_current_index,
)

__all__ = [
    "DeviceProperties",
    "Event",
    "ExternalStream",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "is_available",
    "is_bf16_supported",
    "is_tf32_allowed",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_peak_memory_stats",
    "set_blocking",
    "set_device",
    "set_per_process_memory_fraction",
    "set_stream",
    "set_tf32",
    "stream",
    "synchronize",
]


def is_available() -> bool:
    """Whether this machine has a driver and a GPU that it can use. Never raises.

    >>> device = "cuda" if is_available() else "cpu"
    """
    look_for_libraries()
    return not _core.cuda_why_unavailable()


def device_count() -> int:
    """How many GPUs there are; 0 on a machine without one.

    >>> device_count() > 0 or not is_available()
    True
    """
    look_for_libraries()
    return int(_core.cuda_device_count())


def current_device() -> int:
    """The index of this thread's current GPU, which "cuda" means.

    >>> current_device()
    0
    """
    return current_index()


def set_device(device: Any) -> None:
    """Make a GPU the current one of this thread: "cuda" means it from here on.

    >>> if is_available():
    ...     set_device(0)
    """
    set_current_index(_index(device))


def device(device: Any) -> AbstractContextManager[None]:
    """A scope in which a GPU is the current one of this thread.

    >>> import wengert as wg
    >>> if device_count() > 1:
    ...     with device(1):
    ...         print(wg.ones(3, device="cuda").device)
    """
    return current_gpu(_index(device))


def _index(device: Any) -> int:
    return int(str(_core.device_name(gpu_number(device))).partition(":")[2])


def synchronize(device: Any = None) -> None:
    """Wait until the GPU has done all that was started. Raises what went wrong meanwhile, such as an index out of range.

    >>> if is_available():
    ...     synchronize()  # before reading a clock
    """
    _core.synchronise(gpu_number(device))


def set_tf32(enabled: bool, device: Any = None) -> None:
    """Whether products of float32 matrices may be computed by the matrix units, with 10 bits of mantissa. Off by default.

    >>> if is_available():
    ...     set_tf32(False)
    """
    _core.cuda_set_tf32(gpu_number(device), bool(enabled))


def is_tf32_allowed(device: Any = None) -> bool:
    """Whether products of float32 matrices may be computed with 10 bits of mantissa (`set_tf32`).

    >>> if is_available():
    ...     assert is_tf32_allowed() in (True, False)
    """
    return bool(_core.cuda_tf32(gpu_number(device)))


def is_bf16_supported(device: Any = None) -> bool:
    """Whether the GPU's matrix units take bfloat16: from compute capability 8.0 on. False without a GPU.

    >>> is_bf16_supported() in (True, False)
    True
    """
    return is_available() and get_device_capability(device) >= (8, 0)


_blocking = False


def set_blocking(enabled: bool) -> None:
    """Whether every operation on a GPU is waited for: slow, but an error of its kernels is raised by the operation itself,
    with its name, instead of by whatever waits next. Compiled functions run step by step. `wg.detect_anomaly` does so, too.

    >>> set_blocking(True)
    >>> set_blocking(False)
    """
    global _blocking
    if bool(enabled) != _blocking:
        _core.cuda_wait_for_ops(not _blocking)
        _blocking = not _blocking
