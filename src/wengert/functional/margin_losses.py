"""Losses that ask for a margin: between ranks, between labels, between distances."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import int64
from wengert.errors import ArgumentError, DTypeError, ShapeError
from wengert.functional.elementwise import _softplus, pow
from wengert.functional.losses import check_reduction, optional, pair, reduced
from wengert.functional.reductions import squared_size
from wengert.functional.scanning import cumprod
from wengert.program.numbers import as_real
from wengert.program.trace import broadcast_shapes
from wengert.tensors.arguments import (
    as_dtype_of,
    as_floating,
    as_tensor,
    describe,
    iota,
    narrow,
    native,
    number,
    on_host,
    promoted,
    wide,
)

_sum, _max, _relu, _abs, _sqrt = (native(n) for n in ("sum", "max", "relu", "abs", "sqrt"))
_where, _reshape, _take_along = (native(n) for n in ("where", "reshape", "take_along_axis"))


@composite(precision="full", functions=("margin_ranking_loss",))
def _ranking(a: Tensor, b: Tensor, target: Tensor, margin: float, reduction: str) -> Any:
    return reduced(_relu(margin - target * (a - b)), reduction)


def margin_ranking_loss(a: Any, b: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """max(0, margin − t (a − b)): a must be larger than b where t is 1, and smaller where it is −1.

    >>> margin_ranking_loss([1.0, 2.0], [0.0, 3.0], [1, 1], reduction="none").tolist()
    [0.0, 1.0]
    """
    name = "margin_ranking_loss"
    check_reduction(reduction, name)
    x, y = promoted([as_floating(as_tensor(v, name)) for v in (a, b)])
    t = as_dtype_of(as_tensor(target, name), x.dtype)
    broadcast_shapes(name, x.shape, y.shape, t.shape)
    loss: Tensor = _ranking(x, y, t, as_real(margin), reduction)
    return loss


@composite(precision="full", functions=("soft_margin_loss",))
def _soft_margin(x: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Any:
    loss = (1.0 - target) * x + _softplus(-x)
    loss = wide(loss if weight is None else loss * weight)
    per_sample = _sum(loss, (x.ndim - 1,), 0) / number(x.shape[-1], loss.dtype)
    return narrow(reduced(per_sample, reduction), x.dtype)


def multilabel_soft_margin_loss(logits: Any, target: Any, *, weight: Any = None, reduction: str = "mean") -> Tensor:
    """−mean over the last axis of t ln σ(x) + (1 − t) ln(1 − σ(x)): any number of labels per sample, t of 0 and 1.

    >>> multilabel_soft_margin_loss([[0.0, 0.0]], [[1.0, 0.0]]).item()
    0.6931...
    """
    name = "multilabel_soft_margin_loss"
    check_reduction(reduction, name)
    x, t = pair(logits, target, name)
    if x.ndim == 0:
        raise ShapeError(f"{name}: needs an axis of classes, got {describe(x)}")
    y: Tensor = _soft_margin(x, t, optional(weight, name), reduction)
    return y


@composite(precision="full", functions=("multilabel_margin_loss",))
def _multilabel_margin(x: Tensor, target: Tensor, reduction: str) -> Any:
    classes, last = x.shape[-1], x.ndim - 1
    listed = cumprod(as_dtype_of(target >= 0, int64), axis=last)  # up to the first negative entry
    safe = _where(listed > 0, target, 0)
    of_labels = _take_along(x, safe, last)
    same = as_dtype_of(_reshape(safe, (*safe.shape, 1)) == iota(classes, like=x), x.dtype)
    shown = as_dtype_of(_reshape(listed, (*listed.shape, 1)), x.dtype)
    other = 1.0 - _max(same * shown, (last,), 0)  # classes that are no labels
    gaps = 1.0 - _reshape(of_labels, (*x.shape, 1)) + _reshape(x, (*x.shape[:-1], 1, classes))
    terms = _relu(gaps) * shown * _reshape(other, (*x.shape[:-1], 1, classes))
    return reduced(_sum(terms, (last, last + 1), 0) / number(classes, x.dtype), reduction)


def multilabel_margin_loss(x: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """Σ max(0, 1 − x[label] + x[other]) / classes over all pairs of a label and a class that is none.

    The target lists the labels of a sample, up to the first −1, and has the shape of x.

    >>> multilabel_margin_loss([[0.1, 0.2, 0.4, 0.8]], [[3, 0, -1, 1]]).item()
    0.8500...
    """
    name = "multilabel_margin_loss"
    check_reduction(reduction, name)
    t, labels = as_floating(as_tensor(x, name)), as_tensor(target, name)
    if not labels.dtype.is_integer:
        raise DTypeError(f"{name}: the target lists labels, which must be integers, got {describe(labels)}")
    if t.ndim not in (1, 2) or tuple(labels.shape) != tuple(t.shape):
        raise ShapeError(
            f"{name}: x must have shape (batch, classes) or (classes,), and the target the same, got {describe(t)} and "
            f"{describe(labels)}"
        )
    if on_host(labels) and labels.size and int(labels.numpy().max()) >= t.shape[-1]:
        raise ArgumentError(f"{name}: the target has label {labels.numpy().max()}, but there are {t.shape[-1]} classes")
    y: Tensor = _multilabel_margin(t, as_dtype_of(labels, int64), reduction)
    return y


@composite(precision="full", functions=("triplet_margin_loss",))
def _triplet(anchor: Tensor, near: Tensor, far: Tensor, margin: float, p: float, reduction: str) -> Any:
    # PyTorch's distance: the small number is added to the difference, so that the root is smooth at equal points.
    def distance(x: Any) -> Any:
        d = wide(anchor) - wide(x) + 1e-6
        last = (anchor.ndim - 1,)
        if p == 2.0:
            return _sqrt(_sum(squared_size(d), last, 0))
        if p == math.inf:
            return _max(_abs(d), last, 0)
        total = _sum(_abs(d) if p == 1.0 else pow(_abs(d), p), last, 0)
        return total if p == 1.0 else pow(total, 1.0 / p)

    loss = _relu(distance(near) - distance(far) + margin)
    return narrow(reduced(loss, reduction), anchor.dtype)


def triplet_margin_loss(
    anchor: Any, near: Any, far: Any, *, margin: float = 1.0, p: float = 2.0, reduction: str = "mean"
) -> Tensor:
    """max(0, |anchor − near|ₚ − |anchor − far|ₚ + margin), distances along the last axis (Schroff et al., 2015).

    >>> triplet_margin_loss([[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 5.0]]).item()
    0.99999...
    >>> triplet_margin_loss([[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 5.0]], p=1).item()
    2.99999...
    """
    check_reduction(reduction, "triplet_margin_loss")
    if not p > 0:
        raise ArgumentError(f"triplet_margin_loss: p must be positive, got {p}")
    xs = promoted([as_floating(as_tensor(x, "triplet_margin_loss")) for x in (anchor, near, far)])
    if xs[0].ndim == 0 or any(tuple(x.shape) != tuple(xs[0].shape) for x in xs):
        raise ShapeError(f"triplet_margin_loss: points must have the same shape, got {', '.join(map(describe, xs))}")
    y: Tensor = _triplet(xs[0], xs[1], xs[2], as_real(margin), float(p), reduction)
    return y
