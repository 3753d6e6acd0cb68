"""How gradients look during a profile, parameter by parameter: looked at before steps of optimizers, now and then."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

from wengert import _core
from wengert.optim.optimizer import Optimizer
from wengert.optim.statistics import GradientStatistics, Row
from wengert.program.trace import tracing

_SHARE = 0.01  # of the time, at most, for looking


class _Parameters:
    """The parameters of an optimizer as a module has them: with names, which here are their ids."""

    def __init__(self, optimizer: Any) -> None:
        self._held = [p for group in optimizer.param_groups for p in group["params"]]

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        for p in self._held:
            if p._plain:  # not one of a trace
                yield str(p.id), p


class _ById:
    def __init__(self, gradients: dict[Any, Any]) -> None:
        self._gradients = gradients

    def get(self, p: Any) -> Any:
        g = self._gradients.get(p.id)
        return g if g is None or g._plain else None


class GradientLog:
    """Statistics of gradients at some of the steps: the first two of each optimizer, and as many others as take a hundredth
    of the time. Steps inside of compiled functions are not seen: there, gradients have no numbers yet."""

    def __init__(self) -> None:
        self.steps = 0
        self.seen: list[tuple[int, list[Row]]] = []  # number of the step, and a row for each parameter, named by its id
        self._cost = math.inf  # seconds of a look: the least, as the first one also prepares
        self._looked: dict[int, tuple[int, float]] = {}  # by optimizer: how often, and when the last time

    def look(self, optimizer: Any, gradients: dict[Any, Any] | None) -> None:
        """Called before a step."""
        if tracing() is not None:
            return
        self.steps += 1
        begin = time.perf_counter()
        times, last = self._looked.get(id(optimizer), (0, -math.inf))
        if times > 1 and begin - last < self._cost / _SHARE * len(self._looked):
            return
        given: Any = None if gradients is None else _ById(gradients)
        before = _core.profile_paused(True)  # the profile knows how long
        try:
            rows = GradientStatistics(_Parameters(optimizer)).collect(given)
        finally:
            _core.profile_paused(before)
        self.seen.append((self.steps, rows))
        now = time.perf_counter()
        self._looked[id(optimizer)] = (times + 1, now)
        self._cost = min(self._cost, now - begin)

    def latest(self) -> list[Row]:
        """What was seen last of each parameter."""
        return list({row.name: row for _, rows in self.seen for row in rows}.values())


_watching: list[GradientLog] = []
_lock = threading.Lock()
_original: Any = None


def watch() -> GradientLog:
    """A log that sees the steps of all optimizers until `unwatch`."""
    global _original
    with _lock:
        _watching.append(GradientLog())
        if len(_watching) == 1:
            _original = original = Optimizer._step

            @functools.wraps(original)
            def step(self: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
                for log in _watching:
                    log.look(self, gradients)
                return original(self, gradients, *args, **kwargs)

            Optimizer._step = step  # type: ignore[method-assign, assignment]
        return _watching[-1]


def unwatch(log: GradientLog) -> None:
    """The log is complete; after the last one, optimizers step as before."""
    with _lock:
        _watching.remove(log)
        if not _watching:
            Optimizer._step = _original  # type: ignore[method-assign]
