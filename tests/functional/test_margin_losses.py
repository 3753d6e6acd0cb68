"""Margins and likelihoods: values by NumPy, derivatives by finite differences, errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd

X, Y, Z = (np.random.default_rng(k).uniform(-2, 2, (4, 3)) for k in range(3))
LABELS = np.array([[2, 0, -1], [-1, 0, 1], [1, -1, 2], [0, 1, 2]])
SIGNS = np.sign(Z)
ONES = (Z > 0).astype(np.float64)


def apart(a: Any, b: Any) -> Any:
    """The distances of rows, as triplets measure them."""
    return np.linalg.norm(a - b + 1e-6, axis=1)


def multilabel(x: Any) -> Any:
    losses = []
    for row, listed in zip(x, LABELS):
        labels = list(listed[: list(listed).index(-1)]) if -1 in listed else list(listed)
        others = [i for i in range(3) if i not in labels]
        losses.append(sum(max(0.0, 1 - row[j] + row[i]) for j in labels for i in others) / 3)
    return np.array(losses)


CASES: dict[str, Any] = {
    "margin_ranking": (
        lambda a, b: wg.margin_ranking_loss(a, b, wg.asarray(SIGNS), margin=0.4, reduction="none"),
        lambda a, b: np.maximum(0, 0.4 - SIGNS * (a - b)),
        (X, Y),
    ),
    "multilabel_soft_margin": (
        lambda x: wg.multilabel_soft_margin_loss(x, wg.asarray(ONES), reduction="none"),
        lambda x: (ONES * np.log1p(np.exp(-x)) + (1 - ONES) * np.log1p(np.exp(x))).mean(1),
        (X,),
    ),
    "multilabel_margin": (lambda x: wg.multilabel_margin_loss(x, LABELS, reduction="none"), multilabel, (X,)),
    **{
        f"triplet, p={p}": (
            lambda a, n, f, p=p: wg.triplet_margin_loss(a, n, f, p=p, margin=2.0, reduction="none"),
            lambda a, n, f, p=p: np.maximum(
                0, np.linalg.norm(a - n + 1e-6, p, axis=1) - np.linalg.norm(a - f + 1e-6, p, axis=1) + 2.0
            ),
            (X, Y, Z),
        )
        for p in (1, 2, 3, math.inf)
    },
    "triplet, swapped": (
        lambda a, n, f: wg.triplet_margin_loss(a, n, f, swap=True, margin=2.0, reduction="none"),
        lambda a, n, f: np.maximum(0, apart(a, n) - np.minimum(apart(a, f), apart(n, f)) + 2.0),
        (X, Y, Z),
    ),
    "gaussian_nll": (
        lambda x, t, v: wg.gaussian_nll_loss(x, t, v, full=True, reduction="none"),
        lambda x, t, v: 0.5 * (np.log(2 * np.pi * v) + (x - t) ** 2 / v),
        (X, Y, np.abs(Z) + 0.1),
    ),
    "gaussian_nll, one variance a row": (
        lambda x, t, v: wg.gaussian_nll_loss(x, t, v, reduction="none"),
        lambda x, t, v: 0.5 * (np.log(v)[:, None] + (x - t) ** 2 / v[:, None]),
        (X, Y, np.abs(Z[:, 0]) + 0.1),
    ),
    "poisson_nll": (
        lambda x: wg.poisson_nll_loss(x, wg.asarray(ONES * 3), reduction="none"),
        lambda x: np.exp(x) - ONES * 3 * x,
        (X,),
    ),
    "poisson_nll of rates": (
        lambda x: wg.poisson_nll_loss(x, wg.asarray(ONES * 3), log_input=False, full=True, reduction="none"),
        lambda x: x - 3 * ONES * np.log(x + 1e-8) + np.where(ONES > 0, 3 * np.log(3) - 3 + 0.5 * np.log(6 * np.pi), 0),
        (np.abs(X) + 0.3,),
    ),
    "log_cosh": (
        lambda x, t: wg.log_cosh_loss(x, t, reduction="none"),
        lambda x, t: np.log(np.cosh(x - t)),
        (X, Y),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name: str) -> None:
    ours, reference, arrays = CASES[name]
    np.testing.assert_allclose(ours(*map(wg.asarray, arrays)).numpy(), reference(*arrays), rtol=1e-12, atol=1e-14)
    fd.check(ours, *arrays)


def test_log_cosh_is_exact_where_it_is_small_and_finite_where_it_is_large() -> None:
    d = np.array([1e-8, 1e-3, 0.999, 1.001, 50.0, 1e4])
    loss = wg.log_cosh_loss(d, np.zeros(6), reduction="none").numpy()
    with np.errstate(over="ignore"):
        expected = np.where(d < 1e-2, d**2 / 2 - d**4 / 12, np.where(d < 50, np.log(np.cosh(d)), d - np.log(2)))
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    curvature = wg.grad(wg.grad(lambda x: wg.log_cosh_loss(x, 0.0)))
    assert [curvature(wg.tensor(x)).item() for x in (0.0, 100.0)] == [1.0, 0.0]


def test_variances_below_eps_count_as_eps() -> None:
    assert wg.gaussian_nll_loss([0.0], [1.0], [0.0], eps=0.5).item() == pytest.approx(0.5 * (math.log(0.5) + 2))


def test_bad_arguments_are_named() -> None:
    for call, message in [
        (lambda: wg.triplet_margin_loss(X, Y, Z, p=0), "p must be positive"),
        (lambda: wg.gaussian_nll_loss(X, Y, np.ones(7)), "broadcast"),
        (lambda: wg.gaussian_nll_loss(X, Y, -np.ones(3)), "must not be negative"),
        (lambda: wg.multilabel_margin_loss(X, LABELS.astype(float)), "integers"),
        (lambda: wg.multilabel_margin_loss(X, LABELS + 1), "label 3, but there are 3 classes"),
        (lambda: wg.multilabel_margin_loss(X, LABELS[:2]), "and the target the same"),
        (lambda: wg.margin_ranking_loss(X, Y, SIGNS, reduction="max"), "reduction must be one of"),
    ]:
        with pytest.raises(wg.WengertError, match=message):
            call()
