"""Losses. `reduction` is "mean", "sum" or "none"; logarithms are taken in a form that neither overflows nor loses 0."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import ArgumentError, ShapeError
from wengert.foreign_names import explain_keywords
from wengert.functional.elementwise import _softplus, _xlogy, pow
from wengert.functional.reductions import squared_size
from wengert.program.numbers import as_real
from wengert.program.trace import broadcast_shapes
from wengert.tensors.arguments import (
    as_dtype_of,
    as_floating,
    as_tensor,
    describe,
    narrow,
    native,
    number,
    one_axis,
    promoted,
    wide,
)

_sum, _where, _abs = native("sum"), native("where"), native("abs")
_exp, _log, _log1p, _maximum, _relu = (native(n) for n in ("exp", "log", "log1p", "maximum", "relu"))
_sigmoid, _sqrt, _sinh, _broadcast_to = (native(n) for n in ("sigmoid", "sqrt", "sinh", "broadcast_to"))


def check_reduction(reduction: str, name: str, *more: str) -> None:
    """Refuse any other word."""
    if reduction not in ("mean", "sum", "none", *more):
        words = ", ".join(repr(r) for r in ("mean", "sum", "none", *more))
        raise ArgumentError(f"{name}: reduction must be one of {words}, got {reduction!r}")


def reduced(loss: Tensor, reduction: str) -> Any:
    """Mean, sum or every element of a loss."""
    if reduction == "none":
        return loss
    axes = tuple(range(loss.ndim))
    if reduction == "sum":
        return _sum(loss, axes, 0)
    terms = wide(loss)
    return as_dtype_of(_sum(terms, axes, 0) / number(loss.size, terms.dtype), loss.dtype)


def pair(x: Any, target: Any, name: str) -> tuple[Tensor, Tensor]:
    """Prediction and target in one shape and the prediction's dtype."""
    p = as_floating(as_tensor(x, name))
    t = as_tensor(target, name)
    if t.ndim and tuple(t.shape) != tuple(p.shape):
        raise ShapeError(f"{name}: prediction {describe(p)} and target {describe(t)} must have the same shape")
    return p, t if t.dtype.is_inexact else as_dtype_of(t, p.dtype)


# ------------------------------------------------------------------------------------------------- regression


@composite(precision="full", functions=("mse_loss",))
def _mse(x: Tensor, target: Tensor, reduction: str) -> Any:
    return reduced(squared_size(x - target), reduction)


def mse_loss(x: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """The mean of (x − target)²; `reduction` may also be "sum" or "none".

    >>> mse_loss([1.0, 3.0], [1.0, 1.0]).item()
    2.0
    """
    check_reduction(reduction, "mse_loss")
    y: Tensor = _mse(*pair(x, target, "mse_loss"), reduction)
    return y


@composite(precision="full", functions=("l1_loss",))
def _l1(x: Tensor, target: Tensor, reduction: str) -> Any:
    return reduced(_abs(x - target), reduction)


def l1_loss(x: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """|x − target|; derivative 0 where they are equal.

    >>> l1_loss([1.0, 3.0], [1.0, 1.0]).item()
    1.0
    """
    check_reduction(reduction, "l1_loss")
    y: Tensor = _l1(*pair(x, target, "l1_loss"), reduction)
    return y


@composite(precision="full", functions=("huber_loss",))
def _huber(x: Tensor, target: Tensor, reduction: str, delta: float) -> Any:
    d = x - target
    size = _abs(d)
    return reduced(_where(size <= delta, 0.5 * squared_size(d), delta * (size - 0.5 * delta)), reduction)


def huber_loss(x: Any, target: Any, *, delta: float = 1.0, reduction: str = "mean") -> Tensor:
    """½d² for |d| ≤ δ, else δ(|d| − ½δ), with d = x − target (Huber, 1964).

    >>> huber_loss([0.5, 3.0], [0.0, 0.0], reduction="none").tolist()
    [0.125, 2.5]
    """
    check_reduction(reduction, "huber_loss")
    if delta <= 0:
        raise ArgumentError(f"huber_loss: delta must be positive, got {delta}")
    y: Tensor = _huber(*pair(x, target, "huber_loss"), reduction, as_real(delta))
    return y


@composite(precision="full", functions=("smooth_l1_loss",))
def _smooth_l1(x: Tensor, target: Tensor, reduction: str, beta: float) -> Any:
    d = x - target
    size = _abs(d)
    return reduced(_where(size < beta, squared_size(d) * (0.5 / beta), size - 0.5 * beta), reduction)


def smooth_l1_loss(x: Any, target: Any, *, beta: float = 1.0, reduction: str = "mean") -> Tensor:
    """½d²/β for |d| < β, else |d| − ½β, with d = x − target: huber_loss divided by β; l1_loss for β = 0 (Girshick, 2015).

    >>> smooth_l1_loss([0.5, 3.0], [0.0, 0.0], reduction="none").tolist()
    [0.125, 2.5]
    """
    check_reduction(reduction, "smooth_l1_loss")
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    x, t = pair(x, target, "smooth_l1_loss")
    y: Tensor = _smooth_l1(x, t, reduction, as_real(beta)) if beta else _l1(x, t, reduction)
    return y


@composite(precision="full", functions=("log_cosh_loss",))
def _log_cosh(x: Tensor, target: Tensor, reduction: str) -> Any:
    d = x - target
    # ln cosh d = ln(1 + 2 sinh²(d/2)), exact where it is small; the other form does not overflow.
    near = _log1p(2.0 * squared_size(_sinh(0.5 * d)))
    far = _softplus(2.0 * d) - d - math.log(2.0)
    return reduced(_where(_abs(d) < 1.0, near, far), reduction)


def log_cosh_loss(x: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """ln cosh(x − target): ½d² for small differences, |d| − ln 2 for large ones, and smooth everywhere.

    >>> log_cosh_loss([0.0, 1.0], [0.0, 0.0], reduction="none").tolist()
    [0.0, 0.4337...]
    """
    check_reduction(reduction, "log_cosh_loss")
    y: Tensor = _log_cosh(*pair(x, target, "log_cosh_loss"), reduction)
    return y


# --------------------------------------------------------------------------------------- two classes and margins


@composite(precision="full", functions=("binary_cross_entropy",))
def _bce(p: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Any:
    # At p = 0 and 1 the logarithm is cut off at −100, so that the loss stays finite.
    loss = -(target * _maximum(_log(p), -100.0) + (1.0 - target) * _maximum(_log1p(-p), -100.0))
    return reduced(loss if weight is None else loss * weight, reduction)


def bce_loss(p: Any, target: Any, *, weight: Any = None, reduction: str = "mean") -> Tensor:
    """−(t ln p + (1 − t) ln(1 − p)) of probabilities p; logarithms are cut off at −100.

    >>> bce_loss([0.5], [1.0]).item()
    0.6931...
    """
    check_reduction(reduction, "bce_loss")
    p, t = pair(p, target, "bce_loss")
    y: Tensor = _bce(p, t, optional(weight, "bce_loss"), reduction)
    return y


def optional(x: Any, name: str) -> Tensor | None:
    """A tensor, or none."""
    return None if x is None else as_floating(as_tensor(x, name))


def _binary_loss(x: Tensor, target: Any, pos_weight: Tensor | None) -> Any:
    pull = _softplus(-x)
    if pos_weight is not None:
        pull = pull * (1.0 + (pos_weight - 1.0) * target)
    return (1.0 - target) * x + pull


@composite(precision="full", functions=("binary_cross_entropy_with_logits",))
def _bce_logits(x: Tensor, target: Tensor, weight: Tensor | None, pos_weight: Tensor | None, reduction: str) -> Any:
    loss = _binary_loss(x, target, pos_weight)
    return reduced(loss if weight is None else loss * weight, reduction)


def bce_with_logits(
    logits: Any, target: Any, *, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """−(w₊ t ln σ(x) + (1 − t) ln(1 − σ(x))) of logits x, stable for all x.

    >>> bce_with_logits([1e4, -1e4], [1.0, 0.0]).item()
    0.0
    """
    check_reduction(reduction, "bce_with_logits")
    x, t = pair(logits, target, "bce_with_logits")
    w, p = optional(weight, "bce_with_logits"), optional(pos_weight, "bce_with_logits")
    y: Tensor = _bce_logits(x, t, w, p, reduction)
    return y


@composite(precision="full", functions=("focal_loss",))
def _focal(x: Tensor, target: Tensor, alpha: float | None, gamma: float, reduction: str) -> Any:
    p, q = _sigmoid(x), _sigmoid(-x)
    loss = _binary_loss(x, target, None) * pow(p * (1.0 - target) + q * target, gamma)
    if alpha is not None:
        loss = loss * (alpha * target + (1.0 - alpha) * (1.0 - target))
    return reduced(loss, reduction)


def focal_loss(
    logits: Any,
    target: Any,
    *,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
    reduction: str = "mean",
) -> Tensor:
    """α_t (1 − p_t)^γ · bce_with_logits, with p_t the probability of the true class (Lin et al., 2017).

    >>> focal_loss([0.0], [1.0], alpha=None).item()
    0.1732...
    """
    check_reduction(reduction, "focal_loss")
    if gamma < 0:
        raise ArgumentError(f"focal_loss: gamma must not be negative, got {gamma}")
    x, t = pair(logits, target, "focal_loss")
    y: Tensor = _focal(x, t, alpha, as_real(gamma), reduction)
    return y


@composite(precision="full", functions=("hinge_loss",))
def _hinge(x: Tensor, target: Tensor, reduction: str) -> Any:
    return reduced(_relu(1.0 - x * target), reduction)


def hinge_loss(x: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """max(0, 1 − x·t) for targets t of −1 and 1.

    >>> hinge_loss([0.5, 2.0], [1.0, 1.0], reduction="none").tolist()
    [0.5, 0.0]
    """
    check_reduction(reduction, "hinge_loss")
    y: Tensor = _hinge(*pair(x, target, "hinge_loss"), reduction)
    return y


# ------------------------------------------------------------------------------------------------ similarities


def _norm(x: Any, axis: int, eps: float) -> Any:
    """√Σx², at least eps; its derivative at 0 is 0."""
    return _sqrt(_maximum(_sum(squared_size(x), (axis,), 1), eps * eps))


def _cosine(a: Any, b: Any, axis: int, eps: float) -> Any:
    dtype, a, b = a.dtype, wide(a), wide(b)
    cosine = _sum((a / _norm(a, axis, eps)) * (b / _norm(b, axis, eps)), (axis,), 0)
    return narrow(cosine, dtype)


@composite(precision="full", functions=("cosine_similarity",))
def _cosine_similarity(a: Tensor, b: Tensor, axis: int, eps: float) -> Any:
    return _cosine(a, b, axis, eps)


@explain_keywords
def cosine_similarity(a: Any, b: Any, *, axis: int = -1, eps: float = 1e-8) -> Tensor:
    """Σ ab / (max(|a|, eps) · max(|b|, eps)) along an axis; operands broadcast.

    >>> cosine_similarity([3.0, 0.0], [1.0, 0.0]).item()
    1.0
    """
    x, y = _broadcast(a, b, "cosine_similarity")
    similarity: Tensor = _cosine_similarity(x, y, one_axis(axis, x.ndim, "cosine_similarity"), as_real(eps))
    return similarity


def _broadcast(a: Any, b: Any, name: str) -> list[Tensor]:
    xs = promoted([as_floating(as_tensor(x, name)) for x in (a, b)])
    shape = broadcast_shapes(name, *(x.shape for x in xs))
    return [x if tuple(x.shape) == shape else _broadcast_to(x, shape) for x in xs]


@composite(precision="full", functions=("cosine_embedding_loss",))
def _cosine_embedding(a: Tensor, b: Tensor, target: Tensor, margin: float, reduction: str) -> Any:
    similarity = _cosine(a, b, a.ndim - 1, 1e-8)
    return reduced(_where(target > 0.0, 1.0 - similarity, _relu(similarity - margin)), reduction)


def cosine_embedding_loss(a: Any, b: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """1 − cos(a, b) where the target is 1, max(0, cos(a, b) − margin) where it is −1; features on the last axis.

    >>> cosine_embedding_loss([[1.0, 0.0]], [[0.0, 1.0]], [1]).item()
    1.0
    """
    check_reduction(reduction, "cosine_embedding_loss")
    x, y = _broadcast(a, b, "cosine_embedding_loss")
    t = as_tensor(target, "cosine_embedding_loss")
    if x.ndim == 0 or tuple(t.shape) != tuple(x.shape[:-1]):
        raise ShapeError(
            f"cosine_embedding_loss: target {describe(t)} must have the shape of {describe(x)} without its last axis"
        )
    loss: Tensor = _cosine_embedding(x, y, as_dtype_of(t, x.dtype), as_real(margin), reduction)
    return loss


# ---------------------------------------------------------------------------------------------- distributions


@composite(precision="full", functions=("kl_div",))
def _kl(log_p: Tensor, target: Tensor, reduction: str, log_target: bool) -> Any:
    if log_target:
        loss = _exp(target) * (target - log_p)
    else:
        loss = _xlogy(target, target) - target * log_p
    if reduction == "batchmean":
        terms = wide(loss)
        total = _sum(terms, tuple(range(loss.ndim)), 0)
        return as_dtype_of(total / number(loss.shape[0], terms.dtype), loss.dtype)
    return reduced(loss, reduction)


def kl_div(log_p: Any, target: Any, *, log_target: bool = False, reduction: str = "mean") -> Tensor:
    """target · (ln target − log_p): Σ of it is the divergence of p from the target. Also reduction="batchmean".

    >>> kl_div([0.0, -1.0], [1.0, 0.0]).item()
    0.0
    """
    check_reduction(reduction, "kl_div", "batchmean")
    x, t = pair(log_p, target, "kl_div")
    if reduction == "batchmean" and x.ndim == 0:
        raise ShapeError("kl_div: reduction='batchmean' needs a batch axis, got a tensor without axes")
    y: Tensor = _kl(x, t, reduction, bool(log_target))
    return y
