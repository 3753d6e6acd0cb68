"""What kind of GPU it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wengert import _core
from wengert.cuda.streams import gpu_number

# Numbers of the driver's attributes, by the names of ours.
_ATTRIBUTES = {
    "major": 75,
    "minor": 76,
    "multi_processor_count": 16,
    "max_threads_per_multi_processor": 39,
    "max_threads_per_block": 1,
    "warp_size": 10,
    "regs_per_multiprocessor": 82,
    "shared_memory_per_multiprocessor": 81,
    "shared_memory_per_block": 8,
    "shared_memory_per_block_optin": 97,
    "L2_cache_size": 38,
    "clock_rate": 13,
    "memory_clock_rate": 36,
    "memory_bus_width": 37,
}


@dataclass(frozen=True)
class DeviceProperties:
    """What the driver says about a GPU. Sizes are in bytes, clock rates in kHz, the bus width in bits.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     about = wg.cuda.get_device_properties()
    ...     print(about.name, about.multi_processor_count)
    """

    name: str
    total_memory: int
    major: int
    minor: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    max_threads_per_block: int
    warp_size: int
    regs_per_multiprocessor: int
    shared_memory_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    L2_cache_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int


def get_device_name(device: Any = None) -> str:
    """The driver's name of the GPU, such as "NVIDIA H200".

    >>> import wengert as wg
    >>> name = get_device_name() if wg.cuda.is_available() else "no GPU"
    """
    return str(_core.cuda_description(gpu_number(device)))


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The GPU's compute capability, such as (9, 0).

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     assert get_device_capability() >= (5, 0)
    """
    number = gpu_number(device)
    return _core.cuda_attribute(number, _ATTRIBUTES["major"]), _core.cuda_attribute(number, _ATTRIBUTES["minor"])


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What the driver says about the GPU.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     assert get_device_properties().warp_size == 32
    """
    number = gpu_number(device)
    return DeviceProperties(
        name=get_device_name(device),
        total_memory=int(_core.cuda_free_memory(number)[1]),
        **{name: int(_core.cuda_attribute(number, which)) for name, which in _ATTRIBUTES.items()},
    )
