"""Losses and gradients that are not finite. Each function takes a leaf and returns a loss; `LEAVES` has what it is given.

Forward: the loss itself is infinite or NaN. Backward: the loss is finite, its gradient is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import wengert as wg

FORWARD: dict[str, tuple[Callable[[Any], Any], Any, str]] = {}  # name: function, leaf, op
BACKWARD: dict[str, tuple[Callable[[Any], Any], Any, str]] = {}


def _planted(table: dict[str, Any], leaf: Any, op: str) -> Callable[[Any], Any]:
    def keep(f: Any) -> Any:
        table[f.__name__] = (f, leaf, op)
        return f

    return keep


def forward(leaf: Any, op: str) -> Callable[[Any], Any]:
    """Of a loss that is not finite, because of this op."""
    return _planted(FORWARD, leaf, op)


def backward(leaf: Any, op: str) -> Callable[[Any], Any]:
    """Of a gradient that is not finite, because of the derivative of this op."""
    return _planted(BACKWARD, leaf, op)


# ------------------------------------------------------------------------------------------------- forward


@forward([1.0, 0.0, 2.0], "div")
def zero_by_zero(x: Any) -> Any:
    share = x * x / x  # fault
    return (share * 2.0).sum()


@forward([1.0, 0.0, 2.0], "log")
def logarithm_of_zero(x: Any) -> Any:
    entropy = -x * wg.log(x)  # fault
    return entropy.sum()


@forward([1.0, -1.0, 2.0], "log")
def logarithm_of_a_negative_number(x: Any) -> Any:
    y = wg.log(x)  # fault
    return wg.exp(y).mean()


@forward([1.0, -1e-6, 2.0], "sqrt")
def root_of_a_negative_variance(x: Any) -> Any:
    y = x * 3.0
    deviation = wg.sqrt(y)  # fault
    return deviation.sum() + y.sum()


@forward([1.0, 100.0], "exp")
def exponential_overflows(x: Any) -> Any:
    e = wg.exp(x)  # fault
    return (e / e.sum()).sum()


@forward([1.0, 12.0], "exp")
def float16_overflows(x: Any) -> Any:
    half = x.astype(wg.float16)
    big = wg.exp(half)  # fault
    return big.astype(wg.float32).sum()


@forward([1.0, 1e5], "cast")
def cast_to_float16_overflows(x: Any) -> Any:
    y = x * 1.5
    half = y.astype(wg.float16)  # fault
    return (half * 0.5).sum()


@forward([300.0, 300.0], "mul")
def product_in_float16_overflows(x: Any) -> Any:
    half = x.astype(wg.float16)
    square = half * half  # fault
    return square.astype(wg.float32).sum()


@forward([-0.5, 2.0], "pow")
def fractional_power_of_a_negative_number(x: Any) -> Any:
    y = x**1.5  # fault
    return y.sum()


@forward([0.5, 1.5], "acos")
def arccosine_beyond_one(x: Any) -> Any:
    angle = wg.acos(x)  # fault
    return wg.cos(angle).sum()


@forward([0.5, 1.0], "atanh")
def inverse_of_a_saturated_tanh(x: Any) -> Any:
    y = wg.atanh(x)  # fault
    return y.sum()


@forward([3.0, 4.0], "softmax")
def everything_is_masked(x: Any) -> Any:
    scores = wg.where(x > 10.0, x, -wg.inf)
    p = wg.softmax(scores)  # fault
    return (p * x).sum()


@forward([0.0, 0.0], "div")
def normalised_zero_vector(x: Any) -> Any:
    y = x * 2.0
    unit = y / wg.sqrt((y * y).sum())  # fault
    return unit.sum()


@forward([80.0, 90.0], "exp")
def naive_logsumexp(x: Any) -> Any:
    y = x.reshape((1, 2))
    total = wg.exp(y).sum(axis=1)  # fault
    return wg.log(total).sum()


@forward([2e38, 2e38], "sum")
def sum_overflows(x: Any) -> Any:
    y = x * 1.0
    total = y.sum()  # fault
    return total * 1e-38


@forward([1.0, 2.0], "mul")
def a_constant_that_is_nan(x: Any) -> Any:
    weights = wg.tensor([1.0, float("nan")])
    y = x * weights  # fault
    return y.sum()


@forward([1e20, 2.0], "matmul")
def matrix_product_overflows(x: Any) -> Any:
    a = x.reshape((2, 1))
    b = a @ a.T  # fault
    return b.mean()


@forward([1.0, 2.0], "nan_op")
def a_custom_op_gives_nan(x: Any) -> Any:
    y = nan_op(x * 2.0)  # fault
    return y.sum()


@wg.custom_op
def nan_op(x: Any) -> Any:
    return wg.asarray(x.numpy() * float("nan"))


@nan_op.defvjp
def _(y_bar: Any, y: Any, x: Any) -> Any:
    return y_bar


# ------------------------------------------------------------------------------------------------ backward


@backward([4.0, 0.0], "sqrt")
def root_at_zero(x: Any) -> Any:
    y = x * 1.0
    r = wg.sqrt(y)  # fault
    return r.sum()


@backward([3.0, 0.0], "sqrt")
def power_at_zero(x: Any) -> Any:
    y = x**0.5  # fault
    return (y * 2.0).sum()


@backward([0.0, 0.0], "sqrt")
def norm_of_zero(x: Any) -> Any:
    squares = (x * x).sum()
    return wg.sqrt(squares) + x.sum()  # fault


@backward([2.0, 2.0, 2.0], "sqrt")
def deviation_of_equal_numbers(x: Any) -> Any:
    centred = x - x.mean()
    deviation = wg.sqrt((centred * centred).mean())  # fault
    return deviation + x.sum()


@backward([0.5, 1.0], "asin")
def arcsine_at_one(x: Any) -> Any:
    angle = wg.asin(x)  # fault
    return angle.sum()


@backward([1e-30, 2.0], "div")
def quotient_by_a_tiny_number(x: Any) -> Any:
    y = wg.tensor([1e-20, 1.0]) / x  # fault
    return y.sum()


@backward([1e-3, 2e-3], "mul")
def gradient_overflows_in_float16(x: Any) -> Any:
    half = x.astype(wg.float16)
    scaled = half * 60000.0  # fault
    return (scaled.astype(wg.float32) * 100.0).sum()


@backward([1.0, 2.0], "nan_rule")
def a_custom_rule_gives_nan(x: Any) -> Any:
    y = nan_rule(x)  # fault
    return y.sum()


@wg.custom_op
def nan_rule(x: Any) -> Any:
    return wg.asarray(x.numpy() * 2.0)


@nan_rule.defvjp
def _(y_bar: Any, y: Any, x: Any) -> Any:
    return y_bar / (x - x)
