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
from wengert.cuda.streams import Event, ExternalStream, Stream, current_stream, default_stream, gpu_number, stream
from wengert.tensors.gpus import (
    current_gpu,
    current_index,
    device_number,
    look_for_libraries,
    require,
    set_current_index,
)

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "is_available",
    "memory_stats",
    "set_device",
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


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes of tensors that live (`live_bytes`), their peak, what the pool took from the driver (`reserved_bytes`), and what
    the GPU has, free and in all.

    >>> if is_available():
    ...     assert memory_stats()["live_bytes"] >= 0
    """
    return dict(_core.cuda_memory(gpu_number(device)))


def empty_cache(device: Any = None) -> None:
    """Give memory that no tensor uses back to the driver.

    >>> if is_available():
    ...     empty_cache()  # so that another program can have it
    """
    _core.cuda_empty_pool(gpu_number(device))


def get_device_name(device: Any = None) -> str:
    """The driver's name of the GPU, such as "NVIDIA H200".

    >>> name = get_device_name() if is_available() else "no GPU"
    """
    return str(_core.cuda_description(gpu_number(device)))


def set_tf32(enabled: bool, device: Any = None) -> None:
    """Whether products of float32 matrices may be computed by the matrix units, with 10 bits of mantissa. Off by default.

    >>> if is_available():
    ...     set_tf32(False)
    """
    _core.cuda_set_tf32(gpu_number(device), bool(enabled))
