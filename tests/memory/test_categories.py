"""What memory is used for: every live byte has one category."""

from __future__ import annotations

import gc
from typing import Any

import wengert as wg

N = 1 << 16  # float32 elements: 256 KiB
BYTES = 4 * N


def _by_category() -> dict[str, int]:
    stats = wg.memory_stats()
    assert sum(stats.by_category.values()) == stats.live_bytes
    assert stats.by_category["saved"] == stats.saved_bytes
    return stats.by_category


class _Change:
    """By how much the categories change inside."""

    def __enter__(self) -> dict[str, int]:
        gc.collect()
        gc.collect()  # what other tests have left behind is not freed inside
        self._before, self.by = _by_category(), {}
        return self.by

    def __exit__(self, *exc: Any) -> None:
        after = _by_category()
        self.by.update({c: after[c] - n for c, n in self._before.items() if after[c] != n})


def test_all_categories_are_listed() -> None:
    names = {"parameter", "gradient", "optimizer", "activation", "saved", "workspace", "other"}
    assert set(wg.memory_stats().by_category) == names


def test_a_training_step_is_told_apart() -> None:
    with _Change() as by:
        w = wg.Parameter(wg.ones((N,)))
    assert by == {"parameter": BYTES}
    x = wg.ones((N,))
    with _Change() as by:
        h = wg.exp(w * x)
        loss = h.sum()
    assert by["saved"] == BYTES + BYTES  # h, and x, which was an activation; w lives anyway
    del h
    with _Change() as by:
        grads = loss.backward()
    assert by["gradient"] == BYTES and by["saved"] == -2 * BYTES
    del grads
    optimizer = wg.optim.Adam([w], lr=0.1)
    with _Change() as by:
        optimizer.step()
    assert by.get("optimizer") == 2 * BYTES and "parameter" not in by
    with _Change() as by:
        w.grad = None
    assert by == {"gradient": -BYTES}
    with _Change() as by:
        del w, optimizer
    assert by == {"parameter": -BYTES, "optimizer": -2 * BYTES}


def test_what_takes_the_place_of_a_parameter_is_one() -> None:
    w = wg.Parameter(wg.ones((N,)))
    with _Change() as by, wg.no_grad():
        w -= 0.5 * w
        w.copy_(wg.zeros((N,)))
    assert by == {}


def test_gradients_that_are_accumulated_or_given_are_gradients() -> None:
    w = wg.Parameter(wg.ones((N,)))
    (w * w).sum().backward()
    with _Change() as by:
        (w * w).sum().backward()
    assert by == {}
    with _Change() as by:
        w.set_grad(wg.ones((N,)) * 2.0)
    assert by == {}
