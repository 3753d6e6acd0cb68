"""When a compiled function is traced again: numbers that change, and warnings about static values that keep changing."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from typing import Any

from wengert.program.numbers import may_be_operand
from wengert.user_line import warn_user

_MANY = 32  # values of one argument, each with a separate trace, before a warning
_MOST_STRUCTURES = 128


class History:
    """The static arguments that a compiled function has been called with."""

    def __init__(self) -> None:
        self.fixed: set[int] = set()  # positions of numbers whose values the function needs
        self._values: dict[int, set[Any]] = {}  # per position; kept up to the number that triggers the warning
        self._warned = False

    def operands(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:
        """The positions of numbers to try as operands: the current ones, and those with a new value."""
        found = set()
        for k, x in enumerate((*args, *kwargs.values())):
            if not may_be_operand(x) or name_of(compiled, args, kwargs, k) in compiled.__dict__.get("_static", ()):
                continue
            seen = self._values.setdefault(k, set())
            changed = any(value != x and value == value for kind, value in seen if kind is type(x))
            if k not in self.fixed and (changed or k in compiled.operands):
                found.add(k)
            if len(seen) < _MANY:
                seen.add((type(x), x))
        return found

    def warn_of_many_values(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Warn once when a static argument has had many values."""
        for k in self.fixed:
            if not self._warned and len(self._values.get(k, ())) >= _MANY:
                self._warned = True
                _warn(compiled, f"argument {name_of(compiled, args, kwargs, k)!r}")


def name_of(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any], position: int) -> str:
    """The name of the parameter that an argument belongs to, or its position if it has none."""
    if position >= len(args):
        return list(kwargs)[position - len(args)]
    names = compiled.__dict__.get("_names")
    if names is None:
        try:
            names = list(inspect.signature(compiled.function).parameters)
        except (TypeError, ValueError):
            names = []
        compiled._names = names
    return names[position] if position < len(names) else str(position)


def _warn(compiled: Any, what: str) -> None:
    warn_user(
        f"{compiled.__name__}: traced {_MANY} times for different values of {what}, which the function uses as a Python "
        "number (for a size, an axis or a branch) or which is not a number; each value is a trace of its own. Pass a tensor "
        "where the value is only computed with, or compile a function for the values that stay"
    )


def history(compiled: Any) -> History:
    """The history of a compiled function."""
    known: History = compiled.__dict__.setdefault("_history", History())
    return known


def run_op_by_op(compiled: Any, why: Exception) -> bool:
    """Let a function that was compiled with `fallback` run op by op from here on; False if it was not."""
    reference = compiled.__dict__.get("_falls_back")
    if reference is None:
        return False
    owner = reference()  # for a function of flat arguments: the function that was compiled
    is_first = owner is not None and not owner.__dict__.get("_runs_op_by_op")
    for f in (compiled, owner):
        if f is not None:
            f._runs_op_by_op = True
    if is_first:
        warn_user(f"{compiled.__name__}: runs op by op, as it cannot be compiled: {why}")
    return True


class Recent(OrderedDict[Any, Any]):
    """The most recently used flat functions, by structure and static values."""

    warned = False

    def get(self, key: Any, default: Any = None) -> Any:
        """The function, which becomes the most recently used one."""
        if key not in self:
            return default
        self.move_to_end(key)
        return self[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        if len(self) > _MOST_STRUCTURES:
            self.popitem(last=False)

    def warn_of_many(self, compiled: Any) -> None:
        """Warn once when there are many for one structure."""
        if not self.warned and len(self) >= _MANY:
            self.warned = True
            _warn(compiled, "what its containers hold")
