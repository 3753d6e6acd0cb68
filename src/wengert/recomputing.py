"""Whether a function runs once more, only for its derivative: then what it has done to others must not be done again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _State(threading.local):
    depth = 0


_state = _State()


def recomputing() -> bool:
    """Whether this thread runs something again that has run before.

    >>> recomputing()
    False
    """
    return _state.depth > 0


@contextmanager
def recomputation() -> Iterator[None]:
    """Marks the extent of a recomputation."""
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1
