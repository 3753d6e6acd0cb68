"""Derivatives of what an equation determines, whatever solves the linear systems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import seeds
from wengert.numerics.implicit import dense, diagonal, implicit, symmetric

A, B = np.array([1.3, 0.4, 2.0]), np.array(0.6)
WEIGHTS, DIRECTION = (wg.asarray(s) for s in seeds([(3,), (3,)]))


def residual(x: Any, a: Any, b: Any) -> Any:
    """Zero where x + b x³ = a; its Jacobian is diagonal, and so symmetric."""
    return x + b * x**3 - a


def solution(a: Any, b: Any) -> Any:
    x = np.asarray(a, float)
    for _ in range(60):
        x = x - (x + b * x**3 - a) / (1.0 + 3.0 * b * x * x)
    return x


def by_products(product: Any, b: Any) -> Any:
    """Solve with a matrix that is only multiplied by."""
    columns = [product(wg.eye(3, dtype=wg.float64)[k]).numpy() for k in range(3)]
    return wg.asarray(np.linalg.solve(np.stack(columns, 1), b.numpy()))


SOLVERS = {
    "dense": dense("test", wg.jacfwd(residual)),
    "diagonal": diagonal(residual),
    "symmetric": symmetric(lambda v, x, *p: wg.jvp(lambda x: residual(x, *p), (x,), (v,))[1], by_products),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_first_and_second_order(name: str) -> None:
    def of(a: Any) -> Any:
        x = wg.asarray(solution(A, float(B)))
        return (implicit(residual, x, [a, wg.asarray(B)], SOLVERS[name]) * WEIGHTS).sum()

    x, a = solution(A, float(B)), wg.asarray(A)
    slope = 1.0 / (1.0 + 3.0 * B * x * x)
    second = -6.0 * B * x * slope**3
    np.testing.assert_allclose(wg.grad(of)(a).numpy(), WEIGHTS.numpy() * slope, rtol=1e-12)
    pushed = wg.jvp(of, (a,), (DIRECTION,))[1].item()
    assert pushed == pytest.approx(float((WEIGHTS.numpy() * slope * DIRECTION.numpy()).sum()), rel=1e-12)
    expected = WEIGHTS.numpy() * second * DIRECTION.numpy()
    np.testing.assert_allclose(wg.hvp(of, a, DIRECTION).numpy(), expected, rtol=1e-10)
    again = wg.grad(lambda a: (wg.grad(of)(a) * DIRECTION).sum())(a)
    np.testing.assert_allclose(again.numpy(), expected, rtol=1e-10)


def test_nothing_to_differentiate_by() -> None:
    x = wg.ones(2)
    assert implicit(lambda x: x - 1.0, x, [], dense("test", wg.jacfwd(lambda x: x))) is x
    assert implicit(lambda x, n: x - n, x, [wg.tensor([1, 1])], dense("test", wg.jacfwd(lambda x, n: x))) is x
