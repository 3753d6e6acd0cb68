"""Samplers: the numbers of the samples, in the order of an epoch.

The order depends on the seed and the number of the epoch alone, so that any epoch can be entered again, in its middle too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np

from wengert.dtypes import float64
from wengert.errors import ArgumentError
from wengert.tensors.random import Generator, permutation, rand, randint

_EPOCH_BITS = 40  # an epoch draws from counters of its own: epoch · 2⁴⁰ and on


def epoch_generator(seed: int, epoch: int) -> Generator:
    """The random numbers of one epoch."""
    g = Generator(seed=0)
    g.set_state((seed, epoch << _EPOCH_BITS))
    return g


def shuffled(n: int, seed: int, epoch: int) -> Any:
    """The numbers below n in the random order of an epoch."""
    return permutation(n, generator=epoch_generator(seed, epoch)).numpy()


def drawn_seed(generator: Generator | None) -> int:
    """A seed from a generator, by default the one that `manual_seed` starts."""
    return int(randint(0, 2**62, generator=generator).item())


def count_of(data: Any, who: str) -> int:
    """The number of samples: given itself, or by the data set."""
    n = len(data) if isinstance(data, Sized) else data
    if not isinstance(n, (int, np.integer)) or n < 1:
        raise ArgumentError(f"{who}: takes a data set with samples, or their number, got {data!r}")
    return int(n)


class Sampler:
    """Base of samplers: `order(epoch)` gives the numbers of an epoch as an array, `len` how many they are.

    Each `for` loop over a sampler is an epoch. A `DataLoader` takes any other iterable of numbers as well; what makes
    this one resume exactly is that an epoch has the same order whenever it is asked for.

    >>> import numpy as np
    >>> class Backwards(Sampler):
    ...     def __len__(self):
    ...         return 4
    ...     def order(self, epoch):
    ...         return np.arange(4)[::-1]
    >>> list(Backwards())
    [3, 2, 1, 0]
    """

    epoch = 0
    seed = 0

    def order(self, epoch: int) -> Any:
        """The numbers of the samples in this epoch."""
        raise NotImplementedError(f"{type(self).__name__} does not define order(epoch)")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not define __len__")

    def __iter__(self) -> Iterator[int]:
        order = self.order(self.epoch)
        self.epoch += 1
        return iter(order.tolist())


class SequentialSampler(Sampler):
    """0, 1, 2, …

    >>> list(SequentialSampler(3))
    [0, 1, 2]
    """

    def __init__(self, data: Any) -> None:
        self._samples = count_of(data, "SequentialSampler")

    def order(self, epoch: int) -> Any:
        """All samples, in their own order."""
        return np.arange(self._samples)

    def __len__(self) -> int:
        return self._samples


class RandomSampler(Sampler):
    """All samples in random order, or, with `replacement`, samples that are drawn independently of each other.

    Without a seed one is drawn from the generator. `num_samples` is how many an epoch has: all by default.

    >>> sampler = RandomSampler(5, seed=0)
    >>> sorted(sampler), list(sampler) == list(sampler)
    ([0, 1, 2, 3, 4], False)
    """

    def __init__(
        self,
        data: Any,
        *,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
        seed: int | None = None,
    ) -> None:
        self._samples = count_of(data, "RandomSampler")
        self.replacement = replacement
        self.num_samples = self._samples if num_samples is None else num_samples
        if self.num_samples < 1 or (self.num_samples > self._samples and not replacement):
            raise ArgumentError(
                f"RandomSampler: num_samples must be between 1 and the {self._samples} samples, got {num_samples}; more "
                "need replacement=True"
            )
        self.seed = drawn_seed(generator) if seed is None else seed

    def order(self, epoch: int) -> Any:
        """The samples that this epoch draws."""
        if not self.replacement:
            return shuffled(self._samples, self.seed, epoch)[: self.num_samples]
        g = epoch_generator(self.seed, epoch)
        return randint(0, self._samples, (self.num_samples,), generator=g).numpy()

    def __len__(self) -> int:
        return self.num_samples


class WeightedRandomSampler(Sampler):
    """Samples drawn with probabilities in proportion to their weights; without `replacement`, none of them twice.

    Reference for draws without replacement: Efraimidis and Spirakis (2006), the largest u^(1/w).

    >>> sampler = WeightedRandomSampler([0.0, 3.0, 1.0], 4, seed=0)
    >>> len(sampler), 0 in set(sampler)
    (4, False)
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        *,
        replacement: bool = True,
        generator: Generator | None = None,
        seed: int | None = None,
    ) -> None:
        w = np.asarray(weights, np.float64)
        if w.ndim != 1 or not w.size or not np.isfinite(w).all() or (w < 0).any() or not w.any():
            raise ArgumentError(
                "WeightedRandomSampler: weights must be a vector of finite numbers, none of them negative and one at least "
                f"positive, got {weights!r}"[:300]
            )
        possible = int(np.count_nonzero(w))
        if num_samples < 1 or (not replacement and num_samples > possible):
            raise ArgumentError(
                f"WeightedRandomSampler: num_samples must be at least 1, and without replacement at most the {possible} "
                f"samples of positive weight, got {num_samples}"
            )
        self.weights, self.num_samples, self.replacement = w, num_samples, replacement
        self.seed = drawn_seed(generator) if seed is None else seed

    def order(self, epoch: int) -> Any:
        """The samples that this epoch draws."""
        g = epoch_generator(self.seed, epoch)
        if self.replacement:
            ends = np.cumsum(self.weights)
            u = rand(self.num_samples, dtype=float64, generator=g).numpy()
            last = np.flatnonzero(self.weights)[-1]  # rounding must not lead past it
            return np.minimum(np.searchsorted(ends, u * ends[-1], side="right"), last)
        (possible,) = np.nonzero(self.weights)
        u = rand(len(possible), dtype=float64, generator=g).numpy()
        keys = np.log1p(-u) / self.weights[possible]
        return possible[np.argsort(-keys, kind="stable")[: self.num_samples]]

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler:
    """The numbers of a sampler in lists of `batch_size`.

    >>> list(BatchSampler(range(5), 2)), len(BatchSampler(range(5), 2, drop_last=True))
    ([[0, 1], [2, 3], [4]], 2)
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        if batch_size < 1:
            raise ArgumentError(f"BatchSampler: batch_size must be at least 1, got {batch_size}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for i in self.sampler:
            batch.append(i)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)  # type: ignore[arg-type]
        return whole + bool(rest and not self.drop_last)
