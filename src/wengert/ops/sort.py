"""Sorting, the k largest, and places in a sorted vector. Derivatives are gathers at the positions found.

Elements that are equal keep their order: of a tie the first one is first, and has the derivative.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert.ops.index import take_along_axis
from wengert.passes.example_axis import all_mapped
from wengert.registry.record import Op, define
from wengert.registry.samples import Array, Invalid, Sample, exactly, index, real, truth, whole
from wengert.registry.zero import ZERO


def _np_argsort(x: Any, axis: int, descending: int, nan_last: int = 0) -> Any:
    # Flipped twice: stable, also from large to small.
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    last = x.shape[axis] - 1
    return np.flip(last - np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)


def _np_sort(x: Any, axis: int, descending: int) -> Any:
    return np.take_along_axis(x, _np_argsort(x, axis, descending), axis)


def apart(*shape: int) -> Array:
    """Numbers in disorder, none closer to another than a finite difference reaches."""
    n = math.prod(shape)
    return exactly(*((37 * i % n - n // 2) / 16 for i in range(n)), shape=shape)


_ORDERS = [
    Sample((apart(7),), (0, 0)),
    Sample((apart(2, 40),), (1, 1)),
    Sample((apart(5, 2, 3),), (0, 0)),
    Sample((real(0, 4),), (1, 0)),
    Sample((real(2, 0),), (1, 1)),
    Sample((whole(4, 50),), (1, 1)),
    Sample((exactly(2.0, -math.inf, 0.0, -0.0, 2.0, math.inf, -1.0),), (0, 0), gradients=False),
]
_DISORDER = [
    Invalid((exactly(1.0, math.nan, 2.0),), (0, 0), "ArgumentError", "NaN at [1]"),
    Invalid((truth(3),), (0, 0), "DTypeError", "bools are not ordered"),
    Invalid((real(3, 4),), (2, 0), "ShapeError", "axis 2"),
]

argsort: Op = define(
    "argsort",
    work="sorting",
    formula="the positions of the elements in order; equal ones keep theirs",
    reference=_np_argsort,
    vmap="axes",
    samples=[s._replace(attrs=(*s.attrs, 0), gradients=False) for s in _ORDERS],
    invalid=[s._replace(attrs=(*s.attrs, 0)) for s in _DISORDER],
    expensive=True,
    public=False,
)
sort: Op = define(
    "sort",
    work="sorting",
    formula="the elements in order",
    reference=_np_sort,
    jvp=lambda x_dot, y, x, axis, descending: take_along_axis(x_dot, argsort(x, axis, descending, 0), axis),
    sparsity="axis",
    vmap="axes",
    samples=_ORDERS,
    invalid=_DISORDER,
    expensive=True,
    public=False,
)
sort_with_indices: Op = define(
    "sort_with_indices",
    work="sorting",
    formula="the elements in order, and their positions",
    reference=lambda x, axis, descending: (_np_sort(x, axis, descending), _np_argsort(x, axis, descending)),
    jvp=lambda x_dot, y, x, axis, descending: (take_along_axis(x_dot, y[1], axis), ZERO),
    sparsity="axis",
    vmap="axes",
    samples=_ORDERS,
    invalid=_DISORDER,
    expensive=True,
    public=False,
)


def _np_topk(x: Any, k: Any, axis: int, largest: int) -> Any:
    places = np.take(_np_argsort(x, axis, largest), np.arange(k[0]), axis=axis)
    return np.take_along_axis(x, places, axis), places


topk: Op = define(
    "topk",
    work="sorting",
    formula="the k largest (or smallest) elements in order, and their positions",
    reference=_np_topk,
    jvp=lambda x_dot, y, x, k, axis, largest: (take_along_axis(x_dot, y[1], axis), ZERO),
    sparsity="axis",
    vmap="axes",
    samples=[
        Sample((apart(6),), ((2,), 0, 1)),
        Sample((apart(2, 65),), ((1,), 1, 0)),
        Sample((apart(12, 3),), ((4,), 0, 1)),
        Sample((apart(2, 3),), ((3,), 1, 1)),
        Sample((apart(2, 3),), ((0,), 1, 1)),
        Sample((real(300, 2),), ((4,), 0, 1), gradients=False),
        Sample((whole(2, 400),), ((5,), 1, 1)),
    ],
    invalid=[
        Invalid((real(2, 3),), ((4,), 1, 1), "ArgumentError", "got k = 4 for float64(2, 3)"),
        Invalid((exactly(1.0, math.nan, 2.0),), ((1,), 0, 1), "ArgumentError", "NaN at [1]"),
    ],
    expensive=True,
    public=False,
)


def _np_searchsorted(x: Any, v: Any, right: int, nan_last: int) -> Any:
    if x.ndim == 1:
        return np.searchsorted(x, v, side="right" if right else "left")
    found = [_np_searchsorted(a, b, right, nan_last) for a, b in zip(x, v)]
    return np.array(found, np.int64).reshape(v.shape)


def _search_examples(size: Any, mapped: Any, x: Any, v: Any, right: int, nan_last: int) -> Any:
    if not mapped[0] and x.ndim == 1:
        return searchsorted(x, v, right, nan_last)
    return searchsorted(*all_mapped(size, mapped, (x, v)), right, nan_last)


searchsorted: Op = define(
    "searchsorted",
    formula="how many elements of a sorted vector, or of that of each row, are smaller (or, on the right side, not larger)",
    reference=_np_searchsorted,
    vmap=_search_examples,
    samples=[
        Sample((exactly(-1.0, 0.5, 0.5, 2.0), real(3, 5)), (0, 0), gradients=False),
        Sample((exactly(-1.0, 0.5, 0.5, 2.0), exactly(0.5, -2.0, 2.0, 3.0, math.inf)), (1, 0), gradients=False),
        Sample((exactly(0, 2, 2, 5), index(7, below=7)), (1, 0), gradients=False),
        Sample((real(0), real(3)), (0, 0), gradients=False),
        Sample((exactly(-1.0, 0.5, 0.5, 0.0, 1.0, 1.5, shape=(2, 3)), real(2, 4)), (1, 0), gradients=False),
    ],
    invalid=[
        Invalid((real(2, 3), real(3)), (0, 0), "ShapeError", "sorted vector"),
        Invalid((exactly(1.0, 2.0), exactly(math.nan)), (0, 0), "ArgumentError", "NaN at [0]"),
        Invalid((exactly(1.0, math.nan), exactly(1.0)), (0, 0), "ArgumentError", "NaN at [1]"),
    ],
    expensive=True,
    public=False,
)
