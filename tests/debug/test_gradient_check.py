"""The gradient checker on programs of which the verdict is known."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.debug.faults.lines import line_at_fault
from tests.debug.gradient_programs import KINKS, NOISY, OTHERS, WRONG


@pytest.mark.parametrize(("name", "f", "inputs"), WRONG, ids=[p[0] for p in WRONG])
def test_wrong_rules_are_bugs(name: str, f: Any, inputs: Any) -> None:
    report = wg.check_gradients(f, *inputs)
    assert report.verdict == "bug" and not report, report


@pytest.mark.parametrize(("name", "f", "inputs"), KINKS, ids=[p[0] for p in KINKS])
def test_kinks_are_no_bugs(name: str, f: Any, inputs: Any) -> None:
    report = wg.check_gradients(f, *inputs)
    assert report.verdict == "kink", report


@pytest.mark.parametrize(("name", "f", "inputs"), NOISY, ids=[p[0] for p in NOISY])
def test_noise_is_neither(name: str, f: Any, inputs: Any) -> None:
    report = wg.check_gradients(f, *inputs)
    assert report.verdict == "noise" and not report.is_valid, report


def test_there_are_sixty_programs() -> None:
    assert min(len(WRONG), len(KINKS), len(NOISY)) >= 20


@pytest.mark.parametrize(("name", "f", "inputs", "verdict"), OTHERS, ids=[p[0] for p in OTHERS])
def test_what_only_looks_wrong(name: str, f: Any, inputs: Any, verdict: str) -> None:
    report = wg.check_gradients(f, *inputs)
    assert report.verdict == verdict and report.is_valid == (verdict == "ok"), report


def test_reports_say_where_and_by_how_much() -> None:
    @wg.custom_op
    def cube(x: Any) -> Any:
        return x * x * x

    @cube.defvjp
    def _(y_bar: Any, y: Any, x: Any) -> Any:
        return y_bar * wg.where(wg.asarray(np.arange(6).reshape(2, 3) == 4), 1.0, 3.0 * x * x)

    x = wg.tensor(np.linspace(0.5, 2.0, 6).reshape(2, 3))
    report = wg.check_gradients(lambda p: cube(p["w"]).sum(), {"w": x})
    assert report.verdict == "bug" and report.worst_index == (1, 1) and report.worst_input == "input 0['w']"
    worst = report.worst
    assert worst is not None and worst.analytic == 1.0
    assert abs(worst.numerical - 3 * x[1, 1].item() ** 2) <= worst.error_bar < 1e-6
    assert abs(report.max_error - (3 * x[1, 1].item() ** 2 - 1)) < 1e-6
    assert "input 0['w'][1, 1]" in str(report) and "[1, 1]" in report._repr_html_()


def test_the_output_that_is_wrong_is_named() -> None:
    @wg.custom_op
    def pair(x: Any) -> Any:
        return x * 2.0, wg.sin(x)

    @pair.defjvp
    def _(x_dot: Any, y: Any, z: Any, x: Any) -> Any:
        return 2.0 * x_dot, x_dot * wg.where(wg.asarray([True, True, False]), wg.cos(x), 0.5)

    report = wg.check_gradients(pair, wg.tensor([0.1, 0.2, 0.3], dtype=wg.float64))
    assert report.worst is not None and report.worst.output == "output 1[2]" and report.worst_index == (2,)


def test_every_element_is_compared_on_request() -> None:
    x = wg.tensor([0.5, 1.0, 1.5], dtype=wg.float64)
    report = wg.check_gradients(lambda x: wg.cumsum(x * x, axis=0), x, full=True)
    assert report and len([f for f in report.findings if f.mode == "reverse"]) == 9
    z = wg.tensor([1 + 2j, 0.5 - 1j])
    assert wg.check_gradients(lambda z: (z * z).real, z, full=True)
    checker = wg.NumericalChecker()
    r = checker.check_gradient_central(lambda x: (x**3).sum(), x)
    assert r.is_valid and r.max_error < 1e-9 and r.worst_index is not None
    assert checker.check_jacobian(lambda x, y: x * y, x, x + 1.0) and checker.check_second_order(wg.sin, x)


def test_steps_of_ones_own() -> None:
    x = wg.tensor([0.5, 1.0], dtype=wg.float64)
    assert wg.check_gradients(lambda x: wg.exp(x), x, eps=1e-3)
    loose = wg.check_gradients(lambda x: (x * x.detach()).sum() * 1e-9 + (x * x).sum(), x, rtol=1e-3)
    assert loose.verdict == "ok"
    assert wg.check_gradients(lambda x: (x * x.detach()).sum() * 1e-4 + (x * x).sum(), x).verdict == "bug"


@pytest.mark.parametrize("result", [None, "text", wg.tensor([1, 2])])
def test_functions_without_a_floating_result(result: Any) -> None:
    with pytest.raises(wg.ArgumentError, match="no floating tensor"):
        wg.check_gradients(lambda x: result, wg.ones(2))


def test_nothing_to_check() -> None:
    with pytest.raises(wg.ArgumentError, match="none of the inputs"):
        wg.check_gradients(lambda x: x, wg.tensor([1, 2]))
    assert wg.check_gradients(lambda x: x * 2.0, wg.zeros((0, 3)))


def test_infinities_of_a_mask_stay_where_they_are() -> None:
    mask = wg.tensor([[0.0, -np.inf], [0.0, 0.0]], dtype=wg.float64)
    scores = wg.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=wg.float64)
    f = lambda s, m: (wg.softmax(s + m) * s).sum()
    assert wg.check_gradients(f, scores, mask)
    assert wg.check_gradients(f, scores, mask, full=True)


def test_containers_of_arrays_and_numbers() -> None:
    report = wg.check_gradients(lambda p: (p["a"] * p["b"][0]).sum(), {"a": np.ones(3), "b": [2.0]})
    assert report and {f.place for f in report.findings} == {"input 0['a']", "input 0['b'][0]"}


def test_arguments_that_make_no_sense() -> None:
    x = wg.ones(3)
    with pytest.raises(wg.ArgumentError, match="takes a function, got NoneType"):
        wg.check_gradients(None, x)  # type: ignore[arg-type]
    with pytest.raises(wg.ArgumentError, match="input 0 has NaN in it"):
        wg.check_gradients(wg.sin, wg.tensor([1.0, np.nan]))
    for name, value, message in (
        ("eps", -1.0, "positive, got -1.0"),
        ("eps", 0.0, "positive"),
        ("rtol", -1.0, "at least 0"),
    ):
        with pytest.raises(wg.ArgumentError, match=f"{name} must be {message}"):
            wg.check_gradients(wg.sin, x, **{name: value})


def test_exceptions_of_the_function_are_its_own() -> None:
    def fails(x: Any) -> Any:
        raise LookupError("of the user's")

    with pytest.raises(LookupError, match="of the user's"):
        wg.check_gradients(fails, wg.ones(2))


def test_functions_that_fail_nearby_are_checked_where_they_do_not() -> None:
    def positive(x: Any) -> Any:
        if bool((x < 0.99).any()):
            raise ValueError("too small")
        return wg.log(x).sum()

    assert wg.check_gradients(positive, wg.tensor([1.0, 2.0], dtype=wg.float64), second_order=False).verdict == "ok"


def test_functions_that_run_for_ever_are_stopped() -> None:
    def endless(x: Any) -> Any:
        while True:
            pass

    before = time.monotonic()
    with pytest.raises(TimeoutError, match="check_gradients: endless was stopped after 0.2 s"):
        wg.check_gradients(endless, wg.ones(2), time_limit=0.2)
    assert time.monotonic() - before < 60


def test_modes_that_are_missing_are_noted() -> None:
    class ClipGradient(wg.CustomOp):
        def forward(self, x: Any) -> Any:
            return x

        def backward(self, y_bar: Any, x: Any) -> Any:
            return wg.clip(y_bar, -100.0, 100.0)

    report = wg.check_gradients(ClipGradient(), wg.tensor([0.5, 2.0], dtype=wg.float64))
    assert report.verdict == "ok" and any("forward mode is not available" in n for n in report.notes)


def test_the_inputs_and_the_generator_stay_as_they_are() -> None:
    x = wg.tensor([0.5, 2.0], requires_grad=True)
    state = wg.default_generator.get_state()
    assert wg.check_gradients(lambda x: (x * wg.dropout(x, 0.5)).sum(), x.detach().clone())
    assert x.tolist() == [0.5, 2.0] and x.grad is None
    assert wg.default_generator.get_state() == state


def test_functions_whose_values_overflow_nearby() -> None:
    for exponent in (140, 150, 153.5):
        x = wg.tensor([10.0**exponent, 1e-150], dtype=wg.float64)
        assert wg.check_gradients(lambda x: (x**2).sum(), x).verdict in ("ok", "noise")
    assert wg.check_gradients(lambda x: (x**2).sum(), wg.tensor([1e100], dtype=wg.float64)).verdict == "ok"


@pytest.mark.parametrize("limit", [0, -1.0, "5", True, float("nan")])
def test_time_limits_that_make_no_sense(limit: Any) -> None:
    for check in (wg.check_gradients, wg.check_custom_op):
        with pytest.raises(wg.ArgumentError, match="time_limit must be a positive number of seconds, or None"):
            check(wg.sin, wg.ones(2), time_limit=limit)


def test_limits_of_all_sizes() -> None:
    for limit in (1e-9, 1e-6, 1e-4):
        with contextlib.suppress(TimeoutError):
            wg.check_gradients(wg.sin, wg.ones(2), time_limit=limit)
    assert wg.check_gradients(wg.sin, wg.ones(2), time_limit=float("inf"))


def test_settings_that_are_no_numbers() -> None:
    for name in ("eps", "rtol", "atol"):
        with pytest.raises(wg.ArgumentError, match=f"{name} must be"):
            wg.check_gradients(wg.sin, wg.ones(2), **{name: "small"})


def test_what_is_detached_in_a_mapped_function_is_named_by_its_line() -> None:
    def row(r: Any) -> Any:
        scale = r.detach()  # fault
        return (r * scale).sum()

    for f in (wg.vmap(row), wg.compile(wg.vmap(row)), wg.vmap(wg.compile(row))):
        report = wg.check_gradients(f, wg.randn(4, 3, dtype=wg.float64, generator=wg.Generator(0)))
        assert report.verdict == "bug" and line_at_fault(row) in str(report), report
