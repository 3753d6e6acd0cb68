"""Where the faults are."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def line_at_fault(f: Callable[..., Any]) -> str:
    """File and line, as messages have them, of the line of f that is marked."""
    lines, first = inspect.getsourcelines(f)
    (marked,) = [first + k for k, line in enumerate(lines) if line.rstrip().endswith("# fault")]
    return f"{inspect.getsourcefile(f)}:{marked}"
