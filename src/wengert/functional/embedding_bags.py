"""Sums, means and maxima of bags of embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.dtypes import int64
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.gather import embedding
from wengert.functional.segments import segment_max, segment_sum
from wengert.functional.sorting import searchsorted
from wengert.tensors.arguments import (
    as_dtype_of,
    as_floating,
    as_index,
    as_tensor,
    describe,
    iota,
    narrow,
    native,
    number,
    wide,
)

_reshape, _where, _floor_divide, _slice = (native(n) for n in ("reshape", "where", "floor_divide", "slice"))
_maximum = native("maximum")


def _bags(index: Tensor, offsets: Any, include_last_offset: bool) -> tuple[Tensor, Tensor, Any]:
    """The indices as a vector, the bag of each, and how many bags there are."""
    name = "embedding_bag"
    if index.ndim == 2:
        if offsets is not None:
            raise ArgumentError(f"{name}: offsets belong to a vector of indices, got {describe(index)}; leave them out")
        bags, length = index.shape
        flat = _reshape(index, (bags * length,))
        return flat, _floor_divide(iota(bags * length, like=index), number(length, int64)), bags
    if index.ndim != 1 or offsets is None:
        raise ShapeError(
            f"{name}: takes indices of shape (bags, length), or a vector with the offsets where bags begin, got "
            f"{describe(index)} and offsets {'None' if offsets is None else describe(as_tensor(offsets, name))}"
        )
    starts = as_index(offsets, name)
    if starts.ndim != 1:
        raise ShapeError(f"{name}: the offsets must be a vector, got {describe(starts)}")
    if include_last_offset:
        starts = _slice(starts, (0,), (starts.shape[0] - 1,), (1,))
    if starts._plain and starts.size:
        values = np.asarray(starts.tolist())
        if values[0] != 0 or (np.diff(values) < 0).any() or values[-1] > index.shape[0]:
            raise ArgumentError(
                f"{name}: offsets must begin with 0, not decrease, and be at most {index.shape[0]}, got {values.tolist()}"
            )
    places = iota(index.shape[0], like=index)
    return index, searchsorted(starts, places, side="right") - 1, starts.shape[0]


def embedding_bag(
    index: Any,
    weight: Any,
    *,
    offsets: Any = None,
    mode: str = "mean",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The "sum", "mean" or "max" of the rows of the weight at the indices of each bag; 0 for empty bags.

    Bags are the rows of a matrix of indices; or parts of a vector, which begin at the `offsets` (with
    `include_last_offset` these also say where the last one ends). `per_sample_weights`, one for each index, scale the
    rows of sums. Indices equal to `padding_idx` are left out.

    >>> embedding_bag([0, 1, 1], [[1.0, 2.0], [3.0, 4.0]], offsets=[0, 2], mode="sum").tolist()
    [[4.0, 6.0], [3.0, 4.0]]
    """
    name = "embedding_bag"
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(f"{name}: mode must be 'sum', 'mean' or 'max', got {mode!r}")
    if per_sample_weights is not None and mode != "sum":
        raise ArgumentError(f"{name}: per_sample_weights scale the rows of sums only, got mode={mode!r}")
    i, w = as_index(index, name), as_floating(as_tensor(weight, name))
    flat, bag, n = _bags(i, offsets, include_last_offset)
    rows: Any = wide(embedding(flat, w))
    count: Any = as_dtype_of(flat == flat, rows.dtype)
    if padding_idx is not None:
        row = padding_idx % int(w.shape[0])
        count = as_dtype_of((flat != row) & (flat != row - int(w.shape[0])), rows.dtype)
    if mode == "max":
        # What is left out goes to a bag of its own, behind the others.
        own = _where(count > 0.0, bag, number(n, int64))
        largest: Any = _slice(segment_max(rows, own, num_segments=n + 1), (0, 0), (n, rows.shape[1]), (1, 1))
        held = segment_sum(count, bag, num_segments=n)
        return narrow(_where(_reshape(held > 0.0, (n, 1)), largest, 0.0), w.dtype)
    scale = count
    if per_sample_weights is not None:
        s = as_dtype_of(as_tensor(per_sample_weights, name), rows.dtype)
        if tuple(s.shape) != tuple(i.shape):
            raise ShapeError(
                f"{name}: per_sample_weights {describe(s)} must have the shape of the indices {describe(i)}"
            )
        scale = count * _reshape(s, flat.shape)
    sums: Any = segment_sum(rows * _reshape(scale, (*flat.shape, 1)), bag, num_segments=n)
    if mode == "mean":
        sums = sums / _reshape(_maximum(segment_sum(count, bag, num_segments=n), 1.0), (n, 1))
    return narrow(sums, w.dtype)
