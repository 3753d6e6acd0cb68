"""Automatic mixed precision: which ops run in half precision, and how gradients stay in its range."""

from typing import Any

from wengert.amp.autocast import autocast, autocast_dtype, no_autocast
from wengert.amp.config import AmpConfig
from wengert.foreign_names import MissingName

__all__ = ["AmpConfig", "autocast", "autocast_dtype", "no_autocast"]


def __dir__() -> list[str]:
    return [*__all__, *(n for n in globals() if n.startswith("__"))]


def __getattr__(name: str) -> Any:
    raise MissingName(__name__, name)
