"""What is to be solved: the right-hand side as a function of vectors, the initial state, the times, the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert import functional as F
from wengert._core import Tensor
from wengert.dtypes import DType
from wengert.errors import ArgumentError, DTypeError, ShapeError, TraceError
from wengert.numerics.arguments import Arguments
from wengert.numerics.functions import Function, as_function, numbers_of
from wengert.numerics.vectors import Layout
from wengert.program.trace import tracing
from wengert.tensors.conversion import asarray


class Problem:
    """An initial value problem over vectors."""

    def __init__(self, f: Callable[..., Any], y0: Any, t: Any, args: tuple[Any, ...]) -> None:
        if not callable(f):
            raise ArgumentError(f"odeint: f must be a function f(t, y, *args), got {type(f).__name__}")
        self.layout = layout = Layout(y0, "odeint", "y0", complex_allowed=True)
        self.real = layout.real
        self.y = layout.vector()
        if tracing() is not None:
            raise TraceError(
                "odeint: chooses its steps by the numbers, so it cannot be traced by compile or vmap; call it outside (it "
                "compiles its own steps), and give it many states at once as one y0 with another axis"
            )
        self.times, self.numbers = _times(t, self.real)
        self.arguments = arguments = Arguments(args, self.real)

        def flow(t: Any, y: Any, *params: Any) -> Any:
            return layout.read(f(t, layout.tree(y), *arguments.filled(params)), "f")

        self._flow = flow
        self.function = self.traced(flow)
        self.params = [*arguments.tensors, *([] if self.function is None else self.function.captured)]
        if not np.isfinite(numbers_of(self.y).numpy()).all():
            raise ArgumentError("odeint: y0 holds NaN or infinity")

    @property
    def flow(self) -> Callable[..., Any]:
        """f(t, y, *params) of vectors; what it closes over is among the parameters if it could be traced."""
        return self._flow if self.function is None else self.function

    def traced(self, f: Callable[..., Any]) -> Function | None:
        """A function of time, state and arguments as instructions, if it can be."""
        return as_function(f, [self.times[0], self.y, *self.arguments.tensors])


def _times(t: Any, real: DType) -> tuple[Any, list[float]]:
    """The times as a tensor, differentiable, and as numbers."""
    if isinstance(t, (list, tuple)) and any(isinstance(x, Tensor) for x in t):
        t = F.stack([x if isinstance(x, Tensor) else asarray(float(x), dtype=real) for x in t])
    given = t if isinstance(t, Tensor) else asarray(np.asarray(t))
    if given.dtype.kind == "c":
        raise DTypeError(f"odeint: the times t must be real, got {given.dtype.name}{tuple(given.shape)}")
    if given.ndim != 1 or given.shape[0] < 2:
        raise ShapeError(
            f"odeint: t must hold at least two times, the first that of y0, got shape {tuple(given.shape)}"
        )
    numbers = np.asarray(numbers_of(given).numpy(), np.float64)
    steps = np.diff(numbers)
    if not np.isfinite(numbers).all():
        raise ArgumentError(f"odeint: t holds NaN or infinity, at index {int(np.argmin(np.isfinite(numbers)))}")
    wrong = np.flatnonzero(steps * steps[0] <= 0.0)
    if len(wrong):
        k = int(wrong[0])
        raise ArgumentError(
            f"odeint: the times t must rise or fall all the way, got t[{k}] = {numbers[k]:g} and then "
            f"t[{k + 1}] = {numbers[k + 1]:g}"
        )
    return given if given.dtype == real else F.astype(given, real), numbers.tolist()
