"""Cumulative sums and products."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.ops.registry import Op, define
from wengert.ops.samples import Sample, exactly, real
from wengert.ops.shape import concat, full, slice, zeros_like
from wengert.program.trace import create


def _reference(f: Any) -> Any:
    def call(x: Any, axis: int, reverse: int) -> Any:
        return np.flip(f(np.flip(x, axis), axis=axis), axis) if reverse else f(x, axis=axis)

    return call


cumsum: Op = define(
    "cumsum",
    formula="sums of the first 1, 2, … elements",
    reference=_reference(np.cumsum),
    jvp="linear",
    transpose=lambda y_bar, x, axis, reverse: cumsum(y_bar, axis, 1 - reverse),
    samples=[Sample((real(2, 5),), (1, 0)), Sample((real(4, 3),), (0, 1)), Sample((real(0),), (0, 0))],
    dear=True,
    public=False,
)


def _shifted(x: Any, by: int, axis: int, reverse: int, fill: Any) -> Any:
    """x moved `by` places along the axis (towards the end, or the start if reverse), `fill` moving in."""
    n = x.shape[axis]
    sizes = tuple(n - by if i == axis else s for i, s in enumerate(x.shape))
    starts = tuple(by if i == axis and reverse else 0 for i in range(x.ndim))
    rest = slice(x, starts, sizes, (1,) * x.ndim)
    edge = slice(fill, (0,) * x.ndim, tuple(by if i == axis else s for i, s in enumerate(x.shape)), (1,) * x.ndim)
    return concat([rest, edge] if reverse else [edge, rest], axis)


def _cumprod_jvp(x_dot: Any, y: Any, x: Any, axis: int, reverse: int) -> Any:
    # A scan of dual numbers, (p, p')·(q, q') = (pq, p'q + pq'), by doubling (Hillis and Steele, 1986): no division, so
    # that zeros among the elements are harmless. The number of rounds needs the length: a guard fixes it.
    p, p_dot = x, x_dot
    one, zero = create(full, (x.shape, x.dtype.code, 1.0)), zeros_like(x)
    by, n = 1, int(x.shape[axis])
    while by < n:
        q, q_dot = _shifted(p, by, axis, reverse, one), _shifted(p_dot, by, axis, reverse, zero)
        p, p_dot = p * q, p_dot * q + q_dot * p
        by *= 2
    return p_dot


cumprod = define(
    "cumprod",
    formula="products of the first 1, 2, … elements",
    reference=_reference(np.cumprod),
    jvp=_cumprod_jvp,
    samples=[
        Sample((real(2, 5),), (1, 0)),
        Sample((real(4, 3),), (0, 1)),
        Sample((exactly(2.0, 0.0, 3.0, 0.0, 1.5),), (0, 0)),
    ],
    dear=True,
    public=False,
)
