"""A limit on the time that a function of the user's may take."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any

from wengert.errors import ArgumentError, WengertError


class DeadlineError(WengertError, TimeoutError):
    """A function that ran for longer than it was allowed to."""


@contextlib.contextmanager
def deadline(seconds: Any, what: str) -> Iterator[None]:
    """Raise DeadlineError in this thread if the block takes longer. It takes effect between two Python instructions.

    >>> with deadline(10.0, "nothing"):
    ...     pass
    """
    if seconds is None:
        yield
        return
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise ArgumentError(f"{what}: time_limit must be a positive number of seconds, or None, got {seconds!r}")
    limit = min(seconds, threading.TIMEOUT_MAX)
    thread = threading.get_ident()
    lock, done = threading.Lock(), threading.Event()
    fired = False

    def watch() -> None:
        nonlocal fired
        if done.wait(limit):
            return
        with lock:
            if not done.is_set():
                fired = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Expired))

    watcher = threading.Thread(target=watch, daemon=True, name="wengert deadline")
    try:
        try:
            watcher.start()  # it may fire before this returns
            yield
        finally:
            with lock:
                done.set()
            if fired:
                _receive()
    except _Expired:
        raise DeadlineError(f"{what} was stopped after {seconds:g} s; give a longer time_limit, or None") from None


def _receive() -> None:
    """Let an exception arrive that was sent to this thread, if it has not yet. Taking it back instead would leave CPython
    looking for it for ever; in 3.11, functions under sys.setprofile() then never start."""
    for _ in range(100):  # it arrives where a loop jumps back
        pass


class _Expired(BaseException):
    """What the other thread raises: no `except Exception` of the user's catches it."""


__all__ = ["DeadlineError", "deadline"]
