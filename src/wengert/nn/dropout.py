"""Dropout as a module."""

from __future__ import annotations

from wengert import functional as F
from wengert._core import Tensor
from wengert.functional.dropout import check_probability
from wengert.nn.module import Module
from wengert.tensors.random import Generator


class Dropout(Module):
    """While training, each element is 0 with probability p, and the others are scaled by 1/(1 − p).

    >>> import wengert as wg
    >>> Dropout(0.5).eval()(wg.ones((3,))).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, p: float = 0.5, *, generator: Generator | None = None) -> None:
        self.p = check_probability(p, "Dropout")
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        """x, thinned out while training."""
        return F.dropout(x, self.p, training=self.training, generator=self.generator)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"
