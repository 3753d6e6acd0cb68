"""Samplers and parts of data sets: what is drawn, how often, and in which order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.data import (
    BatchSampler,
    ConcatDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)


def test_random_orders_are_permutations_that_a_seed_repeats() -> None:
    a, b = RandomSampler(20, seed=4), RandomSampler(range(20), seed=4)
    first, second = list(a), list(a)
    assert sorted(first) == sorted(second) == list(range(20)) and first != second
    assert [list(b), list(b)] == [first, second] and b.order(0).tolist() == first
    g = wg.Generator(seed=0)
    assert list(RandomSampler(20, generator=g)) != list(RandomSampler(20, generator=g))
    assert len(list(RandomSampler(20, num_samples=7, seed=0))) == len(RandomSampler(20, num_samples=7)) == 7


def test_draws_with_replacement_are_uniform() -> None:
    drawn = np.array(list(RandomSampler(5, replacement=True, num_samples=50_000, seed=1)))
    counts = np.bincount(drawn, minlength=5)
    chi2 = ((counts - 10_000) ** 2 / 10_000).sum()
    assert chi2 < 23.5  # 1e-4 of a chi-squared with 4 degrees of freedom


def test_weighted_draws_have_their_probabilities() -> None:
    weights = np.array([0.0, 1.0, 3.0, 0.0, 6.0])
    drawn = np.array(list(WeightedRandomSampler(weights, 100_000, seed=2)))
    counts = np.bincount(drawn, minlength=5)
    expected = weights * 10_000
    assert counts[0] == counts[3] == 0
    assert ((counts - expected)[weights > 0] ** 2 / expected[weights > 0]).sum() < 18.5  # 1e-4, 2 degrees of freedom


def test_weighted_draws_without_replacement() -> None:
    sampler = WeightedRandomSampler([0.0, 1.0, 3.0], 2, replacement=False, seed=0)
    orders = np.array([list(sampler) for _ in range(20_000)])
    assert set(map(tuple, orders.tolist())) == {(1, 2), (2, 1)}
    first_is_two = (orders[:, 0] == 2).mean()
    assert abs(first_is_two - 0.75) < 4 * (0.75 * 0.25 / 20_000) ** 0.5


def test_batches_of_numbers() -> None:
    assert list(BatchSampler(SequentialSampler(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(BatchSampler(SequentialSampler(7), 3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]
    assert [len(BatchSampler(range(7), 3, d)) for d in (False, True)] == [3, 2]


def test_random_splits_hold_every_sample_once() -> None:
    data = list(range(100, 111))
    parts = random_split(data, [0.5, 0.3, 0.2], generator=wg.Generator(seed=1))
    assert [len(p) for p in parts] == [6, 3, 2]
    assert sorted(x for p in parts for x in p) == data and list(parts[0]) != sorted(parts[0])
    again = random_split(data, [6, 3, 2], generator=wg.Generator(seed=1))
    assert [list(p) for p in parts] == [list(p) for p in again]
    for lengths, message in [([5, 5], "sum to the 11 samples"), ([0.5, 0.6], "sum to 1"), ([12, -1], "sum to the 11")]:
        with pytest.raises(wg.ArgumentError, match=message):
            random_split(data, lengths)


def test_data_sets_one_after_another() -> None:
    data = ConcatDataset([[1, 2], Subset(range(10), [7]), (5, 6)])
    assert [data[i] for i in range(len(data))] == [1, 2, 7, 5, 6] and data[-1] == 6 and data[-5] == 1
    for i in (5, -6):
        with pytest.raises(IndexError, match="out of range for 5 samples"):
            data[i]
    with pytest.raises(wg.ArgumentError, match="itertools.chain"):
        ConcatDataset([iter([1])])
    with pytest.raises(wg.ArgumentError, match="no data sets"):
        ConcatDataset([])


def test_tensor_data_sets() -> None:
    data = TensorDataset(wg.arange(6).reshape((3, 2)), np.array([1.0, 2.0, 3.0]))
    x, t = data[-1]
    assert x.tolist() == [4, 5] and t == 3.0 and len(data) == 3 and repr(data) == "TensorDataset(3 samples)"
    with pytest.raises(IndexError):
        data[3]


def test_samples_of_one_tensor_are_tuples() -> None:
    """As in PyTorch, whose users unpack them: `for (x,) in loader`."""
    data = TensorDataset(wg.arange(4))
    assert isinstance(data[1], tuple) and data[1][0].item() == 1
    assert [x.tolist() for (x,) in wg.data.DataLoader(data, batch_size=3)] == [[0, 1, 2], [3]]
    assert [x.tolist() for x in wg.data.DataLoader(wg.arange(4), batch_size=3)] == [[0, 1, 2], [3]]
    assert TensorDataset({"x": wg.arange(4)})[2]["x"].item() == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RandomSampler(0), "takes a data set with samples, or their number, got 0"),
        (lambda: RandomSampler(3, num_samples=4), "more need replacement=True"),
        (lambda: WeightedRandomSampler([1.0, -1.0], 1), "none of them negative"),
        (lambda: WeightedRandomSampler([np.nan], 1), "finite"),
        (lambda: WeightedRandomSampler([0.0, 0.0], 1), "one at least positive"),
        (lambda: WeightedRandomSampler([1.0, 0.0], 2, replacement=False), "at most the 1 samples of positive weight"),
        (lambda: BatchSampler([1], 0), "batch_size must be at least 1"),
    ],
)
def test_bad_arguments_are_named(call: Any, message: str) -> None:
    with pytest.raises(wg.ArgumentError, match=message):
        call()
