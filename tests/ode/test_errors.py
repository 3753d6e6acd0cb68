"""Bad input: every message says what is wrong, with which numbers, and what helps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg

odeint = wg.ode.odeint


def decay(t: Any, y: Any) -> Any:
    return -y


@pytest.mark.parametrize(
    ("t", "message"),
    [
        ([0.0, 1.0, 0.5], r"rise or fall all the way, got t\[1\] = 1 and then t\[2\] = 0.5"),
        ([0.0, 1.0, 1.0], r"t\[1\] = 1 and then t\[2\] = 1"),
        ([0.0, 0.0], r"t\[0\] = 0 and then t\[1\] = 0"),
        ([0.0, np.nan], "NaN or infinity, at index 1"),
        ([0.0], r"at least two times.*\(1,\)"),
        (1.0, r"at least two times.*got shape \(\)"),
        ([[0.0, 1.0]], r"\(1, 2\)"),
        ([0.0, 1j], "times t must be real"),
    ],
)
def test_times(t: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        odeint(decay, 1.0, t)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rtol": 0.0}, "rtol must be positive, got 0"),
        ({"rtol": -1e-3}, "rtol must be positive, got -0.001"),
        ({"rtol": np.nan}, "rtol must be positive, got nan"),
        ({"atol": 0.0}, "atol must be positive, got 0"),
        ({"atol": [1e-6, -1.0]}, "atol must be positive, got -1"),
        ({"atol": [1e-6, 1e-6, 1e-6]}, r"atol has shape \(3,\), which does not broadcast to \(2,\) of y0"),
        ({"max_steps": 0}, "max_steps must be an integer of at least 1, got 0"),
        ({"checkpoints": 0}, "checkpoints must be an integer of at least 1, got 0"),
        ({"checkpoints": 2.5}, "checkpoints must be an integer of at least 1, got 2.5"),
        ({"step_size": 0.0}, "step_size must be a finite number other than 0, got 0.0"),
        ({"method": "euler"}, "method 'euler' is unknown; there are dopri5, tsit5, bosh3, heun, rk4, rodas5p"),
        ({"method": 5}, "method 5 is unknown"),
        ({"gradient": "adjoint"}, "gradient must be 'discrete' or 'continuous', got 'adjoint'"),
        ({"events": [3]}, r"g must be a function g\(t, y, \*args\), got int"),
    ],
)
def test_options(given: Any, message: str) -> None:
    with pytest.raises(wg.WengertError, match=message):
        odeint(decay, [1.0, 2.0], [0.0, 1.0], **given)


def test_methods_are_found_in_any_case_of_letters() -> None:
    assert odeint(decay, 1.0, [0.0, 1.0], method="Tsit5").stats.steps


def test_directions_of_events() -> None:
    with pytest.raises(wg.ArgumentError, match="direction must be -1, 0 or 1, got 2"):
        wg.ode.Event(lambda t, y: y, direction=2)
    with pytest.raises(wg.ShapeError, match=r"event 0 must return one real number, got float64\(2,\)"):
        odeint(decay, [1.0, 2.0], [0.0, 1.0], events=lambda t, y: y)


@pytest.mark.parametrize(
    ("f", "error", "message"),
    [
        (lambda t, y: None, wg.ArgumentError, "f returned None. Is its `return` missing"),
        (lambda t, y: {"a": y["a"]}, wg.ArgumentError, r"(?s)expected \{'a': \*, 'b': \*\}.*got      \{'a': \*\}"),
        (lambda t, y: y["a"], wg.ArgumentError, "another structure"),
        (lambda t, y: {"a": y["a"][:1], "b": y["b"]}, wg.ShapeError,
         r"f returned float64\(1,\) at leaf 0 of .*, expected float64\(2,\), as in y0"),
        (lambda t, y: {"a": y["a"], "b": y["b"].astype(wg.float32)}, wg.DTypeError,
         r"f returned float32\(\) at leaf 1 of .*, expected float64\(\), as in y0; convert with astype"),
        (lambda t, y: {"a": y["a"], "b": y["b"] * 1j}, wg.DTypeError, r"f returned complex128\(\)"),
    ],
)  # fmt: skip
def test_what_f_returns(f: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        odeint(f, {"a": np.ones(2), "b": 1.0}, [0.0, 1.0])


def test_f_is_a_function() -> None:
    with pytest.raises(wg.ArgumentError, match=r"f must be a function f\(t, y, \*args\), got float"):
        odeint(1.0, 1.0, [0.0, 1.0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("y0", "message"),
    [
        ([], "no numbers in y0"),
        ({}, "no numbers in y0"),
        ([1.0, np.nan], "y0 holds NaN or infinity"),
        (wg.ones(2, dtype=wg.float16), r"y0 is float16\(2,\); use float32 or float64"),
        ([wg.ones(1), wg.ones(1, dtype=wg.complex64)], "real and complex numbers; make all of them complex"),
    ],
)
def test_initial_states(y0: Any, message: str) -> None:
    with pytest.raises(wg.WengertError, match=message):
        odeint(decay, y0, [0.0, 1.0])


def test_steps_that_are_used_up() -> None:
    with pytest.raises(
        wg.SolverError, match=r"max_steps=50 steps of dopri5 were used up at t = .*'rodas5p' needs far fewer"
    ):
        odeint(lambda t, y: [y[1], 1000 * (1 - y[0] ** 2) * y[1] - y[0]], [2.0, 0.0], [0.0, 2000.0], max_steps=50)
    with pytest.raises(wg.SolverError, match=r"(?s)max_steps=3 steps of rodas5p.*to 1. raise max_steps or loosen"):
        odeint(decay, 1.0, [0.0, 1.0], method="rodas5p", max_steps=3, rtol=1e-12)
    with pytest.raises(wg.SolverError, match="max_steps=9 steps of rk4"):
        odeint(decay, 1.0, [0.0, 1.0], method="rk4", step_size=0.1, max_steps=9)


def test_singularities() -> None:
    """y' = y² from 1 is infinite at t = 1."""
    with pytest.raises(
        wg.SolverError, match=r"the step has shrunk to .* at t = 1, .*stiff, .*method='rodas5p', or have a sing"
    ):
        odeint(lambda t, y: y * y, 1.0, [0.0, 2.0])
    with pytest.raises(wg.SolverError, match="may have a singularity there"):
        odeint(lambda t, y: y * y, 1.0, [0.0, 2.0], method="rodas5p")


@pytest.mark.parametrize("method", ["dopri5", "rk4", "rodas5p"])
def test_nan_names_the_time(method: str) -> None:
    with pytest.raises(wg.ArgumentError, match="f gave NaN or infinity at t = 0"):
        odeint(lambda t, y: wg.log(y - 2.0), 1.0, [0.0, 1.0], method=method)
    with pytest.raises(wg.ArgumentError, match=r"f gave NaN or infinity at t = 0\.(4|5)"):
        odeint(lambda t, y: wg.where(t > 0.5, wg.nan, -y), 1.0, [0.0, 1.0], method=method, step_size=0.01)


def test_inside_of_a_compiled_function() -> None:
    with pytest.raises(wg.TraceError, match="chooses its steps by the numbers"):
        wg.compile(lambda y: odeint(decay, y, [0.0, 1.0]).y)(wg.ones(2))


def test_errors_of_f_itself_are_those_of_f() -> None:
    def wrong(t: Any, y: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        odeint(wrong, 1.0, [0.0, 1.0])
