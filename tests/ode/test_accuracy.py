"""Values: orders measured, closed forms, SciPy, stiff systems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import wengert as wg
from wengert.ode.methods import METHODS

odeint = wg.ode.odeint
ADAPTIVE = [name for name, m in METHODS.items() if m.adaptive]
EXPLICIT = [name for name in ADAPTIVE if not METHODS[name].implicit]


def one_step(name: str, y: Any, t: float, h: float) -> Any:
    """A step of y' = y cos t + y² / 8 − exp(2 sin t) / 8, whose solution from y(0) = 1 is exp(sin t)."""

    def flow(t: Any, y: Any) -> Any:
        return y * wg.cos(t) + (y * y - wg.exp(2.0 * wg.sin(t))) / 8.0

    time, length = wg.tensor(t, dtype=wg.float64), wg.tensor(h, dtype=wg.float64)
    method = METHODS[name]
    return method.step(flow, time, length, method.start(flow, time, y))


def exact(t: float) -> float:
    return float(np.exp(np.sin(t)))


@pytest.mark.parametrize("name", METHODS)
def test_global_error_has_the_order_of_the_method(name: str) -> None:
    counts, errors = [8, 16, 32, 64], []
    for n in counts:
        y, h = wg.tensor([1.0], dtype=wg.float64), 1.0 / n
        for k in range(n):
            y = one_step(name, y, k * h, h).carry[0]
        errors.append(abs(y[0].item() - exact(1.0)))
    slope = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert slope == pytest.approx(METHODS[name].order, abs=0.35)


@pytest.mark.parametrize(
    ("name", "order"), [("dopri5", 5), ("tsit5", 5), ("bosh3", 4), ("heun", 3), ("rk4", 4), ("rodas5p", 5)]
)
def test_local_errors_inside_of_a_step(name: str, order: int) -> None:
    lengths, errors = np.array([0.4, 0.2, 0.1, 0.05]), []
    for h in lengths:
        states = one_step(name, wg.tensor([exact(0.3)], dtype=wg.float64), 0.3, h).dense(
            wg.asarray(np.array([0.21, 0.6, 0.85]))
        )
        expected = [exact(0.3 + theta * h) for theta in (0.21, 0.6, 0.85)]
        errors.append(np.abs(states[:, 0].numpy() - expected).max())
    assert np.polyfit(np.log(lengths), np.log(errors), 1)[0] > order - 0.35


@pytest.mark.parametrize("name", METHODS)
def test_dense_output_meets_both_ends(name: str) -> None:
    y = wg.tensor([0.7], dtype=wg.float64)
    step = one_step(name, y, 0.4, 0.3)
    ends = step.dense(wg.asarray(np.array([0.0, 1.0])))
    np.testing.assert_allclose(ends[:, 0].numpy(), [0.7, step.carry[0][0].item()], rtol=1e-13)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_the_error_estimate_has_the_order_of_the_embedded_method(name: str) -> None:
    lengths = np.array([0.2, 0.1, 0.05, 0.025])
    start = wg.tensor([exact(0.3)], dtype=wg.float64)
    sizes = [abs(one_step(name, start, 0.3, h).error[0].item()) for h in lengths]
    slope = np.polyfit(np.log(lengths), np.log(sizes), 1)[0]
    assert slope == pytest.approx(METHODS[name].error_order + 1, abs=0.5)


def lotka_volterra(t: Any, y: Any, p: Any) -> Any:
    u, v = y[0], y[1]
    return [p[0] * u - p[1] * u * v, p[2] * u * v - p[3] * v]


RATES = np.array([1.0, 0.5, 0.3, 0.7])


def reference(f: Any, y0: Any, t: Any, **options: Any) -> Any:
    found = solve_ivp(f, (t[0], t[-1]), y0, t_eval=t, rtol=1e-12, atol=1e-13, method="DOP853", **options)
    assert found.success
    return found.y.T


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("name", ADAPTIVE)
def test_adaptive_methods_against_scipy(name: str, tolerance: float) -> None:
    if name == "heun" and tolerance < 1e-6:
        pytest.skip("a method of second order takes half a million steps for that")
    t = np.linspace(0.0, 8.0, 23)
    expected = reference(lambda t, y: lotka_volterra(t, y, RATES), [1.0, 2.0], t)
    found = odeint(lotka_volterra, [1.0, 2.0], t, RATES, method=name, rtol=tolerance, atol=tolerance)
    error = np.abs(found.y.numpy() - expected).max()
    # Errors of steps add up, and grow along the orbit; dense output is as good as the steps.
    assert error < 300.0 * tolerance
    assert found.stats.steps >= 5 and found.stats.evaluations > found.stats.steps


@pytest.mark.parametrize("name", METHODS)
def test_backwards_in_time(name: str) -> None:
    t = np.array([3.0, 2.2, 1.0, -1.0])
    found = odeint(lambda t, y: y * wg.cos(t), exact(3.0), t, method=name, rtol=1e-7, atol=1e-9, step_size=0.01)
    np.testing.assert_allclose(found.y.numpy(), [exact(x) for x in t], rtol=2e-5)
    assert found.y.dtype == wg.float64 and found.t.tolist() == t.tolist()


def test_there_and_back_again() -> None:
    start, p = np.array([1.0, 2.0]), RATES
    there = odeint(lotka_volterra, start, [0.0, 5.0], p, rtol=1e-11, atol=1e-11).y[-1]
    back = odeint(lotka_volterra, there, [5.0, 0.0], p, rtol=1e-11, atol=1e-11).y[-1]
    np.testing.assert_allclose(back.numpy(), [1.0, 2.0], rtol=1e-8)


@pytest.mark.parametrize("name", METHODS)
def test_trees_of_any_form(name: str) -> None:
    y0 = {"angle": np.array([[1.0], [0.5]]), "rest": (2.0, [0.3])}

    def f(t: Any, y: Any, rates: Any) -> Any:
        return {"rest": (-rates[0] * y["rest"][0], [rates[1] * y["rest"][1][0]]), "angle": -y["angle"]}

    y = odeint(f, y0, [0.0, 0.5, 1.0], (2.0, 0.4), method=name, step_size=0.01, rtol=1e-8, atol=1e-10).y
    assert y["angle"].shape == (3, 2, 1) and y["rest"][0].shape == (3,) and y["rest"][1][0].shape == (3,)
    times = np.array([0.0, 0.5, 1.0])
    np.testing.assert_allclose(y["angle"][:, 1, 0].numpy(), 0.5 * np.exp(-times), rtol=2e-5)
    np.testing.assert_allclose(y["rest"][0].numpy(), 2.0 * np.exp(-2.0 * times), rtol=2e-5)
    np.testing.assert_allclose(y["rest"][1][0].numpy(), 0.3 * np.exp(0.4 * times), rtol=2e-5)


def test_leaves_keep_their_dtypes() -> None:
    y0 = {"a": wg.tensor([1.0]), "b": wg.tensor([1.0], dtype=wg.float64)}
    y = odeint(lambda t, y: {"a": -y["a"], "b": -y["b"]}, y0, [0.0, 1.0]).y
    assert y["a"].dtype == wg.float32 and y["b"].dtype == wg.float64
    np.testing.assert_allclose(y["b"][-1].numpy(), np.exp(-1.0), rtol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_single_precision(name: str) -> None:
    found = odeint(lambda t, y: -y * t, wg.tensor([1.0, 2.0]), [0.0, 1.0, 2.0], method=name, step_size=0.02)
    assert found.y.dtype == wg.float32 and found.t.dtype == wg.float32
    np.testing.assert_allclose(found.y[-1].numpy(), np.exp(-2.0) * np.array([1.0, 2.0]), rtol=2e-3)


@pytest.mark.parametrize("name", METHODS)
def test_complex_states(name: str) -> None:
    found = odeint(lambda t, y: (1j - 0.1) * y, wg.tensor([1.0 + 1.0j], dtype=wg.complex128), [0.0, 2.0],
                   method=name, rtol=1e-7, atol=1e-9, step_size=0.01)  # fmt: skip
    np.testing.assert_allclose(found.y[-1].numpy(), (1 + 1j) * np.exp((1j - 0.1) * 2.0), rtol=1e-4)


def test_rk4_takes_one_step_between_times_unless_told_otherwise() -> None:
    t = np.linspace(0.0, 1.0, 11)
    coarse = odeint(lambda t, y: -y, 1.0, t, method="rk4")
    fine = odeint(lambda t, y: -y, 1.0, t, method="rk4", step_size=0.03)
    assert (coarse.stats.steps, fine.stats.steps) == (10, 40)
    errors = [abs(s.y[-1].item() - np.exp(-1.0)) for s in (coarse, fine)]
    assert errors[1] < errors[0] / 200


def test_evaluations_are_counted() -> None:
    calls = []

    def f(t: Any, y: Any) -> Any:
        calls.append(float(y[0].detach()))  # looks at a number, so it is called as it is
        return -y

    for name in [*EXPLICIT, "rk4"]:
        calls.clear()
        found = odeint(f, wg.ones(2), [0.0, 0.5, 1.0], method=name, step_size=0.1)
        # One call more tells whether anything is to be differentiated.
        assert abs(len(calls) - 1 - found.stats.evaluations) <= 1


# ------------------------------------------------------------------------------------------------------- stiff systems


def van_der_pol(t: Any, y: Any, mu: Any) -> Any:
    return [y[1], mu * (1.0 - y[0] * y[0]) * y[1] - y[0]]


def robertson(t: Any, y: Any) -> Any:
    a, b, c = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] * y[1]
    return [b - a, a - b - c, c]


def test_van_der_pol() -> None:
    t = np.array([0.0, 500.0, 1000.0, 2000.0])
    found = odeint(van_der_pol, [2.0, 0.0], t, 1000.0, method="rodas5p", rtol=1e-7, atol=1e-9)
    peer = solve_ivp(
        lambda t, y: van_der_pol(t, y, 1000.0),
        (0.0, 2000.0),
        [2.0, 0.0],
        method="Radau",
        t_eval=t,
        rtol=1e-10,
        atol=1e-12,
    )
    np.testing.assert_allclose(found.y[:, 0].numpy(), peer.y[0], rtol=1e-5)
    assert found.stats.steps + found.stats.rejected < 1500


def test_robertson() -> None:
    t = np.array([0.0, 0.4, 40.0, 4e3, 4e5, 4e7])
    found = odeint(robertson, [1.0, 0.0, 0.0], t, method="rodas5p", rtol=1e-8, atol=[1e-10, 1e-14, 1e-10])
    peer = solve_ivp(
        robertson, (0.0, 4e7), [1.0, 0.0, 0.0], method="Radau", t_eval=t, rtol=1e-10, atol=[1e-12, 1e-16, 1e-12]
    )
    np.testing.assert_allclose(found.y.numpy(), peer.y.T, rtol=2e-6, atol=1e-12)
    np.testing.assert_allclose(found.y.numpy().sum(axis=1), 1.0, rtol=1e-10)  # mass is kept
    assert found.stats.steps < 600


def test_l_stability() -> None:
    """One step of any length damps what is infinitely stiff."""
    y = wg.tensor([1.0], dtype=wg.float64)
    rate, h = wg.tensor(-1e8, dtype=wg.float64), wg.tensor(1.0, dtype=wg.float64)
    step = METHODS["rodas5p"].step(lambda t, y: rate * y, h * 0.0, h, (y,))
    assert abs(step.carry[0][0].item()) < 1e-6


def test_many_numbers() -> None:
    """Heat in a bar."""
    n = 21
    x = np.linspace(0.0, 1.0, n + 2)[1:-1]
    scale = float((n + 1) ** 2)

    def f(t: Any, u: Any) -> Any:
        padded = wg.pad(u, ((1, 1),))
        return scale * (padded[2:] - 2.0 * u + padded[:-2])

    u = odeint(f, np.sin(np.pi * x), [0.0, 0.1], method="rodas5p", rtol=1e-8, atol=1e-10).y[-1]
    rate = 2.0 * scale * (1.0 - np.cos(np.pi / (n + 1)))
    np.testing.assert_allclose(u.numpy(), np.sin(np.pi * x) * np.exp(-0.1 * rate), rtol=1e-6)
