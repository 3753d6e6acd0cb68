"""Activations that draw random numbers: their distributions, and derivatives with the same draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests import finite_differences as fd

X = np.random.default_rng(0).uniform(-2, 2, (4, 3))


def test_hard_classes_come_as_often_as_their_probabilities() -> None:
    p = np.array([0.1, 0.3, 0.6])
    logits = wg.broadcast_to(wg.asarray(np.log(p)), (50_000, 3))
    y = wg.gumbel_softmax(logits, 0.7, hard=True, generator=wg.Generator(1)).numpy()
    assert set(np.unique(y)) == {0.0, 1.0} and (y.sum(1) == 1).all()
    np.testing.assert_allclose(y.mean(0), p, atol=5 * 0.5 / np.sqrt(50_000))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_soft_and_hard_have_the_derivative_of_the_softmax(axis: int) -> None:
    def soft(x: Any, hard: bool = False) -> Any:
        return wg.gumbel_softmax(x, 0.8, hard=hard, axis=axis, generator=wg.Generator(5))

    np.testing.assert_allclose(soft(wg.asarray(X)).sum(axis=axis).numpy(), 1.0, rtol=1e-14)
    fd.check(soft, X)
    seed = np.random.default_rng(1).standard_normal(X.shape)
    (a,), (b,) = (fd.pulled(lambda x, h=h: soft(x, h), X, seed=seed) for h in (False, True))
    np.testing.assert_allclose(a, b, rtol=1e-13)
    hard = soft(wg.asarray(X), True).numpy()
    np.testing.assert_array_equal(hard.argmax(axis), soft(wg.asarray(X)).numpy().argmax(axis))


def test_extreme_logits_and_small_types() -> None:
    assert wg.gumbel_softmax([[1e30, -1e30]], hard=True).tolist() == [[1.0, 0.0]]
    for dtype in (wg.float16, wg.bfloat16, wg.float64):
        y = wg.gumbel_softmax(wg.zeros((1000, 4), dtype=dtype))
        assert y.dtype == dtype and not y.has_nan()
    assert wg.gumbel_softmax(wg.zeros((0, 3)), hard=True).shape == (0, 3)


def test_rrelu_has_slopes_within_its_bounds() -> None:
    x = wg.tensor(np.random.default_rng(0).uniform(-1, 1, 10_000), requires_grad=True)
    y = wg.rrelu(x, 0.2, 0.4, training=True, generator=wg.Generator(2))
    slopes = y.detach().numpy() / x.detach().numpy()
    below = x.detach().numpy() < 0
    assert (slopes[~below] == 1).all() and slopes[below].min() >= 0.2 - 1e-15 and slopes[below].max() <= 0.4
    assert abs(slopes[below].mean() - 0.3) < 5 * 0.2 / np.sqrt(12 * below.sum())
    np.testing.assert_allclose(y.sum().backward()[x].numpy(), slopes, rtol=1e-12)
    np.testing.assert_allclose(wg.rrelu(wg.asarray(X), 0.2, 0.4).numpy(), np.where(X > 0, X, 0.3 * X), rtol=1e-15)


def test_compiled_functions_draw_anew() -> None:
    for f in (lambda x: wg.gumbel_softmax(x), lambda x: wg.rrelu(x - 1.0, training=True)):
        g = wg.compile(f)
        a, b = g(wg.zeros((3, 4))), g(wg.zeros((3, 4)))
        assert not bool((a == b).any())


def test_bad_input_is_named() -> None:
    for call, message in [
        (lambda: wg.gumbel_softmax(X, 0.0), "gumbel_softmax: tau must be positive, got 0.0"),
        (lambda: wg.gumbel_softmax(1.0), "gumbel_softmax: needs an axis"),
        (lambda: wg.rrelu(X, 0.5, 0.2), "rrelu: lower must be at most upper, got 0.5 and 0.2"),
    ]:
        with pytest.raises(wg.WengertError, match=message):
            call()
