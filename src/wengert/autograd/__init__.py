"""What people hold: tensors and their creation, tapes, gradients, modes, dual tensors, custom operations."""

from typing import Any

from wengert.autograd.context import AutogradContext, clear
from wengert.foreign_names import MissingName

__all__ = ["AutogradContext", "clear"]


def __dir__() -> list[str]:
    return [*__all__, *(n for n in globals() if n.startswith("__"))]


def __getattr__(name: str) -> Any:
    raise MissingName(__name__, name)
