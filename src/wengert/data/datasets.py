"""Data sets: samples by number, of arrays or of one's own; parts of them, and several as one."""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from wengert import functional as F
from wengert._core import Tensor
from wengert.data.collate import Allocate, as_array, joined
from wengert.data.samplers import drawn_seed, shuffled
from wengert.errors import ArgumentError, IndexRangeError, ShapeError
from wengert.modes import no_grad
from wengert.tensors.conversion import asarray
from wengert.tensors.random import Generator
from wengert.tree import flatten, unflatten

_ARRAYS = ("__array__", "__array_interface__", "__dlpack__")


def is_dataset(x: Any) -> bool:
    """Whether samples are had one by one, as x[i] for i below len(x). Arrays, which give many at once, are no data sets.

    >>> is_dataset(range(3)), is_dataset(np.arange(3)), is_dataset("abc")
    (True, False, False)
    """
    if isinstance(x, str) or not (hasattr(type(x), "__len__") and hasattr(type(x), "__getitem__")):
        return False
    return not is_array(x)


def is_array(x: Any) -> bool:
    """Whether x holds many numbers at once: a tensor, an array of any library, or a buffer."""
    return any(hasattr(x, name) for name in _ARRAYS) or _has_buffer(x)


def _has_buffer(x: Any) -> bool:
    try:
        memoryview(x).release()
    except TypeError:
        return False
    return True


class TensorDataset:
    """A data set of arrays or tensors side by side, with the samples along their first axes.

    Sample i is the tuple of their i-th rows (also for a single array), or has the structure of the nested container
    that was passed. A `DataLoader` takes the rows of a whole batch at once. Other data sets may stand beside the
    arrays, if they have as many samples.

    >>> data = TensorDataset(np.arange(4.0), np.arange(4) ** 2)
    >>> len(data), [x.item() for x in data[3]]
    (4, [3.0, 9])
    """

    def __init__(self, *arrays: Any) -> None:
        alone = len(arrays) == 1 and is_array(arrays[0])
        self._columns, self._structure, self._samples = columns((arrays,) if alone else arrays, type(self).__name__)

    @classmethod
    def of(cls, *arrays: Any) -> TensorDataset:
        """The same, except that samples of a single array are its rows.

        >>> TensorDataset.of(np.arange(4.0))[3].item()
        3.0
        """
        made = cls.__new__(cls)
        made._columns, made._structure, made._samples = columns(arrays, cls.__name__)
        return made

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, i: Any) -> Any:
        k = in_range(i, self._samples)
        return unflatten(self._structure, [c[k] for c in self._columns])

    def batch(self, chosen: Any, allocate: Allocate | None = None) -> Any:
        """The samples of a slice or an array of numbers, joined: tensors, or with `allocate`, arrays."""
        return unflatten(self._structure, [self._part(c, chosen, allocate) for c in self._columns])

    def _part(self, column: Any, chosen: Any, allocate: Allocate | None) -> Any:
        if not isinstance(column, (Tensor, np.ndarray)):
            numbers = range(self._samples)[chosen] if isinstance(chosen, slice) else [int(i) for i in chosen]
            part = joined([column[i] for i in numbers], numbers, allocate or np.empty)
            return part if allocate else unflatten(flatten(part)[1], [asarray(x) for x in flatten(part)[0]])
        return rows(column, chosen) if allocate is None else _rows_to(column, chosen, allocate)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._samples} samples)"


def columns(arrays: tuple[Any, ...], who: str) -> tuple[list[Any], Any, int]:
    """The arrays as leaves, their structure, and their common length."""
    if not arrays:
        raise ArgumentError(f"{who}: there are no arrays")
    leaves, structure = flatten(arrays[0] if len(arrays) == 1 else tuple(arrays))
    found = [x if isinstance(x, Tensor) or is_dataset(x) else _array(x, who) for x in leaves]
    for x in found:
        if isinstance(x, (Tensor, np.ndarray)) and x.ndim == 0:
            raise ShapeError(
                f"{who}: every array must have samples along its first axis, got a single number; "
                f"lists are containers here, so "
                "pass numpy.asarray(list)"
            )
    lengths = [len(x) for x in found]
    if len(set(lengths)) > 1:
        raise ShapeError(f"{who}: the arrays have {', '.join(map(str, lengths))} samples; all must have as many")
    if not lengths or lengths[0] == 0:
        raise ArgumentError(f"{who}: the dataset is empty")
    return found, structure, lengths[0]


def _array(x: Any, who: str) -> Any:
    a = np.asarray(x)
    if a.dtype == object:
        raise ArgumentError(
            f"{who}: takes arrays and data sets, which have samples by number (__len__ and __getitem__), got "
            f"{type(x).__name__}"
        )
    if a.dtype.kind not in "biufcV":
        raise ArgumentError(f"{who}: arrays hold numbers, got dtype {a.dtype}")
    return a


def in_range(i: Any, n: int) -> int:
    """The number of a sample; negative ones count from the end."""
    k = operator.index(i)
    if not -n <= k < n:
        raise IndexRangeError(f"sample {k} is out of range for {n} samples")
    return k % n


def rows(column: Any, chosen: Any) -> Tensor:
    """A copy of these rows of an array, as a tensor."""
    with no_grad():
        t = asarray(column) if isinstance(column, np.ndarray) else column.detach()
        return F.clone(t[chosen]) if isinstance(chosen, slice) else F.take(t, asarray(np.asarray(chosen)), axis=0)


def _rows_to(column: Any, chosen: Any, allocate: Allocate) -> Any:
    a = as_array(column)
    numbers = np.arange(len(a))[chosen] if isinstance(chosen, slice) else np.asarray(chosen)
    if len(numbers) and not -len(a) <= numbers.min() <= numbers.max() < len(a):
        raise IndexRangeError(f"samples {numbers.min()} to {numbers.max()} are out of range for {len(a)} samples")
    numbers = np.where(numbers < 0, numbers + len(a), numbers)
    out = allocate((len(numbers), *a.shape[1:]), a.dtype)
    return np.take(a, numbers, axis=0, out=out, mode="clip")  # "raise" would write to a buffer first


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


class ConcatDataset:
    """Data sets one after another.

    >>> data = ConcatDataset([range(3), range(10, 12)])
    >>> list(data), data[-1]
    ([0, 1, 2, 10, 11], 11)
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("ConcatDataset: there are no data sets")
        for x in self.datasets:
            if not (hasattr(type(x), "__len__") and hasattr(type(x), "__getitem__")):
                raise ArgumentError(
                    f"ConcatDataset: data sets must have __len__ and __getitem__, got {type(x).__name__}; "
                    "itertools.chain joins iterables"
                )
        self._ends = list(itertools.accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, i: int) -> Any:
        k = in_range(i, len(self))
        which = bisect.bisect_right(self._ends, k)
        return self.datasets[which][k - (self._ends[which - 1] if which else 0)]

    def __repr__(self) -> str:
        return f"ConcatDataset({len(self)} samples of {len(self.datasets)} data sets)"


def random_split(dataset: Any, lengths: Sequence[float], *, generator: Generator | None = None) -> list[Subset]:
    """Split a data set at random into parts with these lengths, or these fractions, which sum to 1.

    >>> [len(part) for part in random_split(range(10), [7, 3])], [len(p) for p in random_split(range(10), [0.5, 0.5])]
    ([7, 3], [5, 5])
    """
    n = len(dataset)
    sizes = _sizes(lengths, n)
    order = shuffled(n, drawn_seed(generator), 0)
    ends = list(itertools.accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends)]


def _sizes(lengths: Sequence[float], n: int) -> list[int]:
    if all(isinstance(x, (int, np.integer)) for x in lengths):
        sizes = [int(x) for x in lengths]
    else:
        if any(not 0 <= x <= 1 for x in lengths) or abs(sum(lengths) - 1) > 1e-6:
            raise ArgumentError(f"random_split: fractions must be between 0 and 1 and sum to 1, got {list(lengths)}")
        sizes = [int(x * n) for x in lengths]
        for k in range(n - sum(sizes)):  # what rounding left over, one each
            sizes[k % len(sizes)] += 1
    if sum(sizes) != n or min(sizes, default=0) < 0:
        raise ArgumentError(f"random_split: the lengths {list(lengths)} do not sum to the {n} samples of the data set")
    return sizes


def split(*arrays: Any, test: float | int = 0.25, shuffle: bool = True, seed: int = 0) -> tuple[Any, Any]:
    """Samples to train on and samples to test with: a fraction of all, or a number of them. Of arrays these are copies, of
    data sets `Subset`s.

    >>> (x, t), (x_test, t_test) = split(np.arange(8), np.arange(8) % 2, test=0.25)
    >>> len(x), len(t_test)
    (6, 2)
    """
    found, structure, n = columns(arrays, "split")
    n_test = round(test * n) if isinstance(test, float) else test
    if not 0 < n_test < n:
        raise ArgumentError(f"split: {test} of {n} samples are {n_test}; both parts must have some")
    order = shuffled(n, seed, 0) if shuffle else np.arange(n)
    parts = (order[: n - n_test], order[n - n_test :])
    train, held_out = (unflatten(structure, [_chosen(c, part) for c in found]) for part in parts)
    return train, held_out


def _chosen(column: Any, numbers: Any) -> Any:
    """These samples of a column, as what it is."""
    if isinstance(column, Tensor):
        return rows(column, numbers)
    return column[numbers] if isinstance(column, np.ndarray) else Subset(column, numbers)
