"""Running sums, products, sums of exponentials and extrema, and linear recurrences, which are the derivatives of some."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert.dtypes import float32, float64
from wengert.ops.activations import sigmoid
from wengert.ops.index import take_along_axis
from wengert.ops.shape import cast, concat, full, slice
from wengert.ops.sort import apart
from wengert.ops.tangents import conj, where
from wengert.program.trace import create
from wengert.registry.record import Op, define
from wengert.registry.samples import Invalid, Sample, exactly, real, truth, whole
from wengert.registry.zero import ZERO


def _reference(f: Any) -> Any:
    def call(x: Any, axis: int, reverse: int) -> Any:
        return np.flip(f(np.flip(x, axis), axis=axis), axis) if reverse else f(x, axis=axis)

    return call


_NOT_NUMBERS = [
    Invalid((truth(3),), (0, 0), "DTypeError", "bool is not a number"),
    Invalid((real(3),), (1, 0), "ShapeError", "axis 1"),
]

cumsum: Op = define(
    "cumsum",
    precision="full",
    formula="sums of the first 1, 2, … elements",
    reference=_reference(np.cumsum),
    jvp="linear",
    transpose=lambda y_bar, x, axis, reverse: cumsum(y_bar, axis, 1 - reverse),
    sparsity="cumulative",
    vmap="axes",
    samples=[Sample((real(2, 5),), (1, 0)), Sample((real(4, 3),), (0, 1)), Sample((real(0),), (0, 0))],
    invalid=_NOT_NUMBERS,
    expensive=True,
    public=False,
)


def shifted(x: Any, axis: int, back: Any, fill: float) -> Any:
    """x moved one place along the axis, towards the end (or the start, if `back`), and `fill` moving in."""
    n = x.shape[axis]
    if n == 0:
        return x
    sizes = tuple(n - 1 if i == axis else s for i, s in enumerate(x.shape))
    starts = tuple(1 if i == axis and back else 0 for i in range(x.ndim))
    rest = slice(x, starts, sizes, (1,) * x.ndim)
    edge = create(full, (tuple(1 if i == axis else s for i, s in enumerate(x.shape)), x.dtype.code, fill))
    return concat([rest, edge] if back else [edge, rest], axis)


def _recurrence_jvp(a_dot: Any, b_dot: Any, h: Any, a: Any, b: Any, axis: int, reverse: int) -> Any:
    source = b_dot if a_dot is ZERO else a_dot * shifted(h, axis, reverse, 0.0) + b_dot
    return linear_recurrence(a, source, axis, reverse)


def _np_recurrence(a: Any, b: Any, axis: int, reverse: int) -> Any:
    h = np.array(b)
    lines, factors = np.moveaxis(h, axis, 0), np.moveaxis(a, axis, 0)
    if reverse:
        lines, factors = lines[::-1], factors[::-1]
    for k in range(1, len(lines)):
        lines[k] += factors[k] * lines[k - 1]
    return h


# The transpose runs the other way, each step with the coefficient of its neighbour.
linear_recurrence: Op = define(
    "linear_recurrence",
    precision="full",
    formula="h[k] = a[k] h[k − 1] + b[k]",
    reference=_np_recurrence,
    jvp=_recurrence_jvp,
    transpose=(
        None,
        lambda h_bar, a, b, axis, reverse: linear_recurrence(
            conj(shifted(a, axis, not reverse, 0.0)), h_bar, axis, 1 - reverse
        ),
    ),
    sparsity="cumulative",
    vmap="axes",
    samples=[
        Sample((real(2, 5), real(2, 5)), (1, 0)),
        Sample((real(4, 3), real(4, 3)), (0, 1)),
        Sample((exactly(0.5, 0.0, 2.0, -1.0), real(4)), (0, 0)),
        Sample((real(1), real(1)), (0, 0)),
    ],
    invalid=[Invalid((real(3), real(4)), (0, 0), "ShapeError", "same shape")],
    expensive=True,
    public=False,
)
# y[k] = x[k] y[k − 1], so the tangent is a linear recurrence: no division, so that zeros are harmless.
cumprod = define(
    "cumprod",
    precision="full",
    formula="products of the first 1, 2, … elements",
    reference=_reference(np.cumprod),
    jvp=lambda x_dot, y, x, axis, reverse: linear_recurrence(x, x_dot * shifted(y, axis, reverse, 1.0), axis, reverse),
    sparsity="cumulative",
    vmap="axes",
    samples=[
        Sample((real(2, 5),), (1, 0)),
        Sample((real(4, 3),), (0, 1)),
        Sample((exactly(2.0, 0.0, 3.0, 0.0, 1.5),), (0, 0)),
    ],
    invalid=_NOT_NUMBERS,
    expensive=True,
    public=False,
)


def _np_logcumsumexp(x: Any, axis: int, reverse: int) -> Any:
    return _reference(np.logaddexp.accumulate)(x, axis, reverse)


def _logcumsumexp_jvp(x_dot: Any, y: Any, x: Any, axis: int, reverse: int) -> Any:
    # e^y[k] = e^y[k−1] + e^x[k]: two weights that add up to 1. Where all elements so far are −∞ the derivative is 0.
    # They are small differences of numbers that may be large: float32 would have few digits of them.
    code = x.dtype.code
    if code == float32.code:
        x = cast(x, float64.code)
        y = logcumsumexp(x, axis, reverse)
    empty = y == -math.inf
    ahead = where(empty, 0.0, x) - where(empty, 0.0, shifted(y, axis, reverse, -math.inf))
    now, before = (cast(where(empty, 0.0, sigmoid(d)), code) for d in (ahead, -ahead))
    return linear_recurrence(before, x_dot * now, axis, reverse)


logcumsumexp: Op = define(
    "logcumsumexp",
    precision="full",
    formula="ln Σ eˣ of the first 1, 2, … elements",
    reference=_np_logcumsumexp,
    jvp=_logcumsumexp_jvp,
    sparsity="cumulative",
    vmap="axes",
    samples=[
        Sample((real(2, 5),), (1, 0)),
        Sample((real(4, 3),), (0, 1)),
        Sample((exactly(-3.0, 3.0, 0.0, 4.0, -1e4, 4.5),), (0, 0)),
        Sample((exactly(-math.inf, -math.inf, 1.0, -math.inf, math.inf, 2.0, math.nan, 0.0),), (0, 0), gradients=False),
        Sample((real(0),), (0, 0)),
    ],
    invalid=[Invalid((whole(3),), (0, 0), "DTypeError", "real floating")],
    expensive=True,
    public=False,
)


def _np_extremum(f: Any) -> Any:
    def call(x: Any, axis: int) -> Any:
        values = f.accumulate(x, axis=axis)
        n = x.shape[axis]
        fresh = np.ones(x.shape, bool)
        if n > 1:
            a, b = values.take(range(n - 1), axis), values.take(range(1, n), axis)
            same = (a == b) | ((a != a) & (b != b))
            fresh = np.concatenate([np.ones_like(fresh.take([0], axis)), ~same], axis)
        at = np.arange(n).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        return values, np.maximum.accumulate(np.where(fresh, at, 0), axis=axis)

    return call


def _extremum(name: str, formula: str, reference: Any) -> Op:
    return define(
        name,
        formula=formula,
        reference=_np_extremum(reference),
        jvp=lambda x_dot, y, x, axis: (take_along_axis(x_dot, y[1], axis), ZERO),
        sparsity="cumulative",
        vmap="axes",
        samples=[
            Sample((apart(2, 9),), (1,)),
            Sample((apart(5, 3),), (0,)),
            Sample((whole(3, 40),), (1,)),
            Sample((exactly(1.0, 1.0, 3.0, -1.0, math.inf, math.nan, 2.0),), (0,), gradients=False),
            Sample((real(0, 3),), (0,)),
        ],
        invalid=[Invalid((truth(3),), (0,), "DTypeError", "bool"), Invalid((real(3),), (1,), "ShapeError", "axis 1")],
        expensive=True,
        public=False,
    )


cummax = _extremum("cummax", "the largest of the first 1, 2, … elements, and where it first was", np.maximum)
cummin = _extremum("cummin", "the smallest of the first 1, 2, … elements, and where it first was", np.minimum)
