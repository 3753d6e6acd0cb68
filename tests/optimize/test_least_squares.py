"""Least squares: MINPACK's problems, robust losses, derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import wengert as wg
from tests.finite_differences import gradient, seeds
from tests.optimize.problems import SQUARES
from tests.tolerances import assert_near

least_squares = wg.optimize.least_squares
METHODS = ["lm", "dogleg"]
T = np.linspace(0.0, 1.0, 20)
DATA = 2.0 * np.exp(-3.0 * T) + 0.02 * np.cos(40.0 * T)


def decay(p: Any, t: Any, y: Any) -> Any:
    return p[0] * np.exp(-p[1] * t) - y


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", SQUARES)
def test_minpack(name: str, method: str) -> None:
    problem = SQUARES[name]
    result = least_squares(problem.residuals, problem.start, method=method)
    assert result.success, result
    assert 2.0 * result.cost.item() == pytest.approx(problem.least, rel=1e-5, abs=1e-12), result
    np.testing.assert_allclose(result.fun.numpy(), problem.residuals(result.x.numpy()), rtol=1e-8, atol=1e-10)
    assert result.jac.shape == (len(result.fun), len(problem.start))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", ["linear", "soft_l1", "huber", "cauchy", "arctan"])
def test_losses_against_scipy(loss: str, method: str) -> None:
    y = DATA.copy()
    y[5] += 1.0
    ours = least_squares(decay, [1.0, 1.0], (T, y), loss=loss, f_scale=0.1, method=method)
    tight = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}
    theirs = scipy.optimize.least_squares(decay, [1.0, 1.0], args=(T, y), loss=loss, f_scale=0.1, **tight)
    np.testing.assert_allclose(ours.x.numpy(), theirs.x, rtol=1e-5)
    assert ours.cost.item() == pytest.approx(theirs.cost, rel=1e-9)
    assert ours.optimality < 1e-5


def test_containers_of_residuals_and_unknowns() -> None:
    result = least_squares(
        lambda p: {"a": p["scale"] * wg.asarray(T) - 2.0, "b": [p["shift"] - 1.0]}, {"scale": 1.0, "shift": 0.0}
    )
    assert result.x["scale"].item() == pytest.approx(2.0 * T.sum() / (T * T).sum(), rel=1e-9)
    assert result.x["shift"].item() == pytest.approx(1.0, rel=1e-9)


def test_single_precision() -> None:
    result = least_squares(
        decay, wg.tensor([1.0, 1.0]), (wg.tensor(T, dtype=wg.float32), wg.tensor(DATA, dtype=wg.float32))
    )
    wide = least_squares(decay, [1.0, 1.0], (T, DATA))
    assert result.success and result.x.dtype == wg.float32
    np.testing.assert_allclose(result.x.numpy(), wide.x.numpy(), rtol=1e-3)


def test_callback_and_iterations() -> None:
    seen: list[Any] = []
    stopped = least_squares(decay, [1.0, 1.0], (T, DATA), callback=lambda p: seen.append(p) or len(seen) == 2)
    assert stopped.status == 4 and stopped.nit == 2 and not stopped.success
    assert least_squares(decay, [1.0, 1.0], (T, DATA), maxiter=2).status == 1


@pytest.mark.parametrize("loss", ["linear", "cauchy"])
def test_implicit_gradients_by_data(loss: str) -> None:
    weights = seeds([(2,)])[0]

    def of(y: Any) -> Any:
        x = least_squares(decay, [2.0, 3.0], (T, y), loss=loss, f_scale=0.1).x
        return (x * wg.asarray(weights)).sum()

    def peer(y: Any) -> float:
        tight = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
        found = scipy.optimize.least_squares(
            decay, [2.0, 3.0], jac=lambda p, t, y: np.stack([np.exp(-p[1] * t), -p[0] * t * np.exp(-p[1] * t)], 1),
            args=(T, y), loss=loss, f_scale=0.1, **tight,
        )  # fmt: skip
        return float(found.x @ weights)

    (expected,) = gradient(peer, [DATA], step=2e-3)
    y = wg.asarray(DATA)
    assert_near(wg.grad(of)(y).numpy(), expected, 2e-5)
    v = wg.asarray(seeds([DATA.shape], 4)[0])
    slope = wg.jvp(of, (y,), (v,))[1].item()
    assert slope == pytest.approx(float(expected @ v.numpy()), rel=1e-4)
    both = wg.hvp(of, y, v).numpy(), wg.grad(lambda y: (wg.grad(of)(y) * v).sum())(y).numpy()
    np.testing.assert_allclose(*both, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "trf"}, "method 'trf' is unknown; there are lm, dogleg"),
        ({"loss": "l1"}, "loss 'l1' is unknown; there are linear, soft_l1, huber, cauchy, arctan"),
        ({"f_scale": 0.0}, "f_scale must be positive, got 0.0"),
        ({"gtol": -1.0}, "gtol must be positive, got -1.0"),
    ],
)
def test_options(given: Any, message: str) -> None:
    with pytest.raises(wg.ArgumentError, match=message):
        least_squares(decay, [1.0, 1.0], (T, DATA), **given)


def test_bad_functions() -> None:
    with pytest.raises(wg.ShapeError, match="1 residuals for 2 unknowns"):
        least_squares(lambda x: x[:1], [1.0, 2.0])
    with pytest.raises(wg.ArgumentError, match="the function returned None"):
        least_squares(lambda x: None, [1.0])
    with pytest.raises(wg.GradientError, match="real floating numbers, got int64"):
        least_squares(lambda x: wg.tensor([1, 2]), [1.0])
    result = least_squares(lambda x: wg.log(x), [-1.0])
    assert result.status == 3 and "NaN" in result.message
