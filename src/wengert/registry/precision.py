"""What autocast does to the operands of each op and each composite: the words, and where they are looked up by name."""

from __future__ import annotations

from typing import Any

from wengert import _core

# The position of a word is its code in the core. Floating operands are cast to nothing; to the low precision; to
# float32 where they are in half precision.
WORDS = ("any", "low", "full")

# Of each public name, what runs under it: names of ops, and composites. `conv2d` and `conv3d` are both the op `conv`.
UNITS: dict[str, list[Any]] = {}


def code_of(precision: str, name: str) -> int:
    """The code of a word, for the core."""
    if precision not in WORDS:
        raise ImportError(f"{name}: precision must be one of {', '.join(WORDS)}, got {precision!r}")
    return WORDS.index(precision)


class uncast:
    """A scope in which ops run in the precision of their operands, for computations of the library itself."""

    def __enter__(self) -> None:
        self._before = _core.set_autocast(None)

    def __exit__(self, *exc: object) -> None:
        _core.set_autocast(self._before)


class cast_apart:
    """A scope in which autocast behaves as when this object was made, with fresh casts of leaves.

    For a part of a function that is recorded by itself, now and when it runs again.
    """

    def __init__(self) -> None:
        self._policy = _core.autocast_policy()
        self._before: list[Any] = []

    def __enter__(self) -> None:
        self._before.append(_core.set_autocast(self._policy))
        _core.forget_casts()

    def __exit__(self, *exc: object) -> None:
        _core.set_autocast(self._before.pop())
        _core.forget_casts()


def enlist(unit: Any, *names: str) -> None:
    """Make an op or a composite known under these names."""
    for name in names:
        UNITS.setdefault(name, []).append(unit)
