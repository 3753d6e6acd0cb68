"""The public function: reading what it is given, solving, and putting derivatives in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert import functional as F
from wengert.compiling.compile import compile
from wengert.dtypes import float64
from wengert.errors import ArgumentError, TraceError
from wengert.modes import no_grad
from wengert.numerics.functions import Cache, Function, is_differentiated, numbers_of
from wengert.ode.adjoint import adjoint_states
from wengert.ode.events import Crossing, Detector, Event, as_events, differentiable_crossing, scalar
from wengert.ode.kernels import compiled_kernels, plain_kernels, recorded_kernels
from wengert.ode.methods import Method, method_named
from wengert.ode.problem import Problem
from wengert.ode.replay import Replay, grid_of
from wengert.ode.solution import EventPoint, Solution
from wengert.ode.stepping import Options, Path, Stepper
from wengert.tensors.conversion import asarray

_CACHE = Cache()  # of compiled functions of events
_TOLERANCES = {"float64": (1e-6, 1e-9), "float32": (1e-4, 1e-6)}  # rtol and atol where none are given


def odeint(
    f: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    method: str = "dopri5",
    rtol: float | None = None,
    atol: Any = None,
    max_steps: int = 100_000,
    step_size: float | None = None,
    gradient: str = "discrete",
    checkpoints: int | None = None,
    events: Any = None,
) -> Solution:
    """Solve dy/dt = f(t, y, *args) from y(t[0]) = y0, and return the states at the times t.

    - `f`: a pure function of the time, the state and the arguments. It is traced and compiled, unless it branches on
      numbers.
    - `y0`: a tensor, a number, a list of numbers, or nested containers of them; f receives and returns the same
      structure.
    - `t`: times, increasing or decreasing.
    - `method`: "dopri5", "tsit5", "bosh3" and "heun" are explicit and adaptive; "rk4" takes steps of the length
      `step_size` (by default one from each time to the next); "rodas5p" is for stiff systems.
    - `rtol`, `atol`: the error of a step is held below atol + rtol·|y|; `atol` may be a tree like y0.
    - `gradient`: "discrete" differentiates the computed steps, in reverse mode from `checkpoints` (√n of them by
      default) of the forward solution; "continuous" solves the adjoint equation backwards.
    - `events`: functions g(t, y, *args), or `Event`s of them, whose zeros are located; by default the first one ends
      the solution.

    The result has the times `t`, the states `y` and `stats`. States are differentiable with respect to y0, t, args
    and what f uses from outside. `docs/ode.md` has the details.

    >>> import wengert as wg
    >>> pendulum = lambda t, y, g: [y[1], -g * wg.sin(y[0])]
    >>> solution = odeint(pendulum, [1.0, 0.0], [0.0, 1.0, 2.0], 9.81)
    >>> solution.y[:, 0].round(decimals=3).tolist()
    [1.0, -0.98, 0.921]
    >>> slope = wg.grad(lambda g: odeint(pendulum, [1.0, 0.0], [0.0, 1.0], g).y[-1, 0])
    >>> round(slope(wg.tensor(9.81, dtype=wg.float64)).item(), 3)
    -0.029
    """
    chosen = method_named(method)
    problem = Problem(f, y0, t, args)
    options = _options(problem, chosen, rtol, atol, max_steps, step_size, checkpoints)
    if gradient not in ("discrete", "continuous"):
        raise ArgumentError(f"odeint: gradient must be 'discrete' or 'continuous', got {gradient!r}")
    if gradient == "continuous" and problem.function is None:
        raise TraceError(
            "odeint: gradient='continuous' needs an f that can be traced, and this one branches on numbers, draws random "
            "ones or changes something; gradient='discrete' takes it as it is"
        )
    return _solved(problem, chosen, options, gradient, as_events(events))


def _options(
    problem: Problem,
    method: Method,
    rtol: float | None,
    atol: Any,
    max_steps: Any,
    step_size: Any,
    checkpoints: Any,
) -> Options:
    default = _TOLERANCES[problem.real.name]
    relative = default[0] if rtol is None else float(rtol)
    absolute = problem.layout.filled(default[1] if atol is None else atol, "atol")
    if not relative > 0.0:
        raise ArgumentError(f"odeint: rtol must be positive, got {relative:g}")
    if not (absolute > 0.0).all():
        raise ArgumentError(f"odeint: atol must be positive, got {float(absolute.min()):g}")
    for name, count in (("max_steps", max_steps), ("checkpoints", checkpoints)):
        if count is not None and not (isinstance(count, int) and count >= 1):
            raise ArgumentError(f"odeint: {name} must be an integer of at least 1, got {count!r}")
    if step_size is not None and not (math.isfinite(step_size) and step_size != 0.0):
        raise ArgumentError(f"odeint: step_size must be a finite number other than 0, got {step_size!r}")
    return Options(absolute, relative, problem.layout.size, max_steps, step_size, checkpoints)


def _solved(problem: Problem, method: Method, options: Options, gradient: str, events: Sequence[Event]) -> Solution:
    detector = None if not events else Detector(events, _values(problem, events))
    if problem.function is not None:
        given = (problem.y, problem.times, problem.numbers, problem.params)
        path, states = _differentiable(problem.function, *given, method, options, gradient, detector)
        return _assembled(problem, path, states, events)
    with no_grad():
        y, params = numbers_of(problem.y), [numbers_of(p) for p in problem.params]
        forward = plain_kernels(method, problem.flow)
        path = Stepper(forward, y, problem.numbers, params, problem.real, options, detector).run()
    states, again = path.states, recorded_kernels(method, problem.flow)
    given = (problem.y, problem.times, *problem.params)
    if any(map(is_differentiated, (*given, again.slope(problem.times[0], problem.y, *problem.params)))):
        grid = grid_of(path, problem.times, method.adaptive)
        replay = Replay(path, again, grid, is_differentiated(problem.times), problem.params)
        states = replay.again(*replay.inputs(problem.y))
    return _assembled(problem, path, states, events)


def _differentiable(
    flow: Function,
    y: Any,
    times: Any,
    numbers: list[float],
    params: Sequence[Any],
    method: Method,
    options: Options,
    gradient: str,
    detector: Detector | None = None,
) -> tuple[Path, Any]:
    """The forward solution, and its states as a function of all that they depend on."""
    kernels = compiled_kernels(method, flow)
    with no_grad():
        plain = [numbers_of(p) for p in params]
        path = Stepper(kernels, numbers_of(y), numbers, plain, times.dtype, options, detector).run()
    given = (y, times, *params)
    if not any(map(is_differentiated, given)):
        return path, path.states
    if gradient == "discrete" or not all(x._plain for x in given):  # forward mode goes along the steps
        grid = grid_of(path, times, method.adaptive)
        return path, Replay(path, kernels, grid, is_differentiated(times), params).states(y)
    events = asarray(np.array(path.times[path.n_reached :], times.dtype.to_numpy()))
    row_times = F.concat([times[: path.n_reached], events])[asarray(np.array(path.rows))]

    def solve(flow: Function, y: Any, times: Any, numbers: list[float], params: Sequence[Any], options: Options) -> Any:
        return _differentiable(flow, y, times, numbers, params, method, options, gradient)[1]

    row_numbers = [path.times[k] for k in path.rows]
    return path, adjoint_states(flow, kernels.slope, path.states, y, row_times, row_numbers, params, options, solve)


def _values(problem: Problem, events: Sequence[Event]) -> Callable[[Any, Any], Any]:
    """All events at once, of time and state: a vector."""
    layout, arguments = problem.layout, problem.arguments

    def flat(t: Any, y: Any, *tensors: Any) -> Any:
        state, args = layout.tree(y), arguments.filled(tensors)
        return F.stack([F.astype(scalar(e.g(t, state, *args), k), float64) for k, e in enumerate(events)])

    function = problem.traced(flat)
    if function is None:
        return lambda t, y: flat(t, y, *arguments.tensors)
    params = [numbers_of(p) for p in (*arguments.tensors, *function.captured)]
    compiled = _CACHE.get(function.key, lambda: compile(function.bare()))
    return lambda t, y: compiled(t, y, *params)


def _assembled(problem: Problem, path: Path, states: Any, events: Sequence[Event]) -> Solution:
    layout, reached = problem.layout, path.n_reached
    if not path.crossings:
        return Solution(problem.times, layout.tree(states), path.statistics, None, [])
    order = np.argsort(path.rows, kind="stable")
    outputs, others = states[asarray(order[:reached])], order[reached:]
    points = [
        _point(problem, events[crossing.index], crossing, states[row])
        for crossing, row in zip(path.crossings, others.tolist())
    ]
    ended = points[-1] if events[points[-1].index].terminal else None
    return Solution(problem.times[:reached], layout.tree(outputs), path.statistics, ended, points)


def _point(problem: Problem, event: Event, crossing: Crossing, y: Any) -> EventPoint:
    """An event with derivatives, where there are any to be had."""
    layout, args = problem.layout, problem.arguments.filled(problem.arguments.tensors)
    t = asarray(crossing.t, dtype=problem.real)

    def g(t: Any, y: Any) -> Any:
        return scalar(event.g(t, layout.tree(y), *args), crossing.index)

    if is_differentiated(y) or is_differentiated(g(t, y)):
        t, y = differentiable_crossing(g, lambda t, y: problem.flow(t, y, *problem.params), t, y)
    return EventPoint(crossing.index, t, layout.tree(y))
