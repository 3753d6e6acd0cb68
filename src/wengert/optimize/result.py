"""What a solver returns."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, fields
from typing import Any

CONVERGED, OUT_OF_ITERATIONS, STALLED, NOT_A_NUMBER, STOPPED = range(5)


@dataclass(slots=True, repr=False)
class OptimizeResult:
    """What a solver found, with SciPy's names. `x` is differentiable with respect to the arguments of the function.

    `fun` is the value there, or the residuals; `jac` the gradient, or the Jacobian of the residuals. `status` is 0 if the
    solver converged, 1 if it ran out of iterations, 2 if no step helped any more, 3 if the function gave NaN, 4 if the
    callback asked to stop. `nit` counts iterations, `nfev` values and `njev` derivatives of the function.

    >>> OptimizeResult(x=1.0, fun=0.0, success=True, status=0, message="the gradient is small", nit=3, nfev=4)
     message: the gradient is small
     success: True
      status: 0
           x: 1.0
         fun: 0.0
         nit: 3
        nfev: 4
    """

    x: Any
    fun: Any = None
    jac: Any = None
    success: bool = False
    status: int = CONVERGED
    message: str = ""
    nit: int | None = None
    nfev: int | None = None
    njev: int | None = None
    cost: Any = None
    optimality: float | None = None

    def __repr__(self) -> str:
        first = ("message", "success", "status")
        names = [*first, *(f.name for f in fields(self) if f.name not in first)]
        shown = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        width = max(map(len, shown)) + 1
        lines = []
        for name, value in shown.items():
            text = textwrap.indent(str(value) if isinstance(value, str) else repr(value), " " * (width + 2))
            lines.append(f"{name:>{width}}: {text.lstrip()}")
        return "\n".join(lines)
