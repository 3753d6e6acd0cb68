"""The loop over batches: in an order that a seed repeats and a state resumes, made here or ahead by workers."""

from __future__ import annotations

import itertools
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, Literal

from wengert._core import Tensor
from wengert.data.datasets import TensorDataset, is_array, is_dataset
from wengert.data.fetching import End, Fetcher, MapFetcher, StreamFetcher, Task, set_epoch
from wengert.data.samplers import BatchSampler, RandomSampler, Sampler, SequentialSampler, drawn_seed
from wengert.data.workers import Crew, Processes, Threads
from wengert.errors import ArgumentError
from wengert.tensors.random import Generator
from wengert.tree import leaves
from wengert.tree import map as tree_map

_AHEAD = 2  # batches that each worker makes ahead


class DataLoader:
    """Load batches: an iterable of tensors, in the containers of a sample. Each `for` loop over it is an epoch.

    `dataset` is one of

    - an object with `__len__` and `__getitem__`, which returns samples by number: a list, or a data set written for
      PyTorch. If it has a method `__getitems__(numbers)`, that returns many at once;
    - an array or a tensor, or a tuple or dict of them, with the samples along the first axis (see `TensorDataset`);
    - any other iterable, whose samples come in its own order. With a method `shard(number, count)` it gives each
      worker a part; without one, each worker iterates over all of it and skips the batches of the others.

    If the data set or the sampler has a method `set_epoch(epoch)`, it is called at the start of every epoch. The
    other arguments:

    - `batch_size`: None returns samples one by one, as they are. `drop_last` leaves out a smaller last batch.
    - `shuffle`, `sampler`, `batch_sampler`: the order: random, that of an iterable of numbers, or of lists of
      numbers. It depends only on the seed and the epoch.
    - `generator`, `seed`: where the order comes from; by default the generator that `manual_seed` seeds.
    - `collate`: a function that makes a batch of a list of samples; by default it stacks them into tensors.
    - `num_workers`, `workers`: how many processes, or with `workers="thread"` threads, prepare batches. Random
      numbers in them (of `wengert`, NumPy and `random`) depend only on the seed and the position of the batch.
    - `prefetch`: how many batches each worker prepares ahead of time; without workers, one thread prepares them.
    - `worker_init`: a function of the worker's number that runs first in each.
    - `context`: how processes start: "fork", "spawn" or "forkserver"; by default as is usual on the system.
    - `persistent`: keep workers between epochs.
    - `timeout`: raise `WorkerError` if a worker delivers nothing for this many seconds.
    - `pin_memory`: give tensors in page-locked memory, which `x.to("cuda", non_blocking=True)` copies in the background.

    An exception in a worker is raised in the loop, with the worker's traceback; a worker that dies raises
    `WorkerError`. `state_dict()`, taken at any point of an epoch, and `load_state_dict()` resume with the next batch.

    >>> import numpy as np
    >>> loader = DataLoader([(k, float(k) ** 2) for k in range(5)], batch_size=2)
    >>> len(loader), [x.tolist() for x, _ in loader]
    (3, [[0, 1], [2, 3], [4]])
    >>> [y.tolist() for x, y in DataLoader((np.arange(4), np.arange(4.0)), batch_size=4)]
    [[0.0, 1.0, 2.0, 3.0]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 32,
        shuffle: bool = False,
        num_workers: int = 0,
        collate: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        generator: Generator | None = None,
        *,
        seed: int | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        prefetch: int | None = None,
        workers: Literal["process", "thread"] = "process",
        timeout: float | None = None,
        worker_init: Callable[[int], Any] | None = None,
        context: str | None = None,
        persistent: bool = False,
        pin_memory: bool = False,
    ) -> None:
        self.dataset = _as_dataset(dataset)
        self.batch_size, self.drop_last, self.num_workers = batch_size, drop_last, num_workers
        self.prefetch = (_AHEAD if num_workers else 0) if prefetch is None else prefetch
        self._workers, self._timeout, self._init = workers, timeout, worker_init
        self._context, self._persistent, self._pins = context, persistent, bool(pin_memory)
        self._crew: Crew | None = None
        self._check()
        if seed is None:
            seed = drawn_seed(generator) if shuffle or (num_workers and workers == "process") else 0
        self._seed, self.epoch, self._position, self._resumes = seed, 0, 0, False
        self._map = is_dataset(self.dataset)
        self._samples = len(self.dataset) if self._map else None
        self._order = self._chosen_order(shuffle, sampler, batch_sampler)
        self._fetcher: Fetcher = (
            MapFetcher(self.dataset, batch_size is not None or batch_sampler is not None, collate)
            if self._map
            else StreamFetcher(self.dataset, batch_size, drop_last, collate)
        )

    # ------------------------------------------------------------------------------------------ arguments

    def _check(self) -> None:
        value: Any
        for name, value, least in (
            ("batch_size", 1 if self.batch_size is None else self.batch_size, 1),
            ("num_workers", self.num_workers, 0),
            ("prefetch", self.prefetch, 1 if self.num_workers else 0),
        ):
            if not isinstance(value, int) or value < least:
                raise ArgumentError(f"DataLoader: {name} must be at least {least}, got {value!r}")
        if self._workers not in ("process", "thread"):
            raise ArgumentError(f'DataLoader: workers must be "process" or "thread", got {self._workers!r}')
        if self._timeout is not None and self._timeout <= 0:
            raise ArgumentError(f"DataLoader: timeout must be positive or None, got {self._timeout}")

    def _chosen_order(self, shuffle: bool, sampler: Any, batch_sampler: Any) -> Any:
        """A Sampler or an iterable of numbers; a `batch_sampler`; or None of a stream."""
        self._in_batches, self._sampler_given = batch_sampler is not None, isinstance(sampler, Sampler)
        if not self._map:
            if shuffle or sampler is not None or batch_sampler is not None:
                raise ArgumentError(
                    f"DataLoader: a {type(self.dataset).__name__} gives samples in its own order (it has no __len__ and "
                    "__getitem__); shuffle it where it is made"
                )
            return None
        if self._samples == 0:
            raise ArgumentError("DataLoader: the dataset is empty")
        if sum((shuffle, sampler is not None, batch_sampler is not None)) > 1:
            raise ArgumentError(
                "DataLoader: the order comes from shuffle, from sampler or from batch_sampler, not from two"
            )
        if batch_sampler is not None:
            return batch_sampler
        if sampler is None:
            sampler = RandomSampler(self.dataset, seed=self._seed) if shuffle else SequentialSampler(self.dataset)
        if (
            self.drop_last
            and self.batch_size is not None
            and isinstance(sampler, Sized)
            and len(sampler) < self.batch_size
        ):
            raise ArgumentError(
                f"DataLoader: {len(sampler)} samples make no batch of {self.batch_size}, and drop_last leaves nothing"
            )
        return sampler

    # --------------------------------------------------------------------------------------------- epochs

    def __len__(self) -> int:
        counted = self.dataset if self._order is None else self._order
        if not isinstance(counted, Sized):
            raise TypeError(f"the number of batches is not known: a {type(counted).__name__} has no len()")
        if self.batch_size is None or self._in_batches:
            return len(counted)
        whole, rest = divmod(len(counted), self.batch_size)
        return whole + bool(rest and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        if self._position and not self._resumes:  # the last epoch was left early, or is over
            self.epoch, self._position = self.epoch + 1, 0
        self._resumes = False
        if self._samples is not None and len(self.dataset) != self._samples:
            raise ArgumentError(
                f"DataLoader: the data set had {self._samples} samples when the loader was made, and has "
                f"{len(self.dataset)} now; make a new loader"
            )
        tasks = self._tasks(self.epoch, self._position)
        if self.num_workers or self.prefetch:
            return self._delivered(self._made_ahead(tasks))
        return self._delivered(self._made_here(tasks))

    def _tasks(self, epoch: int, start: int) -> Iterator[Task]:
        if self._order is None:  # of a stream, what was handed out is passed over
            return (Task(epoch, k, k >= start) for k in itertools.count())
        return (Task(epoch, k, chosen) for k, chosen in enumerate(self._choices(epoch, start), start))

    def _choices(self, epoch: int, start: int) -> Iterator[Any]:
        """The samples of each batch from the start-th on."""
        size = self.batch_size
        if self._in_batches or not isinstance(self._order, Sampler):
            set_epoch(self._order, epoch)
            batched = self._in_batches or size is None
            batches = self._order if batched else BatchSampler(self._order, size or 1, self.drop_last)
            yield from itertools.islice(batches, start, None)
            return
        n = len(self._order)
        if isinstance(self._order, SequentialSampler) and size is not None:
            order: Any = None
        else:
            order = self._order.order(epoch)
        if size is None:
            yield from order[start:].tolist()
            return
        for first in range(start * size, n - size + 1 if self.drop_last else n, size):
            where = slice(first, min(first + size, n))
            yield where if order is None else order[where]

    def _made_here(self, tasks: Iterator[Task]) -> Iterator[Any]:
        fetch = self._fetcher
        for task in tasks:
            batch = fetch.make(task)
            if batch is End:
                return
            if batch is not None or task.chosen is not False:
                yield batch

    def _made_ahead(self, tasks: Iterator[Task]) -> Iterator[Any]:
        """Tasks go to the workers in turns, and batches come back in that order."""
        crew = self._started_crew()
        waiting: deque[tuple[int, Task]] = deque()
        turns = deque(range(crew.count))  # of those whose stream has not ended

        def fill() -> None:
            while turns and len(waiting) < crew.count * self.prefetch:
                task = next(tasks, None)
                if task is None:
                    return
                waiting.append((turns[0], task))
                crew.submit(turns[0], task)
                turns.rotate(-1)

        finished = False
        try:
            fill()
            while waiting:
                k, task = waiting.popleft()
                batch = crew.result(k, task)
                if batch is End:
                    if k in turns:
                        turns.remove(k)
                    continue
                fill()
                if batch is not None or task.chosen is not False:
                    yield batch
                    del batch  # its memory may be free for the worker while the next one is waited for
            finished = True
        finally:
            if not (finished and self._persistent):
                crew.close()
                self._crew = None

    def _started_crew(self) -> Crew:
        if self._crew is not None:
            return self._crew
        crew: Crew
        if self._workers == "process" and self.num_workers:
            crew = Processes(
                self._fetcher, self.num_workers, self.prefetch,
                init=self._init, seed=self._seed, timeout=self._timeout, context=self._context,
            )  # fmt: skip
        else:
            crew = Threads(self._fetcher, self.num_workers or 1, init=self._init, timeout=self._timeout)
        self._crew = crew if self._persistent else None
        return crew

    def _delivered(self, made: Iterator[Any]) -> Iterator[Any]:
        for batch in made:
            self._position += 1  # counted when it is handed out, not when it is made ahead
            yield tree_map(_pinned, batch) if self._pins else batch
            del batch
        self._check_length()
        if self._position:
            self.epoch, self._position = self.epoch + 1, 0

    def _check_length(self) -> None:
        """Streams may say how long they are: then they should be."""
        if self._order is None and isinstance(self.dataset, Sized) and len(self) != self._position:
            warnings.warn(
                f"DataLoader: the {type(self.dataset).__name__} says that it has {len(self.dataset)} samples, which make "
                f"{len(self)} batches, but it gave {self._position} of them",
                stacklevel=3,
            )

    # --------------------------------------------------------------------------------------------- resuming

    def state_dict(self) -> dict[str, Any]:
        """The position of the loader: seed, epoch, and how many batches of the epoch were handed out.

        >>> import numpy as np
        >>> data = DataLoader(np.arange(6.0), batch_size=2)
        >>> it = iter(data)
        >>> next(it).tolist(), data.state_dict()
        ([0.0, 1.0], {'seed': 0, 'epoch': 0, 'position': 1, 'samples': 6, 'batch_size': 2})
        """
        given = {"sampler_seed": self._order.seed} if self._sampler_given else {}
        return {
            "seed": self._seed,
            **given,
            "epoch": self.epoch,
            "position": self._position,
            "samples": self._samples,
            "batch_size": self.batch_size,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the last batch that was handed out when the state was taken: the next loop finishes that epoch.

        A sampler of one's own must give the same numbers again, and a stream the same samples; both are passed over as
        far as they were handed out.
        """
        for name, own in (("samples", self._samples), ("batch_size", self.batch_size)):
            if state[name] != own:
                raise ArgumentError(
                    f"load_state_dict: the state is of data with {name} {state[name]}, here it is {own}"
                )
        self._seed, self.epoch, self._position = int(state["seed"]), int(state["epoch"]), int(state["position"])
        if isinstance(self._order, Sampler):
            self._order.seed = int(state.get("sampler_seed", state["seed"]))
        if self._crew is not None:  # it has the old seed
            self._crew.close()
            self._crew = None
        self._resumes = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_crew": None}

    def __repr__(self) -> str:
        of = "a stream" if self._samples is None else f"{self._samples} samples"
        return f"DataLoader(batches of {self.batch_size}, {of}, epoch {self.epoch})"


def _pinned(x: Any) -> Any:
    return x.pin_memory() if isinstance(x, Tensor) else x


def _as_dataset(x: Any) -> Any:
    """Arrays, and tuples and dicts of them, as data sets; data sets and iterables as they are."""
    if isinstance(x, Tensor) or is_array(x):
        return TensorDataset.of(x)
    if isinstance(x, (tuple, dict)) and x and all(isinstance(c, Tensor) or is_array(c) for c in leaves(x)):
        return TensorDataset.of(x)
    if is_dataset(x) and not isinstance(x, dict):
        return x
    if isinstance(x, (str, dict)) or not isinstance(x, Iterable):
        raise ArgumentError(
            "DataLoader: takes arrays and tensors, data sets (__len__ and __getitem__) and iterables, got "
            f"{type(x).__name__}"
        )
    return x


def batches(
    *arrays: Any,
    batch_size: int = 32,
    shuffle: bool = False,
    seed: int | None = None,
    generator: Generator | None = None,
    drop_last: bool = False,
    prefetch: int = 0,
) -> DataLoader:
    """Batches of arrays or tensors that are in memory, taken along their first axis and returned as tensors.

    - `arrays`: one array, or several of the same length, which come as tuples; nested containers of arrays work, too.
      An object with `__len__` and `__getitem__`, such as a PyTorch data set, gives one sample at a time.
    - `shuffle`: a new random order in every epoch. It depends only on the seed and the number of the epoch.
    - `seed`, `generator`: where the order comes from; by default the generator that `manual_seed` seeds.
    - `drop_last`: leave out the last batch if it is smaller.
    - `prefetch`: how many batches to prepare ahead of time in a thread.

    >>> import numpy as np
    >>> data = batches(np.arange(5), np.arange(5) ** 2, batch_size=2)
    >>> len(data), [t.tolist() for x, t in data]
    (3, [[0, 1], [4, 9], [16]])
    """
    return DataLoader(
        TensorDataset.of(*arrays),
        batch_size, shuffle, drop_last=drop_last, seed=seed, generator=generator, prefetch=prefetch,
    )  # fmt: skip
