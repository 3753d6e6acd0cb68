"""Newton's method by conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.modes import no_grad
from wengert.optim.curvature import conjugate_gradients, evaluated, gradients, hessian_product, joined, moved
from wengert.optim.optimizer import Optimizer, Options

_SUFFICIENT = 1e-4  # of the decrease that the slope promises
_HALVINGS = 30


@dataclass(frozen=True, slots=True)
class NewtonCGConfig:
    """Options of NewtonCG. `cg_tolerance` is the largest residual of the linear system, relative to the gradient.

    >>> NewtonCGConfig().max_cg
    100
    """

    lr: float = 1.0
    max_cg: int = 100
    cg_tolerance: float = 0.1


class SecondOrder(Optimizer):
    """Optimizers that are given a function in every step: one group, no state but the options."""

    def add_param_group(self, group: Any) -> None:
        """The only group: the matrix of second derivatives has no parts."""
        if self.param_groups:
            raise ArgumentError(f"{type(self).__name__}: takes one group of parameters")
        super().add_param_group(group)

    def apply_gradients(self, pairs: Any) -> None:
        """Not available: this optimizer needs more than gradients."""
        raise ArgumentError(
            f"{type(self).__name__}.apply_gradients: this optimizer needs the function; call step(function)"
        )

    @classmethod
    def init(cls, params: Any, **options: Any) -> dict[str, Any]:
        """Not available: there is no pure form."""
        raise ArgumentError(f"{cls.__name__}: has no pure form; make one with parameters, and call step(function)")

    @classmethod
    def update(
        cls, params: Any, grads: Any, state: Any, *, lr: Any = None, **options: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Not available: there is no pure form."""
        raise ArgumentError(f"{cls.__name__}: has no pure form; make one with parameters, and call step(function)")


class NewtonCG(SecondOrder):
    """Newton's method, p ← p − t H⁻¹ g, with H⁻¹ g by conjugate gradients: H is never formed, only multiplied by vectors.

    The system is solved to min(`cg_tolerance`, √|g|) of the gradient, which makes convergence superlinear; a direction of
    negative curvature ends it (Nocedal & Wright, 2006, algorithm 7.1). t is halved from `lr` on until the loss decreases.
    `step(function)` takes a function that returns the loss, and does not call backward().

    >>> import wengert as wg
    >>> p = wg.Parameter([3.0, -2.0])
    >>> opt = NewtonCG([p])
    >>> for _ in range(10):
    ...     loss = opt.step(lambda: (p**4).sum() + (p * p).sum())
    >>> bool(abs(p).max() < 1e-4)
    True
    """

    Config = NewtonCGConfig

    @classmethod
    def check(cls, options: Options) -> None:
        """Raise if an option makes no sense."""
        super().check(options)
        if options["max_cg"] < 1 or not 0.0 < options["cg_tolerance"] < 1.0:
            raise ArgumentError("NewtonCG: max_cg must be at least 1, and cg_tolerance between 0 and 1")

    def step(self, function: Any = None) -> Tensor:
        """One step; returns the loss before it."""
        who, options, parameters = type(self).__name__, self.param_groups[0], self._parameters()
        loss = evaluated(function, who, scalar=True)
        before: Tensor = loss.detach()
        gradient = gradients(loss, parameters, who)
        with no_grad():
            g = gradient.detach()
            size = float(F.sqrt(F.sum(g * g)))
            start = joined([p.detach() for p in parameters])
        if size == 0.0:
            return before
        tolerance = min(float(options["cg_tolerance"]), size**0.5)
        direction, _ = conjugate_gradients(hessian_product(gradient, parameters), -g, tolerance, options["max_cg"])
        with no_grad():
            slope, value = float(F.sum(g * direction)), float(loss)
        length = float(options["lr"])
        for _ in range(_HALVINGS):
            moved(parameters, start, direction * length)
            with no_grad():
                new = float(function())
            if new <= value + _SUFFICIENT * length * slope:
                return before
            length *= 0.5
        moved(parameters, start, direction * 0.0)  # nothing decreases the loss: rounding is all that is left
        return before
