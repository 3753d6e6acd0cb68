"""Colours and progress, on terminals only."""

from __future__ import annotations

import os
import sys

_CODES = {"red": 31, "green": 32, "yellow": 33, "bold": 1}


def coloured(text: str, colour: str) -> str:
    """The text in a colour, if it goes to a terminal and the user has not set NO_COLOR.

    >>> coloured("bug", "red")
    'bug'
    """
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


def progress(text: str) -> None:
    """A line that the next one replaces, for those who wait; nothing where nobody does. An empty text removes it."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
