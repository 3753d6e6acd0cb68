"""Functions whose commonest calls are read natively; the Python function reads all others."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, ParamSpec, TypeVar

from wengert import _core

P = ParamSpec("P")
R = TypeVar("R")


def shortcut(f: Callable[P, R]) -> Callable[P, R]:
    """f, with the core's shortcut of that name before it."""
    function: Any = _core.with_shortcut(f)
    update_wrapper(function, f)
    made: Callable[P, R] = function
    return made
