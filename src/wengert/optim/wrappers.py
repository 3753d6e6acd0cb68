"""Optimizers around others: Lookahead, and sharpness-aware minimization."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.dtypes import float32, float64
from wengert.errors import ArgumentError, GradientError
from wengert.modes import enable_grad, no_grad
from wengert.optim.optimizer import Optimizer
from wengert.program.call_trace import CallTrace, call_trace
from wengert.tensors.arguments import as_dtype_of
from wengert.tensors.conversion import tensor


class _OptimizerWrapper:
    """An optimizer that leaves the step to another; its groups, and so its learning rates, are those of the other."""

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"{type(self).__name__}: wraps an optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of the wrapped optimizer."""
        return self.optimizer.param_groups

    @property
    def defaults(self) -> dict[str, Any]:
        """The options of the wrapped optimizer."""
        return self.optimizer.defaults

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters."""
        self.optimizer.zero_grad(set_to_none)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters with their own options."""
        self.optimizer.add_param_group(group)

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.optimizer!r})"


class Lookahead(_OptimizerWrapper):
    """Every `k` steps, weights go back to the fraction `alpha` of the way that they have gone (Zhang et al., 2019).

    Slow weights s ← s + α (p − s), p ← s. The inner optimizer keeps its state.

    >>> import wengert as wg
    >>> p = wg.Parameter.zeros((1,))
    >>> opt = Lookahead(wg.optim.SGD([p], lr=1.0), k=2, alpha=0.5)
    >>> seen = []
    >>> for _ in range(4):
    ...     p.set_grad([-1.0])
    ...     opt.step()
    ...     seen.append(p.item())
    >>> seen
    [1.0, 1.0, 2.0, 2.0]
    """

    def __init__(self, optimizer: Optimizer, k: int = 5, alpha: float = 0.5) -> None:
        super().__init__(optimizer)
        if k < 1 or not 0.0 < alpha <= 1.0:
            raise ArgumentError(f"Lookahead: k must be at least 1 and alpha in (0, 1], got {k} and {alpha}")
        self.k, self.alpha, self._steps = k, alpha, 0
        self._slow: list[Tensor] = [tensor(p.detach()) for p in self._parameters()]

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters with their own options."""
        super().add_param_group(group)
        self._slow += [tensor(p.detach()) for p in self._parameters()[len(self._slow) :]]

    def step(self, grads: Any = None) -> Any:
        """A step of the inner optimizer, and the look back when it is due."""
        made = self.optimizer.step(grads)
        trace = call_trace()
        if trace is not None:
            self._look_back_in_trace(trace)
            return made
        self._advance()
        if self._is_due():
            with no_grad():
                for p, slow in zip(self._parameters(), self._slow):
                    slow._assign(slow + (p.detach() - slow) * self.alpha, "step")
                    p._assign(slow, "step")
        return made

    def _advance(self) -> None:
        self._steps += 1

    def _is_due(self) -> bool:
        return self._steps % self.k == 0

    def _saved(self) -> Callable[[], None]:
        """What takes later steps back."""
        steps = self._steps

        def restore() -> None:
            self._steps = steps

        return restore

    def _look_back_in_trace(self, trace: CallTrace) -> None:
        """In every call of the function that is traced; whether the look back is due is one of its numbers."""
        known = self._slow
        trace.checks.append(lambda: self._slow is known)
        trace.act(self._advance, self._saved)
        (due,) = trace.scalars(lambda: [float(self._is_due())], 1, float32)
        with no_grad():
            for p, slow in zip(self._parameters(), self._slow):
                slow._assign(F.where(due > 0.0, slow + (p.detach() - slow) * self.alpha, slow), "step")
                p._assign(F.where(due > 0.0, slow, p), "step")

    def state_dict(self) -> dict[str, Any]:
        """The inner state, the slow weights, and how many steps were made."""
        slow = {k: tensor(s) for k, s in enumerate(self._slow)}
        return {"optimizer": self.optimizer.state_dict(), "slow": slow, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        shapes = [tuple(t.shape) for t in state["slow"].values()]
        if shapes != [tuple(t.shape) for t in self._slow]:
            raise ArgumentError(
                f"load_state_dict: the state is of parameters of shapes {shapes}, here they are "
                f"{[tuple(t.shape) for t in self._slow]}"
            )
        self.optimizer.load_state_dict(state["optimizer"])
        self._slow = [tensor(t, dtype=own.dtype) for t, own in zip(state["slow"].values(), self._slow)]
        self._steps = int(state["steps"])


class SAM(_OptimizerWrapper):
    """Steps by the gradient at the worst point near by: flat minima, which generalise (Foret et al., 2021).

    p* = p + ρ g/|g|, with |g| over all parameters; then the inner optimizer makes its step at p by the gradient at p*.
    `adaptive` scales by |p| (Kwon et al., 2021): p* = p + ρ p² g / |p g|. `step(closure)` calls the closure twice: it clears
    the gradients, computes the loss, calls backward and returns the loss.

    >>> import wengert as wg
    >>> p = wg.Parameter([1.0])
    >>> opt = SAM(wg.optim.SGD([p], lr=0.1), rho=0.5)
    >>> def closure():
    ...     opt.zero_grad()
    ...     loss = (p * p).sum()
    ...     loss.backward()
    ...     return loss
    >>> opt.step(closure).item(), p.item()  # by the gradient at 1.5
    (1.0, 0.69999...)
    """

    def __init__(self, optimizer: Optimizer, rho: float = 0.05, adaptive: bool = False) -> None:
        super().__init__(optimizer)
        if not rho > 0.0:
            raise ArgumentError(f"SAM: rho must be positive, got {rho}")
        self.rho, self.adaptive = rho, adaptive

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; returns the loss at p."""
        if not callable(closure):
            raise ArgumentError(
                "SAM.step: takes a function that clears gradients, computes the loss, calls backward and returns the loss"
            )
        with enable_grad():
            loss = closure()
        parameters = [p for p in self._parameters() if p.grad is not None]
        if not parameters:
            raise GradientError("SAM.step: no gradient reached any of the parameters; the closure must call backward()")
        with no_grad():
            before = [tensor(p.detach()) for p in parameters]
            gradients: list[Any] = [p.grad for p in parameters]
            moves = [g * p.detach() * p.detach() if self.adaptive else g for g, p in zip(gradients, parameters)]
            square: Any = sum(F.sum(g * m).astype(float64) for g, m in zip(gradients, moves))
            length = self.rho / F.maximum(F.sqrt(square), 1e-12)
            for p, m in zip(parameters, moves):
                p._assign(p.detach() + m * as_dtype_of(length, m.dtype), "step")
        try:
            with enable_grad():
                closure()
        finally:
            with no_grad():
                for p, x in zip(parameters, before):
                    p._assign(x, "step")
        self.optimizer.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The inner state: there is no other."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        self.optimizer.load_state_dict(state)
