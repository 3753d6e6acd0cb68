"""Losses that are negative log-likelihoods of a target: normal, Poisson, and alignments of sequences (CTC)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import float32
from wengert.errors import ArgumentError, DTypeError, ShapeError
from wengert.functional.elementwise import _xlogy, logaddexp
from wengert.functional.gather import take_along_axis
from wengert.functional.joining import concat
from wengert.functional.losses import check_reduction, pair, reduced
from wengert.functional.reductions import squared_size
from wengert.program.numbers import as_real
from wengert.program.trace import broadcast_shapes
from wengert.tensors.arguments import as_dtype_of, as_floating, as_tensor, describe, full, native
from wengert.tensors.conversion import asarray

_log, _exp, _where, _maximum, _broadcast_to = (native(n) for n in ("log", "exp", "where", "maximum", "broadcast_to"))
_NEVER = -1e30  # the logarithm of 0 in sums of probabilities: finite, so that derivatives are


@composite(precision="full", functions=("gaussian_nll_loss",))
def _gaussian(x: Tensor, target: Tensor, var: Tensor, full_: bool, eps: float, reduction: str) -> Any:
    v = _maximum(var, eps)
    loss = 0.5 * (_log(v) + squared_size(x - target) / v)
    return reduced(loss + 0.5 * math.log(2.0 * math.pi) if full_ else loss, reduction)


def gaussian_nll_loss(
    x: Any, target: Any, var: Any, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """½ (ln v + (x − target)²/v), with v the variance, at least eps; `full` adds ½ ln 2π (Nix and Weigend, 1994).

    The variance broadcasts to x; without x's last axis, it is one for all of it.

    >>> gaussian_nll_loss([1.0], [3.0], [4.0]).item()
    1.1931...
    """
    name = "gaussian_nll_loss"
    check_reduction(reduction, name)
    p, t = pair(x, target, name)
    v = as_dtype_of(as_floating(as_tensor(var, name)), p.dtype)
    if v.ndim == p.ndim - 1 and tuple(v.shape) == tuple(p.shape[:-1]) and tuple(v.shape) != tuple(p.shape[1:]):
        v = v.reshape((*v.shape, 1))
    if broadcast_shapes(name, p.shape, v.shape) != tuple(p.shape):
        raise ShapeError(f"{name}: the variance {describe(v)} does not broadcast to {describe(p)}")
    if v._plain and not v.requires_grad and v.size and float(v.min()) < 0:
        raise ArgumentError(f"{name}: variances must not be negative, got {float(v.min())}")
    if eps <= 0:
        raise ArgumentError(f"{name}: eps must be positive, got {eps}")
    y: Tensor = _gaussian(p, t, v, bool(full), as_real(eps), reduction)
    return y


@composite(precision="full", functions=("poisson_nll_loss",))
def _poisson(x: Tensor, target: Tensor, log_input: bool, full_: bool, eps: float, reduction: str) -> Any:
    loss = _exp(x) - target * x if log_input else x - target * _log(x + eps)
    if full_:  # Stirling's formula for ln t!
        stirling = _xlogy(target, target) - target + 0.5 * _log(2.0 * math.pi * _maximum(target, 1.0))
        loss = loss + _where(target > 1.0, stirling, 0.0)
    return reduced(loss, reduction)


def poisson_nll_loss(
    x: Any, target: Any, *, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Tensor:
    """eˣ − target · x, of the logarithm x of a rate; of the rate itself, x − target · ln(x + eps), without `log_input`.

    `full` adds Stirling's approximation of ln target!.

    >>> poisson_nll_loss([0.0], [2.0]).item(), poisson_nll_loss([1.0], [2.0], log_input=False).item()
    (1.0, 1.0)
    """
    check_reduction(reduction, "poisson_nll_loss")
    p, t = pair(x, target, "poisson_nll_loss")
    y: Tensor = _poisson(p, t, bool(log_input), bool(full), as_real(eps), reduction)
    return y


# ------------------------------------------------------------------------------------------------------------ CTC


@composite(precision="full", functions=("ctc_loss",))
def _ctc_step(alpha: Tensor, emitted: Tensor, skips: Tensor, runs: Tensor) -> Any:
    """Logarithms of the probabilities to stand at each label after one more frame."""
    n, states = alpha.shape
    never = full((n, 2), _NEVER, alpha.dtype, like=alpha)
    padded = concat([never, alpha], axis=1)
    stay_or_step = logaddexp(alpha, padded[:, 1 : states + 1])
    moved = logaddexp(stay_or_step, _where(skips, padded[:, :states], _NEVER)) + emitted
    return _where(runs, moved, alpha)


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """−ln of the probability of a sequence of labels, over all its alignments with the frames (Graves et al., 2006).

    `log_probs` is (frames, batch, classes), or without batch, such as `log_softmax` gives; `targets` is (batch, labels) or
    all labels one after the other. The mean is over the batch, of each loss divided by its number of labels. A sequence
    that is too long for its frames has an infinite loss, or 0 with `zero_infinity`.

    >>> import wengert as wg
    >>> frames = wg.log_softmax(wg.zeros((2, 1, 3)))
    >>> ctc_loss(frames, [[1]], [2], [1]).item()  # 1 1, blank 1, 1 blank: three of nine
    1.0986...
    """
    name = "ctc_loss"
    check_reduction(reduction, name)
    x = as_floating(as_tensor(log_probs, name))
    single = x.ndim == 2
    x = x.reshape((x.shape[0], 1, x.shape[1])) if single else x
    if x.ndim != 3 or not x.dtype.is_floating:
        raise ShapeError(
            f"{name}: log_probs must be real, with shape (frames, batch, classes) or (frames, classes), got {describe(x)}"
        )
    frames, lengths, states, skips = _alignments(x, targets, input_lengths, target_lengths, blank)
    dtype = x.dtype
    x = as_dtype_of(x, float32) if dtype.itemsize == 2 else x
    loss = _ctc(x, frames, lengths, states, skips)
    if zero_infinity:
        loss = _where(loss < math.inf, loss, 0.0)
    if reduction == "mean":
        loss = loss / asarray(np.maximum(lengths, 1)).astype(loss.dtype)
    loss = as_dtype_of(reduced(loss, reduction), dtype)
    return loss.reshape(()) if single and reduction == "none" else loss


def _ctc(x: Any, frames: Any, lengths: Any, states: Any, skips: Any) -> Any:
    steps, n, _ = (int(s) for s in x.shape)
    width = states.shape[1]
    emitted = take_along_axis(_maximum(x, _NEVER), asarray(np.broadcast_to(states, (steps, n, width)).copy()), axis=2)
    begins = asarray((np.arange(width) < 1 + (lengths[:, None] > 0)) & (frames[:, None] > 0))
    alpha = _where(begins, emitted[0], _NEVER)
    may_skip = asarray(skips)
    for t in range(1, steps):
        alpha = _ctc_step(alpha, emitted[t], may_skip, asarray((frames > t)[:, None]))
    ends = np.stack([2 * lengths, np.maximum(2 * lengths - 1, 0)], 1)
    last = take_along_axis(alpha, asarray(ends), axis=1)
    both = logaddexp(last[:, 0], _where(asarray(lengths > 0), last[:, 1], _NEVER))
    # No frames and no labels: certain.
    both = _where(asarray((frames == 0) & (lengths == 0)), 0.0, both)
    return _where(both > _NEVER / 2, -both, math.inf)


def _alignments(x: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> tuple[Any, ...]:
    """Frames and labels of each sequence, its labels with blanks around them, and where a blank may be left out."""
    steps, n, classes = (int(s) for s in x.shape)
    frames, lengths = (np.asarray(v).reshape(-1) for v in (input_lengths, target_lengths))
    labels = np.asarray(targets)
    for what, v in (("targets", labels), ("input_lengths", frames), ("target_lengths", lengths)):
        if v.dtype.kind not in "iu" and v.size:
            raise DTypeError(f"ctc_loss: {what} must be integers, got {v.dtype}")
    if not 0 <= blank < classes:
        raise ArgumentError(f"ctc_loss: blank must be one of the {classes} classes, got {blank}")
    if len(frames) != n or len(lengths) != n:
        raise ShapeError(f"ctc_loss: {n} sequences need as many lengths, got {len(frames)} and {len(lengths)}")
    if (frames > steps).any() or (frames < 0).any() or (lengths < 0).any():
        raise ArgumentError(
            f"ctc_loss: input_lengths must be at most {steps}, the number of frames, and no length may be negative"
        )
    rows = _rows(labels, lengths, n)
    listed = np.arange(rows.shape[1]) < lengths[:, None]
    if ((rows < 0) | (rows >= classes))[listed].any() or (rows == blank)[listed].any():
        raise ArgumentError(f"ctc_loss: targets must be class indices below {classes}, other than the blank {blank}")
    rows = np.where(listed, rows, blank)
    states = np.full((n, 2 * rows.shape[1] + 1), blank, np.int64)
    states[:, 1::2] = rows
    skips = np.zeros(states.shape, bool)
    skips[:, 3::2] = rows[:, 1:] != rows[:, :-1]
    return frames, lengths, states, skips


def _rows(labels: Any, lengths: Any, n: int) -> Any:
    longest = int(lengths.max(initial=0))
    if labels.ndim == 2 and labels.shape[0] == n and labels.shape[1] >= longest:
        return labels[:, :longest].astype(np.int64)
    if labels.ndim == 1 and len(labels) == lengths.sum():
        rows = np.zeros((n, longest), np.int64)
        rows[np.arange(longest) < lengths[:, None]] = labels
        return rows
    raise ShapeError(
        f"ctc_loss: targets must be (batch, labels), or all {int(lengths.sum())} labels that the lengths say, got shape "
        f"{labels.shape}"
    )
