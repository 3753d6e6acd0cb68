"""What is wrong with custom ops, beside numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wengert as wg


class _Op(wg.CustomOp):
    """The square of x, as it should be."""

    def forward(self, x: Any) -> Any:
        return x * x

    def backward(self, y_bar: Any, x: Any) -> Any:
        return 2.0 * x * y_bar


class _Drawn(_Op):
    def forward(self, x: Any) -> Any:
        return x * x + wg.asarray(np.random.default_rng().normal(size=tuple(x.shape)))


class _WritesToInput(_Op):
    def forward(self, x: Any) -> Any:
        x.mul_(x)
        return x

    def backward(self, y_bar: Any, x: Any) -> Any:
        return 2.0 * wg.sqrt(x) * y_bar


class _RuleWritesToInput(_Op):
    def backward(self, y_bar: Any, x: Any) -> Any:
        x.mul_(2.0)
        return x * y_bar


class _NotLinear(_Op):
    def backward(self, y_bar: Any, x: Any) -> Any:
        return 2.0 * x * y_bar + 0.3


class _OutOfNumPy(_Op):
    def backward(self, y_bar: Any, x: Any) -> Any:
        return wg.asarray(2.0 * x.numpy() * y_bar.numpy())


class _ConstantSaved(_Op):
    """What it saves has lost how it depends on x, so that its second derivative is zero."""

    def forward(self, x: Any) -> Any:
        self.save(wg.asarray(np.array(x.detach().numpy())))
        return x * x

    def backward(self, y_bar: Any, x: Any) -> Any:
        return 2.0 * self.saved[0] * y_bar


class _RuleChanges(_Op):
    """Its rule gives something else every second time."""

    calls = 0

    def backward(self, y_bar: Any, x: Any) -> Any:
        type(self).calls += 1
        return 2.0 * x * y_bar * (1.0 + self.calls % 2)


class _OtherShape(_Op):
    def backward(self, y_bar: Any, x: Any) -> Any:
        return (2.0 * x * y_bar).sum()


FAULTS = [
    (_RuleChanges, "not deterministic: the rule gave another gradient by input 0"),
    (_OtherShape, "refused: _OtherShape: the gradient of input 0 has shape ()"),
    (_Drawn, "not deterministic"),
    (_WritesToInput, "written to: forward changes input 0"),
    (_RuleWritesToInput, "written to: the rule changes input 0"),
    (_NotLinear, "not linear"),
    (_OutOfNumPy, "no second order"),
]


@pytest.mark.parametrize(("op", "message"), FAULTS, ids=[op.__name__ for op, _ in FAULTS])
def test_faults(op: type[wg.CustomOp], message: str) -> None:
    report = wg.check_custom_op(op(), wg.tensor([0.5, 2.0], dtype=wg.float64))
    assert report.verdict == "bug" and any(message in p for p in report.problems), report
    assert message in str(report)


def test_constants_that_break_second_order() -> None:
    report = wg.check_custom_op(_ConstantSaved(), wg.tensor([0.5, 2.0], dtype=wg.float64))
    assert report.verdict == "bug" and report.worst is not None and report.worst.order == 2, report


def test_a_right_op_has_none() -> None:
    assert wg.check_custom_op(_Op(), wg.tensor([0.5, 2.0]))

    @wg.custom_op
    def cube(x: Any) -> Any:
        return wg.asarray(x.numpy() ** 3)

    @cube.defjvp
    def _(x_dot: Any, y: Any, x: Any) -> Any:
        return 3 * x**2 * x_dot

    assert wg.check_custom_op(cube, wg.tensor([0.5, 2.0], dtype=wg.float64))


def test_rules_that_are_not_linear_in_tangents_are_refused() -> None:
    exponential = wg.custom_op(lambda x: wg.exp(x))
    exponential.defjvp(lambda x_dot, y, x: x_dot * y * x_dot)
    report = wg.check_custom_op(exponential, wg.tensor([0.5, 2.0], dtype=wg.float64))
    assert report.verdict == "bug" and "not linear" in str(report)
    assert report.worst is None and report.max_error == 0.0 and "bug" in report._repr_html_()


def test_what_forward_raises_is_the_callers() -> None:
    class Fails(_Op):
        def forward(self, x: Any) -> Any:
            raise LookupError("of the user's")

    with pytest.raises(LookupError, match="of the user's"):
        wg.check_custom_op(Fails(), wg.ones(2))
