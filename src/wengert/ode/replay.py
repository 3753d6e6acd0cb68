"""The discrete adjoint: the derivative of the numbers that were computed, the steps taken as they were.

The steps are repeated, from checkpoints of the forward solution and in reverse order, so that only the steps between two
checkpoints are recorded at a time. Forward mode, and derivatives of the derivative, repeat them from the beginning.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wengert import functional as F
from wengert.autograd.custom import custom_op
from wengert.dtypes import DType
from wengert.numerics.arguments import Floating
from wengert.numerics.functions import is_differentiated
from wengert.ode.kernels import Kernels
from wengert.ode.methods import Carry
from wengert.ode.stepping import Path
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import zeros_like
from wengert.transforms.functional import differentiate_backwards, jvp


@dataclass(slots=True)
class Grid:
    """The steps as tensors: (t, h) of each, and where in its step each state inside of one lies."""

    steps: Any
    places: Any


def grid_of(path: Path, times: Any, adaptive: bool) -> Grid:
    """The grid as a function of the times. Of a method with fixed steps it is proportional to their distances; of others the
    first time moves all steps, and the last one changes the length of the last step, all other lengths being constant."""
    real = times.dtype
    t, h = (np.array([getattr(s, name) for s in path.steps]) for name in "th")
    holder = np.array([n for n, s in enumerate(path.steps) for _ in s.inside], np.int64)
    which = np.array([k for s in path.steps for k in s.inside], np.int64)
    if not is_differentiated(times):
        places = (np.array(path.times)[which] - t[holder]) / h[holder] if len(which) else np.zeros(0)
        return Grid(_constant(np.stack([t, h], axis=1), real), _constant(places, real))
    left, ends = times[0], [n for n, s in enumerate(path.steps) if s.end is not None]
    if adaptive:
        starts = left + _constant(t - t[0], real)
        lengths = _constant(h, real)
        if ends:  # the last step ends at the last time
            lengths = F.concat([lengths[:-1], F.reshape(times[-1] - starts[-1], (1,))])
    else:
        starts, lengths = _proportional(path, real, times)
    events = _constant(np.array(path.times[path.n_reached :]), real)
    known = F.concat([times[: path.n_reached], events])
    if not len(which):
        return Grid(F.stack([starts, lengths], axis=1), _constant(np.zeros(0), real))
    places = (known[asarray(which)] - starts[asarray(holder)]) / lengths[asarray(holder)]
    return Grid(F.stack([starts, lengths], axis=1), places)


def _proportional(path: Path, real: DType, times: Any) -> tuple[Any, Any]:
    """Steps of equal length from each time to the next."""
    interval, number, count = (np.array(column) for column in zip(*(s.part for s in path.steps)))
    begin, end = times[asarray(interval)], times[asarray(interval + 1)]
    lengths = (end - begin) / _constant(count, real)
    return begin + lengths * _constant(number, real), lengths


def _constant(a: Any, real: DType) -> Any:
    return asarray(np.asarray(a, real.to_numpy()))


# -------------------------------------------------------------------------------------------------- the same steps again


class Replay:
    """The steps of a forward solution, to be taken again."""

    def __init__(self, path: Path, kernels: Kernels, grid: Grid, moving: bool, params: Sequence[Any]) -> None:
        """`moving`: the grid is differentiated, and an input of the operation; otherwise it is constant."""
        self.path, self.kernels, self.grid, self.moving = path, kernels, grid, moving
        self._floating = Floating(params)
        counts = [len(s.inside) for s in path.steps]
        rows = [n + (s.end is not None) for n, s in zip(counts, path.steps)]
        self._places = np.cumsum([0, *counts]).tolist()  # where those of each step begin
        self._rows = np.cumsum([1, *rows]).tolist()  # the same in the rows of states, after the initial one

    def inputs(self, y: Any) -> list[Any]:
        """What the states are differentiable functions of."""
        grid = [self.grid.steps, self.grid.places] if self.moving else []
        return [y, *grid, *self._floating.tensors]

    def again(self, y: Any, *inputs: Any) -> Any:
        """All rows of states, computed once more from the beginning."""
        steps, places, params = self._read(inputs)
        carry = tuple(self.kernels.start(steps[0, 0], y, *params))
        _, rows = self._between(0, len(self.path.steps), carry, steps, places, params)
        return F.concat([F.reshape(y, (1, -1)), *rows])

    def states(self, y: Any) -> Any:
        """All rows of states. Differentiable in both modes, and at every order."""
        op = custom_op(lambda *inputs: self.path.states)
        n = len(self.inputs(y))
        op.defjvp(lambda *given: jvp(self.again, given[n + 1 :], given[:n])[1])
        op.defvjp(lambda bar, _, *inputs: self._pull(bar, inputs))
        return op(*self.inputs(y))

    def _read(self, inputs: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
        """Steps, places and parameters, of the inputs after the initial state."""
        grid, floating = (inputs[:2], inputs[2:]) if self.moving else ((self.grid.steps, self.grid.places), inputs)
        return grid[0], grid[1], self._floating.filled(floating)

    def _between(
        self, first: int, last: int, carry: Carry, steps: Any, places: Any, params: Sequence[Any]
    ) -> tuple[Carry, list[Any]]:
        """Steps `first` to `last`, which is not among them; `steps` and `places` are those of these steps."""
        rows = []
        for n in range(first, last):
            step, start = self.path.steps[n], self._places[n] - self._places[first]
            theta = places[start : start + len(step.inside)] if step.inside else None
            carry, inside = self.kernels.advance(steps[n - first], theta, carry, params)
            if inside is not None:
                rows.append(inside)
            if step.end is not None:
                rows.append(F.reshape(carry[0], (1, -1)))
        return carry, rows

    # -------------------------------------------------------------------------------------------------- backwards

    def _pull(self, bar: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Cotangents of the inputs."""
        if any(map(is_differentiated, (bar, *inputs))):  # what checkpoints hold has no history, so from the beginning
            return differentiate_backwards(self.again, tuple(inputs))[1](bar)
        steps, places, params = self._read(inputs[1:])
        floating = [params[k] for k in self._floating.places]
        edges = [*sorted(self.path.checkpoints), len(self.path.steps)]
        carry_bar = [zeros_like(x) for x in self.path.checkpoints[edges[-2]]]
        total: list[Any] = [None] * len(floating)
        by_step, by_place = [], []
        for first, last in reversed(list(itertools.pairwise(edges))):
            pull = self._recorded(first, last, steps, places, floating)
            carry_bar, (step_bar, place_bar), bars = pull(carry_bar, bar[self._rows[first] : self._rows[last]])
            by_step.append(step_bar)
            by_place.append(place_bar)
            total = _added(total, bars)
        _, pull_start = differentiate_backwards(
            lambda t, y, *p: tuple(self.kernels.start(t, y, *self._floating.filled(p))),
            (steps[0, 0], inputs[0], *floating),
        )
        t_bar, y_bar, *bars = pull_start(tuple(carry_bar))
        grid_bars = []
        if self.moving:
            at_start = F.concat([F.reshape(t_bar, (1,)), zeros_like(t_bar)[None]])
            of_steps = F.concat(by_step[::-1])
            grid_bars = [F.concat([of_steps[:1] + at_start, of_steps[1:]]), F.concat(by_place[::-1])]
        return [y_bar + bar[0], *grid_bars, *_added(total, bars)]

    def _recorded(self, first: int, last: int, steps: Any, places: Any, floating: Sequence[Any]) -> Callable[..., Any]:
        """The pullback of the steps between two checkpoints: cotangents of the carry after them and of the states in
        them give those of the carry before, of steps and places, and of the parameters."""
        carry = self.path.checkpoints[first]
        n, grid = len(carry), (steps[first:last], places[self._places[first] : self._places[last]])

        def run(*given: Any) -> Any:
            (steps, places), rest = (given[n : n + 2], given[n + 2 :]) if self.moving else (grid, given[n:])
            after, rows = self._between(first, last, given[:n], steps, places, self._floating.filled(rest))
            return after, F.concat(rows) if rows else None

        _, pull = differentiate_backwards(run, (*carry, *(grid if self.moving else ()), *floating))

        def pulled(carry_bar: Sequence[Any], bar: Any) -> tuple[list[Any], tuple[Any, Any], list[Any]]:
            found = pull((tuple(carry_bar), bar if len(bar) else None))
            grid_bars, bars = (found[n : n + 2], found[n + 2 :]) if self.moving else ((None, None), found[n:])
            return list(found[:n]), grid_bars, list(bars)

        return pulled


def _added(total: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    return [b if a is None else a + b for a, b in zip(total, more)]
