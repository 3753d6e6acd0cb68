"""Derivatives of solutions: both modes, both adjoints, second order, by everything that they depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import directional, gradient, seeds
from tests.tolerances import AGREEMENT, FIRST_ORDER, SECOND_ORDER, assert_near
from wengert.ode.methods import METHODS

odeint = wg.ode.odeint
TIMES = np.array([0.1, 0.4, 0.9, 1.3])
START, RATES = np.array([1.0, 0.6]), np.array([0.9, 0.5, 0.7])
WEIGHTS = wg.asarray(seeds([(4, 2)])[0])
# Finite differences see the steps change with the parameters: the tolerance is far below what is compared.
TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-12}
FAST = [name for name in METHODS if METHODS[name].order >= 4]


def f(t: Any, y: Any, p: Any) -> Any:
    return wg.stack([p[0] * y[1] - wg.sin(t) * y[0], -p[1] * y[0] * y[1] + p[2]])


def options(method: str) -> dict[str, Any]:
    return {"method": method, "step_size": 0.11} if method == "rk4" else {"method": method, **TIGHT}


def loss(y0: Any, p: Any, t: Any, **given: Any) -> Any:
    return (odeint(f, y0, t, p, **given).y * WEIGHTS).sum()


def numeric(**given: Any) -> Any:
    return lambda *xs: loss(*(wg.asarray(x) for x in xs), **given).item()


@pytest.mark.parametrize("method", FAST)
def test_reverse_mode_by_state_parameters_and_times(method: str) -> None:
    given = options(method)
    found = wg.grad(lambda *xs: loss(*xs, **given), argnums=(0, 1, 2))(*map(wg.asarray, (START, RATES, TIMES)))
    expected = gradient(numeric(**given), (START, RATES, TIMES))
    for g, e in zip(found, expected):
        assert_near(g.numpy(), e, FIRST_ORDER)


@pytest.mark.parametrize("method", FAST)
def test_forward_mode_agrees_with_reverse(method: str) -> None:
    given, xs = options(method), (START, RATES, TIMES)
    tangents = seeds([x.shape for x in xs], 3)
    _, slope = wg.jvp(lambda *xs: loss(*xs, **given), tuple(map(wg.asarray, xs)), tuple(map(wg.asarray, tangents)))
    gradients = wg.grad(lambda *xs: loss(*xs, **given), argnums=(0, 1, 2))(*map(wg.asarray, xs))
    assert slope.item() == pytest.approx(
        sum((g * wg.asarray(d)).sum().item() for g, d in zip(gradients, tangents)), rel=AGREEMENT
    )
    assert_near(slope.numpy(), directional(numeric(**given), xs, tangents), FIRST_ORDER)


def test_discrete_is_exact_at_loose_tolerances() -> None:
    """The derivative of the numbers that were computed: with steps that are always the same, however wrong."""
    given = {"method": "rk4", "step_size": 0.5}
    found = wg.grad(lambda p: loss(wg.asarray(START), p, wg.asarray(TIMES), **given))(wg.asarray(RATES))
    (expected,) = gradient(lambda p: numeric(**given)(START, p, TIMES), (RATES,))
    assert_near(found.numpy(), expected, FIRST_ORDER)


@pytest.mark.parametrize("method", FAST)
def test_second_order_in_every_nesting(method: str) -> None:
    given = options(method)

    def of(p: Any) -> Any:
        return loss(wg.asarray(START), p, wg.asarray(TIMES), **given)

    p, v, w = wg.asarray(RATES), *(wg.asarray(seeds([(3,)], k)[0]) for k in (1, 2))
    found = {
        "reverse over reverse": (wg.grad(lambda p: (wg.grad(of)(p) * v).sum())(p) * w).sum(),
        "forward over reverse": (wg.hvp(of, p, v) * w).sum(),
        "reverse over forward": (wg.grad(lambda p: wg.jvp(of, (p,), (v,))[1])(p) * w).sum(),
        "forward over forward": wg.jvp(lambda p: wg.jvp(of, (p,), (v,))[1], (p,), (w,))[1],
    }
    slope = lambda p: (wg.grad(of)(wg.asarray(p)) * v).sum().item()
    expected = directional(slope, (RATES,), (w.numpy(),))
    for name, value in found.items():
        assert_near(value.numpy(), expected, SECOND_ORDER, name)
    values = [x.item() for x in found.values()]
    np.testing.assert_allclose(values, values[0], rtol=1e-9)


@pytest.mark.parametrize("kept", [1, 2, 5, 1000, None])
def test_any_number_of_checkpoints_gives_the_same(kept: int | None) -> None:
    def of(y0: Any, p: Any, t: Any) -> Any:
        return loss(y0, p, t, rtol=1e-9, checkpoints=kept)

    xs = tuple(map(wg.asarray, (START, RATES, TIMES)))
    pushed = [
        wg.jvp(lambda p: of(xs[0], p, xs[2]), (xs[1],), (wg.eye(3, dtype=wg.float64)[k],))[1].item() for k in range(3)
    ]
    np.testing.assert_allclose(wg.grad(of, argnums=1)(*xs).numpy(), pushed, rtol=1e-11)


def test_memory_does_not_grow_with_the_work_of_the_steps() -> None:
    """A wide right-hand side over hundreds of steps: what is held at once is that of a few."""
    rng = np.random.default_rng(0)
    w = wg.asarray(rng.standard_normal((64, 64)) / 8.0)

    def wide(t: Any, y: Any, w: Any) -> Any:
        h = y
        for _ in range(4):
            h = wg.tanh(h @ w)
        return h - y

    def used(**given: Any) -> tuple[int, int]:
        y = wg.asarray(rng.standard_normal((16, 64)))
        wg.reset_peak()
        before = wg.memory_stats().live_bytes
        solution = odeint(wide, y.requires_grad_(), [0.0, 8.0], w, method="rk4", **given)
        (solution.y[-1] ** 2).sum().backward()
        return wg.memory_stats().peak_bytes - before, solution.stats.steps

    used(step_size=0.5)  # compiles
    few, n_few = used(step_size=0.08)
    many, n_many = used(step_size=0.005)
    assert n_many == 16 * n_few
    assert many < 6 * few  # √16 = 4 times as much, and what every solution needs
    whole, _ = used(step_size=0.005, checkpoints=1)  # all steps recorded at once
    assert many < whole / 5
    assert used(step_size=0.005, checkpoints=n_many)[0] < whole / 5  # one step at a time, all carries kept


# -------------------------------------------------------------------------------------- what f closes over, what it is


def test_closures_over_what_is_differentiated() -> None:
    def closed(p: Any) -> Any:
        solution = odeint(lambda t, y: f(t, y, p), START, TIMES, **TIGHT)
        return (solution.y * WEIGHTS).sum()

    p, v = wg.asarray(RATES), wg.asarray(seeds([(3,)])[0])
    given = wg.grad(lambda p: loss(wg.asarray(START), p, wg.asarray(TIMES), **TIGHT))(p).numpy()
    np.testing.assert_allclose(wg.grad(closed)(p).numpy(), given, rtol=1e-12)
    assert wg.jvp(closed, (p,), (v,))[1].item() == pytest.approx(float(given @ v.numpy()), rel=AGREEMENT)
    np.testing.assert_allclose(
        wg.hvp(closed, p, v).numpy(), wg.grad(lambda p: (wg.grad(closed)(p) * v).sum())(p).numpy(), rtol=1e-9
    )
    with wg.GradientTape() as tape:
        value = closed(p)
    np.testing.assert_allclose(tape.gradient(value, p).numpy(), given, rtol=1e-12)


def test_parameters_of_a_module() -> None:
    wg.manual_seed(0)
    net = wg.nn.Sequential(wg.nn.Linear(2, 6), wg.nn.Tanh(), wg.nn.Linear(6, 2))
    start = wg.tensor([0.3, -0.2])
    solved = odeint(lambda t, y: net(y), start, [0.0, 1.0], method="rk4", step_size=0.1).y[-1]
    grads = (solved * wg.tensor([1.0, -2.0])).sum().backward()
    y = start
    for _ in range(10):
        k1 = net(y)
        k2 = net(y + 0.05 * k1)
        k3 = net(y + 0.05 * k2)
        k4 = net(y + 0.1 * k3)
        y = y + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    by_hand = (y * wg.tensor([1.0, -2.0])).sum().backward()
    for p in net.parameters():
        np.testing.assert_allclose(grads[p].numpy(), by_hand[p].numpy(), rtol=2e-4, atol=1e-6)


def test_functions_that_branch_on_numbers_are_differentiated_too() -> None:
    def branching(t: Any, y: Any, p: Any) -> Any:
        return f(t, y, p) if float(y[0].detach()) > -10.0 else y

    def of(p: Any) -> Any:
        return (odeint(branching, START, TIMES, p, **TIGHT).y * WEIGHTS).sum()

    p, v = wg.asarray(RATES), wg.asarray(seeds([(3,)])[0])
    expected = wg.grad(lambda p: loss(wg.asarray(START), p, wg.asarray(TIMES), **TIGHT))(p)
    np.testing.assert_allclose(wg.grad(of)(p).numpy(), expected.numpy(), rtol=1e-9)
    assert wg.jvp(of, (p,), (v,))[1].item() == pytest.approx((expected * v).sum().item(), rel=1e-9)


def test_functions_that_are_not_traced_and_do_not_depend_on_the_state() -> None:
    def constant(t: Any, y: Any) -> Any:
        return wg.asarray(START) if float(t.detach()) >= 0.0 else -wg.asarray(START)

    of = lambda y0, end: odeint(constant, y0, wg.stack([end * 0.0, end])).y[-1, 0]
    xs = wg.asarray(START), wg.asarray(np.float64(0.7))
    by_state, by_time = wg.grad(of, argnums=(0, 1))(*xs)
    np.testing.assert_allclose(by_state.numpy(), [1.0, 0.0])
    assert by_time.item() == pytest.approx(START[0])


def test_trees_of_parameters_and_states() -> None:
    def of(params: Any, y0: Any) -> Any:
        def slope(t: Any, y: Any, params: Any) -> Any:
            return {"x": y["v"], "v": -params["k"] * y["x"] - params["c"][0] * y["v"]}

        y = odeint(slope, y0, [0.0, 0.7, 1.5], params, **TIGHT).y
        return (y["x"] ** 2).sum() + y["v"][1]

    params = {"k": wg.asarray(np.float64(2.0)), "c": [wg.asarray(np.float64(0.3))]}
    y0 = {"x": wg.asarray(np.float64(1.0)), "v": wg.asarray(np.float64(0.2))}
    by_params, by_state = wg.grad(of, argnums=(0, 1))(params, y0)

    def flat(k: Any, c: Any, x: Any, v: Any) -> float:
        as_tensor = lambda a: wg.asarray(np.asarray(a, np.float64))
        return of({"k": as_tensor(k), "c": [as_tensor(c)]}, {"x": as_tensor(x), "v": as_tensor(v)}).item()

    expected = gradient(flat, [np.array(z) for z in (2.0, 0.3, 1.0, 0.2)])
    found = [by_params["k"], by_params["c"][0], by_state["x"], by_state["v"]]
    for g, e in zip(found, expected):
        assert_near(g.numpy(), e, FIRST_ORDER)


def test_integers_among_the_parameters() -> None:
    index = wg.tensor([1, 0])
    y = odeint(lambda t, y, p, i: -p * y[i], START, [0.0, 1.0], wg.asarray(RATES[:1]).requires_grad_(), index).y
    assert y.sum().backward() is not None


def test_complex_parameters() -> None:
    def of(re: Any, im: Any) -> Any:
        y = odeint(lambda t, y: (re + 1j * im) * y, wg.tensor([1.0 + 0.5j], dtype=wg.complex128), [0.0, 0.8], **TIGHT).y
        return wg.real(y[-1] * (0.3 - 0.8j)).sum()

    xs = [np.array(-0.3), np.array(1.7)]
    found = wg.grad(of, argnums=(0, 1))(*map(wg.asarray, xs))
    for g, e in zip(found, gradient(lambda *xs: of(*map(wg.asarray, xs)).item(), xs)):
        assert_near(g.numpy(), e, FIRST_ORDER)


def test_single_precision_gradients() -> None:
    def of(p: Any) -> Any:
        y = odeint(f, wg.tensor(START, dtype=p.dtype), TIMES, p).y
        return (y * WEIGHTS.astype(p.dtype)).sum()

    narrow, wide = (wg.grad(of)(wg.tensor(RATES, dtype=d)).numpy() for d in (wg.float32, wg.float64))
    np.testing.assert_allclose(narrow, wide, rtol=2e-3)


def test_the_stiff_method_through_a_stiff_system() -> None:
    def of(rates: Any) -> Any:
        def robertson(t: Any, y: Any, k: Any) -> Any:
            a, b, c = k[0] * y[0], 1e4 * k[1] * y[1] * y[2], 3e7 * k[2] * y[1] * y[1]
            return [b - a, a - b - c, c]

        given = {"method": "rodas5p", "rtol": 1e-10, "atol": [1e-12, 1e-16, 1e-12]}
        return odeint(robertson, [1.0, 0.0, 0.0], [0.0, 40.0], rates, **given).y[-1, 2]

    rates = np.array([0.04, 1.0, 1.0])
    found = wg.grad(of)(wg.asarray(rates)).numpy()
    steps = [1e-6, 1e-4, 1e-4]
    for k, h in enumerate(steps):
        e = np.zeros(3)
        e[k] = h
        slope = (of(wg.asarray(rates + e)).item() - of(wg.asarray(rates - e)).item()) / (2 * h)
        assert found[k] == pytest.approx(slope, rel=1e-4)


# --------------------------------------------------------------------------------------------- the continuous adjoint


@pytest.mark.parametrize("method", FAST)
def test_continuous_adjoint_by_state_parameters_and_times(method: str) -> None:
    given = {**options(method), "gradient": "continuous"}
    if method == "rk4":
        given["step_size"] = 0.002  # what is differentiated is the equation: its steps must be small
    found = wg.grad(lambda *xs: loss(*xs, **given), argnums=(0, 1, 2))(*map(wg.asarray, (START, RATES, TIMES)))
    expected = gradient(numeric(**options("dopri5")), (START, RATES, TIMES))
    for g, e in zip(found, expected):
        assert_near(g.numpy(), e, 1e-6 if method == "rk4" else FIRST_ORDER)


def test_continuous_and_discrete_meet_as_the_tolerance_falls() -> None:
    def by_parameters(adjoint: str, tolerance: float) -> Any:
        of = lambda p: loss(wg.asarray(START), p, wg.asarray(TIMES), rtol=tolerance, atol=tolerance, gradient=adjoint)
        return wg.grad(of)(wg.asarray(RATES)).numpy()

    gaps = [
        np.abs(by_parameters("continuous", tol) - by_parameters("discrete", tol)).max() for tol in (1e-4, 1e-7, 1e-10)
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-8


def test_continuous_second_order_and_forward_mode() -> None:
    def of(p: Any, adjoint: str = "continuous") -> Any:
        return loss(wg.asarray(START), p, wg.asarray(TIMES), gradient=adjoint, **TIGHT)

    p, v = wg.asarray(RATES), wg.asarray(seeds([(3,)])[0])
    exact = wg.hvp(lambda p: of(p, "discrete"), p, v).numpy()
    assert_near(wg.hvp(of, p, v).numpy(), exact, SECOND_ORDER)
    assert_near(wg.grad(lambda p: (wg.grad(of)(p) * v).sum())(p).numpy(), exact, SECOND_ORDER)
    assert wg.jvp(of, (p,), (v,))[1].item() == pytest.approx((wg.grad(of)(p) * v).sum().item(), rel=1e-7)


def test_continuous_over_what_f_closes_over_and_backwards_in_time() -> None:
    def of(p: Any, adjoint: str) -> Any:
        y = odeint(lambda t, y: f(t, y, p), START, TIMES[::-1].copy(), gradient=adjoint, **TIGHT).y
        return (y * WEIGHTS).sum()

    p = wg.asarray(RATES)
    discrete, continuous = (wg.grad(lambda p: of(p, adjoint))(p).numpy() for adjoint in ("discrete", "continuous"))
    np.testing.assert_allclose(continuous, discrete, rtol=1e-7)


def test_continuous_with_complex_states_and_real_parameters() -> None:
    def of(re: Any, im: Any, adjoint: str) -> Any:
        given = {**TIGHT, "gradient": adjoint}
        y = odeint(lambda t, y: (re + 1j * im) * y, wg.tensor([1.0 + 0.5j], dtype=wg.complex128), [0.0, 0.8], **given).y
        return wg.real(y[-1] * (0.3 - 0.8j)).sum()

    xs = [wg.asarray(np.float64(x)) for x in (-0.3, 1.7)]
    discrete, continuous = (
        wg.grad(lambda a, b: of(a, b, adjoint), argnums=(0, 1))(*xs) for adjoint in ("discrete", "continuous")
    )
    for a, b in zip(discrete, continuous):
        assert a.item() == pytest.approx(b.item(), rel=1e-7)


def test_continuous_refuses_what_it_cannot_trace() -> None:
    with pytest.raises(wg.TraceError, match="gradient='discrete' takes it as it is"):
        odeint(lambda t, y: -y if float(y) > 0 else y, 1.0, [0.0, 1.0], gradient="continuous")
