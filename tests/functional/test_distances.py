"""Distances: values by SciPy, derivatives by finite differences, and that both are finite at equal points."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.spatial import distance

import wengert as wg
from tests import finite_differences as fd

A, B = (np.random.default_rng(k).uniform(-2, 2, (n, 3)) for k, n in ((0, 5), (1, 4)))
NORMS = [0.5, 1.0, 1.5, 2.0, 3.0, math.inf]


@pytest.mark.parametrize("p", NORMS)
def test_values_and_derivatives(p: float) -> None:
    metric: dict[str, Any] = {"metric": "chebyshev"} if p == math.inf else {"metric": "minkowski", "p": p}
    np.testing.assert_allclose(wg.cdist(A, B, p=p).numpy(), distance.cdist(A, B, **metric), rtol=1e-13)
    np.testing.assert_allclose(wg.pdist(A, p=p).numpy(), distance.pdist(A, **metric), rtol=1e-13)
    norm = np.linalg.norm(A[:4] - B + 1e-6, p, axis=1) if p >= 1 else (np.abs(A[:4] - B + 1e-6) ** p).sum(1) ** (1 / p)
    np.testing.assert_allclose(wg.pairwise_distance(A[:4], B, p=p).numpy(), norm, rtol=1e-13)
    if p < 1:  # difference quotients are worth little where coordinates are near; tests/peers compares these
        return
    fd.check(lambda a, b: wg.cdist(a, b, p=p), A, B)
    fd.check(lambda a: wg.pdist(a, p=p), A)
    fd.check(lambda a, b: wg.pairwise_distance(a, b, p=p), A[:4], B)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_second_order(p: float) -> None:
    assert wg.check_gradients(lambda a, b: wg.cdist(a, b, p=p), wg.asarray(A), wg.asarray(B))
    assert wg.check_gradients(lambda a: wg.pdist(a, p=p), wg.asarray(A))


@pytest.mark.parametrize("p", NORMS)
def test_equal_points_have_finite_derivatives(p: float) -> None:
    x = wg.tensor(np.vstack([A[:2], A[:1]]), requires_grad=True)
    y = wg.cdist(x, x.detach(), p=p)
    (g,) = wg.grad_of([y], [x], [wg.asarray(np.arange(1.0, 10.0).reshape(3, 3))], create_graph=True)
    assert y.diagonal().tolist() == [0.0, 0.0, 0.0] and bool(wg.isfinite(g).all())
    (second,) = wg.grad_of([(g * g).sum()], [x], allow_unused=True)
    assert second is None or bool(wg.isfinite(second).all())
    assert bool(wg.isfinite(wg.grad(lambda x: wg.pdist(x, p=p).sum())(x.detach())).all())


def test_p_of_zero_counts_coordinates() -> None:
    assert wg.cdist([[1.0, 2.0, 3.0]], [[1.0, 0.0, 0.0]], p=0).tolist() == [[2.0]]


def test_batches_nothing_and_half_precision() -> None:
    x = np.random.default_rng(2).uniform(-1, 1, (2, 1, 4, 3))
    y = np.random.default_rng(3).uniform(-1, 1, (5, 6, 3))
    expected = np.linalg.norm(x[..., :, None, :] - y[..., None, :, :], axis=-1)
    np.testing.assert_allclose(wg.cdist(x, y).numpy(), expected, rtol=1e-13)
    assert (
        wg.cdist(np.ones((0, 3)), y[0]).shape == (0, 6)
        and wg.cdist(np.ones((2, 0)), np.ones((3, 0))).tolist() == [[0.0] * 3] * 2
    )
    assert wg.pdist(np.ones((1, 3))).shape == (0,) and wg.pdist(np.ones((0, 3))).shape == (0,)
    far = wg.cdist(wg.full((1, 2), 300.0, dtype=wg.float16), wg.zeros((1, 2), dtype=wg.float16))
    assert far.dtype == wg.float16 and far.item() == pytest.approx(424.26, rel=1e-3)  # the squares are out of range


def test_bad_input_is_named() -> None:
    for call, message in [
        (lambda: wg.cdist(A, B[:, :2]), r"cdist: takes \(…, n, k\) and \(…, m, k\), got float64\(5, 3\)"),
        (lambda: wg.cdist(A, B, p=-1), "cdist: p must not be negative, got -1"),
        (lambda: wg.pdist(A[0]), "pdist: takes a matrix"),
        (lambda: wg.pairwise_distance(1.0, 2.0), "pairwise_distance: points need an axis of coordinates"),
        (lambda: wg.pdist(A + 1j), "real coordinates"),
    ]:
        with pytest.raises(wg.WengertError, match=message):
            call()
