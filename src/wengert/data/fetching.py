"""From the numbers of samples, or the place in a stream, to a batch: in this process, a thread or a worker process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from wengert.data.collate import Allocate, converted, joined
from wengert.data.datasets import TensorDataset
from wengert.tensors.conversion import asarray
from wengert.tree import map as tree_map

Collate = Callable[[list[Any]], Any]


class WorkerInfo(NamedTuple):
    """Which of the workers this is: its number, and how many there are. `worker_info` returns it.

    >>> WorkerInfo(number=1, num_workers=4)
    WorkerInfo(number=1, num_workers=4)
    """

    number: int
    num_workers: int


_here = threading.local()


def worker_info() -> WorkerInfo | None:
    """In a worker of a `DataLoader`, which of how many it is; None elsewhere.

    >>> print(worker_info())
    None
    """
    return getattr(_here, "info", None)


def become_worker(info: WorkerInfo) -> None:
    """Let `worker_info` say so in this thread."""
    _here.info = info


class Task(NamedTuple):
    """A worker's task: one batch of an epoch. `chosen` are the indices of its samples; for a stream, whether the batch is
    wanted or was already handed out before the loader was resumed."""

    epoch: int
    number: int
    chosen: Any


class End:
    """A stream has no more batches."""


class MapFetcher:
    """Batches of samples that are had by number. With `allocate` batches hold arrays where they would hold tensors."""

    def __init__(self, dataset: Any, batched: bool, collate: Collate | None) -> None:
        self.dataset, self.batched, self.collate = dataset, batched, collate
        self._epoch: int | None = None

    @property
    def makes_tensors(self) -> bool:
        """Whether arrays in batches stand for tensors."""
        return self.collate is None

    def make(self, task: Task, allocate: Allocate | None = None) -> Any:
        """The batch."""
        if task.epoch != self._epoch:
            self._epoch = task.epoch
            set_epoch(self.dataset, task.epoch)
        if not self.batched:
            return _single(self.dataset[int(task.chosen)], self.collate, allocate)
        if self.collate is None and isinstance(self.dataset, TensorDataset):
            return self.dataset.batch(task.chosen, allocate)
        chosen = task.chosen
        numbers = range(chosen.start, chosen.stop) if isinstance(chosen, slice) else list(map(int, chosen))
        return _together(self._samples(numbers), numbers, self.collate, allocate)

    def _samples(self, numbers: Any) -> list[Any]:
        many = getattr(self.dataset, "__getitems__", None)
        return [self.dataset[i] for i in numbers] if many is None else list(many(list(numbers)))


class StreamFetcher:
    """Batches of samples that come one after another.

    Several workers each iterate over the data set and leave out the batches of the others, so that batches are the same
    for any number of them; a data set with a method `shard(number, count)` is iterated over in parts instead.
    """

    def __init__(self, dataset: Any, batch_size: int | None, drop_last: bool, collate: Collate | None) -> None:
        self.dataset, self.batch_size, self.drop_last, self.collate = dataset, batch_size, drop_last, collate
        self._epoch: int | None = None
        self._samples: Iterator[Any] = iter(())
        self._taken = 0  # samples of this epoch so far

    @property
    def makes_tensors(self) -> bool:
        """Whether arrays in batches stand for tensors."""
        return self.collate is None

    def make(self, task: Task, allocate: Allocate | None = None) -> Any:
        """The batch, None if it was not wanted, or End."""
        info = worker_info() if hasattr(self.dataset, "shard") else None
        if task.epoch != self._epoch:
            set_epoch(self.dataset, task.epoch)
            mine = self.dataset if info is None else self.dataset.shard(info.number, info.num_workers)
            self._epoch, self._samples, self._taken = task.epoch, iter(mine), 0
        size = self.batch_size or 1
        if info is None:  # the batches of other workers
            left_out = task.number * size - self._taken
            self._taken += sum(1 for _ in itertools.islice(self._samples, left_out))
        first = self._taken
        samples = list(itertools.islice(self._samples, size))
        self._taken += len(samples)
        if not samples or (self.drop_last and len(samples) < size):
            return End
        if not task.chosen:
            return None
        if self.batch_size is None:
            return _single(samples[0], self.collate, allocate)
        return _together(samples, range(first, self._taken), self.collate, allocate)


Fetcher = MapFetcher | StreamFetcher


def set_epoch(x: Any, epoch: int) -> None:
    """Tell a data set or a sampler, if it wants to know."""
    if hasattr(x, "set_epoch"):
        x.set_epoch(epoch)


def _single(sample: Any, collate: Collate | None, allocate: Allocate | None) -> Any:
    if collate is not None:
        return collate(sample)
    return sample if allocate else converted(sample)


def _together(samples: list[Any], numbers: Any, collate: Collate | None, allocate: Allocate | None) -> Any:
    if collate is not None:
        return collate(samples)
    arrays = joined(samples, numbers, allocate or np.empty)
    return arrays if allocate else tree_map(asarray, arrays)
