"""One step of each method, written in ops: what is compiled, differentiated and repeated is the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from wengert import functional as F
from wengert.errors import ArgumentError
from wengert.ode import rodas5p as rodas
from wengert.ode.tableaus import BOSH3, DOPRI5, HEUN, RK4, TSIT5, Row, Tableau
from wengert.tensors.arguments import native
from wengert.tensors.creation import eye, ones_like
from wengert.transforms.functional import jvp
from wengert.transforms.jacobian import jacfwd

_lu_factor, _lu_solve = native("lu_factor"), native("lu_solve")

Flow = Callable[[Any, Any], Any]  # f(t, y) of vectors
Carry = tuple[Any, ...]  # what one step hands to the next: y first


class Step(NamedTuple):
    """What a step makes. `dense(theta)` are the states at t + θh, one row for each θ."""

    carry: Carry
    error: Any
    dense: Callable[[Any], Any]


class RungeKutta:
    """An explicit method by its tableau."""

    implicit = False

    def __init__(self, name: str, tableau: Tableau) -> None:
        self.name, self.tableau = name, tableau
        self.order, self.error_order = tableau.order, tableau.error_order
        self.adaptive = tableau.error is not None
        self.n_carried = 2 if tableau.reuses_last else 1
        self.evaluations = tableau.evaluations

    def start(self, flow: Flow, t: Any, y: Any) -> Carry:
        """What the first step is given."""
        return (y, flow(t, y)) if self.tableau.reuses_last else (y,)

    def step(self, flow: Flow, t: Any, h: Any, carry: Carry) -> Step:
        """One step of length h."""
        tableau, y = self.tableau, carry[0]
        k = [carry[1] if tableau.reuses_last else flow(t, y)]
        moved = y
        for c, row in zip(tableau.c, tableau.a):
            moved = y + h * _weighted(row, k)
            k.append(flow(t + h * c, moved))
        # The last stage of a method that reuses it was evaluated at the new state itself.
        new = moved if tableau.reuses_last else y + h * _weighted(tableau.b, k)
        error = new * 0.0 if tableau.error is None else h * _weighted(tableau.error, k)

        def dense(theta: Any) -> Any:
            if tableau.dense is not None:
                columns = [_weighted(column, k) for column in zip(*tableau.dense)]
            else:  # the cubic through both ends with the slopes there
                last, chord = flow(t + h, new), (new - y) / h
                columns = [k[0], 3.0 * chord - 2.0 * k[0] - last, k[0] + last - 2.0 * chord]
            x = F.reshape(theta, (-1, 1))
            value = columns[-1]
            for column in reversed(columns[:-1]):
                value = column + x * value
            return y + h * x * value

        return Step((new, k[-1]) if tableau.reuses_last else (new,), error, dense)


class Rosenbrock:
    """Rodas5P: an L-stable method that solves linear systems with I/(hγ) − ∂f/∂y, and no nonlinear ones."""

    implicit, adaptive = True, True
    name, order, error_order, n_carried = "rodas5p", 5, 4, 1
    evaluations = len(rodas.A) + 1

    def start(self, flow: Flow, t: Any, y: Any) -> Carry:
        """What the first step is given."""
        return (y,)

    def step(self, flow: Flow, t: Any, h: Any, carry: Carry) -> Step:
        """One step of length h."""
        (y,) = carry
        by_state = jacfwd(lambda y: flow(t, y))(y)
        _, by_time = jvp(lambda t: flow(t, y), (t,), (ones_like(t),))
        matrix = eye(y.shape[0], dtype=y.dtype) / (h * rodas.GAMMA) - by_state
        factors, pivots = _lu_factor(matrix)
        k: list[Any] = []
        moved = y
        for i in range(len(rodas.A) + 1):
            if i > 5:  # the last stages start where the one before ended: the method is stiffly accurate
                moved = moved + k[-1]
            elif i:
                moved = y + _weighted(rodas.A[i - 1], k)
            right = flow(t + h * rodas.TIMES[i], moved)
            if i:
                right = right + _weighted(rodas.C[i - 1], k) / h
            if rodas.BY_TIME[i]:
                right = right + h * rodas.BY_TIME[i] * by_time
            column = _lu_solve(factors, pivots, matrix, F.reshape(right, (-1, 1)), 0)
            k.append(F.reshape(column, (-1,)))
        new = moved + k[-1]

        def dense(theta: Any) -> Any:
            x = F.reshape(theta, (-1, 1))
            first, second, third = (_weighted(row, k) for row in rodas.DENSE)
            return y + x * (new - y + (1.0 - x) * (first + x * (second + x * third)))

        return Step((new,), k[-1], dense)


def _weighted(weights: Row, k: Sequence[Any]) -> Any:
    """Σ wᵢ kᵢ, without the zeros."""
    total: Any = None
    for w, x in zip(weights, k):
        if w:
            total = x * w if total is None else total + x * w
    return k[0] * 0.0 if total is None else total


Method = RungeKutta | Rosenbrock
METHODS: dict[str, Method] = {
    "dopri5": RungeKutta("dopri5", DOPRI5),
    "tsit5": RungeKutta("tsit5", TSIT5),
    "bosh3": RungeKutta("bosh3", BOSH3),
    "heun": RungeKutta("heun", HEUN),
    "rk4": RungeKutta("rk4", RK4),
    "rodas5p": Rosenbrock(),
}
STIFF = "rodas5p"


def method_named(name: Any) -> Method:
    """The method of this name, in any case of letters."""
    found = METHODS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(METHODS)
        raise ArgumentError(
            f"odeint: method {name!r} is unknown; there are {known} ({STIFF} is the one for stiff systems)"
        )
    return found
