"""Losses as modules."""

from __future__ import annotations

from collections.abc import Callable
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


class L1Loss(Module):
    """|x − target|, averaged.

    >>> import wengert as wg
    >>> L1Loss()(wg.tensor([1.0, 3.0]), wg.tensor([1.0, 1.0])).item()
    1.0
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, x: Tensor, target: Any) -> Tensor:
        """The loss."""
        return F.l1_loss(x, target, reduction=self.reduction)


class HuberLoss(Module):
    """½d² for |d| ≤ δ, else δ(|d| − ½δ), averaged.

    >>> import wengert as wg
    >>> HuberLoss()(wg.tensor([3.0]), wg.tensor([0.0])).item()
    2.5
    """

    def __init__(self, *, delta: float = 1.0, reduction: str = "mean") -> None:
        self.delta, self.reduction = delta, reduction

    def forward(self, x: Tensor, target: Any) -> Tensor:
        """The loss."""
        return F.huber_loss(x, target, delta=self.delta, reduction=self.reduction)


class SmoothL1Loss(Module):
    """½d²/β for |d| < β, else |d| − ½β, averaged.

    >>> import wengert as wg
    >>> SmoothL1Loss()(wg.tensor([3.0]), wg.tensor([0.0])).item()
    2.5
    """

    def __init__(self, *, beta: float = 1.0, reduction: str = "mean") -> None:
        self.beta, self.reduction = beta, reduction

    def forward(self, x: Tensor, target: Any) -> Tensor:
        """The loss."""
        return F.smooth_l1_loss(x, target, beta=self.beta, reduction=self.reduction)


class KLDivLoss(Module):
    """target · (ln target − log_p); see `wengert.kl_div`.

    >>> import wengert as wg
    >>> KLDivLoss()(wg.zeros((1,)), wg.ones((1,))).item()
    0.0
    """

    def __init__(self, *, log_target: bool = False, reduction: str = "mean") -> None:
        self.log_target, self.reduction = log_target, reduction

    def forward(self, log_p: Tensor, target: Any) -> Tensor:
        """The loss."""
        return F.kl_div(log_p, target, log_target=self.log_target, reduction=self.reduction)


class HingeLoss(Module):
    """max(0, 1 − x·t) for targets of −1 and 1, averaged.

    >>> import wengert as wg
    >>> HingeLoss()(wg.tensor([0.5]), wg.tensor([1.0])).item()
    0.5
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, x: Tensor, target: Any) -> Tensor:
        """The loss."""
        return F.hinge_loss(x, target, reduction=self.reduction)


class CosineEmbeddingLoss(Module):
    """1 − cos(a, b) for targets of 1, max(0, cos(a, b) − margin) for −1.

    >>> import wengert as wg
    >>> CosineEmbeddingLoss()(wg.tensor([[1.0, 0.0]]), wg.tensor([[0.0, 1.0]]), wg.tensor([1])).item()
    1.0
    """

    def __init__(self, *, margin: float = 0.0, reduction: str = "mean") -> None:
        self.margin, self.reduction = margin, reduction

    def forward(self, a: Tensor, b: Tensor, target: Any) -> Tensor:
        """The loss."""
        return F.cosine_embedding_loss(a, b, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(Module):
    """max(0, |anchor − near|ₚ − |anchor − far|ₚ + margin), averaged.

    >>> import wengert as wg
    >>> TripletMarginLoss()(wg.zeros((1, 2)), wg.zeros((1, 2)), wg.ones((1, 2))).item()
    0.0
    """

    def __init__(self, *, margin: float = 1.0, p: float = 2.0, swap: bool = False, reduction: str = "mean") -> None:
        self.margin, self.p, self.swap, self.reduction = margin, p, swap, reduction

    def forward(self, anchor: Tensor, near: Tensor, far: Tensor) -> Tensor:
        """The loss."""
        return F.triplet_margin_loss(
            anchor, near, far, margin=self.margin, p=self.p, swap=self.swap, reduction=self.reduction
        )


class MarginRankingLoss(Module):
    """max(0, margin − t (a − b)) for targets of −1 and 1, averaged; see `wengert.margin_ranking_loss`.

    >>> import wengert as wg
    >>> MarginRankingLoss()(wg.tensor([2.0]), wg.tensor([3.0]), wg.tensor([1])).item()
    1.0
    """

    def __init__(self, *, margin: float = 0.0, reduction: str = "mean") -> None:
        self.margin, self.reduction = margin, reduction

    def forward(self, a: Tensor, b: Tensor, target: Any) -> Tensor:
        """The loss."""
        return F.margin_ranking_loss(a, b, target, margin=self.margin, reduction=self.reduction)


class MultiLabelMarginLoss(Module):
    """Σ max(0, 1 − x[label] + x[other]) / classes; see `wengert.multilabel_margin_loss`.

    >>> import wengert as wg
    >>> MultiLabelMarginLoss()(wg.tensor([[0.1, 0.2, 0.4, 0.8]]), wg.tensor([[3, 0, -1, 1]])).item()
    0.8500...
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, x: Tensor, target: Any) -> Tensor:
        """The loss."""
        return F.multilabel_margin_loss(x, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(Module):
    """−mean of t ln σ(x) + (1 − t) ln(1 − σ(x)) over labels; see `wengert.multilabel_soft_margin_loss`.

    >>> import wengert as wg
    >>> MultiLabelSoftMarginLoss()(wg.zeros((1, 2)), wg.tensor([[1.0, 0.0]])).item()
    0.6931...
    """

    weight: Any

    def __init__(self, weight: Any = None, *, reduction: str = "mean") -> None:
        self.register_buffer("weight", weight)
        self.reduction = reduction

    def forward(self, logits: Tensor, target: Any) -> Tensor:
        """The loss of logits."""
        return F.multilabel_soft_margin_loss(logits, target, weight=self.weight, reduction=self.reduction)


class LogCoshLoss(Module):
    """ln cosh(x − target), averaged; see `wengert.log_cosh_loss`.

    >>> import wengert as wg
    >>> LogCoshLoss()(wg.tensor([1.0]), wg.tensor([0.0])).item()
    0.4337...
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, x: Tensor, target: Any) -> Tensor:
        """The loss."""
        return F.log_cosh_loss(x, target, reduction=self.reduction)


class GaussianNLLLoss(Module):
    """½ (ln v + (x − target)²/v), averaged; see `wengert.gaussian_nll_loss`.

    >>> import wengert as wg
    >>> GaussianNLLLoss()(wg.tensor([1.0]), wg.tensor([3.0]), wg.tensor([4.0])).item()
    1.1931...
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        self.full, self.eps, self.reduction = full, eps, reduction

    def forward(self, x: Tensor, target: Any, var: Any) -> Tensor:
        """The loss."""
        return F.gaussian_nll_loss(x, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class PoissonNLLLoss(Module):
    """eˣ − target · x, averaged; see `wengert.poisson_nll_loss`.

    >>> import wengert as wg
    >>> PoissonNLLLoss()(wg.tensor([0.0]), wg.tensor([2.0])).item()
    1.0
    """

    def __init__(
        self, *, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        self.log_input, self.full, self.eps, self.reduction = log_input, full, eps, reduction

    def forward(self, x: Tensor, target: Any) -> Tensor:
        """The loss."""
        options: dict[str, Any] = {"log_input": self.log_input, "full": self.full, "eps": self.eps}
        return F.poisson_nll_loss(x, target, **options, reduction=self.reduction)


class CTCLoss(Module):
    """−ln of the probability of a sequence of labels over its alignments; see `wengert.ctc_loss`.

    >>> import wengert as wg
    >>> CTCLoss()(wg.log_softmax(wg.zeros((2, 1, 3))), [[1]], [2], [1]).item()
    1.0986...
    """

    def __init__(self, *, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        self.blank, self.reduction, self.zero_infinity = blank, reduction, zero_infinity

    def forward(self, log_probs: Tensor, targets: Any, input_lengths: Any, target_lengths: Any) -> Tensor:
        """The loss of log-probabilities (frames, batch, classes)."""
        options: dict[str, Any] = {"blank": self.blank, "zero_infinity": self.zero_infinity}
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, **options, reduction=self.reduction)


class NLLLoss(Module):
    """−log_p[target] of log-probabilities with classes on axis 1; see `wengert.nll_loss`.

    >>> import wengert as wg
    >>> NLLLoss()(wg.tensor([[-1.0, -2.0]]), wg.tensor([1])).item()
    2.0
    """

    weight: Any

    def __init__(self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, log_p: Tensor, target: Any) -> Tensor:
        """The loss of log-probabilities."""
        return F.nll_loss(log_p, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class BCELoss(Module):
    """−(t ln p + (1 − t) ln(1 − p)) of probabilities; see `wengert.bce_loss`.

    >>> import wengert as wg
    >>> BCELoss()(wg.tensor([0.5]), wg.tensor([1.0])).item()
    0.6931...
    """

    weight: Any

    def __init__(self, weight: Any = None, *, reduction: str = "mean") -> None:
        self.register_buffer("weight", weight)
        self.reduction = reduction

    def forward(self, p: Tensor, target: Any) -> Tensor:
        """The loss of probabilities p."""
        return F.bce_loss(p, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(Module):
    """−(w₊ t ln σ(x) + (1 − t) ln(1 − σ(x))) of logits; see `wengert.bce_with_logits`.

    >>> import wengert as wg
    >>> BCEWithLogitsLoss()(wg.tensor([0.0]), wg.tensor([1.0])).item()
    0.6931...
    """

    weight: Any
    pos_weight: Any

    def __init__(self, weight: Any = None, *, pos_weight: Any = None, reduction: str = "mean") -> None:
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)
        self.reduction = reduction

    def forward(self, logits: Tensor, target: Any) -> Tensor:
        """The loss of logits."""
        return F.bce_with_logits(
            logits, target, weight=self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class FocalLoss(Module):
    """α_t (1 − p_t)^γ · bce_with_logits; see `wengert.focal_loss`.

    >>> import wengert as wg
    >>> FocalLoss(alpha=None)(wg.tensor([0.0]), wg.tensor([1.0])).item()
    0.1732...
    """

    def __init__(self, *, alpha: float | None = 0.25, gamma: float = 2.0, reduction: str = "mean") -> None:
        self.alpha, self.gamma, self.reduction = alpha, gamma, reduction

    def forward(self, logits: Tensor, target: Any) -> Tensor:
        """The loss of logits."""
        return F.focal_loss(logits, target, alpha=self.alpha, gamma=self.gamma, reduction=self.reduction)


class SoftMarginLoss(Module):
    """ln(1 + e^(−t x)) for targets of −1 and 1, averaged.

    >>> import wengert as wg
    >>> SoftMarginLoss()(wg.tensor([0.0]), wg.tensor([1.0])).item()
    0.6931...
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, x: Tensor, target: Any) -> Tensor:
        """The loss."""
        return F.soft_margin_loss(x, target, reduction=self.reduction)


class HingeEmbeddingLoss(Module):
    """x where the target is 1, max(0, margin − x) where it is −1, averaged.

    >>> import wengert as wg
    >>> HingeEmbeddingLoss()(wg.tensor([0.25]), wg.tensor([-1.0])).item()
    0.75
    """

    def __init__(self, *, margin: float = 1.0, reduction: str = "mean") -> None:
        self.margin, self.reduction = margin, reduction

    def forward(self, x: Tensor, target: Any) -> Tensor:
        """The loss of distances x."""
        return F.hinge_embedding_loss(x, target, margin=self.margin, reduction=self.reduction)


class MultiMarginLoss(Module):
    """Σ max(0, margin − x[label] + x[other])^p / classes, averaged; see `wengert.multi_margin_loss`.

    >>> import wengert as wg
    >>> MultiMarginLoss()(wg.tensor([[0.1, 0.2, 0.4, 0.8]]), wg.tensor([3])).item()
    0.3249...
    """

    weight: Any

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Any = None, *, reduction: str = "mean") -> None:
        self.register_buffer("weight", weight)
        self.p, self.margin, self.reduction = p, margin, reduction

    def forward(self, x: Tensor, target: Any) -> Tensor:
        """The loss."""
        return F.multi_margin_loss(
            x, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction
        )


class TripletMarginWithDistanceLoss(Module):
    """max(0, d(anchor, near) − d(anchor, far) + margin), averaged, with any distance d.

    >>> import wengert as wg
    >>> loss = TripletMarginWithDistanceLoss(distance_function=lambda a, b: abs(a - b).sum(axis=-1))
    >>> loss(wg.zeros((1, 2)), wg.zeros((1, 2)), wg.ones((1, 2))).item()
    0.0
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        self.distance_function, self.margin, self.swap, self.reduction = distance_function, margin, swap, reduction

    def forward(self, anchor: Tensor, near: Tensor, far: Tensor) -> Tensor:
        """The loss."""
        return F.triplet_margin_with_distance_loss(
            anchor,
            near,
            far,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )
