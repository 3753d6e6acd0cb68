"""State of automatic differentiation as a whole."""

from __future__ import annotations

from typing import Any

from wengert import _core
from wengert.memory.statistics import memory_stats
from wengert.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from wengert.tensors.device import CPU, check_device


def clear() -> None:
    """Free what this thread's recorded operations keep for backward. Their tensors stay; they can no longer be
    differentiated.

    >>> import wengert as wg
    >>> clear()
    >>> before = wg.memory_stats().saved_bytes
    >>> y = wg.exp(wg.ones((4,), requires_grad=True))
    >>> clear()
    >>> wg.memory_stats().saved_bytes - before
    0
    """
    _core.clear_recorded()


class AutogradContext:
    """`no_grad`, `clear` and `memory_stats` in one place, for those who look for them there; `AutogradEngine` is the same.

    >>> context = AutogradContext("cpu")
    >>> with context.no_grad():
    ...     context.is_grad_enabled()
    False
    """

    no_grad = no_grad
    enable_grad = enable_grad
    set_grad_enabled = set_grad_enabled
    is_grad_enabled = staticmethod(is_grad_enabled)
    clear = staticmethod(clear)
    memory_stats = staticmethod(memory_stats)

    def __init__(self, device: Any = None) -> None:
        check_device(device)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({CPU!r})"


AutogradEngine = AutogradContext
