"""A progress bar."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def progress(
    items: Iterable[T], description: str = "", *, total: int | None = None, disable: bool = False
) -> Iterator[T]:
    """The items themselves, with a bar on the terminal meanwhile if `rich` is installed.

    >>> [x for x in progress([1, 2, 3], "counting", disable=True)]
    [1, 2, 3]
    """
    if disable or importlib.util.find_spec("rich") is None:
        yield from items
        return
    from rich.progress import track

    known: Any = len(items) if total is None and hasattr(items, "__len__") else total
    yield from track(items, description=description, total=known)
