"""Minima: against SciPy, within bounds, over trees, with derivatives by what they depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import wengert as wg
from tests.finite_differences import gradient, seeds
from tests.optimize.problems import SQUARES, rosenbrock, wood
from tests.tolerances import assert_near

minimize = wg.optimize.minimize
SMOOTH = ["bfgs", "l-bfgs", "newton-cg"]


@pytest.mark.parametrize("method", [*SMOOTH, "l-bfgs-b", "nelder-mead"])
@pytest.mark.parametrize(("f", "x0"), [(rosenbrock, [-1.2, 1.0]), (wood, [-3.0, -1.0, -3.0, -1.0])])
def test_known_minima(f: Any, x0: list[float], method: str) -> None:
    result = minimize(f, x0, method=method)
    assert result.success and result.status == 0, result
    np.testing.assert_allclose(result.x.numpy(), np.ones(len(x0)), rtol=1e-5)
    assert result.fun.item() < 1e-10 and result.nit > 5 and result.nfev >= result.nit


@pytest.mark.parametrize("method", SMOOTH)
@pytest.mark.parametrize("name", ["helical valley", "beale", "bard", "kowalik and osborne", "brown and dennis", "box"])
def test_sums_of_squares_as_any_function(name: str, method: str) -> None:
    problem = SQUARES[name]
    result = minimize(lambda x: (problem.residuals(x) ** 2).sum(), problem.start, method=method, tol=1e-7)
    assert result.fun.item() == pytest.approx(problem.least, rel=1e-4, abs=1e-8), result


@pytest.mark.parametrize("method", SMOOTH)
def test_no_worse_than_scipy_in_evaluations(method: str) -> None:
    x0 = np.tile([-1.2, 1.0], 10)
    ours = minimize(rosenbrock, x0, method=method, tol=1e-5)
    names = {"bfgs": "BFGS", "l-bfgs": "L-BFGS-B", "newton-cg": "Newton-CG"}
    theirs = scipy.optimize.minimize(
        scipy.optimize.rosen, x0, jac=scipy.optimize.rosen_der, method=names[method],
        **({"hess": scipy.optimize.rosen_hess} if method == "newton-cg" else {}),
    )  # fmt: skip
    np.testing.assert_allclose(ours.x.numpy(), np.ones(20), rtol=1e-4)
    assert ours.nfev <= 2 * theirs.nfev


def test_gradient_descent() -> None:
    result = minimize(lambda x: ((x - 2.0) ** 2 * wg.asarray(np.array([1.0, 10.0]))).sum(), [5.0, -5.0], method="gd")
    assert result.success
    np.testing.assert_allclose(result.x.numpy(), [2.0, 2.0], rtol=1e-7)


@pytest.mark.parametrize("bounds", [(-2.0, 0.8), (np.array([1.2, -5.0]), None), (None, (0.5, 0.5)), (-5.0, 5.0)])
def test_bounds_against_scipy(bounds: Any) -> None:
    result = minimize(rosenbrock, [0.0, 0.1], bounds=bounds)
    low, high = (np.broadcast_to(fill if b is None else b, (2,)) for b, fill in zip(bounds, (-np.inf, np.inf)))
    peer = scipy.optimize.minimize(
        scipy.optimize.rosen, np.clip([0.0, 0.1], low, high), jac=scipy.optimize.rosen_der, method="L-BFGS-B",
        bounds=scipy.optimize.Bounds(low, high), options={"ftol": 1e-15, "gtol": 1e-10},
    )  # fmt: skip
    assert result.success, result
    np.testing.assert_allclose(result.x.numpy(), peer.x, rtol=1e-5)
    x = result.x.numpy()
    assert (x >= low).all() and (x <= high).all()


def test_trees_and_dtypes() -> None:
    x0 = {"a": wg.tensor([3.0, 1.0]), "b": (wg.tensor(2.0), [0.0])}

    def f(x: Any) -> Any:
        return ((x["a"] - 1.0) ** 2).sum() + (x["b"][0] + 2.0) ** 2 + (x["b"][1][0] - 0.5) ** 2

    result = minimize(f, x0)
    assert result.x["a"].dtype == wg.float32 and result.jac["b"][0].shape == ()
    np.testing.assert_allclose(result.x["a"].numpy(), [1.0, 1.0], rtol=1e-4)
    assert result.x["b"][0].item() == pytest.approx(-2.0, rel=1e-4)
    assert result.x["b"][1][0].item() == pytest.approx(0.5, rel=1e-3)


def test_callback_stops() -> None:
    seen = []
    result = minimize(rosenbrock, [-1.2, 1.0], callback=lambda x: seen.append(x.tolist()) or len(seen) == 3)
    assert len(seen) == 3 and result.nit == 3 and not result.success and result.status == 4


def test_iterations_that_are_used_up() -> None:
    result = minimize(rosenbrock, [-1.2, 1.0], maxiter=4)
    assert (result.success, result.status, result.nit) == (False, 1, 4) and "maxiter=4" in result.message


def test_functions_that_branch_on_numbers() -> None:
    def f(x: Any) -> Any:
        value = ((x - 1.0) ** 2).sum()
        return value if float(value.detach()) < 100.0 else value * 2.0

    for method in SMOOTH:
        result = minimize(f, [30.0, 1.0], method=method)
        assert result.success and result.nit < 30
        np.testing.assert_allclose(result.x.numpy(), [1.0, 1.0], rtol=1e-6)


def test_nan_is_said() -> None:
    result = minimize(lambda x: wg.sqrt(x).sum(), [-1.0])
    assert not result.success and result.status == 3 and "NaN" in result.message


def test_the_display() -> None:
    text = repr(minimize(lambda x: ((x - 1.0) ** 2).sum(), [0.0]))
    assert text.splitlines()[0].strip().startswith("message: no element of the gradient")
    assert [line.split(":")[0].strip() for line in text.splitlines()] == [
        "message", "success", "status", "x", "fun", "jac", "nit", "nfev", "njev",
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- derivatives

WEIGHTS = wg.asarray(seeds([(2,)])[0])


def coupled(x: Any, a: Any, b: Any) -> Any:
    return ((x - a) ** 2).sum() + (x**4).sum() + b * x[0] * x[1]


def at_minimum(a: Any, b: Any, **given: Any) -> Any:
    return (minimize(coupled, [0.1, 0.2], (a, b), tol=1e-13, **given).x * WEIGHTS).sum()


ARGS = [np.array([1.0, -2.0]), np.array(0.7)]


def exact(a: Any, b: Any) -> float:
    """By SciPy, whose Newton steps end at the last digit."""
    g = lambda x: 2 * (x - a) + 4 * x**3 + b * x[::-1]
    h = lambda x: np.diag(2 + 12 * x**2) + b * np.array([[0.0, 1.0], [1.0, 0.0]])
    return float(scipy.optimize.root(g, [0.5, -0.8], jac=h, tol=1e-15).x @ WEIGHTS.numpy())


@pytest.mark.parametrize("method", SMOOTH)
def test_implicit_gradients_in_both_modes(method: str) -> None:
    expected = gradient(exact, ARGS)
    xs = tuple(map(wg.asarray, ARGS))
    found = wg.grad(lambda a, b: at_minimum(a, b, method=method), argnums=(0, 1))(*xs)
    for g, e in zip(found, expected):
        assert_near(g.numpy(), e, 1e-6)
    tangents = seeds([x.shape for x in ARGS], 5)
    _, slope = wg.jvp(lambda a, b: at_minimum(a, b, method=method), xs, tuple(map(wg.asarray, tangents)))
    assert slope.item() == pytest.approx(sum(float((g * t).sum()) for g, t in zip(expected, tangents)), rel=1e-6)


def test_implicit_gradients_of_second_order() -> None:
    a, v = wg.asarray(ARGS[0]), wg.asarray(seeds([(2,)], 2)[0])
    of = lambda a: at_minimum(a, wg.asarray(ARGS[1]))
    slope = lambda a: gradient(lambda a: exact(a, ARGS[1]), [a])[0]
    expected = (slope(ARGS[0] + 1e-3 * v.numpy()) - slope(ARGS[0] - 1e-3 * v.numpy())) / 2e-3
    assert_near(wg.hvp(of, a, v).numpy(), expected, 2e-5)
    assert_near(wg.grad(lambda a: (wg.grad(of)(a) * v).sum())(a).numpy(), expected, 2e-5)


def test_what_f_closes_over() -> None:
    a, b = map(wg.asarray, ARGS)
    given = wg.grad(lambda a: at_minimum(a, b))(a)
    closed = wg.grad(lambda a: (minimize(lambda x: coupled(x, a, b), [0.1, 0.2], tol=1e-13).x * WEIGHTS).sum())(a)
    np.testing.assert_allclose(closed.numpy(), given.numpy(), rtol=1e-9)


def test_the_minimum_itself_has_the_gradient_of_the_function() -> None:
    """dF/da of the minimum F(a) = min f is ∂f/∂a, since ∂f/∂x is zero there."""
    a, b = map(wg.asarray, ARGS)
    x = minimize(coupled, [0.1, 0.2], (a, b)).x
    found = wg.grad(lambda a: minimize(coupled, [0.1, 0.2], (a, b)).fun)(a)
    np.testing.assert_allclose(found.numpy(), wg.grad(lambda a: coupled(x, a, b))(a).numpy(), atol=1e-7)


def test_unknowns_at_bounds_stay_there() -> None:
    def of(a: Any) -> Any:
        return minimize(coupled, [0.1, 0.2], (a, wg.asarray(ARGS[1])), bounds=(-0.3, 5.0), tol=1e-12).x

    jacobian = wg.jacobian(of)(wg.asarray(ARGS[0])).numpy()
    assert jacobian[1].tolist() == [0.0, 0.0]
    (x,) = [of(wg.asarray(ARGS[0])).numpy()]
    assert x[1] == -0.3
    assert jacobian[0, 0] == pytest.approx(2.0 / (2.0 + 12.0 * x[0] ** 2), rel=1e-6)  # of the free one alone


def test_many_unknowns_are_differentiated_without_forming_a_matrix() -> None:
    n = 500
    target = wg.asarray(np.linspace(-1.0, 1.0, n))

    def of(a: Any) -> Any:
        result = minimize(lambda x, a: ((x - a) ** 2).sum() + 0.5 * ((x[1:] - x[:-1]) ** 2).sum(), np.zeros(n), (a,))
        assert result.success
        return (result.x * target).sum()

    a = np.cos(np.arange(n))
    matrix = 2.0 * np.eye(n) + np.diag(np.r_[1.0, 2.0 * np.ones(n - 2), 1.0]) - np.eye(n, k=1) - np.eye(n, k=-1)
    np.testing.assert_allclose(
        wg.grad(of)(wg.asarray(a)).numpy(), 2.0 * np.linalg.solve(matrix, target.numpy()), atol=1e-7
    )


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "cg"}, "method 'cg' is unknown; there are bfgs, l-bfgs, l-bfgs-b, newton-cg, gd, nelder-mead"),
        ({"tol": 0.0}, "tol must be positive, got 0.0"),
        ({"maxiter": -1}, "maxiter must be positive, got -1"),
        ({"bounds": 3.0}, r"bounds must be a pair \(lower, upper\)"),
        ({"bounds": (1.0, 0.0)}, "the lower bound 1 is above the upper bound 0, at element 0"),
        ({"bounds": (0.0, 1.0), "method": "bfgs"}, "method 'bfgs' takes no bounds; 'l-bfgs-b' does"),
    ],
)
def test_options(given: Any, message: str) -> None:
    with pytest.raises(wg.ArgumentError, match=message):
        minimize(rosenbrock, [-1.2, 1.0], **given)


@pytest.mark.parametrize(
    ("f", "x0", "message"),
    [
        (lambda x: None, [1.0], "the function returned None"),
        (lambda x: x, [1.0, 2.0], r"must return one real floating number, got float64\(2,\); reduce it"),
        (lambda x: x.sum(), [np.nan], "x0 holds NaN or infinity"),
        (lambda x: x.sum(), [], "there are no numbers in x0"),
        (lambda x: x.sum(), wg.ones(2, dtype=wg.complex64), "x0 holds complex numbers; split them"),
        (3.0, [1.0], r"f must be a function f\(x, \*args\), got float"),
    ],
)
def test_functions_and_starts(f: Any, x0: Any, message: str) -> None:
    with pytest.raises(wg.WengertError, match=message):
        minimize(f, x0)


def test_a_lost_derivative_is_refused() -> None:
    def of(a: Any) -> Any:
        def f(x: Any) -> Any:
            value = ((x - a) ** 2).sum()
            return value if float(value.detach()) >= 0.0 else -value

        return minimize(f, [0.0]).x.sum()

    with pytest.raises(wg.GradientError, match="closes over tensors that are differentiated; pass these in args"):
        wg.grad(of)(wg.tensor([1.0], dtype=wg.float64))


def test_inside_of_a_compiled_function() -> None:
    with pytest.raises(wg.TraceError, match="decides by the numbers when to stop"):
        wg.compile(lambda a: minimize(lambda x, a: ((x - a) ** 2).sum(), [0.0], (a,)).x)(wg.ones(1))
