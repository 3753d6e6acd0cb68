"""Jacobians and Hessians: all rows or columns in one pass, eager, compiled, in chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import rosen_hess

import wengert as wg


def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def wide(x: Any) -> Any:
    return {"a": wg.sin(x["u"]) * x["v"], "b": wg.stack([x["u"] @ x["u"], x["v"].sum()])}


def point() -> dict[str, Any]:
    return {"u": wg.asarray(np.linspace(0.1, 1.0, 3)), "v": wg.asarray(np.linspace(-1.0, 1.0, 3))}


def assert_same(a: Any, b: Any) -> None:
    for p, q in zip(wg.tree.leaves(a), wg.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(p), np.asarray(q), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", [2, 5, 50])
def test_hessian(n: int) -> None:
    x = np.linspace(-1.0, 1.0, n)
    for hessian in (wg.hessian(rosenbrock), wg.compile(wg.hessian(rosenbrock))):
        for _ in range(2):
            np.testing.assert_allclose(np.asarray(hessian(wg.asarray(x))), rosen_hess(x), rtol=1e-12, atol=1e-11)


def test_nothing_unrolls() -> None:
    """One program for every size, as long as that of one row."""
    compiled = wg.compile(wg.hessian(rosenbrock))
    for n in (10, 50, 30):  # of larger ones, those with few colours have a program of their own
        compiled(wg.asarray(np.linspace(-1.0, 1.0, n)))
    (report,) = compiled.report()
    assert report.instructions < 60
    both = wg.compile(lambda x: (wg.jacfwd(wg.sin)(x), wg.jacrev(wg.sin)(x)))
    both(wg.ones((200,)))
    assert both.report()[0].instructions < 30


@pytest.mark.parametrize("jacobian", [wg.jacfwd, wg.jacrev, wg.jacobian])
@pytest.mark.parametrize("chunk", [None, 1, 2, 100])
def test_chunks_and_containers(jacobian: Any, chunk: int | None) -> None:
    expected = loop(wide, point())
    assert_same(jacobian(wide, chunk=chunk)(point()), expected)
    assert_same(wg.compile(jacobian(wide, chunk=chunk))(point()), expected)


def test_what_does_not_fit_into_memory_is_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(-1.0, 1.0, 20)
    whole, parts = (wg.compile(wg.hessian(lambda z: rosenbrock(z))) for _ in range(2))
    whole(wg.asarray(x))
    monkeypatch.setattr(wg.transforms.vmap, "_MOST_BYTES", 20_000)
    np.testing.assert_allclose(np.asarray(parts(wg.asarray(x))), rosen_hess(x), rtol=1e-12, atol=1e-11)
    assert parts.report()[0].instructions > whole.report()[0].instructions


def test_writes_outside_happen() -> None:
    count = wg.zeros(())

    def f(z: Any) -> Any:
        count.add_(1.0)
        return z * z

    for jacobian in (wg.compile(wg.jacfwd(f)), wg.compile(wg.jacrev(f, chunk=2)), wg.compile(wg.jacfwd(f, chunk=2))):
        count.zero_()
        jacobian(wg.ones((3,)))
        assert count.item() == 1.0


def loop(f: Any, p: Any) -> Any:
    """Row by row."""
    y, pull = wg.vjp(f, p)
    ys, structure = wg.tree.leaves(y), wg.tree.structure(y)
    blocks = []
    for k, leaf in enumerate(ys):
        rows = []
        for j in range(leaf.size):
            bars = [wg.zeros_like(other) for other in ys]
            bars[k][j] = 1.0
            rows.append(pull(wg.tree.unflatten(structure, bars))[0])
        blocks.append({key: wg.stack([row[key] for row in rows]) for key in rows[0]})
    return wg.tree.unflatten(structure, blocks)


def test_several_arguments() -> None:
    a, b = wg.asarray(np.linspace(0.1, 1.0, 3)), wg.asarray(np.linspace(1.0, 2.0, 3))

    def f(p: Any, q: Any) -> Any:
        return (p * p * q).sum()

    for hessian in (wg.hessian(f, argnums=(0, 1)), wg.compile(wg.hessian(f, argnums=(0, 1)))):
        (paa, pab), (pba, pbb) = hessian(a, b)
        np.testing.assert_allclose(np.asarray(paa), np.diag(2 * np.asarray(b)))
        np.testing.assert_allclose(np.asarray(pab), np.diag(2 * np.asarray(a)))
        np.testing.assert_allclose(np.asarray(pba), np.diag(2 * np.asarray(a)))
        np.testing.assert_allclose(np.asarray(pbb), np.zeros((3, 3)))


@pytest.mark.parametrize("jacobian", [wg.jacfwd, wg.jacrev])
def test_complex(jacobian: Any) -> None:
    z = wg.asarray(np.array([1.0 + 2.0j, -0.5j]))
    holomorphic = jacobian(lambda u: u * u * (1.0 + 1.0j))
    real = jacobian(lambda u: wg.real(u * wg.conj(u)))
    for g, expected in ((holomorphic, 2 * np.asarray(z) * (1 + 1j)), (real, 2 * np.asarray(z))):
        for h in (g, wg.compile(g)):
            np.testing.assert_allclose(np.asarray(h(z)), np.diag(expected), rtol=1e-12)


def test_higher_orders_and_other_modes_around() -> None:
    x = wg.asarray(np.linspace(0.2, 1.0, 4))
    v = wg.asarray(np.linspace(1.0, -1.0, 4))

    def f(z: Any) -> Any:
        return (z**4).sum()

    third = np.zeros((4, 4, 4))
    third[np.diag_indices(4, 3)] = 24 * np.asarray(x)
    for g in (wg.jacfwd(wg.hessian(f)), wg.jacrev(wg.hessian(f)), wg.compile(wg.jacfwd(wg.hessian(f)))):
        np.testing.assert_allclose(np.asarray(g(x)), third, rtol=1e-12, atol=1e-12)
    _, dot = wg.jvp(wg.hessian(f), (x,), (v,))
    np.testing.assert_allclose(np.asarray(dot), np.diag(24 * np.asarray(x * v)), rtol=1e-12, atol=1e-12)
    total = wg.grad(lambda z: wg.hessian(f)(z).sum())(x)
    np.testing.assert_allclose(np.asarray(total), 24 * np.asarray(x), rtol=1e-12)
    many = wg.vmap(wg.hessian(f))(wg.stack([x, v]))
    np.testing.assert_allclose(np.asarray(many[1]), np.diag(12 * np.asarray(v) ** 2), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("jacobian", [wg.jacfwd, wg.jacrev, wg.jacobian])
def test_eager_columns_see_what_was_drawn_once(jacobian: Any) -> None:
    """A function that draws is not traced unless it is asked for; it runs for each column, and draws the same each time."""
    x = wg.asarray(np.linspace(1.0, 2.0, 3))
    tall = lambda x: x.sum() * wg.rand(5, dtype=wg.float64)
    split = lambda p: {"y": (p["a"].sum() + p["b"].sum()) * wg.randn(6, dtype=wg.float64)}
    for _ in range(2):
        state = wg.default_generator.get_state()
        drawn = wg.rand(5, dtype=wg.float64).numpy()
        after = wg.default_generator.get_state()
        wg.default_generator.set_state(state)
        np.testing.assert_allclose(np.asarray(jacobian(tall)(x)), np.outer(drawn, np.ones(3)), rtol=1e-12)
        assert wg.default_generator.get_state() == after
    blocks = jacobian(split)({"a": x, "b": x[:2]})["y"]
    np.testing.assert_array_equal(np.asarray(blocks["a"])[:, :1], np.asarray(blocks["b"])[:, 1:])


@pytest.mark.parametrize("jacobian", [wg.jacfwd, wg.jacrev])
def test_all_rows_see_what_was_drawn_once(jacobian: Any) -> None:
    """The derivative of a draw draws the same again, for every row."""
    x = wg.asarray(np.linspace(1.0, 2.0, 7))
    q = wg.asarray(np.random.default_rng(0).normal(size=(3, 5)))

    def dropped(z: Any) -> Any:
        y = wg.dropout(z, 0.5)
        return y * y, y

    def attended(z: Any) -> Any:
        y = wg.scaled_dot_product_attention(z, z, z, dropout_p=0.4)
        return y * 2.0, y

    def chosen(z: Any) -> Any:
        y = wg.cond(z.sum() > 0.0, lambda u: wg.dropout(u, 0.5), lambda u: u, z)
        return y * y, y

    for f, point in ((dropped, x), (attended, q), (chosen, x)):
        both = wg.compile(lambda z, f=f: jacobian(lambda u: f(u), chunk=None)(z))
        for _ in range(2):
            state = wg.default_generator.get_state()
            got = both(point)
            wg.default_generator.set_state(state)
            y, pull = wg.vjp(f, point)
            for k, (block, leaf) in enumerate(zip(got, y)):
                rows = []
                for j in range(leaf.size):
                    bars = [wg.zeros_like(t) for t in y]
                    bars[k] = wg.asarray(np.eye(leaf.size)[j].reshape(leaf.shape))
                    rows.append(np.asarray(pull(tuple(bars))[0]))
                expected = np.stack(rows).reshape(*leaf.shape, *point.shape)
                np.testing.assert_allclose(np.asarray(block), expected, rtol=1e-10, atol=1e-12)


def test_empty() -> None:
    x = wg.zeros((0,))
    for g in (wg.jacfwd(wg.sin), wg.jacrev(wg.sin), wg.compile(wg.jacrev(wg.sin))):
        assert g(x).shape == (0, 0)


@pytest.mark.parametrize("chunk", [0, -1, 1.5, True])
def test_chunks_that_make_no_sense(chunk: Any) -> None:
    for jacobian in (wg.jacfwd, wg.jacrev, wg.jacobian, wg.hessian):
        with pytest.raises(wg.ArgumentError, match="chunk"):
            jacobian(wg.sin, chunk=chunk)


@pytest.mark.parametrize("transform", [wg.grad, wg.value_and_grad, wg.jacobian, wg.jacfwd, wg.jacrev, wg.hessian])
def test_arguments_are_named_by_integers(transform: Any) -> None:
    def f(a: Any, b: Any) -> Any:
        return (a * a * b).sum()

    x = wg.asarray(np.linspace(0.1, 1.0, 3))
    assert_same(transform(f, argnums=[1, 0])(x, x), transform(f, argnums=(1, 0))(x, x))
    for argnums in ((), "a", None, 1.0, (0, "b"), True):
        with pytest.raises(wg.ArgumentError, match="argnums must be an integer, or a tuple of them, got"):
            transform(f, argnums=argnums)
    with pytest.raises(wg.ArgumentError, match=f"{transform.__name__}: takes a function, got int"):
        transform(3)
