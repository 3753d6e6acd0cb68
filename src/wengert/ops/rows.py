"""Normalisation of rows to mean 0 and variance 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert import _core
from wengert.ops.blocked import filled, jvp_of_linear, transpose_by
from wengert.ops.reduce import sum
from wengert.ops.shape import broadcast_to, reshape, zeros_like
from wengert.ops.sparsity import through
from wengert.ops.transcendental import rsqrt
from wengert.passes.example_axis import all_mapped, merge, spread, unmerge
from wengert.program.trace import create
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Invalid, Sample, real, whole
from wengert.registry.zero import ZERO


def _axes(across: int) -> tuple[int, ...]:
    """The axes of a row in (batch, groups, members, length)."""
    return (0, 2, 3) if across else (2, 3)


def _means(x: Any, across: int) -> Any:
    """Along rows, whose axes are kept."""
    n: Any = 1
    for axis in _axes(across):
        n = n * x.shape[axis]
    if isinstance(n, _core.Dim):
        n = create(OPS["size_scalar"], ((n,), x.dtype.code))
    return sum(x, _axes(across), 1) / n


def _spread(parameter: Any, x: Any) -> Any:
    """One number for each member of each group, to the shape of the rows."""
    return broadcast_to(reshape(parameter, (*parameter.shape, 1)), x.shape)


def _standardised(x: Any, mean: Any, scale: Any) -> Any:
    return (x - broadcast_to(mean, x.shape)) * broadcast_to(scale, x.shape)


def _projected(t: Any, h: Any, scale: Any, centred: int, across: int) -> Any:
    """The derivative of standardising in the direction t. It is symmetric."""
    rest = t - broadcast_to(_means(t, across), t.shape) if centred else t
    return (rest - h * broadcast_to(_means(h * t, across), t.shape)) * broadcast_to(scale, t.shape)


def _tangent(
    x_dot: Any, weight_dot: Any, bias_dot: Any, x: Any, mean: Any, variance: Any, weight: Any,
    eps: float, centred: int, across: int,
) -> Any:  # fmt: skip
    scale = rsqrt(variance + eps)
    h = _standardised(x, mean, scale)
    y_dot = _projected(x_dot, h, scale, centred, across) * _spread(weight, x)
    return y_dot + h * _spread(weight_dot, x) + _spread(bias_dot, x)


def _cotangent(y_bar: Any, x: Any, mean: Any, variance: Any, weight: Any, eps: float, centred: int, across: int) -> Any:
    scale = rsqrt(variance + eps)
    h = _standardised(x, mean, scale)
    x_bar = _projected(y_bar * _spread(weight, x), h, scale, centred, across)
    return x_bar, sum(y_bar * h, (0, 3), 0), sum(y_bar, (0, 3), 0)


# From x and two numbers a row, not from y: they are what a derivative then keeps.
def _standardise_jvp(
    x_dot: Any, weight_dot: Any, bias_dot: Any, outputs: Any, x: Any, weight: Any, bias: Any,
    eps: float, centred: int, across: int,
) -> Any:  # fmt: skip
    _, mean, variance = outputs
    dots = filled((x_dot, weight_dot, bias_dot), (x, weight, bias))
    y_dot = standardise_tangent(*dots, x, mean, variance, weight, eps, centred, across)
    if x_dot is ZERO:
        return y_dot, ZERO, ZERO
    along = _means(x_dot * (x - broadcast_to(mean, x.shape)), across)
    return y_dot, _means(x_dot, across) if centred else ZERO, 2.0 * along


def _np_standardise(x: Any, weight: Any, bias: Any, eps: float, centred: int, across: int) -> Any:
    mean = x.mean(_axes(across), keepdims=True) * centred
    variance = np.square(x - mean).mean(_axes(across), keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * weight[..., None] + bias[..., None], mean, variance


def _np_projected(t: Any, h: Any, scale: Any, centred: int, across: int) -> Any:
    mean, along = t.mean(_axes(across), keepdims=True), (h * t).mean(_axes(across), keepdims=True)
    return scale * (t - mean * centred - h * along)


def _np_tangent(
    x_dot: Any, weight_dot: Any, bias_dot: Any, x: Any, mean: Any, variance: Any, weight: Any,
    eps: float, centred: int, across: int,
) -> Any:  # fmt: skip
    scale = 1 / np.sqrt(variance + eps)
    h = (x - mean) * scale
    y_dot = _np_projected(x_dot, h, scale, centred, across) * weight[..., None]
    return y_dot + h * weight_dot[..., None] + bias_dot[..., None]


def _np_cotangent(
    y_bar: Any, x: Any, mean: Any, variance: Any, weight: Any, eps: float, centred: int, across: int
) -> Any:
    scale = 1 / np.sqrt(variance + eps)
    h = (x - mean) * scale
    x_bar = _np_projected(y_bar * weight[..., None], h, scale, centred, across)
    return x_bar, (y_bar * h).sum((0, 3)), y_bar.sum((0, 3))


# (batch, groups, members, length). Those that take whole vectors are for `standardise` alone: the others run in its
# derivatives, and sums of so many terms cancel to more than the tolerance of a single value.
_LAYOUTS = [(3, 1, 5, 1), (2, 2, 3, 4), (2, 3, 1, 4), (0, 1, 3, 1)]
_LONG_LAYOUTS = [(2, 1, 1, 67), (2, 1, 67, 1)]
_WAYS = [(1e-2, 1, 0), (1e-2, 0, 0), (1e-2, 1, 1)]
_CASES = [(s, way) for s in _LAYOUTS for way in _WAYS if s[0] > 0 or not way[2]]  # no batch, no mean across it


def _parameters(shape: tuple[int, ...], count: int) -> tuple[Any, ...]:
    return tuple(real(*shape[1:3]) for _ in range(count))


def _statistics(shape: tuple[int, ...], across: int = 0) -> tuple[Any, Any]:
    """A mean and a variance for each row."""
    numbers = (1 if across else shape[0], shape[1], 1, 1)
    return real(*numbers), real(*numbers, low=0.5, high=2.0)


def _of_examples(name: str, axes: tuple[int, ...], made: tuple[int, ...]) -> Any:
    """The batch rule. Each example has groups of its own: `axes` and `made` say where groups are in operands and results.
    Where rows do not go across the batch and the parameters are shared, examples are part of the batch instead."""

    def rule(size: Any, mapped: Any, *operands: Any, **attrs: Any) -> Any:
        batch, groups = operands[0].shape[mapped[0] :][:2]
        shared = not any(m and axis == 0 for m, axis in zip(mapped, axes))
        if shared and not attrs["across"] and 0 not in made:
            rows = [merge(x if m else spread(x, size)) if axis else x for x, m, axis in zip(operands, mapped, axes)]
            n, places = batch, (0,) * len(made)
        else:
            rows = [merge(x, axis) for x, axis in zip(all_mapped(size, mapped, operands), axes)]
            n, places = groups, made
        ys = OPS[name](*rows, *attrs.values())
        outputs = tuple(unmerge(y, size, n, a) for y, a in zip(ys if len(made) > 1 else (ys,), places))
        return outputs if len(made) > 1 else outputs[0]

    return rule


standardise: Op = define(
    "standardise",
    precision="full",
    formula="y = (x − mean) / √(variance + eps) · weight + bias along rows, their mean and variance",
    reference=_np_standardise,
    jvp=_standardise_jvp,
    vmap=_of_examples("standardise", (1, 0, 0), (1, 1, 1)),
    samples=[
        *(Sample((real(*s), *_parameters(s, 2)), way) for s, way in _CASES),
        *(Sample((real(*s), *_parameters(s, 2)), (1e-5, 1, 0)) for s in _LONG_LAYOUTS),
        Sample((real(3, 1, 1, 5), real(1, 1), real(1, 1)), (0.0, 1, 0)),
        Sample((real(1, 1, 1, 1100), real(1, 1), real(1, 1)), (1e-5, 1, 0), second=False),
    ],
    invalid=[
        Invalid((whole(2, 1, 3, 1), whole(1, 3), whole(1, 3)), (1e-5, 1, 0), "DTypeError", "real floating"),
        Invalid((real(2, 3), real(1, 3), real(1, 3)), (1e-5, 1, 0), "ShapeError", "(batch, groups, members, length)"),
        Invalid((real(2, 1, 3, 1), real(1, 2), real(1, 3)), (1e-5, 1, 0), "ShapeError", "(groups, members)"),
    ],
    expensive=True,
    public=False,
)
standardise_tangent: Op = define(
    "standardise_tangent",
    formula="the derivative of standardise, in the direction of x_dot, weight_dot and bias_dot",
    reference=_np_tangent,
    jvp=jvp_of_linear("standardise_tangent", 3, _tangent),
    transpose=transpose_by("standardise_cotangent", 3, lambda x, *_: (zeros_like(x),)),
    sparsity=through(_tangent),
    vmap=_of_examples("standardise_tangent", (1, 0, 0, 1, 1, 1, 0), (1,)),
    samples=[
        Sample((real(*s), *_parameters(s, 2), real(*s), *_statistics(s, way[2]), *_parameters(s, 1)), way)
        for s, way in _CASES
    ],
    invalid=[
        Invalid(
            (*(real(2, 1, 3, 1), real(1, 3), real(1, 3)), *(real(2, 1, 3, 1), real(2), real(2), real(1, 3))),
            (1e-5, 1, 0),
            "ShapeError",
            "one number a row",
        ),
    ],
    expensive=True,
    public=False,
)
standardise_cotangent: Op = define(
    "standardise_cotangent",
    formula="the transpose of standardise_tangent",
    reference=_np_cotangent,
    jvp=jvp_of_linear("standardise_cotangent", 1, _cotangent),
    transpose=transpose_by(
        "standardise_tangent",
        1,
        lambda x, mean, variance, weight: (zeros_like(x), zeros_like(weight), zeros_like(weight)),
    ),
    sparsity=through(_cotangent),
    vmap=_of_examples("standardise_cotangent", (1, 1, 1, 1, 0), (1, 0, 0)),
    samples=[Sample((real(*s), real(*s), *_statistics(s, way[2]), *_parameters(s, 1)), way) for s, way in _CASES],
    invalid=[
        Invalid(
            (real(2, 1, 3, 1), real(2, 1, 4, 1), *_statistics((2, 1)), real(1, 4)),
            (1e-5, 1, 0),
            "ShapeError",
            "one number a row",
        ),
    ],
    expensive=True,
    public=False,
)
