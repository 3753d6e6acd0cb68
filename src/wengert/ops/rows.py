"""Normalisation of rows to mean 0 and variance 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert import _core
from wengert.ops.blocked import filled, jvp_of_linear, transpose_by
from wengert.ops.reduce import sum
from wengert.ops.registry import OPS, Op, define
from wengert.ops.samples import Invalid, Sample, real, whole
from wengert.ops.shape import broadcast_to, reshape, zeros_like
from wengert.ops.zero import ZERO
from wengert.program.trace import create


def _means(x: Any) -> Any:
    """Along rows, the last two axes, which are kept."""
    n = x.shape[2] * x.shape[3]
    if isinstance(n, _core.Dim):
        n = create(OPS["size_scalar"], ((n,), x.dtype.code))
    return sum(x, (2, 3), 1) / n


def _mean(x: Any) -> Any:
    """The same in the shape of x."""
    return broadcast_to(_means(x), x.shape)


def _spread(parameter: Any, x: Any) -> Any:
    """One number for each member of each group, to the shape of the rows."""
    return broadcast_to(reshape(parameter, (*parameter.shape, 1)), x.shape)


def _standardised(x: Any, mean: Any, scale: Any) -> Any:
    return (x - broadcast_to(mean, x.shape)) * broadcast_to(scale, x.shape)


def _projected(t: Any, h: Any, scale: Any, centred: int) -> Any:
    """The derivative of standardising in the direction t. It is symmetric."""
    rest = t - _mean(t) if centred else t
    return (rest - h * _mean(h * t)) * broadcast_to(scale, t.shape)


def _tangent(
    x_dot: Any, weight_dot: Any, bias_dot: Any, x: Any, mean: Any, scale: Any, weight: Any, centred: int
) -> Any:
    h = _standardised(x, mean, scale)
    y_dot = _projected(x_dot, h, scale, centred) * _spread(weight, x)
    return y_dot + h * _spread(weight_dot, x) + _spread(bias_dot, x)


def _cotangent(y_bar: Any, x: Any, mean: Any, scale: Any, weight: Any, centred: int) -> Any:
    h = _standardised(x, mean, scale)
    x_bar = _projected(y_bar * _spread(weight, x), h, scale, centred)
    return x_bar, sum(y_bar * h, (0, 3), 0), sum(y_bar, (0, 3), 0)


# From x and two numbers a row, not from y: they are what a derivative then keeps.
def _standardise_jvp(
    x_dot: Any, weight_dot: Any, bias_dot: Any, outputs: Any, x: Any, weight: Any, bias: Any, eps: float, centred: int
) -> Any:
    _, mean, scale = outputs
    dots = filled((x_dot, weight_dot, bias_dot), (x, weight, bias))
    y_dot = standardise_tangent(*dots, x, mean, scale, weight, centred)
    if x_dot is ZERO:
        return y_dot, ZERO, ZERO
    along = _means(x_dot * _standardised(x, mean, scale))
    return y_dot, _means(x_dot) if centred else ZERO, -along * (scale * scale)


def _np_standardise(x: Any, weight: Any, bias: Any, eps: float, centred: int) -> Any:
    mean = x.mean((2, 3), keepdims=True) * centred
    scale = 1 / np.sqrt(np.square(x - mean).mean((2, 3), keepdims=True) + eps)
    return (x - mean) * scale * weight[..., None] + bias[..., None], mean, scale


def _np_projected(t: Any, h: Any, scale: Any, centred: int) -> Any:
    return scale * (t - t.mean((2, 3), keepdims=True) * centred - h * (h * t).mean((2, 3), keepdims=True))


def _np_tangent(
    x_dot: Any, weight_dot: Any, bias_dot: Any, x: Any, mean: Any, scale: Any, weight: Any, centred: int
) -> Any:
    h = (x - mean) * scale
    y_dot = _np_projected(x_dot, h, scale, centred) * weight[..., None]
    return y_dot + h * weight_dot[..., None] + bias_dot[..., None]


def _np_cotangent(y_bar: Any, x: Any, mean: Any, scale: Any, weight: Any, centred: int) -> Any:
    h = (x - mean) * scale
    x_bar = _np_projected(y_bar * weight[..., None], h, scale, centred)
    return x_bar, (y_bar * h).sum((0, 3)), y_bar.sum((0, 3))


# (batch, groups, members, length). Those that take whole vectors and tiles are for `standardise` alone: the others run
# in its derivatives, and sums of so many terms cancel to more than the tolerance of a single value.
_LAYOUTS = [(3, 1, 5, 1), (2, 2, 3, 4), (2, 3, 1, 4), (0, 1, 3, 1)]
_LONG_LAYOUTS = [(2, 1, 1, 67), (2, 1, 67, 1)]


def _parameters(shape: tuple[int, ...], count: int) -> tuple[Any, ...]:
    return tuple(real(*shape[1:3]) for _ in range(count))


def _numbers(shape: tuple[int, ...]) -> tuple[Any, Any]:
    return real(*shape[:2], 1, 1), real(*shape[:2], 1, 1)


standardise: Op = define(
    "standardise",
    formula="y = (x − mean) · scale · weight + bias along rows, mean, and scale = 1 / √(mean (x − mean)² + eps)",
    reference=_np_standardise,
    jvp=_standardise_jvp,
    samples=[
        *(Sample((real(*s), *_parameters(s, 2)), (1e-5, 1)) for s in _LAYOUTS),
        *(Sample((real(*s), *_parameters(s, 2)), (1e-5, 1)) for s in _LONG_LAYOUTS),
        Sample((real(3, 1, 5, 1), real(1, 5), real(1, 5)), (1e-3, 0)),
        Sample((real(3, 1, 1, 5), real(1, 1), real(1, 1)), (0.0, 1)),
        Sample((real(1, 1, 1, 1100), real(1, 1), real(1, 1)), (1e-5, 1), second=False),
    ],
    invalid=[
        Invalid((whole(2, 1, 3, 1), whole(1, 3), whole(1, 3)), (1e-5, 1), "DTypeError", "real floating"),
        Invalid((real(2, 3), real(1, 3), real(1, 3)), (1e-5, 1), "ShapeError", "(batch, groups, members, length)"),
        Invalid((real(2, 1, 3, 1), real(1, 2), real(1, 3)), (1e-5, 1), "ShapeError", "(groups, members)"),
    ],
    dear=True,
    public=False,
)
standardise_tangent: Op = define(
    "standardise_tangent",
    formula="the derivative of standardise, in the direction of x_dot, weight_dot and bias_dot",
    reference=_np_tangent,
    jvp=jvp_of_linear("standardise_tangent", 3, _tangent),
    transpose=transpose_by("standardise_cotangent", 3, lambda x, *_: (zeros_like(x),)),
    samples=[
        Sample((real(*s), *_parameters(s, 2), real(*s), *_numbers(s), *_parameters(s, 1)), (centred,))
        for s in _LAYOUTS
        for centred in (0, 1)
    ],
    invalid=[
        Invalid(
            (*(real(2, 1, 3, 1), real(1, 3), real(1, 3)), *(real(2, 1, 3, 1), real(2), real(2), real(1, 3))),
            (1,),
            "ShapeError",
            "one number a row",
        ),
    ],
    dear=True,
    public=False,
)
standardise_cotangent: Op = define(
    "standardise_cotangent",
    formula="the transpose of standardise_tangent",
    reference=_np_cotangent,
    jvp=jvp_of_linear("standardise_cotangent", 1, _cotangent),
    transpose=transpose_by(
        "standardise_tangent", 1, lambda x, mean, scale, weight: (zeros_like(x), zeros_like(weight), zeros_like(weight))
    ),
    samples=[
        Sample((real(*s), real(*s), *_numbers(s), *_parameters(s, 1)), (centred,))
        for s in _LAYOUTS
        for centred in (0, 1)
    ],
    invalid=[
        Invalid(
            (real(2, 1, 3, 1), real(2, 1, 4, 1), *_numbers((2, 1)), real(1, 4)), (1,), "ShapeError", "one number a row"
        ),
    ],
    dear=True,
    public=False,
)
