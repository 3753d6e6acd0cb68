"""Zeros of systems and of functions of one number, and their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import wengert as wg
from tests.finite_differences import gradient, seeds
from tests.tolerances import FIRST_ORDER, assert_near

root, root_scalar = wg.optimize.root, wg.optimize.root_scalar
METHODS = ["hybr", "lm", "newton", "broyden"]


def circle_and_cubic(x: Any) -> Any:
    return wg.stack([x[0] ** 2 + x[1] ** 2 - 4.0, x[1] - x[0] ** 3 + 0.3])


def tridiagonal(x: Any) -> Any:
    """Broyden's system of ten equations."""
    padded = wg.pad(x, ((1, 1),))
    return (3.0 - 2.0 * x) * x - padded[:-2] - 2.0 * padded[2:] + 1.0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("f", "x0"), [(circle_and_cubic, [1.0, 1.0]), (tridiagonal, [-1.0] * 10)])
def test_against_scipy(f: Any, x0: list[float], method: str) -> None:
    ours = root(f, x0, method=method)
    theirs = scipy.optimize.root(lambda x: f(wg.asarray(x)).numpy(), x0, tol=1e-13)
    assert ours.success, ours
    np.testing.assert_allclose(ours.x.numpy(), theirs.x, rtol=1e-8)
    assert np.abs(ours.fun.numpy()).max() <= 1e-10 and ours.jac.shape == (len(x0), len(x0))


@pytest.mark.parametrize("method", ["hybr", "lm"])
def test_from_where_the_jacobian_is_singular(method: str) -> None:
    """Powell's badly scaled function, and a start at which no row depends on x[1]."""
    badly = root(lambda x: (1e4 * x[0] * x[1] - 1.0, wg.exp(-x[0]) + wg.exp(-x[1]) - 1.0001), [0.0, 1.0], method=method)
    assert badly.success, badly
    np.testing.assert_allclose(badly.x.numpy(), [1.098159e-5, 9.106146], rtol=1e-5)
    flat = root(lambda x: (x[0] - 1.0, x[1] ** 2 - x[0]), [3.0, 0.0], method=method)
    assert flat.success or flat.status == 2
    assert root(lambda x: (x[0] - 1.0, x[1] ** 2 - x[0]), [3.0, 0.0], method="newton").message.startswith(
        "the Jacobian"
    )


@pytest.mark.parametrize("method", METHODS)
def test_no_zero_is_said(method: str) -> None:
    result = root(lambda x: (x[0] ** 2 + 1.0, x[1] - 1.0), [0.5, 0.0], method=method)
    assert not result.success and result.status in (1, 2)
    assert "still" in result.message or "singular" in result.message or "used up" in result.message


def test_trees() -> None:
    result = root(lambda p: {"u": p["a"] * p["b"][0] - 6.0, "v": p["a"] - p["b"][0] - 1.0}, {"a": 2.0, "b": [3.0]})
    assert result.x["a"].item() == pytest.approx(3.0) and result.x["b"][0].item() == pytest.approx(2.0)


def test_callback_and_iterations() -> None:
    seen: list[Any] = []
    result = root(circle_and_cubic, [5.0, 5.0], method="newton", callback=lambda x: seen.append(x) or len(seen) == 2)
    assert result.status == 4 and result.nit == 2
    assert root(circle_and_cubic, [5.0, 5.0], method="newton", maxiter=1).status == 1


WEIGHTS = wg.asarray(seeds([(2,)])[0])


def system(x: Any, a: Any, b: Any) -> Any:
    return wg.stack([x[0] ** 2 + a * x[1] - 4.0, x[1] - b[0] * x[0] ** 3 + b[1]])


def at_root(a: Any, b: Any, **given: Any) -> Any:
    return (root(system, [1.0, 1.0], (a, b), tol=1e-13, **given).x * WEIGHTS).sum()


ARGS = [np.array(1.2), np.array([0.9, 0.3])]


@pytest.mark.parametrize("method", METHODS)
def test_implicit_derivatives(method: str) -> None:
    xs = tuple(map(wg.asarray, ARGS))
    of = lambda a, b: at_root(a, b, method=method)
    expected = gradient(lambda a, b: of(wg.asarray(a), wg.asarray(b)).item(), ARGS)
    for g, e in zip(wg.grad(of, argnums=(0, 1))(*xs), expected):
        assert_near(g.numpy(), e, FIRST_ORDER)
    tangents = seeds([x.shape for x in ARGS], 3)
    slope = wg.jvp(of, xs, tuple(map(wg.asarray, tangents)))[1].item()
    assert slope == pytest.approx(sum(float((g * t).sum()) for g, t in zip(expected, tangents)), rel=1e-7)


def test_implicit_derivatives_of_second_order() -> None:
    b, v = wg.asarray(ARGS[1]), wg.asarray(seeds([(2,)], 2)[0])
    of = lambda b: at_root(wg.asarray(ARGS[0]), b)
    slope = lambda b: wg.grad(of)(wg.asarray(b)).numpy()
    expected = (slope(ARGS[1] + 1e-4 * v.numpy()) - slope(ARGS[1] - 1e-4 * v.numpy())) / 2e-4
    for found in (wg.hvp(of, b, v), wg.grad(lambda b: (wg.grad(of)(b) * v).sum())(b), (wg.hessian(of)(b) @ v)):
        assert_near(found.numpy(), expected, 1e-5)


def test_bad_input() -> None:
    with pytest.raises(wg.ArgumentError, match="3 equations for 2 unknowns; least_squares takes other numbers"):
        root(lambda x: (x[0], x[1], x[0]), [1.0, 2.0])
    with pytest.raises(wg.ArgumentError, match="method 'krylov' is unknown; there are hybr, lm, newton, broyden"):
        root(circle_and_cubic, [1.0, 1.0], method="krylov")
    with pytest.raises(wg.ArgumentError, match="tol must be positive"):
        root(circle_and_cubic, [1.0, 1.0], tol=-1e-3)
    assert root(lambda x: wg.log(x), [-1.0], method="newton").status == 3


# ----------------------------------------------------------------------------------------------------- one number


@pytest.mark.parametrize(
    ("f", "bracket", "x0", "expected"),
    [
        (lambda x: x**3 - 2.0, (0.0, 2.0), 1.0, 2 ** (1 / 3)),
        (lambda x: wg.cos(x) - x, (0.0, 1.0), 0.5, 0.7390851332151607),
        (lambda x: wg.exp(-x) - 1e-6, (0.0, 100.0), 10.0, -np.log(1e-6)),
        (lambda x: x, (-1.0, 3.0), 0.3, 0.0),
    ],
)
def test_one_number(f: Any, bracket: Any, x0: float, expected: float) -> None:
    for given in ({"bracket": bracket}, {"bracket": bracket, "method": "bisect"}, {"x0": x0}):
        result = root_scalar(f, **given)
        assert result.success and result.x.item() == pytest.approx(expected, rel=1e-13, abs=1e-14), (given, result)
    theirs = scipy.optimize.brentq(lambda x: float(f(wg.asarray(np.float64(x)))), *bracket, full_output=True)[1]
    assert root_scalar(f, bracket=bracket).nfev <= theirs.function_calls + 8


def test_many_numbers_at_once() -> None:
    a = np.array([[1.0, 8.0], [27.0, 2.0]])
    for given in ({"bracket": (0.0, np.full((2, 2), 10.0))}, {"x0": np.ones((2, 2))}):
        result = root_scalar(lambda x, a: x**3 - a, (a,), **given)
        np.testing.assert_allclose(result.x.numpy(), np.cbrt(a), rtol=1e-13)

    def of(a: Any) -> Any:
        return root_scalar(lambda x, a: x**3 - a, (a,), bracket=(0.0, np.full((2, 2), 10.0))).x

    weights, v = (wg.asarray(s) for s in seeds([a.shape] * 2))
    slope = np.cbrt(a) ** -2 / 3.0
    found = wg.grad(lambda a: (of(a) * weights).sum())(wg.asarray(a)).numpy()
    np.testing.assert_allclose(found, weights.numpy() * slope, rtol=1e-10)
    np.testing.assert_allclose(wg.jvp(of, (wg.asarray(a),), (v,))[1].numpy(), v.numpy() * slope, rtol=1e-10)
    second = wg.hvp(lambda a: (of(a) * weights).sum(), wg.asarray(a), v).numpy()
    np.testing.assert_allclose(second, weights.numpy() * v.numpy() * -2.0 / 9.0 * np.cbrt(a) ** -5, rtol=1e-9)


def test_root_scalar_refuses() -> None:
    square = lambda x: x * x - 2.0
    with pytest.raises(wg.ArgumentError, match=r"different signs at both ends.*f\(2\) = 2 and f\(3\) = 7"):
        root_scalar(square, bracket=(2.0, 3.0))
    with pytest.raises(wg.ArgumentError, match="of element 1, got"):
        root_scalar(square, bracket=([0.0, 2.0], [2.0, 3.0]))
    for given in ({}, {"bracket": (0.0, 2.0), "x0": 1.0}):
        with pytest.raises(wg.ArgumentError, match=r"takes a bracket \(a, b\), or x0"):
            root_scalar(square, **given)
    with pytest.raises(wg.ArgumentError, match="must be a pair"):
        root_scalar(square, bracket=(1.0, 2.0, 3.0))  # type: ignore[arg-type]
    with pytest.raises(wg.ArgumentError, match="method 'newton' takes x0"):
        root_scalar(square, bracket=(0.0, 2.0), method="newton")
    with pytest.raises(wg.ArgumentError, match="method 'brentq' takes a bracket"):
        root_scalar(square, x0=1.0, method="brentq")
    with pytest.raises(wg.ArgumentError, match="'brentq' finds one zero"):
        root_scalar(square, bracket=([0.0, 0.0], 2.0), method="brentq")
    with pytest.raises(wg.ArgumentError, match="xtol must be positive"):
        root_scalar(square, bracket=(0.0, 2.0), xtol=0.0)
    with pytest.raises(wg.ShapeError, match="f returned 1 numbers for 2"):
        root_scalar(lambda x: x.sum(), bracket=(np.zeros(2), np.ones(2)))
    assert root_scalar(lambda x: x * x + 1.0, x0=0.6, maxiter=7).status == 1
    assert root_scalar(lambda x: x * 0.0 + 1.0, x0=1.0).status == 3
