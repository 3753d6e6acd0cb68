"""Class indices outside the range: the error names the class, where it stands, and how many classes there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.errors import IndexRangeError


@pytest.mark.parametrize("bad", [3, 7, -1, -3, -99])
@pytest.mark.parametrize("loss", [wg.cross_entropy, wg.nll_loss, wg.softmax_cross_entropy])
def test_the_class_and_its_position_are_named(loss: Any, bad: int) -> None:
    with pytest.raises(
        IndexRangeError, match=rf"{loss.__name__}: class {bad} at position 1 is out of range for 3 classes"
    ):
        loss(np.zeros((4, 3)), np.array([0, bad, 2, bad]))


def test_positions_of_several_axes_and_ignored_classes() -> None:
    target = np.array([[0, -100], [2, 5]])
    with pytest.raises(IndexRangeError, match=r"class 5 at position \(1, 1\)"):
        wg.cross_entropy(np.zeros((2, 3, 2)), target)
    with pytest.raises(IndexRangeError, match="class -100"):
        wg.cross_entropy(np.zeros((2, 3, 2)), target, ignore_index=5)


def test_a_compiled_loss_refuses_too() -> None:
    f = wg.compile(lambda x, t: wg.cross_entropy(x, t))
    assert np.isfinite(f(wg.zeros((2, 3)), wg.tensor([0, 2])).item())
    for bad in (3, -1):
        with pytest.raises(IndexRangeError):
            f(wg.zeros((2, 3)), wg.tensor([0, bad]))
