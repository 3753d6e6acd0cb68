"""Data sets that give one sample at a time, and samples joined to batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert import functional as F
from wengert._core import Tensor
from wengert.autograd.conversion import asarray, tensor
from wengert.autograd.modes import no_grad
from wengert.errors import ArgumentError, ShapeError
from wengert.tree import flatten, unflatten

_ARRAYS = ("__array__", "__array_interface__", "__dlpack__")


def is_dataset(x: Any) -> bool:
    """Whether samples are had one by one, as x[i] for i below len(x). Arrays, which give many at once, are no data sets.

    >>> is_dataset(range(3)), is_dataset(np.arange(3)), is_dataset("abc")
    (True, False, False)
    """
    if isinstance(x, str) or not (hasattr(type(x), "__len__") and hasattr(type(x), "__getitem__")):
        return False
    return not (any(hasattr(x, name) for name in _ARRAYS) or _has_buffer(x))


def _has_buffer(x: Any) -> bool:
    try:
        memoryview(x).release()
    except TypeError:
        return False
    return True


class Subset:
    """Some samples of a data set, by number.

    >>> list(Subset(range(10), [7, 2]))
    [7, 2]
    """

    def __init__(self, dataset: Any, chosen: Sequence[int]) -> None:
        self.dataset, self.chosen = dataset, chosen

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, i: int) -> Any:
        return self.dataset[int(self.chosen[i])]

    def __repr__(self) -> str:
        return f"Subset({len(self)} of {len(self.dataset)} samples)"


def joined(dataset: Any, chosen: Sequence[int]) -> Any:
    """These samples as one: in the containers that a sample has, tensors with the samples along the first axis.

    >>> joined([(1.0, {"label": 3}), (2.0, {"label": 4})], [1, 0])
    (tensor([2., 1.]), {'label': tensor([4, 3])})
    """
    flat = [flatten(dataset[i]) for i in chosen]
    structure = flat[0][1]
    for i, (_, other) in zip(chosen, flat):
        if other != structure:
            raise ArgumentError(
                f"batches: samples {chosen[0]} and {i} have different containers, so they cannot be joined to a batch:\n"
                f"  {structure}\n  {other}"
            )
    return unflatten(structure, [_stacked(parts, chosen) for parts in zip(*(leaves for leaves, _ in flat))])


def _stacked(parts: Sequence[Any], chosen: Sequence[int]) -> Tensor:
    """One part of every sample, along a new first axis."""
    if all(isinstance(x, (bool, int, float, complex)) for x in parts):
        return tensor(list(parts))
    arrays = [x if isinstance(x, Tensor) else np.asarray(x) for x in parts]
    for i, part, x in zip(chosen, parts, arrays):
        if isinstance(x, np.ndarray) and x.dtype.kind not in "biufcV":
            raise ArgumentError(f"batches: samples hold numbers and arrays, sample {i} has a {type(part).__name__}")
        if tuple(x.shape) != tuple(arrays[0].shape):
            raise ShapeError(
                f"batches: sample {i} has shape {tuple(x.shape)}, sample {chosen[0]} {tuple(arrays[0].shape)}; samples of "
                "a batch must have one shape"
            )
    if not any(isinstance(x, Tensor) for x in arrays):
        return tensor(np.stack(arrays))
    with no_grad():
        return F.stack([asarray(x) for x in arrays])
