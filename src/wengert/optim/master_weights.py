"""Float32 copies of half-precision parameters, which the steps are made on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wengert._core import Tensor
from wengert.autograd.gradient_map import GradientMap
from wengert.dtypes import float32
from wengert.errors import ArgumentError
from wengert.modes import no_grad
from wengert.nn.parameter import Parameter
from wengert.optim.optimizer import Optimizer
from wengert.tensors.arguments import as_dtype_of


class MasterWeights:
    """Steps of an optimizer on float32 copies of its half-precision parameters, which are then rounded into these.

    A step that is smaller than half a unit in the last place of a parameter, 0.2 % of it in bfloat16, would be lost; in the
    copy such steps add up (Micikevicius et al., 2018). Parameters of other dtypes are stepped as they are. Gradients may be
    float32, as `GradientAccumulator` gives them. Wrap the optimizer before its first step; where parameters are written to
    otherwise, as by `load_state_dict` of a module, call `refresh()`.

    >>> import wengert as wg
    >>> p = wg.Parameter(wg.ones((1,), dtype=wg.bfloat16))
    >>> opt = MasterWeights(wg.optim.SGD([p], lr=0.001))
    >>> for _ in range(8):
    ...     p.set_grad(wg.ones((1,), dtype=wg.bfloat16))
    ...     opt.step()
    >>> p.item()  # without the copy it would still be 1
    0.9921875
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"MasterWeights: wraps an optimizer, got {type(optimizer).__name__}")
        if any(batch.steps for batches in optimizer._update_batches for batch in batches):
            raise ArgumentError("MasterWeights: the optimizer has made steps already; wrap it before the first")
        self._of, self._names = optimizer, optimizer._names
        self._masters: dict[int, Tensor] = {}  # by the id of the parameter
        self.param_groups, self.defaults = optimizer.param_groups, optimizer.defaults
        inner = [
            {**g, "params": [(self._names[p.id], self._master(p)) for p in g["params"]]} for g in self.param_groups
        ]
        self.optimizer = type(optimizer)(inner)

    def _master(self, p: Tensor) -> Tensor:
        if p.dtype.itemsize != 2:
            return p
        made = self._masters[p.id] = Parameter(p.detach().astype(float32))
        return made

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _paired(self, grads: Any) -> list[Any]:
        return self._of._paired(grads)

    def step(self, grads: Any = None) -> None:
        """One step; `grads` as for any optimizer."""
        if grads is None:
            pairs = [(p, p.grad) for p in self._parameters() if p.grad is not None]
        elif isinstance(grads, GradientMap):
            pairs = [(p, grads[p]) for p in self._parameters() if p in grads]
        else:
            pairs = self._paired(grads)
        for group, inner in zip(self.param_groups, self.optimizer.param_groups):
            inner.update({k: v for k, v in group.items() if k != "params"})  # learning rates, as they are now
        masters = self._masters
        self.optimizer.step(
            [(masters.get(p.id, p), as_dtype_of(g, float32) if p.id in masters else g) for p, g in pairs]
        )
        with no_grad():
            for p, _ in pairs:
                if p.id in masters:
                    p._assign(as_dtype_of(masters[p.id].detach(), p.dtype), "step")
                if isinstance(grads, GradientMap):
                    p.grad = None

    def refresh(self) -> None:
        """Take the parameters as they are now, after they were written to by something else than a step."""
        with no_grad():
            for p in self._parameters():
                if p.id in self._masters:
                    self._masters[p.id]._assign(p.detach().astype(float32), "refresh")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters."""
        self._of.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The state of the steps, and copies of the float32 weights, numbered in the order of the parameters."""
        numbered = [(k, self._masters[p.id]) for k, p in enumerate(self._parameters()) if p.id in self._masters]
        masters = {k: m.detach().clone() for k, m in numbered}
        return {"optimizer": self.optimizer.state_dict(), "masters": masters}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned; the parameters become the rounded weights."""
        parameters, masters = self._parameters(), state["masters"]
        own = {k: tuple(p.shape) for k, p in enumerate(parameters) if p.id in self._masters}
        given = {int(k): tuple(t.shape) for k, t in masters.items()}
        if own != given:
            raise ArgumentError(f"load_state_dict: the state is of weights of shapes {given}, here they are {own}")
        self.optimizer.load_state_dict(state["optimizer"])
        for group, inner in zip(self.param_groups, self.optimizer.param_groups):
            group.update({k: v for k, v in inner.items() if k != "params"})
        with no_grad():
            for k, t in masters.items():
                p = parameters[int(k)]
                self._masters[p.id]._assign(as_dtype_of(t, float32), "load_state_dict")
                p._assign(as_dtype_of(t, p.dtype), "load_state_dict")

    def __repr__(self) -> str:
        return f"MasterWeights({self._of!r})"


__all__ = ["MasterWeights"]
