"""Data sets that give one sample at a time: batches of them, and parts of them."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.data import batches, split


class Squares:
    """A data set as PyTorch's users write them; it never raises IndexError."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        self.asked.append(i)
        return np.full((2, 3), i, np.float32), i * i


class Ending(Squares):
    """With IndexError at the end, it can be iterated over as a sequence."""

    def __getitem__(self, i: int) -> Any:
        if i >= self.n:
            raise IndexError(i)
        return super().__getitem__(i)


@pytest.mark.parametrize("kind", [Squares, Ending])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_of_a_data_set_have_the_containers_of_a_sample(kind: type[Squares], prefetch: int) -> None:
    dataset = kind(5)
    found = list(batches(dataset, batch_size=2, prefetch=prefetch))
    assert [(x.shape, x.dtype, t.dtype, t.tolist()) for x, t in found] == [
        ((2, 2, 3), wg.float32, wg.int64, [0, 1]),
        ((2, 2, 3), wg.float32, wg.int64, [4, 9]),
        ((1, 2, 3), wg.float32, wg.int64, [16]),
    ]
    assert found[1][0].tolist() == [[[i] * 3] * 2 for i in (2, 3)]
    assert dataset.asked == [0, 1, 2, 3, 4]  # each sample once, and none ahead of its epoch


def test_shuffled_data_sets_have_the_order_of_arrays() -> None:
    order = [t.tolist() for t in batches(np.arange(9) ** 2, batch_size=4, shuffle=True, seed=3)]
    assert [t.tolist() for _, t in batches(Squares(9), batch_size=4, shuffle=True, seed=3)] == order


def test_data_sets_beside_arrays() -> None:
    (first, *_) = batches({"sample": Squares(4), "weight": np.ones(4, np.float32)}, batch_size=2)
    assert first["sample"][1].tolist() == [0, 1] and first["weight"].tolist() == [1.0, 1.0]
    with pytest.raises(wg.ShapeError, match="4, 3 samples"):
        batches(Squares(4), np.ones(3))


def test_samples_may_hold_numbers_tensors_and_nested_containers() -> None:
    class Mixed:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> Any:
            return {"x": wg.ones((2,), requires_grad=True) * i, "y": [0.5 * i, np.float64(i)], "z": bool(i)}

    (batch,) = batches(Mixed())
    assert batch["x"].tolist() == [[0.0, 0.0], [1.0, 1.0]] and not batch["x"].requires_grad
    assert [(t.tolist(), t.dtype) for t in batch["y"]] == [([0.0, 0.5], wg.float32), ([0.0, 1.0], wg.float64)]
    assert batch["z"].tolist() == [False, True]


def test_samples_that_do_not_fit_are_named() -> None:
    for samples, message in [
        ([np.ones(2), np.ones(2), np.ones(3)], r"sample 2 has shape \(3,\), sample 0 \(2,\)"),
        ([(1.0, 2.0), (1.0, 2.0, 3.0)], "samples 0 and 1 have different containers"),
        ([1.0, "one"], "sample 1 has an item of type str"),
        ([1.0, None], r"samples 0 and 1 have different containers.*\n  \*\n  None"),
    ]:

        class Listed:
            def __len__(self, samples: Any = samples) -> int:
                return len(samples)

            def __getitem__(self, i: int, samples: Any = samples) -> Any:
                return samples[i]

        with pytest.raises(wg.WengertError, match=message):
            list(batches(Listed()))


def test_parts_of_a_data_set() -> None:
    train, held_out = split(Squares(8), test=2, seed=1)
    assert repr(train) == "Subset(6 of 8 samples)"
    seen = [t for part in (train, held_out) for _, t in part]
    assert len(seen) == 8 and sorted(seen) == [i * i for i in range(8)]
    assert [t.shape for _, t in batches(held_out, batch_size=2)] == [(2,)]


def test_arrays_of_other_kinds_are_arrays() -> None:
    assert next(iter(batches(array.array("d", [1.0, 2.0])))).dtype == wg.float64
    assert next(iter(batches(memoryview(array.array("i", [1, 2]))))).tolist() == [1, 2]


def test_what_has_no_samples_by_number_is_refused() -> None:
    for bad in ((i for i in range(3)), object(), iter([1.0])):
        with pytest.raises(wg.ArgumentError, match="__len__ and __getitem__"):
            batches(bad)
    with pytest.raises(wg.ArgumentError, match="arrays hold numbers"):
        batches("text")
