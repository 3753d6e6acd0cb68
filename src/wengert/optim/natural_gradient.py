"""The natural gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.modes import no_grad
from wengert.optim.curvature import (
    conjugate_gradients,
    evaluated,
    gauss_newton_product,
    gradients,
    hessian_product_by,
    joined,
    moved,
)
from wengert.optim.newton import SecondOrder
from wengert.optim.optimizer import Options


@dataclass(frozen=True, slots=True)
class NaturalGradientConfig:
    """Options of NaturalGradient. `damping` is added to the diagonal of Fisher's matrix.

    >>> NaturalGradientConfig().damping
    0.001
    """

    lr: float = 1.0
    damping: float = 1e-3
    max_cg: int = 100
    cg_tolerance: float = 1e-4


class NaturalGradient(SecondOrder):
    """p ← p − lr (F + λ)⁻¹ g, with F = Jᵀ H J: J is the derivative of the outputs, H the loss' second one by the outputs.

    For the losses that are −ln p of an exponential family in its natural parameters (`mse_loss`, `cross_entropy` and
    `bce_with_logits` of a network's last linear layer, `poisson_nll_loss`) F is Fisher's information matrix, and the step
    does not depend on how the network is parametrised (Amari, 1998; Martens, 2020); for others it is Gauss and Newton's
    matrix. F is never formed: conjugate gradients take its products with vectors.

    `step(function)` takes a function that returns the outputs and the loss that was computed of them, and does not call
    backward(). It returns the loss before the step.

    >>> import wengert as wg
    >>> w, x = wg.Parameter.zeros((2, 3)), wg.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> def function():
    ...     logits = x @ w
    ...     return logits, wg.cross_entropy(logits, wg.tensor([0, 2]))
    >>> opt = NaturalGradient([w])
    >>> losses = [opt.step(function).item() for _ in range(4)]
    >>> losses[0] > 1.0 > 0.1 > losses[3]
    True
    """

    Config = NaturalGradientConfig

    @classmethod
    def check(cls, options: Options) -> None:
        """Raise if an option makes no sense."""
        super().check(options)
        if not options["damping"] >= 0.0:
            raise ArgumentError(f"NaturalGradient: damping must not be negative, got {options['damping']}")
        if options["max_cg"] < 1 or not 0.0 < options["cg_tolerance"] < 1.0:
            raise ArgumentError("NaturalGradient: max_cg must be at least 1, and cg_tolerance between 0 and 1")

    def step(self, function: Any = None) -> Tensor:
        """One step; returns the loss before it."""
        who, options, parameters = type(self).__name__, self.param_groups[0], self._parameters()
        outputs, loss = _outputs_and_loss(function, who)
        g = gradients(loss, parameters, who).detach()
        fisher = gauss_newton_product(outputs, parameters, who, hessian_product_by(loss, outputs, who))
        damping = float(options["damping"])
        step, _ = conjugate_gradients(
            lambda v: fisher(v) + v * damping, -g, float(options["cg_tolerance"]), options["max_cg"]
        )
        with no_grad():
            start = joined([p.detach() for p in parameters])
        moved(parameters, start, step * float(options["lr"]))
        before: Tensor = loss.detach()
        return before


def _outputs_and_loss(function: Any, who: str) -> tuple[Any, Any]:
    """What the function gives, recorded."""
    made: list[Any] = []

    def loss_alone() -> Any:
        given = function()
        if not isinstance(given, (tuple, list)) or len(given) != 2 or not isinstance(given[0], Tensor):
            raise ArgumentError(
                f"{who}.step: the function must return the outputs and the loss, got {type(given).__name__}"
            )
        made.append(given[0])
        return given[1]

    loss = evaluated(loss_alone if callable(function) else function, who, scalar=True)
    return made[0], loss
