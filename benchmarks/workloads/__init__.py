"""The same computations, once per library: `in_<library>.py` has a function of each name here.

`multiply`, `chain`, `affine_tanh`, `mlp` each return a `Workload`. Data come from `data.py`, so that all libraries compute
the same numbers, and the harness checks that they do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Workload:
    """A statement to time, the names it uses, and a number that all libraries must agree on."""

    statement: str
    names: dict[str, Any]
    result: Callable[[], float]
    finish: Callable[[], Any] = field(default=lambda: None)  # waits for what was only started
