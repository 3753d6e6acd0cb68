"""Whether operations are recorded: per thread, as context managers, decorators or calls."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from wengert import _core

F = TypeVar("F", bound=Callable[..., Any])


class running_reverse:
    """Marks the extent of a reverse-mode transformation: derivatives taken inside are themselves recorded.

    Its number is for the leaves that stand for the arguments: they are tracked until it ends.
    """

    def __enter__(self) -> int:
        self._extent: int = _core.begin_extent()
        return self._extent

    def __exit__(self, *exc: object) -> None:
        _core.end_extent(self._extent)


def inside_reverse() -> bool:
    """Whether a reverse-mode transformation runs in this thread."""
    return bool(_core.inside_reverse())


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

    def __new__(cls, f: Callable[..., Any] | None = None) -> Any:
        made = super().__new__(cls)
        if f is None:
            return made
        made.__init__()  # type: ignore[misc]
        return made(f)  # @no_grad without parentheses

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(_core.set_grad_enabled(self._mode))

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        _core.set_grad_enabled(self._before.pop())

    def __call__(self, f: F) -> F:
        if inspect.isgeneratorfunction(f):
            generator: F = self._around_generator(f)
            return generator

        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with type(self)():
                return f(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    def _around_generator(self, f: Any) -> Any:
        """The mode holds while the generator runs, not while its user does."""

        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = f(*args, **kwargs)
            step: Callable[[], Any] = functools.partial(next, generator)
            try:
                while True:
                    with type(self)():
                        value = step()
                    try:
                        sent = yield value
                        step = functools.partial(generator.send, sent)
                    except GeneratorExit:
                        generator.close()
                        raise
                    except BaseException as e:
                        step = functools.partial(generator.throw, e)
            except StopIteration as stop:
                return stop.value

        return wrapped


class no_grad(_Mode):
    """Record nothing inside, for evaluation and for updates by hand.

    Use it as `with no_grad():` or as a decorator, `@no_grad()`.

    >>> import wengert as wg
    >>> x = wg.ones((2,), requires_grad=True)
    >>> with no_grad():
    ...     (x * 2).requires_grad
    False
    """

    _mode = False


class enable_grad(_Mode):
    """Switch recording back on inside `no_grad`.

    Use it as `with enable_grad():` or as a decorator, `@enable_grad()`.

    >>> with no_grad(), enable_grad():
    ...     is_grad_enabled()
    True
    """

    _mode = True


def is_grad_enabled() -> bool:
    """Whether operations are recorded in this thread.

    >>> is_grad_enabled()
    True
    """
    return bool(_core.is_grad_enabled())
