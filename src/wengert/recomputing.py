"""Whether a function is running again just for its derivative, so that its side effects must not be repeated."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _State(threading.local):
    depth = 0


_state = _State()


def recomputing() -> bool:
    """Whether this thread is recomputing something.

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
