"""Sums over the examples of vmap, by the name of their axis: in every mode, nested, and through compiled functions."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import wengert as wg

X = wg.asarray(np.random.default_rng(0).normal(size=(4, 3)))


def softmax(x: Any) -> Any:
    e = wg.exp(x)
    return e / wg.psum(e, "batch")


def standardise(x: Any) -> Any:
    centred = x - wg.pmean(x, "batch")
    return centred / wg.sqrt(wg.pmean(centred * centred, "batch"))


@pytest.mark.parametrize(
    ("f", "of_all"),
    [
        (softmax, lambda x: wg.softmax(x, 0)),
        (standardise, lambda x: (x - x.mean(axis=0)) / x.std(axis=0)),
        (lambda x: x * wg.psum(1.0, "batch"), lambda x: 4.0 * x),
    ],
)
def test_equals_the_sum_over_the_axis(f: Any, of_all: Any) -> None:
    mapped = wg.vmap(f, axis_name="batch")
    w = wg.asarray(np.linspace(0.0, 1.0, 12).reshape(4, 3))
    for g, h in ((mapped, of_all), (wg.compile(mapped), of_all), (wg.vmap(mapped), wg.vmap(of_all))):
        x = X if h is of_all else wg.stack([X, X + 1.0])
        np.testing.assert_allclose(g(x).numpy(), h(x).numpy(), rtol=1e-6)
        for derivative in (
            lambda k, x: wg.grad(lambda x: (k(x) * w).sum())(x),
            lambda k, x: wg.jvp(k, (x,), (x * x,))[1],
            lambda k, x: wg.grad(lambda x: (wg.jvp(k, (x,), (wg.sin(x),))[1] * w).sum())(x),
            lambda k, x: wg.jacobian(k)(x),
        ):
            np.testing.assert_allclose(derivative(g, x).numpy(), derivative(h, x).numpy(), rtol=1e-6, atol=1e-12)


def test_sums_are_the_same_for_all_examples() -> None:
    def both(x: Any) -> Any:
        return wg.psum(x, "batch"), x * wg.pmean(x, "batch")

    for f in (mapped := wg.vmap(both, axis_name="batch", out_axes=(None, 0)), wg.compile(mapped)):
        total, product = f(X)
        np.testing.assert_allclose(total.numpy(), X.numpy().sum(0), rtol=1e-12)
        np.testing.assert_allclose(product.numpy(), X.numpy() * X.numpy().mean(0), rtol=1e-12)
    rows = wg.vmap(wg.vmap(lambda x: wg.psum(x, "batch"), axis_name="batch", out_axes=None))
    np.testing.assert_allclose(rows(X).numpy(), X.numpy().sum(1), rtol=1e-12)
    np.testing.assert_allclose(wg.jacobian(rows)(X).numpy(), wg.jacobian(lambda x: x.sum(axis=1))(X).numpy())


def test_gradients_inside_see_the_terms_of_all_examples() -> None:
    found = wg.vmap(wg.grad(lambda x: wg.psum((x**3).sum(), "batch")), axis_name="batch")(X)
    np.testing.assert_allclose(found.numpy(), 4 * 3 * X.numpy() ** 2, rtol=1e-12)  # each of the four sums has the term


def test_names_of_axes_around_and_inside() -> None:
    inner = wg.vmap(lambda x: wg.psum(x, "rows") + 10.0 * wg.psum(x, "columns"), axis_name="columns")
    found = wg.vmap(inner, axis_name="rows")(X).numpy()
    x = X.numpy()
    np.testing.assert_allclose(found, x.sum(0)[None] + 10.0 * x.sum(1)[:, None] + 0 * x, rtol=1e-12)
    containers = wg.vmap(lambda p: wg.psum(p, "batch"), axis_name="batch")({"a": X, "b": X[:, 0]})
    np.testing.assert_allclose(containers["b"].numpy(), np.full(4, x[:, 0].sum()), rtol=1e-12)


def test_unknown_names_are_named() -> None:
    with pytest.raises(wg.ArgumentError, match="psum: there is no axis 'batch'; no axis with a name is mapped here"):
        wg.psum(X, "batch")
    with pytest.raises(wg.ArgumentError, match="pmean: there is no axis 'rows'; the axes mapped here are 'batch'"):
        wg.vmap(lambda x: wg.pmean(x, "rows"), axis_name="batch")(X)
    with pytest.raises(wg.ArgumentError, match="axis_name must be a string, got int"):
        wg.vmap(wg.sin, axis_name=3)  # type: ignore[arg-type]


def test_copies_keep_the_name() -> None:
    mapped = wg.vmap(softmax, axis_name="batch")
    for again in (copy.deepcopy(mapped), pickle.loads(pickle.dumps(mapped))):
        np.testing.assert_array_equal(again(X).numpy(), mapped(X).numpy())
