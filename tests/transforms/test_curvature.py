"""Products with Gauss–Newton and Fisher matrices, blocks, diagonals and traces, against the matrices themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg

RNG = np.random.default_rng(0)
W = wg.asarray(RNG.normal(size=(5, 4)))
X, V = (wg.asarray(RNG.normal(size=5)) for _ in range(2))
T = wg.asarray(RNG.normal(size=4))


def model(x: Any) -> Any:
    return wg.tanh(x @ W) * x[0]


def loss(y: Any) -> Any:
    return wg.logsumexp(y) + ((y - T) ** 2).sum()


def scalar(x: Any) -> Any:
    return loss(model(x))


def test_gauss_newton() -> None:
    j, h = wg.jacobian(model)(X).numpy(), wg.hessian(loss)(model(X)).numpy()
    expected = j.T @ h @ j @ V.numpy()
    np.testing.assert_allclose(wg.ggnvp(model, loss, X, V).numpy(), expected, rtol=1e-12)
    compiled = wg.compile(lambda x, v: wg.ggnvp(model, loss, x, v))
    np.testing.assert_allclose(compiled(X, V).numpy(), expected, rtol=1e-12)
    matrix = wg.vmap(lambda v: wg.ggnvp(model, loss, X, v))(wg.eye(5, dtype=wg.float64))
    np.testing.assert_allclose(matrix.numpy(), j.T @ h @ j, rtol=1e-12)
    assert np.linalg.eigvalsh(matrix.numpy()).min() > -1e-12


def test_gauss_newton_of_what_draws_random_numbers() -> None:
    """The push and the pull see the same draw, which is one."""
    x, v = X[:4], V[:4]
    f = lambda x: wg.dropout(x, 0.5) * x
    for product in (wg.ggnvp, wg.compile(lambda x, v: wg.ggnvp(f, lambda y: (y * y).sum(), x, v))):
        given = (f, lambda y: (y * y).sum(), x, v) if product is wg.ggnvp else (x, v)
        wg.manual_seed(5)
        found = product(*given).numpy()
        wg.manual_seed(5)
        slope = 2.0 * (wg.dropout(wg.ones_like(x), 0.5) * x).numpy()
        np.testing.assert_allclose(found, 2.0 * slope**2 * v.numpy(), rtol=1e-12)


def test_gauss_newton_of_containers_and_its_derivative() -> None:
    def f(p: Any) -> Any:
        return {"y": wg.sin(p["a"]) * p["b"], "z": p["a"].sum()}

    def g(y: Any) -> Any:
        return (y["y"] ** 4).sum() + y["z"] ** 2

    def flat(x: Any) -> Any:
        y = f({"a": x[:3], "b": x[3]})
        return wg.concat([y["y"], y["z"].reshape(1)])

    def g_flat(y: Any) -> Any:
        return g({"y": y[:3], "z": y[3]})

    x, v = X[:4], V[:4]
    found = wg.ggnvp(f, g, {"a": x[:3], "b": x[3]}, {"a": v[:3], "b": v[3]})
    expected = wg.ggnvp(flat, g_flat, x, v)
    np.testing.assert_allclose(np.r_[found["a"].numpy(), found["b"].numpy()], expected.numpy(), rtol=1e-12)
    report = wg.jacfwd(lambda x: wg.ggnvp(flat, g_flat, x, v))(x)
    by_reverse = wg.jacrev(lambda x: wg.ggnvp(flat, g_flat, x, v))(x)
    np.testing.assert_allclose(report.numpy(), by_reverse.numpy(), rtol=1e-9, atol=1e-12)


def test_fisher_of_distributions_is_the_expected_square_of_the_score() -> None:
    def categorical(x: Any) -> Any:
        return wg.stats.Categorical(logits=model(x))

    p = wg.softmax(model(X)).numpy()
    scores = wg.jacobian(lambda x: wg.log_softmax(model(x)))(X).numpy()
    np.testing.assert_allclose(
        wg.fisher_vp(categorical, X, V).numpy(), (scores.T * p) @ scores @ V.numpy(), rtol=1e-9, atol=1e-12
    )
    j = wg.jacobian(model)(X).numpy()
    found = wg.fisher_vp(lambda x: wg.stats.Normal(model(x), 0.5), X, V)
    np.testing.assert_allclose(found.numpy(), j.T @ j @ V.numpy() / 0.25, rtol=1e-9)


def test_derivatives_of_fisher_products_see_both_sides() -> None:
    def product(x: Any) -> Any:
        return wg.fisher_vp(lambda x: wg.stats.Normal(0.0, wg.exp(x[0] * x[1])), x, V[:2])  # 2 ∇(x₀x₁) ∇(x₀x₁)ᵀ v

    def by_hand(x: Any) -> Any:
        g = wg.stack([x[1], x[0]])
        return 2.0 * g * (g * V[:2]).sum()

    x = X[:2]
    np.testing.assert_allclose(product(x).numpy(), by_hand(x).numpy(), rtol=1e-9)
    np.testing.assert_allclose(wg.jacrev(product)(x).numpy(), wg.jacrev(by_hand)(x).numpy(), rtol=1e-9)


def test_empirical_fisher() -> None:
    j = wg.jacobian(model)(X).numpy()
    np.testing.assert_allclose(wg.empirical_fisher_vp(model, X, V).numpy(), j.T @ j @ V.numpy() / 4, rtol=1e-12)


def test_blocks() -> None:
    def f(a: Any, b: Any, c: Any) -> Any:
        return (wg.sin(a.sum(axis=0)) * b).sum() * c + (b**4).sum() * c**2

    args = (wg.asarray(RNG.normal(size=(2, 3))), wg.asarray(RNG.normal(size=3)), wg.asarray(0.7))
    whole = wg.hessian(f, argnums=(0, 1, 2))(*args)
    pairs = [(0, 0), (0, 1), (1, 0), (2, 1), (2, 2), (-1, 0)]
    for _ in range(2):
        for (i, j), block in zip(pairs, wg.hessian_blocks(f, pairs)(*args), strict=True):
            np.testing.assert_allclose(block.numpy(), whole[i][j].numpy(), rtol=1e-12, atol=1e-14)
    compiled = wg.compile(wg.hessian_blocks(f, [(0, 1)]))(*args)
    np.testing.assert_allclose(compiled[0].numpy(), whole[0][1].numpy(), rtol=1e-12)


def test_diagonal_and_trace() -> None:
    expected = wg.hessian(scalar)(X).numpy().diagonal()
    for chunk in (None, 2):
        np.testing.assert_allclose(wg.hessian_diagonal(scalar, X, chunk=chunk).numpy(), expected, rtol=1e-10)
        np.testing.assert_allclose(wg.hessian_trace(scalar, X, chunk=chunk).numpy(), expected.sum(), rtol=1e-10)
    np.testing.assert_allclose(wg.compile(lambda x: wg.hessian_diagonal(scalar, x))(X).numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(wg.hessian_diagonal(scalar, X, sparse=True).numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(wg.hessian_trace(scalar, X, sparse=True).numpy(), expected.sum(), rtol=1e-10)
    by_containers = wg.hessian_diagonal(lambda p: scalar(wg.concat([p["a"], p["b"]])), {"a": X[:2], "b": X[2:]})
    np.testing.assert_allclose(by_containers["b"].numpy(), expected[2:], rtol=1e-10)
    assert wg.hessian_trace(lambda x: (x**3).sum(), wg.tensor([[1.0, 2.0]])).item() == 18.0
    chain = lambda p: (p["a"][1:] * p["a"][:-1] ** 3).sum() + (p["b"] ** 4).sum()
    p = {"a": wg.asarray(np.linspace(0.5, 2.0, 300)), "b": wg.tensor([[1.0, 2.0]])}
    dense, coloured = (wg.hessian_diagonal(chain, p, sparse=sparse) for sparse in (False, True))
    for name, x in p.items():
        assert (coloured[name].dtype, coloured[name].shape) == (x.dtype, x.shape)
        np.testing.assert_allclose(coloured[name].numpy(), dense[name].numpy(), rtol=1e-6)


def test_estimates_are_within_their_errors_and_repeat() -> None:
    exact = wg.hessian(scalar)(X).numpy().diagonal()
    for _ in range(2):
        value, error = wg.estimate_hessian_diagonal(scalar, X, samples=400, generator=wg.Generator(seed=3))
        assert (np.abs(value.numpy() - exact) < 4.5 * error.numpy() + 1e-9).all()
        trace, its_error = wg.estimate_hessian_trace(scalar, X, samples=400, generator=wg.Generator(seed=4))
        assert abs(trace.item() - exact.sum()) < 4.5 * its_error.item()
        again = wg.estimate_hessian_trace(scalar, X, samples=400, generator=wg.Generator(seed=4))
        assert again.value.item() == trace.item()
    more = wg.estimate_hessian_trace(scalar, X, samples=6400, generator=wg.Generator(seed=5))
    assert more.standard_error.item() == pytest.approx(its_error.item() / 4, rel=0.25)


def test_estimates_of_containers_and_of_functions_with_branches() -> None:
    def branching(p: Any) -> Any:
        return (p["a"] ** 3).sum() if p["a"].sum() > 0 else -(p["a"] ** 2).sum() + p["b"].sum()

    p = {"a": wg.tensor([1.0, 2.0]), "b": wg.tensor([1.0])}
    value, error = wg.estimate_hessian_diagonal(branching, p, samples=5)
    assert value["a"].tolist() == [6.0, 12.0] and error["b"].tolist() == [0.0]
    assert wg.hessian_diagonal(branching, p)["a"].tolist() == [6.0, 12.0]


def test_bad_arguments() -> None:
    with pytest.raises(wg.ArgumentError, match="samples must be an integer of at least 2, got 1"):
        wg.estimate_hessian_trace(scalar, X, samples=1)
    with pytest.raises(wg.GradientError, match="must return a distribution of wengert.stats, got Tensor"):
        wg.fisher_vp(model, X, V)
    with pytest.raises(wg.ArgumentError, match="blocks must be pairs of argument numbers"):
        wg.hessian_blocks(scalar, [(0,)])  # type: ignore[list-item]
    with pytest.raises(wg.ArgumentError, match="argnums 1 is out of range"):
        wg.hessian_blocks(scalar, [(0, 1)])(X)
    with pytest.raises(wg.ArgumentError, match="each argument in a block must be one tensor, got dict"):
        wg.hessian_blocks(lambda p: p["a"].sum(), [(0, 0)])({"a": X})
    with pytest.raises(wg.DTypeError, match="hessian_diagonal: the argument is complex128"):
        wg.hessian_diagonal(lambda z: wg.abs(z).sum(), wg.asarray(np.ones(2) * 1j))
