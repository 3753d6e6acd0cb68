"""Jacobians of compiled functions of vectors, some columns in one native call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wengert import functional as F
from wengert.autograd.creation import eye
from wengert.autograd.modes import enable_grad
from wengert.transforms.functional import jvp

_AT_ONCE = 8  # columns in one call: a program grows with them


class Jacobian:
    """∂f/∂x of f(x, *rest), of vectors; differentiable by everything. `wrap` compiles a function, or leaves it."""

    def __init__(self, f: Callable[..., Any], wrap: Callable[[Any], Any]) -> None:
        def columns(units: Any, x: Any, *rest: Any) -> Any:
            directions = [units[k] for k in range(int(units.shape[0]))]
            with enable_grad():  # f may be a gradient: under no_grad it would come without tangents
                return F.stack([jvp(lambda x: f(x, *rest), (x,), (e,))[1] for e in directions], axis=1)

        self._columns = wrap(columns)
        self._units: list[Any] = []

    def __call__(self, x: Any, *rest: Any) -> Any:
        n = int(x.shape[0])
        if not self._units or self._units[0].dtype != x.dtype:
            identity = eye(n, dtype=x.dtype)
            self._units = [identity[k : k + _AT_ONCE] for k in range(0, n, _AT_ONCE)]
        parts = [self._columns(units, x, *rest) for units in self._units]
        return parts[0] if len(parts) == 1 else F.concat(parts, axis=1)
