"""Samples joined to batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.errors import ArgumentError, ShapeError
from wengert.tensors.conversion import asarray, tensor
from wengert.tree import flatten, is_container, unflatten
from wengert.tree import map as tree_map

Allocate = Callable[[tuple[int, ...], Any], Any]  # shape, dtype → an array to write to
_NUMBERS = (bool, int, float, complex)


def collate(samples: Sequence[Any]) -> Any:
    """Samples as one: in the containers that a sample has, tensors with the samples along the first axis.

    This is what a `DataLoader` does if it is given no other function.

    >>> collate([(1.0, {"label": 3}), (2.0, {"label": 4})])
    (tensor([1., 2.]), {'label': tensor([3, 4])})
    """
    return tree_map(asarray, joined(samples, range(len(samples))))


def joined(samples: Sequence[Any], numbers: Sequence[int], allocate: Allocate = np.empty) -> Any:
    """`collate`, with arrays in place of tensors. The numbers are what messages call the samples."""
    if not samples:
        raise ArgumentError("collate: there are no samples")
    try:
        return _joined(samples, numbers, allocate)
    except _DifferentContainers:
        structure = flatten(samples[0])[1]
        k, other = next((k, s) for k, s in enumerate(flatten(x)[1] for x in samples) if s != structure)
        raise ArgumentError(
            f"collate: samples {numbers[0]} and {numbers[k]} have different containers, so they cannot be joined to a "
            f"batch; give a function for it, collate=\n  {structure}\n  {other}"
        ) from None


class _DifferentContainers(Exception):
    """Samples that do not match."""


def _joined(samples: Sequence[Any], numbers: Sequence[int], allocate: Allocate) -> Any:
    """Level by level, where `flatten` would look at every sample on its own: the usual containers first."""
    first, cls = samples[0], type(samples[0])
    alike = all(type(s) is cls for s in samples)
    if not alike and (is_container(first) or any(map(is_container, samples))):
        raise _DifferentContainers
    if cls is dict:
        if any(s.keys() != first.keys() for s in samples):
            raise _DifferentContainers
        return {k: _joined([s[k] for s in samples], numbers, allocate) for k in first}
    if cls is tuple or cls is list:
        if any(len(s) != len(first) for s in samples):
            raise _DifferentContainers
        return cls([_joined(column, numbers, allocate) for column in zip(*samples)])
    if not is_container(first):
        return _stacked(samples, numbers, allocate)
    rows, structures = zip(*map(flatten, samples))
    if any(s != structures[0] for s in structures):
        raise _DifferentContainers
    return unflatten(structures[0], [_joined(column, numbers, allocate) for column in zip(*rows)])


def as_array(x: Any) -> Any:
    """The numbers of a tensor, or an array of anything else."""
    return x.detach().numpy() if isinstance(x, Tensor) else np.asarray(x)


def converted(sample: Any) -> Any:
    """A sample on its own: arrays become tensors, all else stays."""
    return tree_map(lambda x: tensor(x) if isinstance(x, np.ndarray) else x, sample)


def _stacked(parts: Sequence[Any], numbers: Sequence[int], allocate: Allocate) -> Any:
    """One part of every sample, along a new first axis."""
    if isinstance(parts[0], _NUMBERS) and all(isinstance(x, _NUMBERS) for x in parts):
        return tensor(list(parts)).numpy()
    arrays = [as_array(x) for x in parts]
    shape, dtype = arrays[0].shape, arrays[0].dtype
    if any(a.shape != shape or a.dtype != dtype for a in arrays) or dtype.kind not in "biufcV":
        dtype = _common_type(arrays, parts, numbers)
    if not shape or not arrays[0].size:
        out = allocate((len(arrays), *shape), dtype)
        out[...] = arrays
        return out
    out = allocate((len(arrays) * shape[0], *shape[1:]), dtype)
    np.concatenate(arrays, out=out)
    return out.reshape(len(arrays), *shape)


def _common_type(arrays: Sequence[Any], parts: Sequence[Any], numbers: Sequence[int]) -> Any:
    """The element type of all; errors name the sample that does not fit."""
    shape = arrays[0].shape
    for i, part, x in zip(numbers, parts, arrays):
        if x.dtype.kind not in "biufcV":
            raise ArgumentError(
                f"collate: samples must hold numbers and arrays, sample {i} has an item of type {type(part).__name__}; "
                "pass a function that joins such samples as collate="
            )
        if x.shape != shape:
            raise ShapeError(
                f"collate: sample {i} has shape {x.shape}, sample {numbers[0]} {shape}; samples of a batch must have one "
                "shape: pad them, or give a function that joins them, collate="
            )
    return np.result_type(*{x.dtype for x in arrays})
