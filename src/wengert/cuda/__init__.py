"""CUDA: NVIDIA's GPUs as devices.

The driver and NVIDIA's libraries are opened when they are first asked for; nothing is linked. The libraries come with
`pip install "wengert[cuda]"` (CUDA 13) or `"wengert[cuda12]"`.

>>> isinstance(is_available(), bool)
True
"""

from __future__ import annotations

from typing import Any

from wengert import _core
from wengert.errors import DeviceError
from wengert.tensors.device import number_of
from wengert.tensors.gpus import device_number, look_for_libraries, require

__all__ = [
    "Stream",
    "current_stream",
    "device_count",
    "empty_cache",
    "get_device_name",
    "is_available",
    "memory_stats",
    "set_tf32",
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


def _number(device: Any) -> int:
    number = device_number(device) if isinstance(device, int) else number_of(device)
    if not _core.device_name(number).startswith("cuda"):
        raise DeviceError(f"cuda: expected a GPU, got the device {str(device)!r}")
    return number


def synchronize(device: Any = "cuda") -> None:
    """Wait until the GPU has done all that was started. Raises what went wrong meanwhile, such as an index out of range.

    >>> if is_available():
    ...     synchronize()  # before reading a clock
    """
    _core.synchronise(_number(device))


def memory_stats(device: Any = "cuda") -> dict[str, int]:
    """Bytes of tensors that live (`live_bytes`), their peak, what the pool took from the driver (`reserved_bytes`), and what
    the GPU has, free and in all.

    >>> if is_available():
    ...     assert memory_stats()["live_bytes"] >= 0
    """
    return dict(_core.cuda_memory(_number(device)))


def empty_cache(device: Any = "cuda") -> None:
    """Give memory that no tensor uses back to the driver.

    >>> if is_available():
    ...     empty_cache()  # so that another program can have it
    """
    _core.cuda_empty_pool(_number(device))


def get_device_name(device: Any = "cuda") -> str:
    """The driver's name of the GPU, such as "NVIDIA H200".

    >>> name = get_device_name() if is_available() else "no GPU"
    """
    return str(_core.cuda_description(_number(device)))


def set_tf32(enabled: bool, device: Any = "cuda") -> None:
    """Whether products of float32 matrices may be computed by the matrix units, with 10 bits of mantissa. Off by default.

    >>> if is_available():
    ...     set_tf32(False)
    """
    _core.cuda_set_tf32(_number(device), bool(enabled))


class Stream:
    """The order of work on a GPU. There is one for each GPU, which everything runs on.

    >>> handle = Stream("cuda:0").cuda_stream if is_available() else 0
    """

    def __init__(self, device: Any = "cuda") -> None:
        self._device = _number(device)

    @property
    def cuda_stream(self) -> int:
        """The driver's handle, to share with other libraries."""
        return int(_core.cuda_stream(self._device))

    def synchronize(self) -> None:
        """Wait until all that was started has been done."""
        _core.synchronise(self._device)

    def __repr__(self) -> str:
        return f"Stream({_core.device_name(self._device)!r})"


def current_stream(device: Any = "cuda") -> Stream:
    """The stream that work on this GPU goes to.

    >>> if is_available():
    ...     current_stream().synchronize()
    """
    return Stream(device)
