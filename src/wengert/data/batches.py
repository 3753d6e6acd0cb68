"""Batches of arrays, in an order that a seed repeats and a state resumes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from wengert import functional as F
from wengert._core import Tensor
from wengert.autograd.conversion import tensor
from wengert.autograd.modes import no_grad
from wengert.autograd.random import Generator, permutation, randint
from wengert.data.samples import Subset, is_dataset, joined
from wengert.errors import ArgumentError, ShapeError
from wengert.tree import flatten, unflatten

_EPOCH_BITS = 40  # an epoch draws from counters of its own: epoch · 2⁴⁰ and on


def _shuffled(n: int, seed: int, epoch: int) -> Any:
    g = Generator()
    g.set_state((seed, epoch << _EPOCH_BITS))
    return permutation(n, generator=g).numpy()


def _columns(arrays: tuple[Any, ...], who: str) -> tuple[list[Any], Any, int]:
    """The arrays as leaves, their structure, and their common length."""
    if not arrays:
        raise ArgumentError(f"{who}: there are no arrays")
    leaves, structure = flatten(arrays[0] if len(arrays) == 1 else tuple(arrays))
    columns = [x if isinstance(x, Tensor) or is_dataset(x) else _array(x, who) for x in leaves]
    for x in columns:
        if isinstance(x, (Tensor, np.ndarray)) and x.ndim == 0:
            raise ShapeError(
                f"{who}: every array has samples along its first axis, got a single number; lists are containers here, so "
                "pass numpy.asarray(list)"
            )
    lengths = [len(x) for x in columns]
    if len(set(lengths)) > 1:
        raise ShapeError(f"{who}: the arrays have {', '.join(map(str, lengths))} samples; all must have as many")
    if not lengths or lengths[0] == 0:
        raise ArgumentError(f"{who}: the dataset is empty")
    return columns, structure, lengths[0]


def _array(x: Any, who: str) -> Any:
    a = np.asarray(x)
    if a.dtype == object:
        raise ArgumentError(
            f"{who}: takes arrays and data sets, which have samples by number (__len__ and __getitem__), got a "
            f"{type(x).__name__}"
        )
    if a.dtype.kind not in "biufcV":
        raise ArgumentError(f"{who}: arrays hold numbers, got dtype {a.dtype}")
    return a


def _rows(column: Any, chosen: Any) -> Any:
    """A copy of these samples, as what the column is."""
    if not isinstance(column, (Tensor, np.ndarray)):
        return Subset(column, chosen)
    if isinstance(column, Tensor):
        with no_grad():
            return F.clone(column[chosen]) if isinstance(chosen, slice) else column[chosen]
    return np.array(column[chosen])


class Batches:
    """An iterable over batches; each `for` loop over it is an epoch. Made by `wengert.data.batches`.

    `epoch` counts them. `state_dict()`, taken anywhere in an epoch, and `load_state_dict()` go on with the next batch.
    """

    def __init__(
        self, arrays: tuple[Any, ...], batch_size: int, shuffle: bool, seed: int, drop_last: bool, prefetch: int
    ) -> None:
        self._columns, self._structure, self._samples = _columns(arrays, "batches")
        if batch_size < 1 or prefetch < 0:
            raise ArgumentError(
                f"batches: batch_size is at least 1 and prefetch at least 0, got {batch_size}, {prefetch}"
            )
        if drop_last and batch_size > self._samples:
            raise ArgumentError(
                f"batches: {self._samples} samples make no batch of {batch_size}, and drop_last leaves nothing"
            )
        self.batch_size, self.shuffle, self.drop_last, self.prefetch = batch_size, shuffle, drop_last, prefetch
        self._seed, self.epoch, self._position = seed, 0, 0
        self._resumes = False

    def __len__(self) -> int:
        whole, rest = divmod(self._samples, self.batch_size)
        return whole + bool(rest and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        if self._position and not self._resumes:  # the last epoch was left early, or is over
            self.epoch, self._position = self.epoch + 1, 0
        self._resumes = False
        made = self._epoch(self.epoch, self._position)
        return self._delivered(_ahead(made, self.prefetch) if self.prefetch else made)

    def _epoch(self, epoch: int, start: int) -> Iterator[Any]:
        order = _shuffled(self._samples, self._seed, epoch) if self.shuffle else None
        for k in range(start, len(self)):
            where = slice(k * self.batch_size, (k + 1) * self.batch_size)
            yield self._batch(where if order is None else order[where])

    def _batch(self, chosen: Any) -> Any:
        return unflatten(self._structure, [self._part(c, chosen) for c in self._columns])

    def _part(self, column: Any, chosen: Any) -> Any:
        if not isinstance(column, (Tensor, np.ndarray)):
            numbers = range(self._samples)[chosen] if isinstance(chosen, slice) else chosen.tolist()
            return joined(column, numbers)
        rows = _rows(column, chosen)
        return rows if isinstance(rows, Tensor) else tensor(rows)

    def _delivered(self, made: Iterator[Any]) -> Iterator[Any]:
        for batch in made:
            self._position += 1  # counted when it is handed out, not when it is made ahead
            yield batch
        if self._position:
            self.epoch, self._position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Where in which epoch of which order: the seed, the epoch, and how many of its batches were handed out.

        >>> import numpy as np
        >>> data = batches(np.arange(6.0), batch_size=2)
        >>> it = iter(data)
        >>> next(it).tolist(), data.state_dict()
        ([0.0, 1.0], {'seed': 0, 'epoch': 0, 'position': 1, 'samples': 6, 'batch_size': 2})
        """
        return {
            "seed": self._seed,
            "epoch": self.epoch,
            "position": self._position,
            "samples": self._samples,
            "batch_size": self.batch_size,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the last batch that was handed out when the state was taken: the next loop finishes that epoch."""
        for name, own in (("samples", self._samples), ("batch_size", self.batch_size)):
            if state[name] != own:
                raise ArgumentError(
                    f"load_state_dict: the state is of data with {name} {state[name]}, here it is {own}"
                )
        self._seed, self.epoch, self._position = int(state["seed"]), int(state["epoch"]), int(state["position"])
        self._resumes = True

    def __repr__(self) -> str:
        return f"Batches({len(self)} of {self.batch_size}, {self._samples} samples, epoch {self.epoch})"


def batches(
    *arrays: Any,
    batch_size: int = 32,
    shuffle: bool = False,
    seed: int | None = None,
    generator: Generator | None = None,
    drop_last: bool = False,
    prefetch: int = 0,
) -> Batches:
    """Batches of arrays and tensors, or of nested containers of them, along the first axis, as tensors.

    Several arrays come as tuples. An object with `__len__` and `__getitem__`, such as a data set of PyTorch, gives one
    sample at a time; a batch has the containers of a sample, such as (image, label). The order of an epoch depends on the
    seed and the epoch alone; without a seed, one is drawn from the generator (the default one, which `manual_seed`
    starts). `prefetch` batches are made ahead in a thread.

    >>> import numpy as np
    >>> data = batches(np.arange(5), np.arange(5) ** 2, batch_size=2)
    >>> len(data), [t.tolist() for x, t in data]
    (3, [[0, 1], [4, 9], [16]])
    """
    if seed is None:
        seed = int(randint(0, 2**62, generator=generator).item()) if shuffle else 0
    return Batches(arrays, batch_size, shuffle, seed, drop_last, prefetch)


def split(*arrays: Any, test: float | int = 0.25, shuffle: bool = True, seed: int = 0) -> tuple[Any, Any]:
    """Samples to train on and samples to test with: a fraction of all, or a number of them. Of arrays these are copies, of
    data sets `Subset`s.

    >>> import numpy as np
    >>> (x, t), (x_test, t_test) = split(np.arange(8), np.arange(8) % 2, test=0.25)
    >>> len(x), len(t_test)
    (6, 2)
    """
    columns, structure, n = _columns(arrays, "split")
    n_test = round(test * n) if isinstance(test, float) else test
    if not 0 < n_test < n:
        raise ArgumentError(f"split: {test} of {n} samples are {n_test}; both parts must have some")
    order = _shuffled(n, seed, 0) if shuffle else np.arange(n)
    parts = (order[: n - n_test], order[n - n_test :])
    train, held_out = (unflatten(structure, [_rows(c, chosen) for c in columns]) for chosen in parts)
    return train, held_out


def _ahead(items: Iterator[Any], depth: int) -> Iterator[Any]:
    """The same items, made by a thread while the last ones are used."""
    made: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(depth)
    stopped, end = threading.Event(), object()

    def put(item: Any, error: BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return made.put((item, error), timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(item, None)
                if stopped.is_set():
                    return
            put(end, None)
        except BaseException as e:  # it belongs to the loop, not to this thread
            put(end, e)

    worker = threading.Thread(target=work, name="wengert-batches", daemon=True)
    worker.start()
    try:
        while True:
            item, error = made.get()
            if error is not None:
                raise error
            if item is end:
                return
            yield item
    finally:
        stopped.set()
        worker.join()
