"""Differential equations beside torchdiffeq and Diffrax: values, both adjoints, events, single steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import seeds
from wengert.ode.methods import METHODS

START, RATES, TIMES = np.array([1.0, 0.6]), np.array([0.9, 0.5, 0.7]), np.array([0.1, 0.4, 0.9, 1.3])
WEIGHTS = seeds([(4, 2)])[0]
TIGHT = {"rtol": 1e-11, "atol": 1e-12}


def slope(stack: Any, sin: Any) -> Any:
    return lambda t, y, p: stack([p[0] * y[1] - sin(t) * y[0], -p[1] * y[0] * y[1] + p[2]])


@pytest.mark.parametrize("adjoint", ["discrete", "continuous"])
def test_torchdiffeq(adjoint: str) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
    torchdiffeq: Any = pytest.importorskip("torchdiffeq", reason="torchdiffeq is not installed: make peers")
    f, g = slope(wg.stack, wg.sin), slope(torch.stack, torch.sin)

    def ours(y0: Any, p: Any, t: Any) -> Any:
        return (wg.ode.odeint(f, y0, t, p, gradient=adjoint, **TIGHT).y * wg.asarray(WEIGHTS)).sum()

    xs = [torch.tensor(x, requires_grad=True) for x in (START, RATES, TIMES)]
    solve = torchdiffeq.odeint if adjoint == "discrete" else torchdiffeq.odeint_adjoint
    more = {} if adjoint == "discrete" else {"adjoint_params": (xs[1],)}
    theirs = (solve(lambda t, y: g(t, y, xs[1]), xs[0], xs[2], **TIGHT, **more) * torch.tensor(WEIGHTS)).sum()
    given = tuple(map(wg.asarray, (START, RATES, TIMES)))
    assert ours(*given).item() == pytest.approx(theirs.item(), rel=1e-9)
    expected = torch.autograd.grad(theirs, xs)
    for a, b in zip(wg.grad(ours, argnums=(0, 1, 2))(*given), expected):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-7, atol=1e-8)


def test_event_times_of_torchdiffeq() -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make peers")
    torchdiffeq: Any = pytest.importorskip("torchdiffeq", reason="torchdiffeq is not installed: make peers")
    height = torch.tensor(10.0, dtype=torch.float64, requires_grad=True)
    time, _ = torchdiffeq.odeint_event(
        lambda t, y: torch.stack([y[1], -9.81 - 0.1 * y[1]]), torch.stack([height, height * 0.1]),
        torch.tensor(0.0, dtype=torch.float64), event_fn=lambda t, y: y[0], odeint_interface=torchdiffeq.odeint, **TIGHT,
    )  # fmt: skip

    def ours(height: Any) -> Any:
        start = wg.stack([height, height * 0.1])
        f = lambda t, y: [y[1], -9.81 - 0.1 * y[1]]
        return wg.ode.odeint(f, start, [0.0, 20.0], events=lambda t, y: y[0], **TIGHT).event.t

    value, by_height = wg.value_and_grad(ours)(wg.tensor(10.0, dtype=wg.float64))
    assert value.item() == pytest.approx(time.item(), rel=1e-8)
    assert by_height.item() == pytest.approx(torch.autograd.grad(time, height)[0].item(), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "solver"), [("dopri5", "Dopri5"), ("tsit5", "Tsit5"), ("bosh3", "Bosh3"), ("heun", "Heun")]
)
def test_single_steps_of_diffrax(name: str, solver: str) -> None:
    jax: Any = pytest.importorskip("jax", reason="JAX is not installed: make peers")
    diffrax: Any = pytest.importorskip("diffrax", reason="Diffrax is not installed: make peers")
    with jax.enable_x64(True):
        f, peer = slope(jax.numpy.stack, jax.numpy.sin), getattr(diffrax, solver)()
        term, rates = diffrax.ODETerm(f), jax.numpy.asarray(RATES)
        y0 = jax.numpy.asarray(START)
        state = peer.init(term, 0.2, 0.5, y0, rates)
        y1, error, dense, _, _ = peer.step(term, 0.2, 0.5, y0, rates, state, made_jump=False)
        inside = peer.interpolation_cls(t0=0.2, t1=0.5, **dense).evaluate(0.3)
        expected = [np.asarray(x) for x in (y1, error, inside)]
    g, method = slope(wg.stack, wg.sin), METHODS[name]
    flow = lambda t, y: g(t, y, wg.asarray(RATES))
    t, h = wg.tensor(0.2, dtype=wg.float64), wg.tensor(0.3, dtype=wg.float64)
    step = method.step(flow, t, h, method.start(flow, t, wg.asarray(START)))
    np.testing.assert_allclose(step.carry[0].numpy(), expected[0], rtol=1e-14)
    if name != "dopri5":  # there Diffrax has Shampine's embedded method, and we Dormand and Prince's, as SciPy does
        np.testing.assert_allclose(np.abs(step.error.numpy()), np.abs(expected[1]), rtol=1e-7, atol=1e-17)
    if name in ("tsit5", "bosh3"):  # the others interpolate otherwise
        inside = step.dense(wg.asarray(np.array([1 / 3])))
        np.testing.assert_allclose(inside[0].numpy(), expected[2], rtol=1e-12)
