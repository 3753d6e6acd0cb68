"""The continuous adjoint: the derivative of the solution itself, by another differential equation, solved backwards.

With λ(t) the cotangent of the state, λ' = −(∂f/∂y)ᵀ λ, and parameters get ∫ (∂f/∂p)ᵀ λ dt (Pontryagin et al., 1962; Chen et
al., "Neural ordinary differential equations", 2018). Between two times the state is solved backwards along with λ, from
the state of the forward solution; at each time the cotangent of that state is added to λ. What is integrated for
parameters does not limit the steps (Kidger, Chen & Lyons, "Hey, that's not an ODE", 2021).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert import functional as F
from wengert.autograd.custom import custom_op
from wengert.numerics.functions import Cache, Function, as_function
from wengert.ode.stepping import Options
from wengert.tensors.creation import zeros, zeros_like
from wengert.transforms.functional import differentiate_backwards

_CACHE = Cache()  # of augmented systems

# (flow, initial state, times, their numbers, parameters, options) → rows of states, differentiable
Solve = Callable[[Function, Any, Any, list[float], Sequence[Any], Options], Any]


def adjoint_states(
    flow: Function,
    slope: Callable[..., Any],
    states: Any,
    y: Any,
    times: Any,
    numbers: Sequence[float],
    params: Sequence[Any],
    options: Options,
    solve: Solve,
) -> Any:
    """Rows of states as a function of the initial one, of their times and of the parameters, for reverse mode.

    `slope` is the flow, compiled.
    """
    pullback = _Pullback(flow, slope, numbers, params, options, solve)
    op = custom_op(lambda *inputs: states)
    op.defvjp(pullback)
    return op(y, times, *(params[k] for k in pullback.floating))


class _Pullback:
    """The rule of the operation: cotangents of rows of states to those of what they depend on."""

    def __init__(
        self,
        flow: Function,
        slope: Callable[..., Any],
        numbers: Sequence[float],
        params: Sequence[Any],
        options: Options,
        solve: Solve,
    ) -> None:
        self.flow, self.slope, self.solve = flow, slope, solve
        self.numbers, self.params = list(numbers), list(params)
        self.floating = [k for k, p in enumerate(params) if p.dtype.is_inexact]
        sizes = [math.prod(params[k].shape) for k in self.floating]
        self._ends = np.cumsum([0, *sizes]).tolist()
        n = len(options.atol)
        endless = np.full(self._ends[-1], math.inf)
        atol = np.concatenate([options.atol, options.atol, endless])
        self._options = dataclasses.replace(options, atol=atol, counted=2 * n)

    def __call__(self, bar: Any, states: Any, y: Any, times: Any, *floating: Any) -> list[Any]:
        params = self._filled(floating, self.params)
        augmented = self._augmented(states[0], times[0], params)
        n, last = int(states.shape[1]), len(self.numbers) - 1
        carried, totals = bar[last], zeros((self._ends[-1],), dtype=y.dtype)
        slopes = [self.slope(times[i], states[i], *params) for i in range(last + 1)]
        time_bars = [_inner(bar[i], slopes[i]) for i in range(last + 1)]
        for i in range(last, 0, -1):
            start = F.concat([states[i], carried, zeros_like(totals)])
            ends, span = [self.numbers[i], self.numbers[i - 1]], F.stack([times[i], times[i - 1]])
            after = self.solve(augmented, start, span, ends, params, self._options)[-1]
            carried, totals = after[n : 2 * n], totals + after[2 * n :]
            if i > 1:
                carried = carried + bar[i - 1]
        # The first state is what was given, at whatever time; moving that time moves the rest of the solution.
        time_bars[0] = -_inner(carried, slopes[0])
        return [carried + bar[0], F.stack(time_bars), *self._parted(totals)]

    def _filled(self, floating: Sequence[Any], params: Sequence[Any]) -> list[Any]:
        filled = list(params)
        for k, value in zip(self.floating, floating):
            filled[k] = value
        return filled

    def _parted(self, totals: Any) -> list[Any]:
        """What the parameters get, in their shapes and dtypes."""
        parts = []
        for p, start, end in zip((self.params[k] for k in self.floating), self._ends, self._ends[1:]):
            part = F.reshape(totals[start:end], tuple(p.shape))
            parts.append(F.astype(F.real(part) if p.dtype.kind == "f" and part.dtype.kind == "c" else part, p.dtype))
        return parts

    def _augmented(self, y: Any, t: Any, params: Sequence[Any]) -> Function:
        """State, cotangent, and what the parameters get, as one state."""
        n = int(y.shape[0])

        def slope(t: Any, z: Any, *params: Any) -> Any:
            chosen = tuple(params[k] for k in self.floating)
            f, pull = differentiate_backwards(lambda y, *p: self.flow(t, y, *self._filled(p, params)), (z[:n], *chosen))
            bars = pull(z[n : 2 * n])
            return F.concat([f, *(-F.astype(F.reshape(b, (-1,)), y.dtype) for b in bars)])

        example = zeros((2 * n + self._ends[-1],), dtype=y.dtype)
        found: Function = _CACHE.get(self.flow.key, lambda: as_function(slope, [t, example, *params]))
        return found


def _inner(a: Any, b: Any) -> Any:
    return F.sum(F.real(F.conj(a) * b)) if a.dtype.kind == "c" else F.sum(a * b)
