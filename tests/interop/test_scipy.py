"""SciPy's optimizers: every method, containers as unknowns, bounds, constraints, and bad functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg

optimize: Any = pytest.importorskip("scipy.optimize")

METHODS = [
    None, "CG", "BFGS", "L-BFGS-B", "TNC", "SLSQP", "Newton-CG", "trust-ncg", "trust-krylov", "trust-constr", "dogleg",
    "trust-exact", "Nelder-Mead", "Powell", "COBYLA",
]  # fmt: skip


def _bowl(x: Any) -> Any:
    """Convex, with its minimum at a = (1, 2; 3, 4) and b = −1."""
    d = x["a"] - wg.tensor([[1.0, 2.0], [3.0, 4.0]])
    return (d * d * (1.0 + d * d)).sum() + (x["b"][0] + 1.0) ** 2 + 0.1 * (d[0, 0] - x["b"][0] - 1.0) ** 2


@pytest.mark.parametrize("method", METHODS)
def test_every_method_over_containers(method: Any) -> None:
    x0 = {"a": wg.zeros((2, 2)), "b": [np.float32(0.5)]}
    calls: list[Any] = []
    options = {"options": {"maxiter": 4000}} if method == "Nelder-Mead" else {}
    seen = lambda x, *_: calls.append(x["a"].shape)
    result = wg.scipy.minimize(_bowl, x0, method=method, callback=seen, tol=1e-8, **options)
    tolerance = 1e-2 if method in ("Nelder-Mead", "Powell", "COBYLA") else 1e-4
    assert np.allclose(result.x["a"].numpy(), [[1, 2], [3, 4]], atol=tolerance)
    assert result.x["b"][0].item() == pytest.approx(-1.0, abs=tolerance)
    assert result.x["a"].dtype == wg.float64 and isinstance(result.x["b"], list) and set(calls) <= {(2, 2)}


def test_second_order_methods_get_exact_second_derivatives() -> None:
    rosenbrock = lambda x: 100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2
    for method in ("Newton-CG", "trust-ncg", "trust-exact"):
        result = wg.scipy.minimize(rosenbrock, np.array([-1.2, 1.0]), method=method, tol=1e-10)
        assert np.allclose(result.x.numpy(), 1.0, atol=1e-7) and result.nit < 100
    assert isinstance(result.x, wg.Tensor) and result.x.shape == (2,)


def test_a_number_as_unknown_and_extra_arguments() -> None:
    result = wg.scipy.minimize(lambda x, a, b: a * (x - b) ** 2, 0.0, args=(3.0, 2.5))
    assert result.x.shape == () and result.x.item() == pytest.approx(2.5)


def test_bounds() -> None:
    f = lambda x: ((x["p"] - 3.0) ** 2).sum() + (x["q"] + 2.0) ** 2
    x0 = {"p": np.zeros(2), "q": 0.0}
    limits = ({"p": np.array([-1.0, -1.0]), "q": -0.5}, {"p": np.array([2.0, 9.0]), "q": 1.0})
    result = wg.scipy.minimize(f, x0, method="L-BFGS-B", bounds=limits)
    assert np.allclose(result.x["p"].numpy(), [2.0, 3.0], atol=1e-5) and result.x["q"].item() == -0.5
    result = wg.scipy.minimize(f, x0, method="L-BFGS-B", bounds=(None, 1.5))
    assert np.allclose(result.x["p"].numpy(), 1.5)
    single = wg.scipy.minimize(lambda x: ((x - 3.0) ** 2).sum(), np.zeros(2), bounds=[(0, 1), (None, None)])
    assert np.allclose(single.x.numpy(), [1.0, 3.0], atol=1e-5)
    for bad in ([(0, 1)], ({"p": 1.0}, None)):
        with pytest.raises(wg.ArgumentError, match="bounds"):
            wg.scipy.minimize(f, x0, bounds=bad)


def test_constraints_take_containers_and_have_exact_derivatives() -> None:
    f = lambda x: (x["u"] ** 2).sum() + x["v"] ** 2
    x0 = {"u": np.ones(2), "v": 3.0}
    line = {"type": "eq", "fun": lambda x: x["u"].sum() + x["v"] - 3.0}
    assert np.allclose(wg.scipy.minimize(f, x0, method="SLSQP", constraints=line).x["u"].numpy(), 1.0, atol=1e-6)
    curve = optimize.NonlinearConstraint(lambda x: (x["u"][0] * x["u"][1], x["v"] ** 3), [4.0, 8.0], np.inf)
    result = wg.scipy.minimize(f, x0, method="trust-constr", constraints=[curve], tol=1e-10)
    assert np.allclose(result.x["u"].numpy(), 2.0, atol=1e-4) and result.x["v"].item() == pytest.approx(2.0, abs=1e-4)


def test_least_squares() -> None:
    t = np.linspace(0.0, 2.0, 30)
    y = wg.tensor(2.0 * np.exp(-1.5 * t) + 0.5)
    model = lambda p: p["scale"] * wg.exp(-p["rate"][0] * wg.tensor(t)) + p["offset"] - y
    x0 = {"scale": 1.0, "rate": (np.float32(1.0),), "offset": wg.tensor(0.0)}
    for options in (
        dict(),
        dict(method="lm"),
        dict(loss="soft_l1"),
        dict(bounds=(0.0, {"scale": 9.0, "rate": (9.0,), "offset": 1.0})),
    ):
        result = wg.scipy.least_squares(model, x0, **options)  # type: ignore[arg-type]
        assert result.x["rate"][0].item() == pytest.approx(1.5, abs=1e-6)
        assert result.x["offset"].item() == pytest.approx(0.5, abs=1e-6)
    pieces = wg.scipy.least_squares(lambda p: {"a": p[0] - 1.0, "b": (p * p - 4.0)[1:]}, np.array([0.0, 1.0]))
    assert np.allclose(pieces.x.numpy(), [1.0, 2.0])


@pytest.mark.parametrize("method", ["hybr", "lm", "krylov", "broyden1"])
def test_root(method: str) -> None:
    f = lambda x: {"one": wg.cos(x["p"]) - x["q"], "two": x["q"] - x["p"]}
    result = wg.scipy.root(f, {"p": 0.5, "q": 0.5}, method=method)
    assert result.x["p"].item() == pytest.approx(0.7390851332, abs=1e-5)
    with pytest.raises(wg.ArgumentError, match="2 equations for 3 unknowns; least_squares"):
        wg.scipy.root(lambda x: x[:2], np.ones(3), method=method)


def test_bad_functions_and_unknowns_are_named() -> None:
    with pytest.raises(
        wg.GradientError, match=r"one real floating number, got float64\(3,\); reduce it.*least_squares"
    ):
        wg.scipy.minimize(lambda x: x * x, np.ones(3))
    with pytest.raises(wg.GradientError, match="one real floating number, got int64"):
        wg.scipy.minimize(lambda x: 3, np.ones(3), method="Nelder-Mead")
    with pytest.raises(wg.ArgumentError, match="no unknowns"):
        wg.scipy.minimize(lambda x: 1.0, [])
    with pytest.raises(wg.DTypeError, match="complex128"):
        wg.scipy.minimize(lambda x: 1.0, np.ones(2) * 1j)


def test_evaluation_leaves_no_gradients_behind() -> None:
    w = wg.Parameter(np.ones(2))
    wg.scipy.minimize(lambda x: ((x - w.detach()) ** 2).sum(), w)
    assert w.grad is None and w.tolist() == [1.0, 1.0]


def test_a_list_of_numbers_is_a_vector() -> None:
    result = wg.scipy.minimize(lambda x: ((x - wg.tensor([1.0, 2.0])) ** 2).sum(), [0, 0.5], bounds=[(0, 5), (0, 1)])
    assert np.allclose(result.x.numpy(), [1.0, 1.0])
    apart = wg.scipy.minimize(lambda x: (x[0] - 1.0) ** 2 + (x[1] ** 2).sum(), [0.0, np.ones(2)])
    assert np.allclose(apart.x[0].item(), 1.0) and apart.x[1].shape == (2,)


# --------------------------------------------------------------------------------------------------- sparse derivatives


def _rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def _bratu(u: Any) -> Any:
    """u'' + e^u = 0 between two zeros."""
    n = u.shape[0]
    padded = wg.pad(u, ((1, 1),))
    return (padded[2:] - 2.0 * u + padded[:-2]) * float(n + 1) ** 2 + wg.exp(u)


@pytest.mark.parametrize("method", ["trust-constr", "Newton-CG"])
def test_minimize_with_a_sparse_hessian(method: str) -> None:
    seen: list[Any] = []
    result = wg.scipy.minimize(
        _rosenbrock,
        np.full(40, 0.8),
        method=method,
        sparse=True,
        tol=1e-9,
        callback=lambda x, *state: seen.append(state),
    )
    assert np.allclose(result.x.numpy(), 1.0, atol=1e-3) and seen


def test_sparse_constraints() -> None:
    pairs = optimize.NonlinearConstraint(lambda x: x[1:] * x[:-1], -np.inf, 0.25)
    exact = wg.scipy.minimize(_rosenbrock, np.zeros(8), method="trust-constr", constraints=pairs, tol=1e-8)
    result = wg.scipy.minimize(
        _rosenbrock, np.zeros(8), method="trust-constr", constraints=pairs, sparse=True, tol=1e-8
    )
    assert np.allclose(result.x.numpy(), exact.x.numpy(), atol=1e-5)
    assert type(result.jac[0]).__name__ == "csr_array"


class _Model:
    """A function that is not replayed: it reads attributes."""

    def __init__(self) -> None:
        self.shift, self.calls = 1.0, 0

    def residuals(self, p: Any) -> Any:
        self.calls += 1
        return {"steps": 10.0 * (p["x"][1:] - p["x"][:-1] ** 2), "ends": self.shift - p["x"][:-1]}


@pytest.mark.parametrize("how", ["function", "method", "pattern"])
def test_least_squares_with_a_sparse_jacobian(how: str) -> None:
    model, n = _Model(), 30
    x0 = {"x": np.full(n, 0.5)}
    pattern = wg.jacobian_sparsity(model.residuals, {"x": wg.ones((n,))})
    assert pattern.nnz == 3 * (n - 1)
    f = (
        (lambda p: (10.0 * (p["x"][1:] - p["x"][:-1] ** 2), 1.0 - p["x"][:-1]))
        if how == "function"
        else model.residuals
    )
    options = {"sparsity": pattern} if how == "pattern" else {"sparse": True}
    result = wg.scipy.least_squares(f, x0, tr_solver="lsmr", **options)
    assert np.allclose(result.x["x"].numpy(), 1.0, atol=1e-6)
    assert type(result.jac).__name__ == "csr_array" and result.jac.nnz == pattern.nnz


def test_root_with_a_sparse_jacobian() -> None:
    dense = wg.scipy.root(_bratu, np.zeros(50), method="hybr")
    result = wg.scipy.root(_bratu, np.zeros(50), sparse=True)
    assert result.success and np.allclose(result.x.numpy(), dense.x.numpy(), atol=1e-5)
    assert result.nit <= 6
    large = wg.scipy.root(_bratu, np.zeros(3000), sparse=True)
    assert large.success and np.abs(large.x.numpy()).max() == pytest.approx(0.1405, abs=1e-3)


def test_methods_without_sparse_derivatives() -> None:
    with pytest.raises(wg.ArgumentError, match="'trust-constr' or 'Newton-CG', got 'BFGS'"):
        wg.scipy.minimize(_rosenbrock, np.zeros(3), method="BFGS", sparse=True)
    with pytest.raises(wg.ArgumentError, match="'lm' takes no sparse Jacobian"):
        wg.scipy.least_squares(_bratu, np.zeros(3), method="lm", sparse=True)
    with pytest.raises(wg.ArgumentError, match="'krylov', got 'hybr'"):
        wg.scipy.root(_bratu, np.zeros(3), method="hybr", sparse=True)
