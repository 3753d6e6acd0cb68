"""A progress bar."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")


def progress(
    items: Iterable[T], description: str = "", *, total: int | None = None, disable: bool = False
) -> Iterator[T]:
    """Iterate over the items with a progress bar on the terminal, if `rich` is installed.

    >>> [x for x in progress([1, 2, 3], "counting", disable=True)]
    [1, 2, 3]
    """
    if disable or importlib.util.find_spec("rich") is None:
        yield from items
        return
    from rich.progress import track

    known = len(items) if total is None and isinstance(items, Sized) else total
    yield from track(items, description=description, total=known)
