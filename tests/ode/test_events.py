"""Events: when they are, what ends, and derivatives of their times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.finite_differences import gradient, seeds
from tests.tolerances import FIRST_ORDER, SECOND_ORDER, assert_near
from wengert.ode.methods import METHODS

odeint, Event = wg.ode.odeint, wg.ode.Event
TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-12}
G = 9.81


def ball(t: Any, y: Any, g: Any) -> Any:
    return [y[1], -g]


def swing(t: Any, y: Any) -> Any:
    return [y[1], -y[0]]


@pytest.mark.parametrize("method", METHODS)
def test_a_ball_hits_the_ground(method: str) -> None:
    solution = odeint(
        ball, [10.0, 0.0], np.linspace(0.0, 3.0, 13), G, method=method, events=lambda t, y, g: y[0],
        rtol=1e-8, atol=1e-9, step_size=0.05,
    )  # fmt: skip
    fall = np.sqrt(2 * 10.0 / G)
    assert solution.event is not None and solution.event.index == 0
    assert solution.event.t.item() == pytest.approx(fall, rel=1e-6)
    np.testing.assert_allclose(solution.event.y.numpy(), [0.0, -G * fall], rtol=1e-6, atol=1e-6)
    assert solution.t.tolist() == [x for x in np.linspace(0.0, 3.0, 13).tolist() if x <= fall]
    np.testing.assert_allclose(solution.y[:, 0].numpy(), 10.0 - G / 2 * solution.t.numpy() ** 2, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("direction", "expected"), [(0, [0.5, 1.5, 2.5]), (-1, [0.5, 2.5]), (1, [1.5])])
def test_directions(direction: int, expected: list[float]) -> None:
    events = Event(lambda t, y: y[0], direction=direction, terminal=False)
    solution = odeint(swing, [1.0, 0.0], [0.0, 9.0], events=events, **TIGHT)
    np.testing.assert_allclose([e.t.item() for e in solution.events], np.pi * np.array(expected), rtol=1e-9)
    assert solution.event is None and solution.t.shape == (2,)


def test_several_events_in_the_order_of_time_up_to_the_one_that_ends() -> None:
    events = [
        Event(lambda t, y: t - 5.0),
        Event(lambda t, y: y[0], terminal=False),
        Event(lambda t, y: y[0] - 0.1, terminal=False),
    ]
    solution = odeint(swing, [1.0, 0.0], [0.0, 4.0, 20.0], events=events, **TIGHT)
    near = np.arccos(0.1)
    expected = [(2, near), (1, np.pi / 2), (1, 3 * np.pi / 2), (2, 2 * np.pi - near), (0, 5.0)]
    expected = [e for e in expected if e[1] <= 5.0]
    assert [e.index for e in solution.events] == [k for k, _ in expected]
    np.testing.assert_allclose([e.t.item() for e in solution.events], [t for _, t in expected], rtol=1e-9)
    assert solution.event is solution.events[-1] and solution.t.tolist() == [0.0, 4.0]


def test_two_zeros_in_one_step_are_told_apart_by_event() -> None:
    events = [Event(lambda t, y: y - 0.7, terminal=False), Event(lambda t, y: y - 0.65)]
    solution = odeint(lambda t, y: -y, 1.0, [0.0, 5.0], events=events, rtol=1e-3, atol=1e-3, step_size=2.0)
    assert [e.index for e in solution.events] == [0, 1]


def test_backwards_in_time() -> None:
    solution = odeint(swing, [0.0, -1.0], [np.pi / 2, -9.0], events=lambda t, y: y[0] + 1.0 - 1e-3, **TIGHT)
    assert solution.event is not None
    expected = np.arccos(1.0 - 1e-3) - np.pi
    assert solution.event.t.item() == pytest.approx(expected, abs=1e-7)


def test_a_zero_at_the_start_is_no_event() -> None:
    solution = odeint(ball, [0.0, 5.0], [0.0, 3.0], G, events=lambda t, y, g: y[0], **TIGHT)
    assert solution.event is not None and solution.event.t.item() == pytest.approx(10.0 / G, rel=1e-9)


def test_no_event_leaves_the_solution_as_it_is() -> None:
    with_events = odeint(swing, [1.0, 0.0], [0.0, 1.0], events=lambda t, y: y[0] + 5.0)
    without = odeint(swing, [1.0, 0.0], [0.0, 1.0])
    assert with_events.event is None and with_events.events == []
    assert with_events.y.tolist() == without.y.tolist()


# ---------------------------------------------------------------------------------------------------- derivatives


def impact(height: Any, g: Any, **given: Any) -> Any:
    start = wg.stack([height, 0.1 * height])
    return odeint(ball, start, [0.0, 30.0], g, events=lambda t, y, g: y[0], **TIGHT, **given).event


def fall_time(height: float, g: float) -> float:
    v = 0.1 * height
    return float((v + np.sqrt(v * v + 2 * g * height)) / g)


@pytest.mark.parametrize("method", ["dopri5", "tsit5", "rodas5p"])
@pytest.mark.parametrize("adjoint", ["discrete", "continuous"])
def test_derivatives_of_the_time(method: str, adjoint: str) -> None:
    given = {"method": method, "gradient": adjoint}
    xs = [np.array(10.0), np.array(G)]
    found = wg.grad(lambda h, g: impact(h, g, **given).t, argnums=(0, 1))(*map(wg.asarray, xs))
    for g, e in zip(found, gradient(lambda h, g: fall_time(float(h), float(g)), xs)):
        assert_near(g.numpy(), e, FIRST_ORDER)


def test_derivatives_of_the_state_at_the_event() -> None:
    def of(h: Any, g: Any) -> Any:
        return impact(h, g).y[1]

    xs = [np.array(10.0), np.array(G)]
    found = wg.grad(of, argnums=(0, 1))(*map(wg.asarray, xs))
    expected = gradient(lambda h, g: 0.1 * float(h) - float(g) * fall_time(float(h), float(g)), xs)
    for g, e in zip(found, expected):
        assert_near(g.numpy(), e, FIRST_ORDER)


def test_forward_mode_and_second_order() -> None:
    of = lambda h: impact(h, wg.asarray(np.float64(G))).t
    h, one = wg.asarray(np.float64(10.0)), wg.asarray(np.float64(1.0))
    (first,) = gradient(lambda h: fall_time(float(h), G), [np.array(10.0)])
    (second,) = gradient(lambda h: gradient(lambda h: fall_time(float(h), G), [h])[0], [np.array(10.0)])
    assert_near(wg.jvp(of, (h,), (one,))[1].numpy(), first, FIRST_ORDER)
    assert_near(wg.grad(wg.grad(of))(h).numpy(), second, SECOND_ORDER)
    assert_near(wg.hvp(of, h, one).numpy(), second, SECOND_ORDER)


def test_events_that_do_not_end_have_derivatives_too() -> None:
    def of(frequency: Any) -> Any:
        solution = odeint(
            lambda t, y, w: [y[1], -w * w * y[0]], [1.0, 0.0], [0.0, 6.0], frequency,
            events=Event(lambda t, y, w: y[0] - 0.2 * w, terminal=False), **TIGHT,
        )  # fmt: skip
        return sum(e.t * weight for e, weight in zip(solution.events, seeds([(9,)])[0]))

    x = np.array(1.3)
    found = wg.grad(of)(wg.asarray(x))
    assert_near(found.numpy(), gradient(lambda w: of(wg.asarray(w)).item(), [x])[0], FIRST_ORDER)


def test_what_the_function_of_an_event_closes_over() -> None:
    def of(level: Any) -> Any:
        return odeint(lambda t, y: -y, 1.0, [0.0, 5.0], events=lambda t, y: y - level, **TIGHT).event.t

    level = wg.asarray(np.float64(0.3))
    assert wg.grad(of)(level).item() == pytest.approx(-1.0 / 0.3, rel=1e-8)
    assert wg.jvp(of, (level,), (wg.ones_like(level),))[1].item() == pytest.approx(-1.0 / 0.3, rel=1e-8)
