"""Pooling over windows of one to three spatial axes.

`pool_argmax` gives the number of the largest element's tap in its window; `pool_take` takes elements at such numbers, and
is linear, like `pool_sum`. `pool_put` and `pool_spread` are their transposes. Elements outside x do not count.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from wengert.ops.sparsity import windows
from wengert.passes.example_axis import all_mapped, merge, unmerge
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Invalid, Sample, exactly, real


def _windows(shape: Any, sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """(window, tap's number, position) of every element of every window, in row-major order."""
    for window in itertools.product(*(range(n) for n in sizes)):
        for number, tap in enumerate(itertools.product(*(range(n) for n in kernel))):
            at = tuple(j * s + k * d - p for j, s, k, d, p in zip(window, stride, tap, dilation, padding))
            if all(0 <= i < n for i, n in zip(at, shape[2:])):
                yield window, number, at


def _np_argmax(x: Any, sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    best = np.full((*x.shape[:2], *sizes), -np.inf)
    index = np.full(best.shape, -1)
    for window, number, at in _windows(x.shape, sizes, kernel, stride, padding, dilation):
        v = x[(..., *at)]
        here = (..., *window)
        wins = (v > best[here]) | np.isnan(v) | (index[here] < 0)
        best[here] = np.where(wins, v, best[here])
        index[here] = np.where(wins, number, index[here])
    return index.astype(np.uint8)


def _np_take(x: Any, index: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    y = np.zeros(index.shape, x.dtype)
    for window, number, at in _windows(x.shape, index.shape[2:], kernel, stride, padding, dilation):
        here = (..., *window)
        y[here] = np.where(index[here] == number, x[(..., *at)], y[here])
    return y


def _np_put(y: Any, index: Any, sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    x = np.zeros((*y.shape[:2], *sizes), y.dtype)
    for window, number, at in _windows(x.shape, y.shape[2:], kernel, stride, padding, dilation):
        here = (..., *window)
        x[(..., *at)] += np.where(index[here] == number, y[here], 0)
    return x


def _np_sum(x: Any, sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    y = np.zeros((*x.shape[:2], *sizes), x.dtype)
    for window, _, at in _windows(x.shape, sizes, kernel, stride, padding, dilation):
        y[(..., *window)] += x[(..., *at)]
    return y


def _np_spread(y: Any, sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    x = np.zeros((*y.shape[:2], *sizes), y.dtype)
    for window, _, at in _windows(x.shape, y.shape[2:], kernel, stride, padding, dilation):
        x[(..., *at)] += y[(..., *window)]
    return x


# x, windows, kernel, stride, padding, dilation
_SHAPES: list[Any] = [
    ((2, 3, 6, 4), (3, 2), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((1, 2, 5, 7), (3, 4), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((1, 1, 5, 40), (3, 38), (3, 3), (1, 1), (0, 0), (1, 1)),
    ((2, 1, 9), (5,), (4,), (1,), (0,), (1,)),
    ((1, 2, 3, 4, 5), (2, 2, 4), (2, 3, 2), (1, 1, 1), (0, 0, 0), (1, 1, 1)),
    ((0, 2, 4, 4), (2, 2), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((2, 1, 9, 8), (4, 5), (3, 2), (2, 2), (1, 1), (2, 3)),
    ((1, 2, 7, 5), (4, 3), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((1, 1, 6, 6, 7), (2, 4, 3), (2, 2, 3), (3, 1, 2), (0, 0, 2), (3, 2, 2)),
]
_INVALID_WINDOWS: list[Any] = [
    ((2, 2), (0, 2), (1, 1), (0, 0), (1, 1), "must be positive"),
    ((2, 2), (2, 2), (1, 0), (0, 0), (1, 1), "must be positive"),
    ((2, 2), (2, 2), (1, 1), (0, 0), (1, 0), "must be positive"),
    ((2, 2), (2, 2), (1, 1), (2, 0), (1, 1), "padding smaller than the kernel"),
    ((2,), (2, 2), (1, 1), (0, 0), (1, 1), "sizes must have 2 entries"),
]


def _invalid(name: str) -> list[Invalid]:
    return [
        *(Invalid((real(1, 1, 4, 4),), tuple(w[:5]), "ArgumentError", w[5]) for w in _INVALID_WINDOWS),
        Invalid((real(4, 4),), ((), (), (), (), ()), "ShapeError", name),
    ]


def _taps(sizes: Any) -> Any:
    """Numbers of taps that lie inside for all samples below: the windows have no padding."""
    n = int(np.prod(sizes))
    return exactly(*(k * 5 % 4 for k in range(n)), shape=tuple(sizes))


def _of_examples(name: str) -> Any:
    """The batch rule: examples are part of the batch."""

    def rule(size: Any, mapped: Any, *operands: Any, **attrs: Any) -> Any:
        given = all_mapped(size, mapped, operands)
        return unmerge(OPS[name](*map(merge, given), *attrs.values()), size, given[0].shape[1])

    return rule


pool_argmax = define(
    "pool_argmax",
    formula="the number of the largest element of every window; of equal ones the first, and NaN is largest",
    reference=_np_argmax,
    vmap=_of_examples("pool_argmax"),
    samples=[Sample((real(*x),), tuple(w), gradients=False) for x, *w in _SHAPES]
    + [
        Sample(
            (exactly(*(-np.inf,) * 16, shape=(1, 1, 4, 4)),), ((2, 2), (3, 3), (2, 2), (1, 1), (1, 1)), gradients=False
        )
    ],
    invalid=[
        *_invalid("pool_argmax"),
        Invalid((real(1, 1, 4, 4),), ((9, 2), (2, 2), (1, 1), (0, 0), (1, 1)), "ShapeError", "do not lie inside"),
        Invalid((real(1, 1, 2),), ((2,), (2,), (1,), (1,), (3,)), "ShapeError", "do not lie inside"),
    ],
    expensive=True,
    public=False,
)
_TAKEN: list[Any] = [
    ((2, 1, 5, 4), (4, 3), (2, 2), (1, 1), (0, 0), (1, 1)),
    ((1, 2, 9), (3,), (4,), (2,), (0,), (1,)),
    ((1, 2, 7, 6), (2, 4), (2, 2), (2, 1), (0, 0), (3, 2)),
]
pool_take: Op = define(
    "pool_take",
    formula="the element with the given number of every window",
    reference=_np_take,
    jvp=lambda x_dot, i_dot, y, x, index, kernel, stride, padding, dilation: pool_take(
        x_dot, index, kernel, stride, padding, dilation
    ),
    transpose=(
        lambda y_bar, x, index, kernel, stride, padding, dilation: pool_put(
            y_bar, index, x.shape[2:], kernel, stride, padding, dilation
        ),
        None,
    ),
    sparsity=windows("j", "i"),
    vmap=_of_examples("pool_take"),
    samples=[Sample((real(*x), _taps((*x[:2], *y))), tuple(w)) for x, y, *w in _TAKEN],
    invalid=[
        Invalid((real(1, 1, 4), exactly(9, shape=(1, 1, 1))), ((2,), (1,), (0,), (1,)), "IndexRangeError", "tap 9"),
        Invalid((real(1, 1, 4), exactly(0.5, shape=(1, 1, 1))), ((2,), (1,), (0,), (1,)), "DTypeError", "integers"),
        Invalid((real(1, 2, 4), exactly(0, shape=(1, 1, 1))), ((2,), (1,), (0,), (1,)), "ShapeError", "do not fit"),
    ],
    expensive=True,
    public=False,
)
pool_put: Op = define(
    "pool_put",
    formula="zeros to which each element is added at the position with the given number in its window",
    reference=_np_put,
    jvp=lambda y_dot, i_dot, x, y, index, sizes, kernel, stride, padding, dilation: pool_put(
        y_dot, index, sizes, kernel, stride, padding, dilation
    ),
    transpose=(
        lambda x_bar, y, index, sizes, kernel, stride, padding, dilation: pool_take(
            x_bar, index, kernel, stride, padding, dilation
        ),
        None,
    ),
    sparsity=windows("i", "j"),
    vmap=_of_examples("pool_put"),
    samples=[Sample((real(*x[:2], *y), _taps((*x[:2], *y))), (x[2:], *w)) for x, y, *w in _TAKEN],
    invalid=[
        Invalid(
            (real(1, 1, 2), exactly(0, 0, 0, shape=(1, 1, 3))),
            ((4,), (2,), (1,), (0,), (1,)),
            "ShapeError",
            "do not fit",
        )
    ],
    expensive=True,
    public=False,
)
pool_sum: Op = define(
    "pool_sum",
    formula="the sum of every window",
    reference=_np_sum,
    jvp="linear",
    transpose=lambda y_bar, x, sizes, kernel, stride, padding, dilation: pool_spread(
        y_bar, x.shape[2:], kernel, stride, padding, dilation
    ),
    sparsity=windows("j", "i"),
    vmap=_of_examples("pool_sum"),
    samples=[Sample((real(*x),), tuple(w)) for x, *w in _SHAPES],
    invalid=_invalid("pool_sum"),
    expensive=True,
    public=False,
)
pool_spread: Op = define(
    "pool_spread",
    formula="each element added to all positions of its window",
    reference=_np_spread,
    jvp="linear",
    transpose=lambda x_bar, y, sizes, kernel, stride, padding, dilation: pool_sum(
        x_bar, y.shape[2:], kernel, stride, padding, dilation
    ),
    sparsity=windows("i", "j"),
    vmap=_of_examples("pool_spread"),
    samples=[Sample((real(*x[:2], *y),), (x[2:], *w)) for x, y, *w in _SHAPES],
    invalid=_invalid("pool_spread"),
    expensive=True,
    public=False,
)
