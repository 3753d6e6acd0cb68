"""Losses of classes: negative log-likelihood and cross entropy, of class indices and of probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.compiling.compile import checked_composite, composite
from wengert.dtypes import int64, result_type
from wengert.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from wengert.functional.activations import log_probabilities
from wengert.functional.losses import check_reduction, optional, reduced
from wengert.program.call_trace import call_trace
from wengert.program.numbers import as_real
from wengert.tensors.arguments import (
    as_dtype_of,
    as_floating,
    as_tensor,
    describe,
    native,
    number,
    one_axis,
    signed,
    wide,
)
from wengert.tensors.numpy import data
from wengert.user_line import warn_user

_sum, _where, _reshape, _not_equal = (native(n) for n in ("sum", "where", "reshape", "not_equal"))
_take, _take_along, _permute = (native(n) for n in ("take", "take_along_axis", "permute"))
_cross_entropy_of_rows = native("cross_entropy")


def _along(weight: Tensor, ndim: int, axis: int) -> Tensor:
    return _reshape(weight, tuple(weight.shape[0] if i == axis else 1 for i in range(ndim)))


def _in_range(target: Tensor, classes: int, ignore_index: int) -> tuple[Any, Any]:
    """Which targets count, and indices that a gather takes: 0 for those that do not."""
    valid = _not_equal(target, ignore_index)
    beyond = _where(target < 0, number(classes, int64), target)  # the gather would count negative ones from the end
    return valid, _where(valid, beyond, 0)


def _weighted(loss: Any, valid: Any, safe: Any, weight: Tensor | None) -> tuple[Any, Any]:
    """Each sample's loss, and its weight; both are 0 where the target does not count."""
    counted = _where(valid, loss, 0.0)
    if weight is None:
        return counted, as_dtype_of(valid, loss.dtype)
    w = _where(valid, as_dtype_of(_take(weight, safe, 0), loss.dtype), 0.0)
    return counted * w, w


def _pick(log_p: Tensor, target: Tensor, weight: Tensor | None, axis: int, ignore_index: int) -> tuple[Any, Any]:
    """−log_p of each sample's class, and its weight."""
    valid, safe = _in_range(target, log_p.shape[axis], ignore_index)
    place = _reshape(safe, (*target.shape[:axis], 1, *target.shape[axis:]))
    loss = -_reshape(_take_along(log_p, place, axis), target.shape)
    return _weighted(loss, valid, safe, weight)


def _mean_of(loss: Any, weights: Any, reduction: str) -> Any:
    if reduction == "none":
        return loss
    axes = tuple(range(loss.ndim))
    total = _sum(loss, axes, 0)
    return total / _sum(weights, axes, 0) if reduction == "mean" else total


def _indices_loss(
    log_p: Tensor,
    target: Tensor,
    weight: Tensor | None,
    axis: int,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> Any:
    loss, w = _pick(log_p, target, weight, axis, ignore_index)
    if label_smoothing:
        spread = log_p if weight is None else log_p * _along(weight, log_p.ndim, axis)
        spread = -_sum(spread, (axis,), 0) * (label_smoothing / number(log_p.shape[axis], log_p.dtype))
        loss = loss * (1.0 - label_smoothing) + _where(_not_equal(target, ignore_index), spread, 0.0)
    return _mean_of(loss, w, reduction)


def _loss_of_rows(x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str) -> Any:
    """The same of logits in rows, which are all that is kept, without smoothing."""
    valid, safe = _in_range(target, x.shape[-1], ignore_index)
    loss, *_ = _cross_entropy_of_rows(x, safe)
    return _mean_of(*_weighted(_reshape(loss, target.shape), valid, safe, weight), reduction)


def _probabilities_loss(
    log_p: Tensor,
    target: Any,
    weight: Tensor | None,
    axis: int,
    label_smoothing: float,
    reduction: str,
) -> Any:
    if label_smoothing:
        classes = number(log_p.shape[axis], log_p.dtype)
        target = target * (1.0 - label_smoothing) + label_smoothing / classes
    loss = log_p * target
    if weight is not None:
        loss = loss * _along(weight, log_p.ndim, axis)
    return reduced(-_sum(loss, (axis,), 0), reduction)


@composite(precision="full", functions=("nll_loss",))
def _nll(
    log_p: Tensor,
    target: Tensor,
    weight: Tensor | None,
    axis: int,
    ignore_index: int,
    reduction: str,
) -> Any:
    loss = _indices_loss(wide(log_p), target, weight, axis, ignore_index, 0.0, reduction)
    return as_dtype_of(loss, log_p.dtype)


def _classes(
    x: Any, target: Any, weight: Any, axis: int, name: str, indices_only: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scores, targets and weights, checked: class indices without the class axis, or probabilities."""
    t = as_floating(as_tensor(x, name))
    if t.ndim == 0:
        raise ShapeError(f"{name}: needs a class axis, got {describe(t)}")
    k = one_axis(axis, t.ndim, name)
    y = as_tensor(target, name)
    if y.dtype.is_inexact and not indices_only:
        if tuple(y.shape) != tuple(t.shape):
            raise ShapeError(
                f"{name}: probabilities {describe(y)} must have the shape of the scores {describe(t)}; "
                "class indices must be integers"
            )
    elif not y.dtype.is_integer:
        raise DTypeError(
            f"{name}: targets must be class indices of an integer dtype, got {describe(y)}; use astype(int)"
        )
    elif tuple(y.shape) != (*t.shape[:k], *t.shape[k + 1 :]):
        raise ShapeError(
            f"{name}: class indices {describe(y)} do not fit scores {describe(t)} with classes on axis {k}: "
            "they have the same shape without that axis"
        )
    w = optional(weight, name)
    if w is not None and (w.ndim != 1 or w.shape[0] != t.shape[k]):
        raise ShapeError(f"{name}: weight {describe(w)} must hold one number for each of {t.shape[k]} classes")
    return t, signed(y, name) if y.dtype.is_integer else y, w


def _explained(
    error: IndexRangeError, x: Any, target: Any, axis: int | None, ignore_index: int, name: str
) -> IndexRangeError:
    """The gather's error in terms of classes: which class is wrong, and where it is."""
    scores, classes_of = as_tensor(x, name), as_tensor(target, name)
    if not classes_of._plain:
        return error
    values = data(classes_of)
    classes = scores.shape[min(1, scores.ndim - 1) if axis is None else axis]
    wrong = ((values < 0) | (values >= classes)) & (values != ignore_index)
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    at = f" at position {place[0] if len(place) == 1 else place}" if place else ""
    return IndexRangeError(f"{name}: class {values[place]}{at} is out of range for {classes} classes")


def nll_loss(
    log_p: Any,
    target: Any,
    *,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """−log_p[target] of log-probabilities with classes on axis 1; the mean is weighted by `weight[target]`.

    >>> nll_loss([[-1.0, -2.0], [-3.0, -4.0]], [0, 1]).item()
    2.5
    """
    check_reduction(reduction, "nll_loss")
    x = as_tensor(log_p, "nll_loss")
    axis = min(1, x.ndim - 1)
    x, t, w = _classes(x, target, weight, axis, "nll_loss", True)
    try:
        y: Tensor = _nll(x, t, w, axis, int(ignore_index), reduction)
    except IndexRangeError as e:
        raise _explained(e, x, t, axis, ignore_index, "nll_loss") from None
    return y


def _cross_entropy_operands(
    logits: Any, target: Any, weight: Any, ignore_index: Any, label_smoothing: Any, reduction: Any, axis: Any, name: str
) -> tuple[Any, ...]:
    x, t = as_tensor(logits, name), as_tensor(target, name)
    return x, t, optional(weight, name), int(ignore_index), as_real(label_smoothing), reduction, axis, name


@checked_composite(
    _cross_entropy_operands,
    precision="full",
    functions=(
        "cross_entropy",
        "softmax_cross_entropy",
    ),
)
def _cross_entropy(
    logits: Any, target: Any, weight: Any, ignore_index: Any, label_smoothing: Any, reduction: Any, axis: Any, name: str
) -> Any:
    """Cross entropy with classes along `axis`, or along axis 1 (0 for a vector) if it is None."""
    check_reduction(reduction, name)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(f"{name}: label_smoothing must be between 0 and 1, got {label_smoothing}")
    x = as_tensor(logits, name)
    x, t, w = _classes(x, target, weight, min(1, x.ndim - 1) if axis is None else axis, name, False)
    k = one_axis(min(1, x.ndim - 1) if axis is None else axis, x.ndim, name)
    ignore, smoothing = int(ignore_index), as_real(label_smoothing)
    if not t.dtype.is_integer:
        loss = _probabilities_loss(log_probabilities(wide(x), k), t, w, k, smoothing, reduction)
    elif not smoothing:
        rows = x if k == x.ndim - 1 else _permute(x, (*(i for i in range(x.ndim) if i != k), k))
        loss = _loss_of_rows(wide(rows), t, w, ignore, reduction)
    else:
        loss = _indices_loss(log_probabilities(wide(x), k), t, w, k, ignore, smoothing, reduction)
    return as_dtype_of(loss, result_type(x.dtype, t.dtype) if t.dtype.is_floating else x.dtype)


class _Logits:
    """Looks at what `cross_entropy` is given, and warns once if it is probabilities: softmax is applied twice then.

    A look costs more than a small loss, so only calls number 1, 2, 4, 8, … are looked at.
    """

    def __init__(self) -> None:
        self.calls, self.warned = 0, False

    def watch(self, x: Any, axis: int, name: str) -> None:
        """Count a call, and look at some."""
        self.calls += 1
        if self.calls & (self.calls - 1) or self.warned or not (isinstance(x, Tensor) and x._plain):
            return
        if x.ndim and x.dtype.is_floating and call_trace() is None and _are_probabilities(x.detach(), axis):
            self.warned = True
            warn_user(
                f"{name}: every row of {describe(x)} is a probability distribution, but {name} takes logits: leave out the "
                "softmax before it, or use nll_loss with log_softmax"
            )


def _are_probabilities(x: Tensor, axis: int) -> bool:
    """Whether there are several rows along the axis, and each has no negative number and a sum of 1."""
    if not -x.ndim <= axis < x.ndim or not x.size or not 2 <= x.shape[axis] < x.size:
        return False
    a = np.asarray(data(_core.copy(x)), np.float64)  # of a copy: exporting pins a tensor's memory
    return bool((a >= 0).all() and (abs(a.sum(axis) - 1.0) < 1e-3).all() and not np.isin(a, (0.0, 1.0)).all())


_logits = _Logits()


def cross_entropy(
    logits: Any,
    target: Any,
    *,
    weight: Any = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """−ln softmax(logits)[target], averaged over the batch; classes are on axis 1.

    - `logits`: shape (batch, classes) or (batch, classes, …): numbers before softmax.
    - `target`: class indices, of shape (batch, …), or probabilities, of the shape of the logits.
    - `weight`: one number per class; the mean over class indices is weighted with it.
    - `ignore_index`: targets that do not count.
    - `label_smoothing`: ε mixes the target with the uniform distribution.
    - `reduction`: "mean", "sum" or "none".

    >>> cross_entropy([[0.0, 0.0]], [1]).item()
    0.6931...
    """
    name = "cross_entropy"
    _logits.watch(logits, 1, name)
    try:
        y: Tensor = _cross_entropy(logits, target, weight, ignore_index, label_smoothing, reduction, None, name)
    except IndexRangeError as e:
        raise _explained(e, logits, target, None, ignore_index, name) from None
    return y


def softmax_cross_entropy(
    logits: Any,
    target: Any,
    *,
    axis: int = -1,
    weight: Any = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """`cross_entropy` with classes on the last axis, or the one given.

    >>> softmax_cross_entropy([[[0.0, 0.0]]], [[1]]).item()
    0.6931...
    """
    name = "softmax_cross_entropy"
    _logits.watch(logits, axis, name)
    try:
        y: Tensor = _cross_entropy(logits, target, weight, ignore_index, label_smoothing, reduction, axis, name)
    except IndexRangeError as e:
        raise _explained(e, logits, target, axis, ignore_index, name) from None
    return y
