"""L-BFGS."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.dtypes import float64
from wengert.errors import ArgumentError, GradientError
from wengert.modes import enable_grad, no_grad
from wengert.optim.curvature import joined, parted
from wengert.optim.line_search import Point, strong_wolfe
from wengert.optim.optimizer import Optimizer, Options
from wengert.tensors.conversion import asarray, tensor
from wengert.tensors.creation import zeros, zeros_like
from wengert.tree import flatten, unflatten

CURVATURE_FLOOR = 1e-10  # pairs with less than this yᵀs would make the approximation indefinite


@dataclass(frozen=True, slots=True)
class LBFGSConfig:
    """Options of LBFGS.

    >>> LBFGSConfig(history_size=10).max_iter
    20
    """

    lr: float = 1.0
    max_iter: int = 20
    max_eval: int | None = None
    tolerance_grad: float = 1e-7
    tolerance_change: float = 1e-9
    history_size: int = 100
    line_search_fn: str | None = None


def _dot(a: Any, b: Any) -> Any:
    return F.sum(a * b)


def _remember(steps: list[Any], changes: list[Any], s: Any, y: Any, size: int) -> tuple[list[Any], list[Any]]:
    """The history with one more pair, if it has enough curvature, and at most `size` of them."""
    if not bool(_dot(y, s) > CURVATURE_FLOOR):
        return steps, changes
    return [*steps, s][-size:], [*changes, y][-size:]


def _direction(gradient: Any, steps: Sequence[Any], changes: Sequence[Any]) -> Any:
    """−H g, with H the inverse Hessian that the history gives (Nocedal & Wright, 2006, algorithm 7.4)."""
    q, weights = -gradient, []
    for s, y in zip(reversed(steps), reversed(changes)):
        weights.append(_dot(s, q) / _dot(y, s))
        q = q - y * weights[-1]
    if steps:
        q = q * (_dot(changes[-1], steps[-1]) / _dot(changes[-1], changes[-1]))
    for s, y, w in zip(steps, changes, reversed(weights)):
        q = q + s * (w - _dot(y, q) / _dot(y, s))
    return q


class LBFGS(Optimizer):
    """A quasi-Newton method that remembers the last steps and changes of the gradient (Liu & Nocedal, 1989).

    `step(closure)` makes up to `max_iter` iterations; the closure clears the gradients, computes the loss, calls backward
    and returns the loss. `line_search_fn="strong_wolfe"` chooses the length of every step; without it the length is `lr`.

    >>> import wengert as wg
    >>> p = wg.Parameter([3.0, -2.0])
    >>> opt = LBFGS([p], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     opt.zero_grad()
    ...     loss = ((p - 1.0) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> opt.step(closure).item()
    13.0
    >>> p.tolist()
    [1.000000..., 1.000000...]
    """

    Config = LBFGSConfig

    def __init__(self, params: Any = None, *values: Any, **options: Any) -> None:
        super().__init__(params, *values, **options)
        self._memory: dict[str, Any] = {"iterations": 0, "steps": [], "changes": []}

    @classmethod
    def check(cls, options: Options) -> None:
        """Raise if an option makes no sense."""
        super().check(options)
        if options["history_size"] < 1 or options["max_iter"] < 1:
            raise ArgumentError("LBFGS: history_size and max_iter must be at least 1")
        if options["line_search_fn"] not in (None, "strong_wolfe"):
            raise ArgumentError(
                f"LBFGS: line_search_fn must be None or 'strong_wolfe', got {options['line_search_fn']!r}"
            )

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """The only group: the Hessian has no parts."""
        if self.param_groups:
            raise ArgumentError("LBFGS: takes one group of parameters")
        super().add_param_group(group)

    # -------------------------------------------------------------------------------------------------- steps

    def step(self, closure: Any = None) -> Tensor:
        """Several iterations; returns the closure's first loss."""
        if not callable(closure):
            raise ArgumentError(
                "LBFGS.step: takes a function that clears gradients, computes the loss, calls backward and returns the loss"
            )
        options = self.param_groups[0]
        most = options["max_eval"] or options["max_iter"] * 5 // 4
        first, here = self._evaluate(closure, 0.0, None)
        used = 1
        if _largest(here.gradient) <= options["tolerance_grad"]:
            return first
        for k in range(options["max_iter"]):
            before = here
            d, t = self._next_direction(here.gradient, float(options["lr"]))
            with no_grad():
                slope = float(_dot(here.gradient, d))
            if slope > -options["tolerance_change"]:
                break
            here, n = self._move(
                closure, here._replace(t=0.0, slope=slope), d, t, most - used, k + 1 == options["max_iter"]
            )
            used += n
            self._memory["move"] = d * here.t
            moved = _largest(d) * abs(here.t)
            if (
                used >= most
                or _largest(here.gradient) <= options["tolerance_grad"]
                or moved <= options["tolerance_change"]
                or abs(here.value - before.value) < options["tolerance_change"]
            ):
                break
        return first

    def apply_gradients(self, pairs: Any) -> None:
        """Not available: this optimizer evaluates the loss several times."""
        raise ArgumentError("LBFGS.apply_gradients: this optimizer needs the loss; call step(closure)")

    def _next_direction(self, gradient: Tensor, lr: float) -> tuple[Tensor, float]:
        memory, size = self._memory, self.param_groups[0]["history_size"]
        with no_grad():
            if memory["iterations"]:
                y = gradient - memory["gradient"]
                memory["steps"], memory["changes"] = _remember(
                    memory["steps"], memory["changes"], memory["move"], y, size
                )
            d = _direction(gradient, memory["steps"], memory["changes"])
            t = lr if memory["iterations"] else min(1.0, 1.0 / float(F.sum(F.abs(gradient)))) * lr
        memory["iterations"] += 1
        memory["gradient"] = gradient
        return d, t

    def _move(
        self, closure: Callable[[], Any], here: Point, d: Tensor, t: float, left: int, last: bool
    ) -> tuple[Point, int]:
        """Go along d, and say where that leads and how often the closure was called."""
        options = self.param_groups[0]
        with no_grad():
            x = joined([p.detach() for p in self._parameters()])
        if options["line_search_fn"] is None:
            self._place(x, d, t)
            if last:  # nobody will look at the gradient there
                return here._replace(t=t), 0
            return self._evaluate(closure, t, d)[1], 1

        def at(t: float) -> Point:
            self._place(x, d, t)
            return self._evaluate(closure, t, d)[1]

        tolerance = options["tolerance_change"]
        found, n = strong_wolfe(at, here, t, width=_largest(d), tolerance=tolerance, most=left)
        self._place(x, d, found.t)
        return found, n

    def _place(self, x: Tensor, d: Tensor, t: float) -> None:
        parameters = self._parameters()
        with no_grad():
            for p, value in zip(parameters, parted(x + d * t, parameters)):
                p._assign(value if value.dtype == p.dtype else value.astype(p.dtype), "step")

    def _evaluate(self, closure: Callable[[], Any], t: float, d: Tensor | None) -> tuple[Tensor, Point]:
        with enable_grad():
            loss = closure()
        parameters = self._parameters()
        if all(p.grad is None for p in parameters):
            raise GradientError(
                f"LBFGS.step: no gradient reached any of the parameters ({', '.join(self._names.values())}); "
                "the closure must call backward() on a loss that depends on them"
            )
        with no_grad():
            g = joined([zeros_like(p) if p.grad is None else p.grad.detach() for p in parameters])
            slope = 0.0 if d is None else float(_dot(g, d))
        loss = asarray(loss).detach()
        return loss, Point(t, float(loss), g, slope)

    # -------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Options and copies of the history."""
        copied = {k: v if isinstance(v, int) else _copies(v) for k, v in self._memory.items()}
        group = {k: v for k, v in self.param_groups[0].items() if k != "params"}
        numbers = list(range(len(self._parameters())))
        return {"state": {0: copied}, "param_groups": [{**group, "params": numbers}]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        (group,), kept = state["param_groups"], state["state"][0]
        size = sum(int(p.size) for p in self._parameters())
        for v in (*kept["steps"], *kept["changes"], *(kept[k] for k in ("gradient", "move") if k in kept)):
            if tuple(v.shape) != (size,):
                raise ArgumentError(
                    f"load_state_dict: the state is for {v.size} numbers, the parameters of this LBFGS have {size}"
                )
        self.param_groups[0].update({k: v for k, v in group.items() if k != "params"})
        self._memory = {k: v if isinstance(v, int) else _copies(v) for k, v in kept.items()}

    # ---------------------------------------------------------------------------------------------- pure form

    @classmethod
    def init(cls, params: Any, **options: Any) -> dict[str, Any]:
        """The state before the first step: an empty history.

        >>> import wengert as wg
        >>> sorted(LBFGS.init([wg.ones((2,))]))
        ['changes', 'gradient', 'move', 'step', 'steps']
        """
        cls.check(cls._options(options))
        return {"step": zeros((), dtype=float64), "steps": [], "changes": [], "gradient": None, "move": None}

    @classmethod
    def update(
        cls, params: Any, grads: Any, state: Mapping[str, Any], *, lr: Any = None, **options: Any
    ) -> tuple[Any, dict[str, Any]]:
        """One iteration without line search: new parameters and a new state. It decides by data what to remember, so it
        cannot be traced by `compile`.

        >>> import wengert as wg
        >>> p = [wg.tensor([4.0])]
        >>> p, state = LBFGS.update(p, [2.0 * p[0]], LBFGS.init(p), lr=1.0)
        >>> p[0].tolist()
        [3.0]
        """
        chosen = cls._options(options if lr is None else {**options, "lr": lr})
        leaves, structure = flatten(params)
        given = flatten(grads)[0]
        if len(given) != len(leaves):
            raise ArgumentError(f"LBFGS.update: {len(leaves)} parameters, but {len(given)} gradients")
        g, rate = joined(given), chosen["lr"]
        steps, changes = state["steps"], state["changes"]
        if state["gradient"] is None:
            rate = rate * F.minimum(1.0 / F.sum(F.abs(g)), asarray(1.0, dtype=g.dtype))
        else:
            y = g - state["gradient"]
            steps, changes = _remember(steps, changes, state["move"], y, chosen["history_size"])
        move = _direction(g, steps, changes) * rate
        new = unflatten(structure, parted(joined(leaves) + move, leaves))
        return new, {"step": state["step"] + 1.0, "steps": steps, "changes": changes, "gradient": g, "move": move}


def _largest(x: Tensor) -> float:
    with no_grad():
        return float(F.max(F.abs(x)))


def _copies(value: Any) -> Any:
    return [tensor(v) for v in value] if isinstance(value, list) else tensor(value)
