"""Another number of elements along one axis: nearest neighbours (kind 0), linear interpolation with elements as areas (1)
or as points of which the outermost stay (2), means of windows that cover the axis (3). `ratio` is that of positions; 0
means that of the sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.registry.record import Op, define
from wengert.registry.samples import Invalid, Sample, real, whole

NEAREST, LINEAR, CORNERS, WINDOWS = range(4)


def _matrix(n: int, size: int, kind: int, ratio: float) -> Any:
    """The matrix that x is multiplied by along the axis."""
    j = np.arange(size)
    if kind == WINDOWS:
        first, end = (j * n // size)[:, None], (-(-(j + 1) * n // size))[:, None]
        inside = (np.arange(n) >= first) & (np.arange(n) < end)
        return inside / (end - first)
    ratio = ratio or n / size
    if kind == NEAREST:
        at = np.floor(j.astype(np.float32) * np.float32(ratio)).astype(np.float64)
    elif kind == LINEAR:
        at = np.maximum((j + 0.5) * ratio - 0.5, 0.0)
    else:
        at = j * ((n - 1) / max(size - 1, 1))
    at = np.minimum(at, n - 1)
    low = at.astype(np.int64)
    m = np.zeros((size, n))
    m[j, low] = 1.0 - (at - low)
    m[j, np.minimum(low + 1, n - 1)] += at - low
    return m


def _times(m: Any, x: Any, axis: int) -> Any:
    return np.moveaxis(np.moveaxis(x, axis, -1) @ m.T, -1, axis)


_SAMPLES: list[Any] = [  # shape, size, axis, kind, ratio
    ((2, 3, 4), 8, 2, NEAREST, 0.0),
    ((2, 5, 3), 3, 1, NEAREST, 1.5),
    ((2, 3, 4), 8, 2, LINEAR, 0.0),
    ((3, 4, 2), 7, 1, LINEAR, 0.6),
    ((7, 3), 2, 0, LINEAR, 0.0),
    ((2, 4), 9, -1, CORNERS, 0.0),
    ((4, 3), 1, 0, CORNERS, 0.0),
    ((1, 3), 5, 0, CORNERS, 0.0),
    ((2, 2, 2), 21, 1, LINEAR, 0.0),
    ((0, 3), 5, 1, LINEAR, 0.0),
    ((2, 7, 3), 3, 1, WINDOWS, 0.0),
    ((3, 4), 9, 1, WINDOWS, 0.0),
    ((2, 21), 2, 1, WINDOWS, 0.0),
]
_INVALID = [
    Invalid((whole(3),), ((5,), 0, LINEAR, 0.0), "DTypeError", "floating numbers"),
    Invalid((real(3),), ((5,), 1, LINEAR, 0.0), "ShapeError", "axis 1"),
    Invalid((real(3),), ((0,), 0, LINEAR, 0.0), "ShapeError", "must be positive"),
    Invalid((real(3),), ((5, 6), 0, LINEAR, 0.0), "ArgumentError", "size must have 1 entries"),
    Invalid((real(3),), ((5,), 0, 4, 0.0), "ArgumentError", "no kind 4"),
]

resample: Op = define(
    "resample",
    formula="x at `size` positions along an axis",
    reference=lambda x, size, axis, kind, ratio: _times(_matrix(x.shape[axis], size[0], kind, ratio), x, axis),
    jvp="linear",
    transpose=lambda y_bar, x, size, axis, kind, ratio: resample_transpose(y_bar, (x.shape[axis],), axis, kind, ratio),
    sparsity="along",
    vmap="axes",
    samples=[Sample((real(*shape),), ((size,), *rest)) for shape, size, *rest in _SAMPLES],
    invalid=_INVALID,
    expensive=True,
    public=False,
)
resample_transpose: Op = define(
    "resample_transpose",
    formula="each element added to those it was interpolated from",
    reference=lambda y, size, axis, kind, ratio: _times(_matrix(size[0], y.shape[axis], kind, ratio).T, y, axis),
    jvp="linear",
    transpose=lambda x_bar, y, size, axis, kind, ratio: resample(x_bar, (y.shape[axis],), axis, kind, ratio),
    sparsity="along",
    vmap="axes",
    samples=[Sample((real(*shape),), ((size,), *rest)) for shape, size, *rest in _SAMPLES],
    invalid=_INVALID,
    expensive=True,
    public=False,
)
