"""Batches: every sample once, in an order that repeats and resumes."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.data import batches, progress, split


def _all(data: Any) -> list[Any]:
    return [b.tolist() for b in data]


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_sample_once(prefetch: int, shuffle: bool, drop_last: bool) -> None:
    data = batches(np.arange(10), batch_size=4, shuffle=shuffle, seed=3, drop_last=drop_last, prefetch=prefetch)
    epochs = [_all(data) for _ in range(3)]
    for epoch in epochs:
        assert len(epoch) == len(data) == (2 if drop_last else 3)
        flat = [x for batch in epoch for x in batch]
        assert len(set(flat)) == len(flat) == (8 if drop_last else 10)
    assert (epochs[0] == epochs[1]) == (not shuffle)
    assert data.epoch == 3


def test_orders_depend_on_seed_and_epoch_alone() -> None:
    make = lambda seed: batches(np.arange(50), batch_size=7, shuffle=True, seed=seed)
    a, b = make(1), make(1)
    assert [_all(a), _all(a)] == [_all(b), _all(b)] and _all(make(2)) != _all(make(1))
    wg.manual_seed(5)
    first = _all(batches(np.arange(50), shuffle=True))
    wg.manual_seed(5)
    assert _all(batches(np.arange(50), shuffle=True)) == first
    g = wg.Generator(seed=1)
    assert _all(batches(np.arange(50), shuffle=True, generator=g)) != _all(
        batches(np.arange(50), shuffle=True, generator=g)
    )


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("handed_out", [0, 1, 4, 5, 6, 13])
def test_resume_mid_epoch(handed_out: int, prefetch: int) -> None:
    make = lambda: batches(np.arange(23), batch_size=5, shuffle=True, seed=9, prefetch=prefetch)

    def stream(data: Any, epochs: int) -> Any:
        while data.epoch < epochs:
            for batch in data:
                yield batch.tolist()

    expected = list(stream(make(), 3))
    data, seen = make(), []
    source = stream(data, 3)
    for _ in range(handed_out):
        seen.append(next(source))
    state = data.state_dict()
    source.close()
    other = make()
    other.load_state_dict(state)
    assert seen + list(stream(other, 3)) == expected


def test_an_epoch_left_early_is_over() -> None:
    data = batches(np.arange(20), batch_size=5, shuffle=True, seed=0)
    first = next(iter(data)).tolist()
    second = _all(data)
    assert data.epoch == 2 and len(second) == 4 and second[0] != first


def test_structures_and_tensors() -> None:
    x = wg.arange(6).reshape((6, 1)).astype("float32")
    data = batches({"image": x, "label": (np.arange(6), x.numpy())}, batch_size=4, shuffle=True, seed=1)
    for batch in data:
        assert isinstance(batch["image"], wg.Tensor) and isinstance(batch["label"][0], wg.Tensor)
        assert batch["image"][:, 0].tolist() == batch["label"][0].tolist() == batch["label"][1][:, 0].tolist()
    for a, b in batches(x, np.arange(6), batch_size=6):
        assert a.shape == (6, 1) and b.dtype == wg.int64


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_copies(shuffle: bool) -> None:
    array, t = np.zeros(4), wg.zeros((4,))
    for a, b in batches(array, t, batch_size=2, shuffle=shuffle, seed=0):
        a.add_(1.0)
        b.add_(1.0)
    assert not array.any() and not t.numpy().any()


def test_bad_data_is_named() -> None:
    for call, message in [
        (lambda: batches(), "no arrays"),
        (lambda: batches(np.zeros((0, 3))), "dataset is empty"),
        (lambda: batches([1, 2, 3]), "single number; lists are containers"),
        (lambda: batches(np.arange(3), np.arange(4)), "3, 4 samples"),
        (lambda: batches(np.arange(3), batch_size=0), "batch_size"),
        (lambda: batches(np.arange(3), batch_size=4, drop_last=True), "3 samples make no batch of 4"),
        (lambda: batches(np.array(["a"])), "hold numbers"),
        (lambda: split(np.arange(3), test=0.01), "both parts"),
        (lambda: split(np.arange(3), test=3), "both parts"),
    ]:
        with pytest.raises(wg.WengertError, match=message):
            call()
    data = batches(np.arange(4), batch_size=2)
    with pytest.raises(wg.ArgumentError, match="samples 9, here it is 4"):
        data.load_state_dict({**data.state_dict(), "samples": 9})


def test_errors_of_the_thread_reach_the_loop() -> None:
    class Broken:
        def __len__(self) -> int:
            return 10

        def __getitem__(self, i: int) -> Any:
            raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="disk on fire"):
        list(batches(Broken(), batch_size=2, prefetch=2))


def test_threads_end_with_their_loop() -> None:
    before = threading.active_count()
    for _ in range(5):
        for _batch in batches(np.arange(1000), batch_size=1, prefetch=2):
            break
    time.sleep(0.3)
    assert threading.active_count() == before


def test_split() -> None:
    x = np.arange(20)
    (a, ta), (b, tb) = split(x, wg.asarray(x * 2), test=5, seed=4)
    assert len(a) == 15 and len(b) == 5 and sorted([*a, *b]) == list(range(20))
    assert isinstance(a, np.ndarray) and isinstance(ta, wg.Tensor) and tb.tolist() == (b * 2).tolist()
    train, test = split(x, test=0.25, shuffle=False)
    assert train.tolist() == list(range(15)) and test.tolist() == list(range(15, 20))


def test_progress_passes_items_on() -> None:
    assert list(progress(range(3), "three")) == [0, 1, 2]
    assert list(progress((k for k in range(3)), total=3, disable=True)) == [0, 1, 2]
