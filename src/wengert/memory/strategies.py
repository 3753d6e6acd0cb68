"""What is kept for backward and what is computed again: strategies, and budgets in bytes.

Nothing is wrapped. While a strategy is set, every operation is remembered together with its results; a result that only
the recorded operations hold can be dropped, and is computed again from its operands when backward needs it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from numbers import Real
from typing import Any

from wengert import _core
from wengert.errors import ArgumentError, BudgetError
from wengert.tensors.device import number_of

_STRATEGIES = {"none": 0, "auto": 1, "selective": 2, "block": 3, "full": 4}
_CODECS = {None: 0, "bfloat16": 1, "int8": 2}
_MB = 2**20
_SPARE = 0.9  # of the machine's free memory, for `auto` without a budget


@dataclass(frozen=True)
class CheckpointConfig:
    """Which results of recorded operations are kept for the backward pass; the others are computed again, to the same
    bits.

    - `strategy`: "none" keeps everything. "selective" keeps what takes at least `min_compute_cost` floating-point
      operations per byte to compute again, such as matrix products and convolutions. "block" keeps every n-th result,
      n = `checkpoint_every_n`. "full" keeps about log₂ n of n results at a time, and runs O(n log n) operations again
      (Griewank and Walther, 2000). "auto" keeps what fits into `memory_budget_mb`, as with `memory_budget`; without a
      number, into nine tenths of the free memory.
    - `offload`: where dropped values go instead of being computed again: "disk" (an unnamed file in the temporary
      folder), the path of a folder, or "host": memory of the process, useful on the CPU only together with `compress`.
      Values of a GPU go to page-locked memory, and come back while it computes.
    - `compress`: store floating-point values as "bfloat16" or "int8" (with one scale per tensor). Gradients are then
      not exact to the bit.
    - `device`: whose memory the budget is for, such as "cuda"; None is the CPU. Strategies without a budget hold for all.

    >>> CheckpointConfig(strategy="block", checkpoint_every_n=4).strategy
    'block'
    >>> CheckpointConfig(strategy="everything")
    Traceback (most recent call last):
    wengert.errors.ArgumentError: CheckpointConfig: unknown strategy 'everything'; use none, auto, selective, block, full
    """

    strategy: str = "auto"
    checkpoint_every_n: int = 3
    min_compute_cost: float = 100
    memory_budget_mb: float | None = None
    offload: str | None = None
    compress: str | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        if self.strategy not in list(_STRATEGIES):  # which may not be hashable
            known = ", ".join(_STRATEGIES)
            raise ArgumentError(f"CheckpointConfig: unknown strategy {self.strategy!r}; use {known}")
        every, cost = self.checkpoint_every_n, self.min_compute_cost
        if not _is_number(every) or every < 1 or every % 1:
            raise ArgumentError(
                f"CheckpointConfig: checkpoint_every_n must be a positive integer, got {self.checkpoint_every_n!r}"
            )
        if not _is_number(cost) or not cost >= 0:
            raise ArgumentError(f"CheckpointConfig: min_compute_cost must be a number of at least 0, got {cost!r}")
        self._check_offload()
        if self.memory_budget_mb is not None:
            _bytes_of(self.memory_budget_mb, "CheckpointConfig: memory_budget_mb")
            if self.strategy != "auto":
                raise ArgumentError(
                    f"CheckpointConfig: memory_budget_mb is for the strategy 'auto', not for {self.strategy!r}"
                )

    def _check_offload(self) -> None:
        if self.compress not in list(_CODECS):
            raise ArgumentError(
                f"CheckpointConfig: unknown compression {self.compress!r}; there are None, 'bfloat16' and 'int8'"
            )
        if self.compress and not self.offload:
            raise ArgumentError("CheckpointConfig: compress is for what is put away; set offload, too")
        if self.offload not in (None, "host", "disk") and not os.path.isdir(str(self.offload)):
            raise ArgumentError(f"CheckpointConfig: offload must be 'host', 'disk' or a folder, got {self.offload!r}")


def _is_number(x: object) -> bool:
    return isinstance(x, Real)


def _bytes_of(mb: float, what: str) -> int:
    try:
        positive = mb > 0 and mb < float("inf")
    except TypeError:
        raise TypeError(f"{what} must be a number of megabytes, got {mb!r}") from None
    if isinstance(mb, bool):
        raise TypeError(f"{what} must be a number of megabytes, got {mb}")
    if not positive:
        raise ArgumentError(f"{what} must be a positive number of megabytes, got {mb}")
    return min(max(1, int(mb * _MB)), sys.maxsize)


def _free_memory() -> int:
    return int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _device_number(config: CheckpointConfig) -> int:
    return 0 if config.device is None else number_of(config.device)


def _limit_of(config: CheckpointConfig) -> int | None:
    if config.strategy != "auto":
        return None
    if config.memory_budget_mb is not None:
        return _bytes_of(config.memory_budget_mb, "memory_budget_mb")
    if number := _device_number(config):
        # What the pool has and no tensor uses is free as well.
        there = _core.cuda_memory(number)
        return int(there["live_bytes"] + _SPARE * (there["free_bytes"] + there["reserved_bytes"] - there["live_bytes"]))
    return int(_core.memory_stats()["live_bytes"] + _SPARE * _free_memory())


def _current_limit(number: int) -> int:
    return int(_core.device_memory_limit(number) if number else _core.memory_limit())


def _set_budget(number: int, limit: int) -> None:
    if number:
        _core.set_device_memory_budget(number, limit)
    else:
        _core.set_memory_budget(limit)


def _set_limit(number: int, limit: int) -> None:
    if number:
        _core.set_device_memory_limit(number, limit)
    else:
        _core.set_memory_limit(limit)


def _policy_of(config: CheckpointConfig) -> Any:
    folder = config.offload or None
    if folder == "disk":
        import tempfile  # takes 5 ms, and is seldom needed

        folder = tempfile.gettempdir()
    elif folder == "host":
        folder = ""
    return _core.replay_policy(
        _STRATEGIES[config.strategy],
        config.checkpoint_every_n,
        float(config.min_compute_cost),
        folder,
        _CODECS[config.compress],
    )


class checkpointing:
    """Use a checkpointing strategy for what this thread records inside a `with` block.

    `backward` inside the block is held to the budget, too; after the block, dropped values are computed again without
    a limit.

    >>> import wengert as wg
    >>> x = wg.ones((64, 64), requires_grad=True)
    >>> with checkpointing(CheckpointConfig(strategy="full")):
    ...     y = x
    ...     for _ in range(20):
    ...         y = wg.sin(y)
    ...     grads = y.sum().backward()
    >>> wg.memory_stats().recomputed > 0
    True
    """

    def __init__(self, config: CheckpointConfig) -> None:
        if not isinstance(config, CheckpointConfig):
            raise TypeError(f"checkpointing: takes a CheckpointConfig, got {type(config).__name__}")
        self._config = config
        self._before: list[tuple[Any, int]] = []

    def __enter__(self) -> None:
        number = _device_number(self._config)
        before = _core.replays(), _current_limit(number)
        limit = _limit_of(self._config)
        _core.set_replays(_policy_of(self._config))
        if limit is not None:
            try:
                _set_budget(number, min(limit, before[1]) if before[1] else limit)
            except BudgetError:
                _core.set_replays(before[0])
                raise
        self._before.append(before)

    def __exit__(self, *exc: object) -> None:
        policy, limit = self._before.pop()
        _core.set_replays(policy)
        _set_limit(_device_number(self._config), limit)


def set_checkpointing(config: CheckpointConfig | None) -> None:
    """Set the strategy for all that this thread records from here on; None: everything is kept, without a budget.

    >>> set_checkpointing(CheckpointConfig(strategy="selective"))
    >>> set_checkpointing(None)
    """
    _core.clear_memory_limits()
    checkpointing(config or CheckpointConfig(strategy="none")).__enter__()


class memory_budget(checkpointing):
    """Limit the memory of all tensors of the process, in the forward and the backward pass, to `mb` megabytes (2**20
    bytes); with `device`, that of all tensors on this GPU.

    When there is no room, results that only recorded operations hold are dropped: first those that are large, cheap
    to compute again and not needed soon. The backward pass computes them again, to the same bits. Parameters,
    gradients, tensors that variables refer to, memory shared with NumPy and results of custom operations count
    towards the budget, but are never dropped, nor is what another thread has recorded. If the budget cannot be met,
    BudgetError is raised, with a lower bound for what is needed.

    >>> import wengert as wg
    >>> x = wg.ones((256, 256), requires_grad=True)  # 0.25 MB
    >>> with memory_budget(mb=4 + wg.memory_stats().live_bytes / 2**20):
    ...     y = x
    ...     for _ in range(64):
    ...         y = wg.sin(y)
    ...     grads = y.sum().backward()
    >>> grads[x].shape
    (256, 256)
    """

    def __init__(self, mb: float, device: str | None = None) -> None:
        _bytes_of(mb, "memory_budget: mb")
        super().__init__(CheckpointConfig(memory_budget_mb=mb, device=device))


__all__ = ["CheckpointConfig", "checkpointing", "memory_budget", "set_checkpointing"]
