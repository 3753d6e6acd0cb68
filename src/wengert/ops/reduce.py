"""Reductions. `axes` are sorted and non-negative here; the public functions in `wengert.functional` normalise them."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.ops.shape import broadcast_to, cast, concat, full, reshape, slice
from wengert.ops.simplifications import no_axes
from wengert.program.trace import create
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Invalid, Sample, exactly, real, truth, whole


def kept(shape: Any, axes: tuple[int, ...]) -> tuple[Any, ...]:
    """The shape of a reduction that keeps its axes."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def _spread(y: Any, x: Any, axes: tuple[int, ...], keepdims: int) -> Any:
    return broadcast_to(y if keepdims else reshape(y, kept(x.shape, axes)), x.shape)


def _reference(f: Any) -> Any:
    return lambda x, axes, keepdims: f(x, axis=tuple(axes), keepdims=bool(keepdims))


_AXES = [
    Sample((real(2, 3),), ((1,), 0)),
    Sample((real(2, 3),), ((0,), 1)),
    Sample((real(2, 3, 4),), ((0, 2), 0)),
    Sample((real(2, 3),), ((0, 1), 0)),
    Sample((real(),), ((), 0)),
]

sum = define(
    "sum",
    simplified=no_axes,
    precision="full",
    formula="Σ x",
    reference=_reference(np.sum),
    jvp="linear",
    transpose=lambda y_bar, x, axes, keepdims: _spread(y_bar, x, axes, keepdims),
    sparsity="reduces",
    vmap="axes",
    samples=[*_AXES, Sample((real(0, 3),), ((0,), 0)), Sample((whole(3, 4),), ((1,), 0))],
    invalid=[Invalid((real(2, 3),), ((2,), 0), "ShapeError", "sum")],
    expensive=True,
    public=False,
)


def _others(x: Any, axes: tuple[int, ...]) -> Any:
    """The product of all other elements along the axes, without dividing, so that it is right where some are zero."""
    order = (*(i for i in range(x.ndim) if i not in axes), *axes)
    cumprod, permute = OPS["cumprod"], OPS["permute"]
    moved = permute(x, order)
    lead = moved.shape[: x.ndim - len(axes)]
    n: Any = 1
    for size in moved.shape[x.ndim - len(axes) :]:
        n = n * size
    flat = reshape(moved, (*lead, n))
    last = flat.ndim - 1
    one = create(full, ((*lead, 1), x.dtype.code, 1.0))
    steps = (1,) * flat.ndim  # one product too many, then cut: that is right for no elements too
    before = slice(cumprod(concat([one, flat], last), last, 0), (0,) * flat.ndim, flat.shape, steps)
    after = slice(cumprod(concat([flat, one], last), last, 1), (*(0,) * last, 1), flat.shape, steps)
    back = tuple(int(a) for a in np.argsort(order))
    return permute(reshape(before * after, moved.shape), back)


prod = define(
    "prod",
    precision="full",
    formula="Π x",
    reference=_reference(np.prod),
    jvp=lambda x_dot, y, x, axes, keepdims: sum(x_dot * _others(x, axes), axes, keepdims) if axes else x_dot,
    sparsity="reduces",
    vmap="axes",
    samples=[*_AXES, Sample((exactly(2.0, 0.0, 3.0),), ((0,), 0)), Sample((exactly(0.0, 0.0, 3.0),), ((0,), 0))],
    expensive=True,
    public=False,
)


def _extremum(name: str, formula: str, reference: Any) -> Op:
    def jvp(x_dot: Any, y: Any, x: Any, axes: tuple[int, ...], keepdims: int) -> Any:
        # Elements that tie share the derivative evenly.
        hit = cast(x == _spread(y, x, axes, keepdims), x.dtype.code)
        count = _spread(sum(hit, axes, keepdims), x, axes, keepdims)
        return sum(x_dot * (hit / count), axes, keepdims)

    return define(
        name,
        formula=formula,
        reference=_reference(reference),
        jvp=jvp,
        sparsity="reduces",
        vmap="axes",
        samples=[*_AXES, Sample((exactly(1.0, np.nan, 3.0),), ((0,), 0), gradients=False)],
        invalid=[Invalid((real(0, 3),), ((0,), 0), "ArgumentError", name)],
        expensive=True,
        public=False,
    )


max = _extremum("max", "the largest element; ties share the derivative", np.max)
min = _extremum("min", "the smallest element; ties share the derivative", np.min)


def _truth(name: str, formula: str, reference: Any) -> Op:
    samples = [Sample((truth(2, 3),), ((1,), 0), gradients=False), Sample((truth(4),), ((0,), 1), gradients=False)]
    return define(
        name,
        formula=formula,
        reference=_reference(reference),
        vmap="axes",
        samples=samples,
        expensive=True,
        public=False,
    )


any = _truth("any", "whether one element is true", np.any)
all = _truth("all", "whether every element is true", np.all)


def _position(name: str, formula: str, reference: Any) -> Op:
    samples = [
        Sample((real(3, 4),), (1, 0), gradients=False),
        Sample((exactly(1.0, 3.0, 3.0),), (0, 0), gradients=False),
    ]
    return define(
        name,
        formula=formula,
        reference=lambda x, axis, keepdims: reference(x, axis=axis, keepdims=bool(keepdims)),
        vmap="axes",
        samples=samples,
        invalid=[Invalid((real(0, 3),), (0, 0), "ArgumentError", name)],
        expensive=True,
        public=False,
    )


argmax = _position("argmax", "the position of the first largest element", np.argmax)
argmin = _position("argmin", "the position of the first smallest element", np.argmin)
