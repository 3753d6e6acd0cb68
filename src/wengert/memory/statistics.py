"""What memory is used for, counted by the core at every allocation."""

from __future__ import annotations

from dataclasses import dataclass

from wengert import _core


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Bytes of tensors. `saved_bytes` are those that recorded operations keep for backward; a buffer counts once.

    `by_category` and `by_line` say what the live bytes are for, and which lines of the user's keep them.
    `dropped` results of operations were dropped so far under budgets and checkpoint strategies; `recomputed` operations
    ran again.

    >>> import wengert as wg
    >>> x = wg.ones((256, 256), requires_grad=True)
    >>> y = wg.tanh(x)
    >>> wg.memory_stats().saved_bytes >= y.nbytes
    True
    """

    saved_bytes: int
    live_bytes: int
    peak_bytes: int
    pooled_bytes: int
    by_category: dict[str, int]
    by_line: dict[str, int]
    dropped: int = 0
    recomputed: int = 0

    @property
    def saved_mb(self) -> float:
        """`saved_bytes` in MiB."""
        return self.saved_bytes / 2**20


def memory_stats() -> MemoryStats:
    """Memory in use now: live, peak and saved bytes, by category and by the source line that recorded the operation.

    Fields include `live_bytes`, `peak_bytes` (since `reset_peak`), `saved_bytes` (kept for backward) and `by_line`.

    >>> import wengert as wg
    >>> before = memory_stats().live_bytes
    >>> x = wg.zeros((1024,))
    >>> memory_stats().live_bytes - before
    4096
    """
    counted, replayed = _core.memory_stats(), _core.replay_stats()
    return MemoryStats(
        saved_bytes=counted["saved_bytes"],
        live_bytes=counted["live_bytes"],
        peak_bytes=counted["peak_bytes"],
        pooled_bytes=counted["pooled_bytes"],
        by_category=dict(counted["by_category"]),
        by_line=dict(_core.saved_by_line()),
        dropped=replayed["dropped"],
        recomputed=replayed["recomputed"],
    )


def reset_peak() -> None:
    """Start counting the peak anew, from what is live now.

    >>> reset_peak()
    >>> stats = memory_stats()
    >>> stats.peak_bytes >= stats.live_bytes
    True
    """
    _core.reset_peak()


def empty_pool() -> None:
    """Give cached memory back to the system.

    >>> empty_pool()
    >>> memory_stats().pooled_bytes
    0
    """
    _core.empty_pool()
