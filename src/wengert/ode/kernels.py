"""The inner work of a solver as compiled functions, one native call each: a step with its error, the same with states
inside of it, and both without the error, for when the steps are repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from wengert import functional as F
from wengert.compiling.compile import compile
from wengert.numerics.functions import Cache, Function, numbers_of
from wengert.ode.methods import Carry, Method

_CACHE = Cache()


class Tolerances(NamedTuple):
    """Of the error of a step: |error| ≤ atol + rtol · max(|y|, |y₁|), root mean square. `share` is 1 / (numbers that
    count)."""

    atol: Any
    rtol: Any
    share: Any


class Kernels:
    """Functions of plain tensors. `th` holds t and h; carries and parameters follow one by one."""

    def __init__(self, method: Method, flow: Callable[..., Any], wrap: Callable[[Any], Any]) -> None:
        """`flow(t, y, *params)`: the right-hand side, of vectors. `wrap` is what is made of each function."""
        self.method = method
        n = method.n_carried

        def stepped(th: Any, rest: Sequence[Any]) -> Any:
            carry, params = rest[:n], rest[n:]
            return method.step(lambda t, y: flow(t, y, *params), th[0], th[1], tuple(carry))

        def attempt(th: Any, atol: Any, rtol: Any, share: Any, *rest: Any) -> Any:
            made = stepped(th, rest)
            return (*made.carry, _norm(made, rest[0], atol, rtol, share))

        def attempt_inside(th: Any, theta: Any, atol: Any, rtol: Any, share: Any, *rest: Any) -> Any:
            made = stepped(th, rest)
            return (*made.carry, _norm(made, rest[0], atol, rtol, share), made.dense(theta))

        def advance(th: Any, *rest: Any) -> Any:
            return stepped(th, rest).carry

        def advance_inside(th: Any, theta: Any, *rest: Any) -> Any:
            made = stepped(th, rest)
            return (*made.carry, made.dense(theta))

        def start(t: Any, y: Any, *params: Any) -> Any:
            return method.start(lambda t, y: flow(t, y, *params), t, y)

        self.slope = wrap(lambda t, y, *params: flow(t, y, *params))
        self.start = wrap(start)
        self._attempt, self._attempt_inside = wrap(attempt), wrap(attempt_inside)
        self._advance, self._advance_inside = wrap(advance), wrap(advance_inside)

    def attempt(self, th: Any, theta: Any, carry: Carry, params: Sequence[Any], tolerances: Tolerances) -> Any:
        """(the next carry, the norm of the error, the states at the places `theta`, or None of none)."""
        rest = (*carry, *params)
        if theta is None:
            *new, error = self._attempt(th, *tolerances, *rest)
            return tuple(new), error, None
        *new, error, inside = self._attempt_inside(th, theta, *tolerances, *rest)
        return tuple(new), error, inside

    def advance(self, th: Any, theta: Any, carry: Carry, params: Sequence[Any]) -> Any:
        """(the next carry, the states at the places `theta`, or None of none); differentiable by everything."""
        rest = (*carry, *params)
        if theta is None:
            return tuple(self._advance(th, *rest)), None
        *new, inside = self._advance_inside(th, theta, *rest)
        return tuple(new), inside


def _norm(made: Any, y: Any, atol: Any, rtol: Any, share: Any) -> Any:
    allowed = atol + rtol * F.maximum(F.abs(y), F.abs(made.carry[0]))
    ratio = F.abs(made.error) / allowed
    return F.sqrt(F.sum(ratio * ratio) * share)


def compiled_kernels(method: Method, flow: Function) -> Kernels:
    """Compiled ones, shared with every other function that has the same instructions."""
    found: Kernels = _CACHE.get((method.name, flow.key), lambda: Kernels(method, flow.bare(), compile))
    return found


def plain_kernels(method: Method, flow: Callable[..., Any]) -> Kernels:
    """Of a function that cannot be traced, with results that are numbers alone, whatever the function closes over."""

    def stripped(f: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            made = f(*args)
            return tuple(map(numbers_of, made)) if isinstance(made, tuple) else numbers_of(made)

        return run

    return Kernels(method, flow, stripped)


def recorded_kernels(method: Method, flow: Callable[..., Any]) -> Kernels:
    """Of a function that cannot be traced: op by op."""
    return Kernels(method, flow, lambda f: f)
