"""Side effects of calls of traced functions: what a call reads when it begins, and what it changes when it ends."""

from __future__ import annotations

import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wengert import _core
from wengert.dtypes import DType, int64
from wengert.modes import no_grad

Check = Callable[[], bool]  # whether an assumption about a Python object still holds


class _Stale(Exception):
    """An assumption of the trace about a Python object no longer holds."""


@dataclass(slots=True, eq=False)
class Stream:
    """The random stream that one generator gives to a call. Its key and counter are read when the call begins."""

    generator: Any
    key: tuple[Any, Any]
    start: Any
    taken: Any = 0  # counters so far; a size while tracing

    def __call__(self, taken: int) -> Any:
        """The hidden input of one call that draws this much."""
        return _core.from_buffer(array.array("q", self.generator.reserve(taken)), int64.code, True)


@dataclass(slots=True, eq=False)
class Numbers:
    """Numbers that a Python object holds, read when the call begins; None means that the function must be traced again."""

    read: Callable[[], Sequence[float] | None]
    dtype: int
    taken: int = 0

    @classmethod
    def of(cls, read: Callable[[], Sequence[float] | None], dtype: DType) -> Numbers:
        """Numbers of float32 or float64."""
        return cls(read, dtype.code)

    def __call__(self, taken: int) -> Any:
        """The hidden input of one call."""
        numbers = self.read()
        if numbers is None:
            raise _Stale
        return _core.row_of_numbers(numbers, self.dtype)


@dataclass(slots=True, eq=False)
class Entry:
    """The `.grad` that a leaf has when the call begins; the core reads it."""

    taken: int = 0

    def __call__(self, taken: int) -> None:
        """The core fills it in."""


@dataclass(slots=True, eq=False)
class Act:
    """A change of a Python object that every call makes: the step of a schedule. `save()` returns what takes it back."""

    do: Callable[[], None]
    save: Callable[[], Callable[[], None]]


Before = _core.LeafGrad.Before  # the state of a `.grad` assumed when a call begins
After = _core.LeafGrad.After  # what a call does to it


class LeafGrad:
    """The `.grad` of a leaf while a function is traced.

    Whether there is one when a call begins is only assumed where the function reads it: a gradient that is added to what is
    there, or replaces it, does not depend on that.
    """

    __slots__ = ("_known", "_pending", "before", "entry", "leaf", "now")

    def __init__(self, leaf: Any) -> None:
        self.leaf = leaf
        self.before = Before.NOT_READ
        self.entry: Any = None  # the gradient that a call finds
        self.now: Any = None
        self._known = False  # whether `now` is the complete gradient
        self._pending: Any = None  # added to the gradient that a call finds

    @classmethod
    def of_result(cls, x: Any) -> LeafGrad:
        """The `.grad` of an intermediate tensor, which has none when the call begins."""
        made = cls(x)
        made._known = True
        return made

    def read(self, trace: Any) -> Any:
        """The gradient at this point of the function, or None."""
        if not self._known:
            found = _core.grad_of(trace.given(self.leaf))
            self.before = Before.ABSENT if found is None else Before.PRESENT
            self.entry = self.now = None if found is None else trace.found_grad(found)
            self._known = True
            pending, self._pending = self._pending, None
            if pending is not None:
                self.add(trace, pending)
        return self.now

    def assign(self, trace: Any, gradient: Any) -> None:
        """Replace the gradient, possibly by None, from here on."""
        self._known, self._pending = True, None
        self.now = None if gradient is None else trace.another_name(gradient)

    def add(self, trace: Any, gradient: Any) -> None:
        """Add a gradient that backward computed."""
        if self._pending is not None:
            self.read(trace)  # so that sums are formed in the order in which backward adds
        if not self._known:
            self._pending = gradient
        elif self.now is None:
            self.now = trace.another_name(gradient)
        else:
            with no_grad():
                trace.write(self.now, self.now + gradient, "backward")

    def result(self) -> tuple[After, Any]:
        """The gradient at the end of a call."""
        if self._pending is not None:
            return After.ADDED, self._pending
        if not self._known or (self.now is self.entry and self.before != Before.NOT_READ):
            return After.UNTOUCHED, None
        return (After.FORGOTTEN, None) if self.now is None else (After.REPLACED, self.now)


class Beginning:
    """The first step of a call: collect the hidden inputs and everything read from Python objects; None if the function must
    be traced again."""

    def __init__(self, sources: Sequence[Any], acts: Sequence[tuple[int, Act]], checks: Sequence[Check]) -> None:
        self._acts, self._checks = list(acts), list(checks)
        # As methods, which are called faster than objects.
        self._reads = [(k, s.__call__) for k, s in enumerate(sources) if not isinstance(s, Stream)]
        self._draws = [(k, s.__call__) for k, s in enumerate(sources) if isinstance(s, Stream)]

    def __call__(self, taken: list[int]) -> list[Any] | None:
        for check in self._checks:
            if not check():
                return None
        made: list[Any] = [None] * len(taken)
        try:
            if self._acts:
                self._read_between_acts(made)
            else:
                for k, read in self._reads:
                    made[k] = read(0)
        except _Stale:
            return None
        for k, draw in self._draws:
            made[k] = draw(taken[k])
        return made

    def _read_between_acts(self, made: list[Any]) -> None:
        """Read each number as it is after the preceding acts, which are undone again because the call may fail."""
        undo, acts = [], list(self._acts)
        try:
            for k, read in self._reads:
                while acts and acts[0][0] <= k:
                    act = acts.pop(0)[1]
                    undo.append(act.save())
                    act.do()
                made[k] = read(0)
        finally:
            for restore in reversed(undo):
                restore()
