"""The user's line: where warnings point, and what errors name."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

from wengert import _core

_PASSED_OVER = ("wengert", "numpy", "scipy")  # frames of these packages are not the user's


def _frames_to_user() -> int:
    """How many frames the innermost one of the user's is above the caller."""
    above, frame = 1, sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _PASSED_OVER:
        above, frame = above + 1, frame.f_back
    return above


def user_frame() -> types.FrameType:
    """The innermost frame that belongs to the user."""
    return sys._getframe(_frames_to_user())


def user_line() -> str:
    """File and line of the innermost frame that belongs to the user."""
    frame = user_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def warn_user(message: str) -> None:
    """Warn at the innermost line of the user's.

    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_user("look here")
    >>> str(caught[0].message)
    'look here'
    """
    warnings.warn(message, stacklevel=_frames_to_user() + 1)


def hide_frames() -> None:
    """Make lines of this package invisible to messages: users want to see their own."""
    for name, module in list(sys.modules.items()):
        if name == "wengert" or name.startswith("wengert."):
            # Not that of a named tuple, whose methods are of no file, or of another one.
            file = getattr(module, "__file__", None)
            code = next((c for c in _code_objects(module) if c is not None and c.co_filename == file), None)
            if code is not None:
                _core.add_internal_file(code.co_filename)


def _code_objects(module: Any) -> Iterator[Any]:
    """Code of the module's own functions and methods; one is enough, for they share their file name."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = vars(value).values() if isinstance(value, type) else [value]
        for member in members:
            yield getattr(member, "__code__", None)
