"""Memory of GPUs: what tensors use, what the pool has taken from the driver, and what there is."""

from __future__ import annotations

from typing import Any

from wengert import _core
from wengert.cuda.streams import gpu_number
from wengert.errors import ArgumentError

_MB = 2**20


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes of tensors that live (`live_bytes`), their peak, what the pool took from the driver (`reserved_bytes`) and its
    peak, what the GPU has, free and in all, and page-locked memory of the host (`host_live_bytes`, `host_reserved_bytes`).

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     assert memory_stats()["live_bytes"] >= 0
    """
    return dict(_core.cuda_memory(gpu_number(device)))


def memory_allocated(device: Any = None) -> int:
    """Bytes of the tensors that live on the GPU.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     before = memory_allocated()
    ...     x = wg.zeros(1024, device="cuda")
    ...     assert memory_allocated() - before == x.nbytes
    """
    return memory_stats(device)["live_bytes"]


def max_memory_allocated(device: Any = None) -> int:
    """The most that `memory_allocated` has been since the start, or since `reset_peak_memory_stats`.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     assert max_memory_allocated() >= memory_allocated()
    """
    return memory_stats(device)["peak_bytes"]


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool has taken from the driver: those of tensors, and those that it keeps for the next ones.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     assert memory_reserved() >= 0
    """
    return memory_stats(device)["reserved_bytes"]


def max_memory_reserved(device: Any = None) -> int:
    """The most that `memory_reserved` has been since the start, or since `reset_peak_memory_stats`.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     assert max_memory_reserved() >= memory_reserved()
    """
    return memory_stats(device)["peak_reserved_bytes"]


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start counting both peaks anew, from what is in use now.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     reset_peak_memory_stats()
    ...     assert max_memory_allocated() == memory_allocated()
    """
    _core.cuda_reset_peak(gpu_number(device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """What the driver has left on the GPU, for all processes, and what there is in all: bytes.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     free, total = mem_get_info()
    """
    free, total = _core.cuda_free_memory(gpu_number(device))
    return int(free), int(total)


def memory_summary(device: Any = None) -> str:
    """A text with the numbers of `memory_stats` in megabytes, and the lines of the program that keep most for backward.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     print(memory_summary())
    """
    number = gpu_number(device)
    stats = memory_stats(device)
    rows = (
        ("tensors", "live_bytes"),
        ("tensors, peak", "peak_bytes"),
        ("taken from the driver", "reserved_bytes"),
        ("taken, peak", "peak_reserved_bytes"),
        ("free", "free_bytes"),
        ("in all", "total_bytes"),
        ("page-locked on the host", "host_reserved_bytes"),
    )
    lines = [f"{_core.device_name(number)}, {_core.cuda_description(number)}"]
    lines += [f"  {name:<24}{stats[key] / _MB:>12.2f} MB" for name, key in rows]
    kept = _core.saved_by_line_on(number)
    lines += ["saved for backward"] if kept else []
    lines += [f"  {size / _MB:>12.2f} MB  {line}" for line, size in kept[:10]]
    return "\n".join(lines)


def empty_cache(device: Any = None) -> None:
    """Give memory that no tensor uses back to the driver.

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     empty_cache()  # so that another program can have it
    """
    _core.cuda_empty_pool(gpu_number(device))


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limit the tensors of this process to a share of the GPU's memory, from here on; 1.0 is no limit.

    More raises `BudgetError`, a `MemoryError`. Under a checkpointing strategy, what can be computed again is dropped first
    (`wg.memory_budget(mb, device="cuda")` does that for a block).

    >>> import wengert as wg
    >>> if wg.cuda.is_available():
    ...     set_per_process_memory_fraction(0.9)
    ...     set_per_process_memory_fraction(1.0)
    """
    if not 0.0 < fraction <= 1.0:
        raise ArgumentError(f"set_per_process_memory_fraction: the fraction must be in (0, 1], got {fraction}")
    number = gpu_number(device)
    limit = 0 if fraction == 1.0 else max(1, int(fraction * _core.cuda_free_memory(number)[1]))
    _core.set_device_memory_limit(number, limit)
