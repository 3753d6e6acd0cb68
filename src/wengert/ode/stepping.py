"""The forward solution: steps whose length the error decides, states at the times that were asked for, events on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from wengert import _core
from wengert import functional as F
from wengert.dtypes import DType
from wengert.errors import ArgumentError, LinAlgError, SolverError
from wengert.numerics.scalars import number, vector
from wengert.ode.control import Controller, first_step
from wengert.ode.events import Crossing, Detector
from wengert.ode.kernels import Kernels, Tolerances
from wengert.ode.methods import STIFF, Carry
from wengert.ode.solution import Statistics


@dataclass(slots=True)
class Options:
    """How to solve, as numbers."""

    atol: Any  # an array like the state
    rtol: float
    counted: int  # how many numbers of the state the error counts: all, or the first ones, where atol is finite
    max_steps: int
    step_size: float | None
    checkpoints: int | None


@dataclass(slots=True)
class Taken:
    """One accepted step, and which of the times lie inside of it or at its end."""

    t: float
    h: float
    inside: list[int]
    end: int | None
    part: tuple[int, int, int] = (
        0,
        0,
        1,
    )  # of equal ones: in which interval of the times it lies, its number, how many


class Checkpoints:
    """Carries at equal distances, few enough: about √n of n steps, or at most a given number. While steps are added, the
    distance doubles, and every other one is forgotten."""

    def __init__(self, most: int | None) -> None:
        self._most, self._stride = most, 1
        self.kept: dict[int, Carry] = {}

    def offer(self, step: int, carry: Carry) -> None:
        """The carry before a step."""
        if step % self._stride:
            return
        self.kept[step] = carry
        while len(self.kept) > (2 * self._stride if self._most is None else self._most):
            self._stride *= 2
            self.kept = {k: c for k, c in self.kept.items() if k % self._stride == 0}


@dataclass(slots=True)
class Path:
    """What the forward solution leaves: steps, states in the order of time, and where it can be taken up again."""

    times: list[float]  # those that were asked for and reached, then those of events
    n_reached: int
    steps: list[Taken]
    rows: list[int]  # which of the times each row of `states` is of
    states: Any  # (rows, numbers)
    checkpoints: dict[int, Carry]
    crossings: list[Crossing]
    statistics: Statistics


class Stepper:
    """One forward solution in the making."""

    def __init__(
        self,
        kernels: Kernels,
        y: Any,
        times: Sequence[float],
        params: Sequence[Any],
        real: DType,
        options: Options,
        detector: Detector | None,
    ) -> None:
        self.kernels, self.params, self.options, self.detector = kernels, list(params), options, detector
        self.method = kernels.method
        self.times, self.real = list(times), real
        self.resolution = 4.0 * float(np.finfo(real.to_numpy()).eps)
        self.sign = 1.0 if times[-1] > times[0] else -1.0
        atol = np.asarray(options.atol, real.to_numpy())
        self.tolerances = Tolerances(
            _array(atol if atol.ndim == 0 or np.ptp(atol) else atol[0], real),
            _array(options.rtol, real),
            _array(1.0 / options.counted, real),
        )
        self.y = y
        self.steps: list[Taken] = []
        self.checkpoints = Checkpoints(options.checkpoints)
        self.rows, self.states = [0], [F.reshape(y, (1, -1))]
        self.crossings: list[Crossing] = []
        self.statistics = Statistics()

    # ------------------------------------------------------------------------------------------------- the loop

    def run(self) -> Path:
        """Solve from the first time to the last, or to an event that ends it."""
        t = self.times[0]
        first = self._slope(t, self.y)
        if not np.isfinite(first).all():
            self._refuse_numbers(t)
        carry = tuple(self.kernels.start(self._time(t), self.y, *self.params))
        self.statistics.evaluations += self.method.n_carried - 1
        if self.detector is not None:
            self.detector.begin(self._time(t), self.y)
        reached = self._adaptive(t, carry) if self.method.adaptive else self._fixed(carry)
        states = F.concat(self.states)
        times = [*self.times[:reached], *(c.t for c in self.crossings)]
        for step in self.steps:
            step.inside = self._renumbered(step.inside, reached)
        rows, kept = self._renumbered(self.rows, reached), self.checkpoints.kept
        return Path(times, reached, self.steps, rows, states, kept, self.crossings, self.statistics)

    def _renumbered(self, indices: Sequence[int], reached: int) -> list[int]:
        """Events have been numbered after all times; now only those that were reached count."""
        return [k if k < len(self.times) else k - len(self.times) + reached for k in indices]

    def _adaptive(self, t: float, carry: Carry) -> int:
        """Returns how many of the times were reached."""
        controller, h, last = Controller(self.method.error_order), self._first_step(t), self.times[-1]
        position, error = 1, 1.0
        while position < len(self.times):
            self._require_progress(t, h, error)
            # Rather one step that is a little longer than a tiny one at the end.
            ends = (last - t - 1.01 * h) * self.sign <= 0.0 if error <= 1.0 else (last - t - h) * self.sign <= 0.0
            h = last - t if ends else h
            after = last if ends else t + h
            end = position
            while end < len(self.times) and (self.times[end] - after) * self.sign < 0.0:
                end += 1
            inside = list(range(position, end))
            new, error, states = self._attempt(t, h, inside, carry)
            if not error <= 1.0:
                self.statistics.rejected += 1
                h *= controller.rejected(error)
                continue
            step = Taken(t, h, inside, len(self.times) - 1 if ends else None)
            if self._accept(step, carry, new, states, after):
                return sum((x - self.crossings[-1].t) * self.sign <= 0.0 for x in self.times)
            carry, t, position = new, after, end + ends
            h *= controller.accepted(error)
        return len(self.times)

    def _fixed(self, carry: Carry) -> int:
        for position in range(1, len(self.times)):
            start, end = self.times[position - 1], self.times[position]
            size = self.options.step_size
            count = 1 if size is None else max(1, math.ceil(abs(end - start) / abs(size) - 1e-9))
            for k in range(count):
                self._require_steps_left(start)
                t, after = start + (end - start) * k / count, start + (end - start) * (k + 1) / count
                h = (end - start) / count
                new, error, _ = self._attempt(t, h, [], carry)
                if error != 0.0:
                    self._refuse_numbers(t)
                step = Taken(t, h, [], position if k == count - 1 else None, (position - 1, k, count))
                if self._accept(step, carry, new, None, after):
                    return sum((x - self.crossings[-1].t) * self.sign <= 0.0 for x in self.times)
                carry = new
        return len(self.times)

    def _attempt(self, t: float, h: float, inside: Sequence[int], carry: Carry) -> tuple[Carry, float, Any]:
        theta = None if not inside else vector([(self.times[k] - t) / h for k in inside], self.real)
        self.statistics.evaluations += self.method.evaluations
        self.statistics.jacobians += self.method.implicit
        try:
            new, error, states = self.kernels.attempt(
                vector((t, h), self.real), theta, carry, self.params, self.tolerances
            )
        except LinAlgError:  # a singular matrix: another step has another one
            return carry, math.inf, None
        return new, error.item(), states

    def _accept(self, step: Taken, before: Carry, after: Carry, states: Any, time: float) -> bool:
        """Take a step; whether an event ends the solution in it."""
        self.checkpoints.offer(len(self.steps), before)
        found, ended = self._crossings(step, before, after, time)
        if found:
            n = len(self.times)
            if ended:
                step.end = None
                step.inside = [k for k in step.inside if (self.times[k] - found[-1].t) * self.sign <= 0.0]
            events = range(n + len(self.crossings), n + len(self.crossings) + len(found))
            self.crossings.extend(found)
            places = [(self.times[k] - step.t) / step.h for k in step.inside]
            places += [(c.t - step.t) / step.h for c in found]
            step.inside = [*step.inside, *events]
            states = self._inside(step, before, places)
        if states is not None:
            self.rows.extend(step.inside)
            self.states.append(states)
        if step.end is not None:
            self.rows.append(step.end)
            self.states.append(F.reshape(after[0], (1, -1)))
        self.steps.append(step)
        self.statistics.steps += 1
        return ended

    def _inside(self, step: Taken, carry: Carry, places: Sequence[float]) -> Any:
        th, theta = vector((step.t, step.h), self.real), vector(places, self.real)
        self.statistics.evaluations += self.method.evaluations
        return self.kernels.attempt(th, theta, carry, self.params, self.tolerances)[2]

    def _crossings(self, step: Taken, before: Carry, after: Carry, time: float) -> tuple[list[Crossing], bool]:
        if self.detector is None:
            return [], False

        def state(theta: float) -> tuple[Any, Any]:
            return self._time(step.t + theta * step.h), self._inside(step, before, [theta])[0]

        return self.detector.found(step.t, step.h, state, (self._time(time), after[0]))

    # ---------------------------------------------------------------------------------------------------- numbers

    def _time(self, t: float) -> Any:
        return number(t, self.real)

    def _slope(self, t: float, y: Any) -> Any:
        self.statistics.evaluations += 1
        given = (
            y if isinstance(y, _core.Tensor) else _core.from_buffer(np.ascontiguousarray(y), self.y.dtype.code, True)
        )
        return np.array(self.kernels.slope(self._time(t), given, *self.params).detach().numpy())

    def _first_step(self, t: float) -> float:
        if self.options.step_size is not None:
            return math.copysign(min(abs(self.options.step_size), abs(self.times[-1] - t)), self.sign)
        y = np.array(self.y.numpy())
        order, atol = self.method.error_order, self.options.atol
        return first_step(self._slope, t, y, self.times[-1], order, atol, self.options.rtol)

    # ----------------------------------------------------------------------------------------------------- errors

    def _require_steps_left(self, t: float) -> None:
        used, most = self.statistics.steps + self.statistics.rejected, self.options.max_steps
        if used < most:
            return
        stiff = "" if self.method.implicit else f"If the system is stiff, method={STIFF!r} needs far fewer; else "
        raise SolverError(
            f"odeint: max_steps={most} steps of {self.method.name} were used up at t = {t:.6g}, on the way from "
            f"{self.times[0]:.6g} to {self.times[-1]:.6g}. {stiff}raise max_steps or loosen the tolerances"
        )

    def _require_progress(self, t: float, h: float, error: float) -> None:
        self._require_steps_left(t)
        if abs(h) > self.resolution * max(abs(t), 1e-300):
            return
        if not math.isfinite(error):
            self._refuse_numbers(t)
        cause = (
            "the solution may have a singularity there"
            if self.method.implicit
            else f"the system may be stiff, for which there is method={STIFF!r}, or have a singularity there"
        )
        raise SolverError(
            f"odeint: the step has shrunk to {abs(h):.3g} at t = {t:.6g}, below the resolution of {self.real.name}: "
            f"{cause}; or the tolerances are too small for the dtype"
        )

    def _refuse_numbers(self, t: float) -> NoReturn:
        raise ArgumentError(
            f"odeint: f gave NaN or infinity at t = {t:.6g}, or just after; the state there, or the parameters, are "
            "outside of what f can take"
        )


def _array(value: Any, dtype: DType) -> Any:
    a = np.array(value, dtype.to_numpy())
    made = _core.from_buffer(a.reshape(-1), dtype.code, True)
    return made if a.ndim else F.reshape(made, ())
