"""More elements around a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert._core import Dim, Tensor
from wengert.errors import ArgumentError, ShapeError
from wengert.foreign_names import explain_keywords
from wengert.tensors.arguments import Size, as_tensor, describe, full, iota, native, number
from wengert.tensors.conversion import check_range

_unslice, _slice_update = native("unslice"), native("slice_update")
_take, _copy = native("take"), native("copy")
_maximum, _minimum, _remainder = native("maximum"), native("minimum"), native("remainder")
_SIZES = (int, Dim)


def _as_most_write_it(pad_width: Any, ndim: int) -> list[tuple[Size, Size]] | None:
    """Pairs of integers, one for each axis: NumPy would take longer to read them than the padding. None: something else."""
    if not isinstance(pad_width, (tuple, list)) or len(pad_width) != ndim:
        return None
    pairs = []
    for p in pad_width:
        if not isinstance(p, (tuple, list)) or len(p) != 2:
            return None
        before, after = p
        if type(before) not in _SIZES or type(after) not in _SIZES:
            return None
        pairs.append((before, after))
    return pairs


def _pairs(pad_width: Any, ndim: int) -> list[tuple[Size, Size]]:
    pairs = _as_most_write_it(pad_width, ndim)
    if pairs is None:
        try:
            widths = np.asarray(pad_width)
            pairs = np.broadcast_to(widths, (ndim, 2)).tolist()
        except ValueError:
            raise ShapeError(
                f"pad: pad_width {pad_width!r} must be (before, after) for each of {ndim} axes, one pair, or one number"
            ) from None
        if widths.dtype.kind not in "iu" and widths.size:
            raise ArgumentError(f"pad: widths must be integers, got {pad_width!r}")
    for before, after in pairs:
        if before < 0 or after < 0:
            raise ArgumentError(f"pad: widths must not be negative, got {pad_width!r}")
    return pairs


def _source(mode: str, n: Size, before: int, after: int, like: Tensor) -> Tensor:
    """The source index for each position along a padded axis."""
    place: Any = iota(n + before + after, -before, like=like)
    size = number(n, place.dtype)
    if mode == "wrap":
        return _remainder(place, size)
    if mode == "edge":
        return _minimum(_maximum(place, 0), size - 1)
    edge = 1 if mode == "symmetric" else 0  # whether the last element is mirrored too
    period = (size - 1 + edge) * 2
    period = _maximum(period, 1) if isinstance(period, Tensor) else max(period, 1)
    folded = _remainder(place, period)
    return _minimum(folded, period - edge - folded)


@explain_keywords
def pad(x: Any, pad_width: Any, *, mode: str = "constant", value: float = 0) -> Tensor:
    """More elements before and after along each axis: `((before, after), …)`, one pair for all, or one number.

    mode: "constant" (`value`), "edge" (the last element), "reflect" (mirrored, without the last), "symmetric" (mirrored,
    with the last) or "wrap" (round the end).

    >>> pad([1, 2, 3], (1, 2)).tolist(), pad([1, 2, 3], 2, mode="reflect").tolist()
    ([0, 1, 2, 3, 0, 0], [3, 2, 1, 2, 3, 2, 1])
    """
    t = as_tensor(x, "pad")
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
        raise ArgumentError(f"pad: mode must be 'constant', 'edge', 'reflect', 'symmetric' or 'wrap', got {mode!r}")
    pairs = _pairs(pad_width, t.ndim)
    if mode == "constant":
        shape = tuple([n + b + a for n, (b, a) in zip(t.shape, pairs)])
        starts, steps = tuple([b for b, _ in pairs]), (1,) * len(pairs)
        if value == 0:
            return _unslice(t, shape, starts, steps)
        check_range(value, t.dtype, "pad")
        return _slice_update(full(shape, value, t.dtype, like=t), t, starts, steps)
    for axis, (before, after) in enumerate(pairs):
        n: Size = t.shape[axis]
        if isinstance(n, int) and n == 0 and before + after:
            raise ShapeError(f"pad: axis {axis} of {describe(t)} is empty; mode {mode!r} has nothing to copy")
        if before + after:
            t = _take(t, _source(mode, n, before, after, t), axis)
    return t if t is not x else _copy(t)
