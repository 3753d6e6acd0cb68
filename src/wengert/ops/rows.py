"""Normalisation of rows to mean 0 and variance 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert import _core
from wengert.ops.reduce import sum
from wengert.ops.registry import OPS, Op, define
from wengert.ops.samples import Invalid, Sample, exactly, real, whole
from wengert.ops.shape import broadcast_to
from wengert.ops.zero import ZERO
from wengert.program.trace import create


def _mean(x: Any, n_axes: int) -> Any:
    """Along rows, which keep their axes."""
    n: Any = 1
    for size in x.shape[x.ndim - n_axes :]:
        n = n * size
    if isinstance(n, _core.Dim):
        n = create(OPS["size_scalar"], ((n,), x.dtype.code))
    return sum(x, tuple(range(x.ndim - n_axes, x.ndim)), 1) / n


def _standardised(x: Any, mean: Any, scale: Any) -> Any:
    return (x - broadcast_to(mean, x.shape)) * broadcast_to(scale, x.shape)


# From x and two numbers a row, not from y: they are what a derivative then keeps.
def _standardise_jvp(x_dot: Any, outputs: Any, x: Any, n_axes: int, eps: float, centred: int) -> Any:
    _, mean, scale = outputs
    along = _mean(x_dot * _standardised(x, mean, scale), n_axes)
    return (
        standardise_push(x_dot, x, mean, scale, n_axes, centred),
        _mean(x_dot, n_axes) if centred else ZERO,
        -along * (scale * scale),
    )


def _np_standardise(x: Any, n_axes: int, eps: float, centred: int) -> Any:
    axes = tuple(range(x.ndim - n_axes, x.ndim))
    mean = x.mean(axes, keepdims=True) * centred
    scale = 1 / np.sqrt(np.square(x - mean).mean(axes, keepdims=True) + eps)
    return (x - mean) * scale, mean, scale


standardise: Op = define(
    "standardise",
    formula="y = (x − mean) · scale along rows, mean, and scale = 1 / √(mean (x − mean)² + eps)",
    reference=_np_standardise,
    jvp=_standardise_jvp,
    samples=[
        Sample((real(3, 5),), (1, 1e-5, 1)),
        Sample((real(3, 5),), (1, 1e-3, 0)),
        Sample((real(2, 3, 4),), (2, 0.0, 1)),
        Sample((real(2, 67),), (1, 1e-5, 1)),
        Sample((real(2, 1100),), (1, 1e-5, 1), second=False),
        Sample((real(0, 3),), (1, 1e-5, 1)),
        Sample((exactly(1e4, 1e4 + 1, 1e4 + 2, 1e4 - 3),), (1, 1e-5, 1), gradients=False),
    ],
    invalid=[
        Invalid((whole(2, 3),), (1, 1e-5, 1), "DTypeError", "real floating"),
        Invalid((real(2, 3),), (3, 1e-5, 1), "ShapeError", "last 3 axes"),
        Invalid((real(2, 3),), (0, 1e-5, 1), "ShapeError", "last 0 axes"),
    ],
    dear=True,
    public=False,
)


def _push_jvp(
    t_dot: Any, x_dot: Any, mean_dot: Any, scale_dot: Any, y: Any, t: Any, x: Any, mean: Any, scale: Any,
    n_axes: int, centred: int,
) -> Any:  # fmt: skip
    total = ZERO if t_dot is ZERO else standardise_push(t_dot, x, mean, scale, n_axes, centred)
    wide_scale = broadcast_to(scale, x.shape)
    h = _standardised(x, mean, scale)
    h_dot = ZERO
    if x_dot is not ZERO:
        h_dot = h_dot + x_dot * wide_scale
    if mean_dot is not ZERO:
        h_dot = h_dot - broadcast_to(mean_dot * scale, x.shape)
    if scale_dot is not ZERO:
        spread = broadcast_to(scale_dot, x.shape)
        h_dot = h_dot + spread * (x - broadcast_to(mean, x.shape))
        rest = t - broadcast_to(_mean(t, n_axes), x.shape) if centred else t
        total = total + spread * (rest - h * broadcast_to(_mean(h * t, n_axes), x.shape))
    if h_dot is not ZERO:
        along = broadcast_to(_mean(h * t, n_axes) * scale, x.shape)
        turned = broadcast_to(_mean(h_dot * t, n_axes), x.shape)
        total = total - h_dot * along - turned * (h * wide_scale)
    return total


def _np_push(t: Any, x: Any, mean: Any, scale: Any, n_axes: int, centred: int) -> Any:
    axes = tuple(range(x.ndim - n_axes, x.ndim))
    y = (x - mean) * scale
    return scale * (t - t.mean(axes, keepdims=True) * centred - y * (y * t).mean(axes, keepdims=True))


# The derivative of `standardise` in the direction t. It is symmetric: its own transpose.
standardise_push: Op = define(
    "standardise_push",
    formula="scale · (t − mean t − y · mean (y t)) along rows, with y = (x − mean) · scale",
    reference=_np_push,
    jvp=_push_jvp,
    transpose=(
        lambda y_bar, t, x, mean, scale, n_axes, centred: standardise_push(y_bar, x, mean, scale, n_axes, centred),
        None,
        None,
        None,
    ),
    samples=[
        Sample((real(3, 5), real(3, 5), real(3, 1), real(3, 1)), (1, 1)),
        Sample((real(3, 5), real(3, 5), real(3, 1), real(3, 1)), (1, 0)),
        Sample((real(2, 3, 4), real(2, 3, 4), real(2, 1, 1), real(2, 1, 1)), (2, 1)),
        Sample((real(2, 67), real(2, 67), real(2, 1), real(2, 1)), (1, 1)),
        Sample((real(0, 3), real(0, 3), real(0, 1), real(0, 1)), (1, 1)),
    ],
    invalid=[
        Invalid((real(3, 5), real(3, 5), real(3, 1), real(3)), (1, 1), "ShapeError", "one number a row"),
        Invalid((real(3, 5), real(3, 4), real(3, 1), real(3, 1)), (1, 1), "ShapeError", "one shape"),
        Invalid((whole(3, 5), whole(3, 5), whole(3, 1), whole(3, 1)), (1, 1), "DTypeError", "real floating"),
    ],
    dear=True,
    public=False,
)
