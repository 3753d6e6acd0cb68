"""Losses as modules."""

from __future__ import annotations

from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.nn.module import Module


class CrossEntropyLoss(Module):
    """−ln softmax(logits)[target]; see `wengert.cross_entropy`.

    >>> import wengert as wg
    >>> CrossEntropyLoss()(wg.zeros((2, 4)), wg.tensor([0, 3])).item()
    1.386...
    """

    weight: Any

    def __init__(
        self,
        weight: Any = None,
        *,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> None:
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing, self.reduction = ignore_index, label_smoothing, reduction

    def forward(self, logits: Tensor, target: Any) -> Tensor:
        """The loss of logits with classes on axis 1."""
        return F.cross_entropy(
            logits,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
        )


class MSELoss(Module):
    """(x − target)², averaged.

    >>> import wengert as wg
    >>> MSELoss()(wg.tensor([1.0, 3.0]), wg.tensor([1.0, 1.0])).item()
    2.0
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, x: Tensor, target: Any) -> Tensor:
        """The loss of a prediction x."""
        return F.mse_loss(x, target, reduction=self.reduction)
