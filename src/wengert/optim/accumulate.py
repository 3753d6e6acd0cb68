"""Gradients of several small batches as those of one large batch."""

from __future__ import annotations

from typing import Any

from wengert._core import Tensor
from wengert.autograd.gradient_map import GradientMap
from wengert.compiling.compile import composite
from wengert.errors import ArgumentError
from wengert.modes import no_grad
from wengert.tensors.arguments import wide


@composite
def _compensated_sum(total: Any, lost: Any, g: Any) -> Any:
    """total + g, and what rounding has lost of it (Kahan, 1965)."""
    y = g - lost
    new = total + y
    return new, (new - total) - y


class GradientAccumulator:
    """Adds up the maps of `every` backward passes, and gives their mean (or sum) at the last one.

    Gradients in half precision are added in float32, and stay so: optimizers take them. `compensated`: what each addition
    rounds off is kept and added to the next (Kahan, "Further remarks on reducing truncation errors", 1965), so that the
    error does not grow with the number of batches; it takes as much memory again.

    >>> import wengert as wg
    >>> p = wg.Parameter.ones((1,))
    >>> opt, accumulator = wg.optim.SGD([p], lr=0.5), GradientAccumulator(2)
    >>> for x in (1.0, 3.0):
    ...     grads = accumulator.add((p * x).sum().backward())
    ...     if grads is not None:
    ...         opt.step(grads)
    >>> p.tolist()
    [0.0]
    """

    def __init__(self, every: int, *, average: bool = True, compensated: bool = False) -> None:
        if every < 1:
            raise ArgumentError(f"GradientAccumulator: every must be at least 1, got {every}")
        self.every, self.average, self.compensated = every, average, compensated
        self.count, self._total = 0, GradientMap()
        self._lost: dict[int, Tensor] = {}  # by tensor id

    def add(self, grads: GradientMap) -> GradientMap | None:
        """Take one more map in; the result after the last of `every`, else None."""
        for key, g in grads.items():
            if self.compensated:
                self._add_compensated(key, wide(g))
            else:
                self._total.accumulate(key, wide(g))
        self.count += 1
        return self.flush() if self.count == self.every else None

    def _add_compensated(self, key: int, g: Tensor) -> None:
        known = self._total.get(key)
        if known is None:
            self._total[key] = g
            return
        with no_grad():
            lost = self._lost[key] if key in self._lost else g * 0.0
            self._total[key], self._lost[key] = _compensated_sum(known, lost, g)

    def flush(self) -> GradientMap | None:
        """What has been added so far, for the end of an epoch; None if that is nothing. Then it starts anew."""
        if not self.count:
            return None
        total, n = self._total, self.count
        self.count, self._total, self._lost = 0, GradientMap(), {}
        return total.scale_(1.0 / n) if self.average and n > 1 else total
