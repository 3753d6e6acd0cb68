"""CTC: against the sum over all alignments, one by one, and its derivatives."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd
from tests.tolerances import AGREEMENT, assert_near


def logits(*shape: int) -> Any:
    return np.random.default_rng(2).standard_normal(shape)


def by_alignments(log_p: Any, labels: list[int], blank: int) -> float:
    """−ln Σ of the probabilities of all sequences of frames that read as the labels."""
    total = 0.0
    for path in itertools.product(range(log_p.shape[1]), repeat=log_p.shape[0]):
        read = [c for c, _ in itertools.groupby(path) if c != blank]
        if read == labels:
            total += np.exp(sum(log_p[t, c] for t, c in enumerate(path)))
    return -np.log(total)


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("labels", [[], [1], [1, 1], [1, 3, 1]])
def test_the_sum_over_all_alignments(labels: list[int], blank: int) -> None:
    log_p = wg.log_softmax(wg.asarray(logits(5, 4)), -1)
    expected = by_alignments(log_p.numpy(), labels, blank)
    got = wg.ctc_loss(log_p, np.array(labels, int), [5], [len(labels)], blank=blank, reduction="none")
    assert got.shape == () and got.item() == pytest.approx(expected, rel=1e-12)


def test_derivatives() -> None:
    f = lambda x: wg.ctc_loss(wg.log_softmax(x, -1), [[1, 1, 2], [3, 1, 0]], [6, 4], [3, 2], reduction="none")
    fd.check(f, logits(6, 2, 4))
    x, v = wg.asarray(logits(6, 2, 4)), wg.asarray(fd.seeds([(6, 2, 4)])[0])
    total = lambda x: f(x).sum()
    forward, reverse = wg.jvp(total, (x,), (v,))[1].item(), (wg.grad(total)(x) * v).sum().item()
    assert_near(forward, reverse, AGREEMENT)
    expected = fd.along(lambda t: wg.grad(total)(x + t * v).numpy())
    assert_near(wg.hvp(total, x, v).numpy(), expected, 1e-6)


def test_impossible_sequences_have_no_gradient_that_is_not_a_number() -> None:
    x = wg.tensor(logits(2, 1, 3), requires_grad=True)
    loss = wg.ctc_loss(wg.log_softmax(x, -1), [[1, 1]], [2], [2], zero_infinity=True)
    assert loss.item() == 0.0
    loss.backward()
    assert x.grad.tolist() == np.zeros((2, 1, 3)).tolist()
    assert wg.ctc_loss(wg.log_softmax(x, -1), [[1, 1]], [2], [2]).item() == np.inf


def test_long_sequences_neither_overflow_nor_vanish() -> None:
    loss = wg.ctc_loss(wg.log_softmax(wg.zeros((2000, 1, 30)), -1), np.ones((1, 3), int), [2000], [3], reduction="none")
    assert np.isfinite(loss.item()) and loss.item() > 2000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1]], [9], [1]), "at most 4, the number of frames"),
        (([[0]], [4], [1]), "other than the blank 0"),
        (([[7]], [4], [1]), "below 3"),
        (([[1]], [4, 4], [1]), "as many lengths"),
        (([1, 2], [4], [1]), "all 1 labels"),
        (([[1.5]], [4], [1]), "integers"),
    ],
)
def test_bad_arguments_are_named(arguments: Any, message: str) -> None:
    with pytest.raises(wg.WengertError, match=message):
        wg.ctc_loss(wg.zeros((4, 1, 3)), *map(np.array, arguments))
