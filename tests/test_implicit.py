"""Roots, fixed points and minima as differentiable functions: both modes, second order, every linear solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg

import wengert as wg
from wengert.numerics.krylov import METHODS

RNG = np.random.default_rng(0)
SOLVERS = ["auto", "dense", "gmres", "bicgstab"]
N = 6
A = wg.asarray(RNG.normal(size=(N, N)) * 0.3 + 3.0 * np.eye(N))
P = wg.asarray(RNG.normal(size=N))


def equation(x: Any, p: Any) -> Any:
    return A @ x + 0.3 * wg.tanh(x) - wg.sin(p)


def contraction(x: Any, p: Any) -> Any:
    return 0.4 * wg.cos(A @ x * 0.3) + p


def bowl(x: Any, p: Any) -> Any:
    return ((x - p) ** 2).sum() + wg.logsumexp(x * p) + 0.1 * (A @ x @ (A @ x))


def jacobian_of_solution(residual: Any, x: Any, p: Any) -> Any:
    by_x, by_p = wg.jacobian(residual, argnums=0)(x, p).numpy(), wg.jacobian(residual, argnums=1)(x, p).numpy()
    return -np.linalg.solve(by_x, by_p)


CASES = [
    (wg.implicit.root, equation, equation, SOLVERS),
    (wg.implicit.fixed_point, contraction, lambda x, p: contraction(x, p) - x, SOLVERS),
    (wg.implicit.argmin, bowl, wg.grad(bowl), ["auto", "dense", "cg", "gmres"]),
]


@pytest.mark.parametrize(("find", "f", "residual", "solvers"), CASES)
def test_derivatives_in_both_modes(find: Any, f: Any, residual: Any, solvers: list[str]) -> None:
    x = find(f, wg.zeros((N,), dtype=wg.float64), P, tol=1e-11)
    assert np.abs(residual(x, P).numpy()).max() < 1e-10
    expected = jacobian_of_solution(residual, x, P)
    for solver in solvers:

        def solution(p: Any, solver: str = solver) -> Any:
            return find(f, wg.zeros((N,), dtype=wg.float64), p, solver=solver, tol=1e-11)

        for jacobian in (wg.jacfwd, wg.jacrev):
            np.testing.assert_allclose(jacobian(solution)(P).numpy(), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("find", "f", "residual", "solvers"), CASES)
def test_second_order(find: Any, f: Any, residual: Any, solvers: list[str]) -> None:
    w = np.linspace(0.5, 1.5, N)

    def total(p: Any, solver: str) -> Any:
        return (find(f, wg.zeros((N,), dtype=wg.float64), p, solver=solver, tol=1e-11) * wg.asarray(w)).sum()

    h = 1e-5
    step = np.zeros(N)
    step[1] = h
    slope = lambda p: wg.grad(lambda p: total(p, "dense"))(wg.asarray(p)).numpy()
    expected = (slope(P.numpy() + step) - slope(P.numpy() - step)) / (2 * h)
    e = wg.asarray(step / h)
    for solver in ("dense", solvers[2]):
        found = wg.hvp(lambda p, solver=solver: total(p, solver), P, e).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
        reverse = wg.grad(lambda p, solver=solver: (wg.grad(lambda q: total(q, solver))(p) * e).sum())(P).numpy()
        np.testing.assert_allclose(reverse, expected, rtol=1e-5, atol=1e-7)


def test_containers_and_what_the_function_closes_over() -> None:
    p = wg.asarray(2.0, dtype=wg.float64)

    def solution(p: Any) -> Any:
        f = lambda x, q: {"a": x["a"] * x["a"] - p, "b": x["b"] - x["a"] * q}
        return wg.implicit.root(f, {"a": 1.0, "b": wg.zeros((2,), dtype=wg.float64)}, 3.0)

    found = solution(p)
    np.testing.assert_allclose(found["b"].numpy(), 3.0 * np.sqrt([2.0, 2.0]), rtol=1e-10)
    slope = wg.jacrev(lambda p: solution(p)["b"])(p)
    np.testing.assert_allclose(slope.numpy(), np.full(2, 1.5 / np.sqrt(2.0)), rtol=1e-9)
    with pytest.raises(wg.GradientError, match="closes over a dual tensor.*pass these in args"):
        wg.jacfwd(lambda p: solution(p)["b"])(p)


def test_many_unknowns_without_a_matrix() -> None:
    n = 3000
    b = wg.asarray(np.linspace(0.0, 1.0, n))

    def laplace(x: Any, b: Any) -> Any:
        inner = wg.pad(x, ((1, 1),))
        return 2.5 * x - inner[2:] - inner[:-2] + 0.1 * x**3 - b

    x = wg.implicit.root(laplace, wg.zeros((n,), dtype=wg.float64), b)
    assert np.abs(laplace(x, b).numpy()).max() < 1e-9
    v = wg.asarray(np.sin(np.arange(n)))
    pushed = wg.jvp(lambda b: wg.implicit.root(laplace, x, b), (b,), (v,))[1]
    residual = wg.jvp(lambda x: laplace(x, b), (x,), (pushed,))[1] - v
    assert np.abs(residual.numpy()).max() < 1e-8
    pulled = wg.grad(lambda b: (wg.implicit.root(laplace, x, b, solver="cg") * v).sum())(b)
    np.testing.assert_allclose(pulled.numpy(), pushed.numpy(), rtol=1e-6, atol=1e-9)  # the matrix is symmetric


@pytest.mark.parametrize("name", list(METHODS))
def test_krylov_methods(name: str) -> None:
    for n in (1, 2, 30, 120):
        m = RNG.normal(size=(n, n)) / np.sqrt(n) + 2.0 * np.eye(n)
        m = m @ m.T if name == "cg" else m
        b = RNG.normal(size=n)
        found = METHODS[name](lambda v, m=m: m @ v, b, 1e-10, 50 * n)
        assert found.residual < 1e-9
        np.testing.assert_allclose(found.x, np.linalg.solve(m, b), rtol=1e-6, atol=1e-8)
        assert METHODS[name](lambda v, m=m: m @ v, np.zeros(n), 1e-10, 50).x.tolist() == [0.0] * n
    reference = scipy.sparse.linalg.gmres(m, b, rtol=1e-10, restart=50)[0]
    np.testing.assert_allclose(found.x, reference, rtol=1e-5, atol=1e-7)


def test_what_does_not_converge_says_how_far_it_came() -> None:
    x0 = wg.zeros((2,), dtype=wg.float64)
    for solver in ("dense", "gmres"):
        with pytest.raises(wg.SolverError, match=r"implicit.root: .*; the largest residual is 1.*, and tol is 1e-10"):
            wg.implicit.root(lambda x: x * x + 1.0, x0 + 0.3, solver=solver)
    with pytest.raises(wg.SolverError, match=r"implicit.root: maxiter=2 iterations were used up.*largest residual is"):
        wg.implicit.root(lambda x: wg.exp(x) - 5.0, x0, solver="gmres", maxiter=2)
    with pytest.raises(wg.SolverError, match=r"implicit.fixed_point: maxiter=20 iterations were used up"):
        wg.implicit.fixed_point(lambda x: x + 1.0 + 0.1 * wg.sin(x), x0, maxiter=20)
    with pytest.raises(wg.SolverError, match=r"implicit.fixed_point: f gave NaN or infinity"):
        wg.implicit.fixed_point(lambda x: wg.exp(wg.exp(x * 9.0 + 9.0)), x0)
    with pytest.raises(wg.SolverError, match=r"implicit.argmin: .*largest element of the gradient is 1"):
        wg.implicit.argmin(lambda x: x.sum(), x0, maxiter=5)


@pytest.mark.parametrize("dtype", [wg.float32, wg.float64])
def test_what_is_no_minimum_is_refused(dtype: Any) -> None:
    saddle = lambda z, a: z[0] ** 2 - z[1] ** 2 + a
    a = wg.asarray(0.0, dtype=dtype)
    for f, begin in (
        (saddle, wg.tensor([1.0, 0.0], dtype=dtype)),
        (lambda z, a: -(z * z).sum() + a, wg.zeros((3,), dtype=dtype)),
        (lambda z, a: a - (z * z).sum(), wg.zeros((300,), dtype=dtype)),
    ):
        with pytest.raises(
            wg.SolverError, match=r"no minimum there: its curvature is -.*implicit.root of the gradient"
        ):
            wg.implicit.argmin(f, begin, a)
    flat = lambda z, a: ((z[:2] - a) ** 4).sum() + z[2] * 0.0  # curvature that vanishes is no negative one
    np.testing.assert_allclose(wg.implicit.argmin(flat, wg.ones((3,), dtype=dtype), a).numpy()[:2], 0.0, atol=0.1)


@pytest.mark.parametrize(
    ("find", "f"),
    [
        (wg.implicit.root, lambda x, p: (x - p) ** 2),
        (wg.implicit.fixed_point, lambda x, p: x + (x - p) ** 2),
        (wg.implicit.argmin, lambda x, p: (x[0] - p[0]) ** 2),
    ],
)
def test_a_singular_matrix_is_named(find: Any, f: Any) -> None:
    p = wg.ones((2,), dtype=wg.float64)
    solution = lambda p: find(f, wg.ones((2,), dtype=wg.float64), p)
    for derivative in (wg.jacrev(solution), wg.jacfwd(solution)):
        with pytest.raises(wg.LinAlgError, match=rf"implicit.{find.__name__}: the linear system .* is singular"):
            derivative(p)


def test_a_singular_derivative_is_named() -> None:
    p = wg.asarray(np.zeros(2))
    with pytest.raises(
        wg.SolverError, match="gmres did not solve the linear system of the derivative: after .* products"
    ):
        wg.grad(
            lambda p: wg.implicit.root(lambda x, p: (x - p)[0] * wg.ones((2,)), p.detach(), p, solver="gmres").sum()
        )(p + 0.0)


def test_bad_arguments() -> None:
    x0 = wg.zeros((2,))
    with pytest.raises(wg.ArgumentError, match="implicit.root: method 'lu' is unknown; there are auto, dense, cg"):
        wg.implicit.root(lambda x: x, x0, solver="lu")
    with pytest.raises(wg.ArgumentError, match="implicit.root: f returned 1 numbers for 2 unknowns"):
        wg.implicit.root(lambda x: x.sum(), x0)
    with pytest.raises(wg.ArgumentError, match="tol must be positive, got -1"):
        wg.implicit.argmin(lambda x: (x * x).sum(), x0, tol=-1)
    with pytest.raises(wg.ArgumentError, match=r"must return what is like x0, got shape \(1,\) for \(2,\)"):
        wg.implicit.fixed_point(lambda x: x[:1], x0)
    with pytest.raises(wg.TraceError, match="implicit.root: decides by the numbers when to stop"):
        wg.compile(lambda p: wg.implicit.root(lambda x: x - p, x0))(x0)
