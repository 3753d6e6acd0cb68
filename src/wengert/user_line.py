"""The user's line: where warnings point, and what errors name."""

from __future__ import annotations

import os
import sys
import types
import warnings

from wengert import _core

_FOLDER = os.path.dirname(__file__)
# Lines of these files do not count as the user's, except in the programs that `wengert demo` and others run.
_core.hide_lines(os.path.join(_FOLDER, ""), os.path.join(_FOLDER, "cli", ""))

_PASSED_OVER = ("wengert", "numpy", "scipy")  # frames of these packages do not count as the user's


def _frames_to_user() -> int:
    """How many frames above the caller the innermost user frame is."""
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
    """Warn at the innermost line of the user.

    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_user("look here")
    >>> str(caught[0].message)
    'look here'
    """
    warnings.warn(message, stacklevel=_frames_to_user() + 1)
