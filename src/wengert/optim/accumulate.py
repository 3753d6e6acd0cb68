"""Gradients of several small batches as those of one large batch."""

from __future__ import annotations

from wengert.autograd.gradient_map import GradientMap
from wengert.errors import ArgumentError


class GradientAccumulator:
    """Adds up the maps of `every` backward passes, and gives their mean (or sum) at the last one.

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

    def __init__(self, every: int, *, average: bool = True) -> None:
        if every < 1:
            raise ArgumentError(f"GradientAccumulator: every must be at least 1, got {every}")
        self.every, self.average = every, average
        self.count, self._total = 0, GradientMap()

    def add(self, grads: GradientMap) -> GradientMap | None:
        """Take one more map in; the result after the last of `every`, else None."""
        self._total.accumulate(grads)
        self.count += 1
        return self.flush() if self.count == self.every else None

    def flush(self) -> GradientMap | None:
        """What has been added so far, for the end of an epoch; None if that is nothing. Then it starts anew."""
        if not self.count:
            return None
        total, n = self._total, self.count
        self.count, self._total = 0, GradientMap()
        return total.scale_(1.0 / n) if self.average and n > 1 else total
