"""Newton's method, Levenberg–Marquardt and the natural gradient: one step by NumPy, convergence, states, errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import optim

RNG = np.random.default_rng(0)
A = RNG.normal(size=(5, 5))
A = A @ A.T + np.eye(5)
B = RNG.normal(size=5)


def test_one_newton_step_solves_a_quadratic() -> None:
    p, q = wg.Parameter(np.zeros(3)), wg.Parameter(np.zeros((2, 1)))

    def loss() -> Any:
        x = wg.concat([p, q.reshape((-1,))])
        return 0.5 * (x @ wg.asarray(A) @ x) - wg.asarray(B) @ x + 7.0

    opt = optim.NewtonCG([p, q], cg_tolerance=1e-12)
    assert opt.step(loss).item() == 7.0
    opt.step(loss)
    found = np.concatenate([p.numpy(), q.numpy().ravel()])
    np.testing.assert_allclose(found, np.linalg.solve(A, B), rtol=1e-6)


def test_newton_converges_from_afar_and_past_negative_curvature() -> None:
    p = wg.Parameter(np.array([-1.2, 1.0]))
    rosenbrock = lambda: (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
    opt, losses = optim.NewtonCG([p], cg_tolerance=1e-6), []
    for _ in range(40):
        losses.append(opt.step(rosenbrock).item())
    np.testing.assert_allclose(p.numpy(), [1.0, 1.0], atol=1e-6)
    assert all(b <= a for a, b in itertools.pairwise(losses))
    w = wg.Parameter(np.array([0.1, 0.2]))  # at 0, x⁴ − x² curves downwards
    opt = optim.NewtonCG([w])
    for _ in range(30):
        opt.step(lambda: (w**4 - w**2).sum())
    np.testing.assert_allclose(np.abs(w.numpy()), 0.5**0.5, rtol=1e-6)


def test_a_linear_loss_and_a_minimum() -> None:
    p = wg.Parameter(np.array([1.0, 2.0]))
    optim.NewtonCG([p]).step(lambda: p.sum())
    assert p.tolist() == [0.0, 1.0]
    at = wg.Parameter(np.zeros(2))
    assert optim.NewtonCG([at]).step(lambda: (at * at).sum()).item() == 0.0 and at.tolist() == [0.0, 0.0]


X = np.linspace(0, 3, 25)
TRUTH = np.array([2.0, -1.3, 0.5])
Y = TRUTH[0] * np.exp(TRUTH[1] * X) + TRUTH[2]


def residuals(a: Any, b: Any) -> Any:
    return a * wg.exp(b[0] * wg.asarray(X)) + b[1] - wg.asarray(Y)


def test_one_step_of_levenberg_marquardt() -> None:
    a, b = wg.Parameter(np.array(1.0)), wg.Parameter(np.array([-0.5, 0.0]))
    e = np.exp(-0.5 * X)
    jacobian, r = np.stack([e, X * e, np.ones_like(X)], 1), e - Y
    opt = optim.LevenbergMarquardt([a, b], damping=0.1, cg_tolerance=1e-12)
    assert opt.step(lambda: residuals(a, b)).item() == pytest.approx((r**2).sum())
    step = -np.linalg.solve(jacobian.T @ jacobian + 0.1 * np.eye(3), jacobian.T @ r)
    np.testing.assert_allclose([a.item(), *b.tolist()], np.array([1.0, -0.5, 0.0]) + step, rtol=1e-8)
    assert opt.param_groups[0]["damping"] == 0.1 * 0.25


def test_levenberg_marquardt_finds_the_truth() -> None:
    a, b = wg.Parameter(np.array(5.0)), wg.Parameter(np.array([-0.3, 3.0]))
    opt, losses = optim.LevenbergMarquardt([a, b]), []
    for _ in range(40):
        losses.append(opt.step(lambda: residuals(a, b)).item())
    np.testing.assert_allclose([a.item(), *b.tolist()], TRUTH, rtol=1e-6)
    assert all(y <= x for x, y in itertools.pairwise(losses))


def test_a_network_is_fitted() -> None:
    wg.manual_seed(0)
    net = wg.nn.Sequential(wg.nn.Linear(1, 8), wg.nn.Tanh(), wg.nn.Linear(8, 1)).double()
    x = wg.linspace(-2.0, 2.0, 40, dtype=wg.float64).reshape((-1, 1))
    opt = optim.LevenbergMarquardt(net.parameters())
    for _ in range(60):
        loss = opt.step(lambda: net(x) - wg.sin(2.0 * x))
    assert loss.item() < 1e-4


def test_states_go_on_where_they_were_taken() -> None:
    def run(resume: bool) -> Any:
        a, b = wg.Parameter(np.array(5.0)), wg.Parameter(np.array([0.5, 3.0]))
        opt = optim.LevenbergMarquardt([a, b])
        for k in range(10):
            if resume and k == 5:
                state = opt.state_dict()
                opt = optim.LevenbergMarquardt([a, b])
                opt.load_state_dict(state)
            opt.step(lambda: residuals(a, b))
        return [a.item(), *b.tolist()]

    assert run(False) == run(True)


@pytest.mark.parametrize("kind", [optim.NewtonCG, optim.LevenbergMarquardt])
def test_what_cannot_be_minimised_is_refused_and_nothing_changes(kind: Any) -> None:
    p, other = wg.Parameter(np.ones(2)), wg.Parameter(np.ones(2))
    opt = kind([p])

    def with_backward() -> Any:
        loss = (p * p).sum()
        loss.backward()
        return loss

    for function, message in [
        (None, "takes a function that computes"),
        (lambda: 3.0, "must return .* got float"),
        (lambda: (other * other).sum(), "does not depend on any of the parameters"),
        (with_backward, r"not call backward\(\)"),
    ]:
        with pytest.raises((wg.ArgumentError, wg.GradientError), match=message):
            opt.step(function)
    with pytest.raises(wg.ArgumentError, match="one group"):
        opt.add_param_group({"params": [other]})
    with pytest.raises(wg.ArgumentError, match=r"call step\(function\)"):
        opt.apply_gradients([(p, wg.ones(2))])
    with pytest.raises(wg.ArgumentError, match="no pure form"):
        kind.init([p])
    for bad in (dict(max_cg=0), dict(cg_tolerance=2.0), dict(lr=-1.0)):
        with pytest.raises(wg.ArgumentError):
            kind([p], **bad)
    assert p.tolist() == [1.0, 1.0]


def softmax_problem() -> tuple[Any, Any, Any]:
    """A hidden layer and three classes: parameters, the function, and its logits as a function of all parameters."""
    w = wg.Parameter(0.5 * RNG.normal(size=(4, 3)))
    v = wg.Parameter(0.5 * RNG.normal(size=(3, 3)))
    x, labels = wg.asarray(RNG.normal(size=(6, 4))), wg.asarray(RNG.integers(0, 3, 6))

    def logits(flat: Any) -> Any:
        return wg.tanh(x @ flat[:12].reshape((4, 3))) @ flat[12:].reshape((3, 3))

    def function() -> Any:
        made = wg.tanh(x @ w) @ v
        return made, wg.cross_entropy(made, labels)

    return (w, v), function, logits


def test_a_natural_gradient_step_beside_the_dense_fisher_matrix() -> None:
    (w, v), function, logits = softmax_problem()
    flat = np.concatenate([w.numpy().ravel(), v.numpy().ravel()])
    z = logits(wg.asarray(flat)).numpy()
    jacobian = wg.jacobian(logits)(wg.asarray(flat)).numpy()  # (6, 3, 21)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    fisher = np.zeros((21, 21))
    for i in range(6):
        for label in range(3):  # E[∇ ln p ∇ ln pᵀ] over what the model itself would draw
            score = (np.eye(3)[label] - p[i]) @ jacobian[i]
            fisher += p[i, label] * np.outer(score, score) / 6
    g = np.concatenate([t.numpy().ravel() for t in wg.grad_of(function()[1], [w, v])])
    expected = flat - 0.7 * np.linalg.solve(fisher + 0.01 * np.eye(21), g)
    opt = optim.NaturalGradient([w, v], lr=0.7, damping=0.01, cg_tolerance=1e-12)
    before = function()[1].item()
    assert opt.step(function).item() == before
    np.testing.assert_allclose(np.concatenate([w.numpy().ravel(), v.numpy().ravel()]), expected, rtol=1e-7, atol=1e-9)
    for _ in range(20):
        opt.step(function)
    assert function()[1].item() < 0.1 * before


def test_a_natural_gradient_step_solves_linear_regression() -> None:
    x, y = RNG.normal(size=(20, 4)), RNG.normal(size=20)
    w = wg.Parameter(np.zeros(4))

    def function() -> Any:
        made = wg.asarray(x) @ w
        return made, wg.mse_loss(made, wg.asarray(y))

    optim.NaturalGradient([w], damping=0.0, cg_tolerance=1e-12).step(function)
    np.testing.assert_allclose(w.numpy(), np.linalg.lstsq(x, y)[0], rtol=1e-7)


def test_natural_gradients_of_bad_functions() -> None:
    w = wg.Parameter([1.0])
    opt = optim.NaturalGradient([w])
    with pytest.raises(wg.ArgumentError, match="the function must return the outputs and the loss, got Tensor"):
        opt.step(lambda: (w * w).sum())
    with pytest.raises(wg.GradientError, match="the loss must be computed of the outputs"):
        opt.step(lambda: (w * 2.0, (w * w).sum()))
    with pytest.raises(wg.ArgumentError, match="takes a function that computes the loss"):
        opt.step()
    with pytest.raises(wg.ArgumentError, match="damping must not be negative, got -1"):
        optim.NaturalGradient([w], damping=-1.0)
