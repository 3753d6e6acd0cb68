"""Whether operations are recorded: per thread, as context managers, decorators or calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from wengert import _core

F = TypeVar("F", bound=Callable[..., Any])


class set_grad_enabled:
    """Switch recording on or off in this thread: as a call (at once) or for the length of a `with` block.

    >>> with set_grad_enabled(False):
    ...     is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        self._before: list[bool] = [_core.set_grad_enabled(bool(mode))]
        self._mode = bool(mode)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        _core.set_grad_enabled(self._before.pop())


class _Mode:
    _mode: bool

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(_core.set_grad_enabled(self._mode))

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        _core.set_grad_enabled(self._before.pop())

    def __call__(self, f: F) -> F:
        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with type(self)():
                return f(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class no_grad(_Mode):
    """Nothing is recorded inside: `with no_grad():`, or `@no_grad()`.

    >>> import wengert as wg
    >>> x = wg.ones((2,), requires_grad=True)
    >>> with no_grad():
    ...     (x * 2).requires_grad
    False
    """

    _mode = False


class enable_grad(_Mode):
    """Recording is on inside, also within `no_grad`."""

    _mode = True


def is_grad_enabled() -> bool:
    """Whether operations are recorded in this thread."""
    return bool(_core.is_grad_enabled())
