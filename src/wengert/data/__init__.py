"""Data: batches of arrays, splits, and a progress bar for the loop, which stays your own."""

from typing import Any

from wengert._hooks import hide_frames
from wengert.data.batches import Batches, batches, split
from wengert.data.progress import progress
from wengert.data.samples import Subset

__all__ = ["Batches", "Subset", "batches", "progress", "split"]

hide_frames()


def __dir__() -> list[str]:
    return [*__all__, *(n for n in globals() if n.startswith("__"))]


def __getattr__(name: str) -> Any:
    from wengert.functional.foreign_names import MissingName

    raise MissingName(__name__, name)
