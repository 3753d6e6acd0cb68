"""Losses that ask for a margin: between ranks, between labels, between distances."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import int64
from wengert.errors import ArgumentError, DTypeError, ShapeError
from wengert.functional.distances import pairwise_distance
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
_take, _minimum = native("take"), native("minimum")


def check_labels(labels: Tensor, classes: Any, name: str, least: int | None = 0) -> None:
    """Refuse labels that name no class, if their numbers are known."""
    if not (on_host(labels) and labels.size):
        return
    values = labels.numpy()
    for label in (values.max(), values.min()):
        if label >= classes or (least is not None and label < least):
            raise ArgumentError(f"{name}: the target has label {label}, but there are {classes} classes")


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


@composite(precision="full", functions=("multilabel_soft_margin_loss",))
def _multilabel_soft_margin(x: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Any:
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
    y: Tensor = _multilabel_soft_margin(x, t, optional(weight, name), reduction)
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
    check_labels(labels, t.shape[-1], name, least=None)
    y: Tensor = _multilabel_margin(t, as_dtype_of(labels, int64), reduction)
    return y


@composite(precision="full", functions=("soft_margin_loss",))
def _soft_margin(x: Tensor, target: Tensor, reduction: str) -> Any:
    return reduced(_softplus(-target * x), reduction)


def soft_margin_loss(x: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """ln(1 + e^(−t x)) for targets of −1 and 1.

    >>> soft_margin_loss([0.0, 1000.0], [1.0, -1.0], reduction="none").tolist()
    [0.6931..., 1000.0]
    """
    check_reduction(reduction, "soft_margin_loss")
    y: Tensor = _soft_margin(*pair(x, target, "soft_margin_loss"), reduction)
    return y


@composite(precision="full", functions=("hinge_embedding_loss",))
def _hinge_embedding(x: Tensor, target: Tensor, margin: float, reduction: str) -> Any:
    near, far = _where(target == -1.0, 0.0, x), _where(target == 1.0, 0.0, _relu(margin - x))
    return reduced(near + far, reduction)


def hinge_embedding_loss(x: Any, target: Any, *, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """x where the target is 1, max(0, margin − x) where it is −1: for distances of what belongs together or does not.

    >>> hinge_embedding_loss([0.25, 0.25], [1.0, -1.0], reduction="none").tolist()
    [0.25, 0.75]
    """
    check_reduction(reduction, "hinge_embedding_loss")
    y: Tensor = _hinge_embedding(*pair(x, target, "hinge_embedding_loss"), as_real(margin), reduction)
    return y


@composite(precision="full", functions=("multi_margin_loss",))
def _multi_margin(x: Tensor, target: Tensor, weight: Tensor | None, p: int, margin: float, reduction: str) -> Any:
    t, last, classes = wide(x), x.ndim - 1, x.shape[-1]
    labels = _reshape(target, (*target.shape, 1))
    terms = _relu(margin - _take_along(t, labels, last) + t)
    terms = terms * terms if p == 2 else terms
    if weight is not None:
        terms = terms * _reshape(_take(as_dtype_of(weight, t.dtype), target, 0), (*target.shape, 1))
    others = _where(labels == iota(classes, like=x), 0.0, terms)
    return narrow(reduced(_sum(others, (last,), 0) / number(classes, t.dtype), reduction), x.dtype)


def multi_margin_loss(
    x: Any, target: Any, *, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """Σ max(0, margin − x[label] + x[other])^p / classes over the other classes, with one label per sample.

    p is 1 or 2; `weight` has one number per class, that of the label counts (Crammer and Singer, 2001).

    >>> multi_margin_loss([[0.1, 0.2, 0.4, 0.8]], [3]).item()
    0.3249...
    """
    name = "multi_margin_loss"
    check_reduction(reduction, name)
    t, labels = as_floating(as_tensor(x, name)), as_tensor(target, name)
    if p not in (1, 2):
        raise ArgumentError(f"{name}: p must be 1 or 2, got {p}")
    if not labels.dtype.is_integer:
        raise DTypeError(f"{name}: the target holds labels, which must be integers, got {describe(labels)}")
    if t.ndim not in (1, 2) or tuple(labels.shape) != tuple(t.shape[:-1]):
        raise ShapeError(
            f"{name}: x must have shape (batch, classes) or (classes,), and the target (batch,) or (), got {describe(t)} "
            f"and {describe(labels)}"
        )
    w = optional(weight, name)
    if w is not None and tuple(w.shape) != tuple(t.shape[-1:]):
        raise ShapeError(f"{name}: the weight must have one number per class, got {describe(w)} for {describe(t)}")
    check_labels(labels, t.shape[-1], name)
    y: Tensor = _multi_margin(t, as_dtype_of(labels, int64), w, p, as_real(margin), reduction)
    return y


@composite(precision="full", functions=("triplet_margin_loss",))
def _triplet(anchor: Tensor, near: Tensor, far: Tensor, margin: float, p: float, swap: bool, reduction: str) -> Any:
    # PyTorch's distance: the small number is added to the difference, so that the root is smooth at equal points.
    def distance(x: Any, y: Any) -> Any:
        d = wide(x) - wide(y) + 1e-6
        last = (anchor.ndim - 1,)
        if p == 2.0:
            return _sqrt(_sum(squared_size(d), last, 0))
        if p == math.inf:
            return _max(_abs(d), last, 0)
        total = _sum(_abs(d) if p == 1.0 else pow(_abs(d), p), last, 0)
        return total if p == 1.0 else pow(total, 1.0 / p)

    to_far = distance(anchor, far)
    if swap:
        to_far = _minimum(to_far, distance(near, far))
    loss = _relu(distance(anchor, near) - to_far + margin)
    return narrow(reduced(loss, reduction), anchor.dtype)


def triplet_margin_loss(
    anchor: Any,
    near: Any,
    far: Any,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, |anchor − near|ₚ − |anchor − far|ₚ + margin), distances along the last axis (Schroff et al., 2015).

    With `swap` the smaller one of |anchor − far|ₚ and |near − far|ₚ counts (Balntas et al., 2016).

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
    y: Tensor = _triplet(xs[0], xs[1], xs[2], as_real(margin), float(p), bool(swap), reduction)
    return y


def triplet_margin_with_distance_loss(
    anchor: Any,
    near: Any,
    far: Any,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, near) − d(anchor, far) + margin) with any distance d, by default `pairwise_distance`.

    With `swap` the smaller one of d(anchor, far) and d(near, far) counts (Balntas et al., 2016).

    >>> import wengert as wg
    >>> d = lambda a, b: abs(a - b).max(axis=-1)
    >>> triplet_margin_with_distance_loss([[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 4.5]], distance_function=d).item()
    0.5
    """
    name = "triplet_margin_with_distance_loss"
    check_reduction(reduction, name)
    d = pairwise_distance if distance_function is None else distance_function
    a, n, f = promoted([as_floating(as_tensor(x, name)) for x in (anchor, near, far)])
    to_far = d(a, f)
    if swap:
        to_far = _minimum(to_far, d(n, f))
    loss: Any = d(a, n) - to_far
    return reduced(_relu(loss + margin), reduction)  # type: ignore[no-any-return]
