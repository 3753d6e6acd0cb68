"""How many threads compute."""

from __future__ import annotations

import operator

from wengert import _core
from wengert.errors import ArgumentError


def get_num_threads() -> int:
    """How many threads large tensors are computed with.

    >>> get_num_threads() >= 1
    True
    """
    return int(_core.num_threads())


def set_num_threads(n: int) -> None:
    """Set how many threads share the work on large tensors. Results have the same bits for any number.

    >>> before = get_num_threads()
    >>> set_num_threads(1)
    >>> get_num_threads()
    1
    >>> set_num_threads(before)
    """
    if not hasattr(n, "__index__") or not 1 <= n < 2**31:
        raise ArgumentError(f"set_num_threads: the number of threads must be a positive integer, got {n!r}")
    _core.set_num_threads(operator.index(n))
