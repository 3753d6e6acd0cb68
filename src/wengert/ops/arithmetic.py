"""Arithmetic, order and rounding, elementwise: one line of calculus each."""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np

from wengert.ops import series
from wengert.ops.predicates import signbit
from wengert.ops.simplifications import over_one, times_one
from wengert.ops.tangents import conj, either, is_complex, real, select
from wengert.ops.transcendental import log
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import EXTREME, Invalid, Sample, binary, exactly, truth, unary, whole
from wengert.registry.samples import real as reals
from wengert.registry.zero import ZERO

mul = define(
    "mul",
    where_zero="the other factor is zero everywhere",
    taylor="bilinear",
    work="arithmetic",
    strong="scale",
    commutes=True,
    simplified=times_one,
    formula="a · b",
    reference=np.multiply,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot * b + b_dot * a,
    samples=[*binary(), Sample((whole(2, 3), whole(2, 3)))],
    invalid=[Invalid((reals(3), reals(4)), error="ShapeError", match="mul")],
)
div = define(
    "div",
    where_zero="the quotient does not change with this operand there",
    taylor=series.quotient,
    work="arithmetic",
    strong="unscale",
    simplified=over_one,
    formula="a / b",
    reference=np.divide,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot / b - b_dot * (y / b),
    samples=binary(b=(0.5, 2.0)),
)
# Quotients between two integers, where both have a derivative; then anywhere.
_BETWEEN_JUMPS = [
    *binary(a=(2.1, 2.5), b=(1.3, 2.0)),
    *binary(a=(-2.5, -2.1), b=(1.3, 2.0))[:1],
    Sample((reals(67, low=-9.0, high=9.0), reals(67, gap=0.1)), gradients=False),
]
floor_divide = define(
    "floor_divide",
    formula="⌊a / b⌋",
    reference=np.floor_divide,
    jvp="zero",
    samples=[*_BETWEEN_JUMPS, Sample((whole(4, 5), whole(4, 5, low=1)))],
)
remainder = define(
    "remainder",
    formula="a − b·⌊a / b⌋, with the sign of b",
    reference=np.remainder,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot - b_dot * floor_divide(a, b),
    samples=[*_BETWEEN_JUMPS, Sample((whole(4, 5), whole(4, 5, low=1)))],
)
square = define(
    "square",
    where_zero="its operand is zero everywhere",
    taylor=series.square,
    work="arithmetic",
    precision="full",
    formula="x²",
    reference=np.square,
    jvp=lambda x_dot, y, x: x_dot * (2.0 * x),
    samples=unary(extreme=EXTREME),
)
reciprocal = define(
    "reciprocal",
    precision="full",
    formula="1 / x",
    reference=np.reciprocal,
    jvp=lambda x_dot, y, x: -x_dot * (y * y),
    samples=unary(0.5, 2.0),
)


def _log(x: Any, y: Any) -> Any:
    """ln x; of a literal in the kind of the result y."""
    if isinstance(x, complex) or (isinstance(x, (int, float)) and is_complex(y)):
        return cmath.log(x) if x != 0 else complex(-math.inf)
    if isinstance(x, (int, float)):
        return math.log(x) if x > 0 else math.nan
    return log(x)


def _pow_jvp(a_dot: Any, b_dot: Any, y: Any, a: Any, b: Any) -> Any:
    # x⁰ is 1 for every x, so its derivative is 0 even at x = 0; 0ᵇ is 0 for b > 0, so its derivative in b is 0, and
    # for b < 0, where it is ∞ and falls, −∞.
    base = a_dot if a_dot is ZERO else a_dot * either(b == 0, 0.0, b * pow(a, b - 1.0))
    if b_dot is ZERO:
        return base
    at_zero = 0.0 if is_complex(y) else either(b < 0, -y, 0.0)
    return base + b_dot * either(a == 0, at_zero, _log(a, y) * y)


pow = define(
    "pow",
    where_zero="its slope is zero there",
    taylor=series.whole_power,
    precision="full",
    formula="aᵇ",
    reference=np.power,
    jvp=_pow_jvp,
    samples=[
        *binary(a=(0.3, 2.0)),
        Sample((whole(2, 3), whole(2, 3, low=0))),
        Sample((exactly(0.0, 0.0, -2.0, 2.0, 0.0), exactly(0.0, 2.0, 3.0, -1.0, 1.0)), gradients=False),
    ],
)


def _share(a: Any, b: Any, y: Any) -> Any:
    # At a tie both operands are the maximum (or minimum): they share the derivative evenly. An operand may be a literal.
    cast, dtype = OPS["cast"], y.dtype.code
    return cast(a > b, dtype) + 0.5 * cast(a == b, dtype)


maximum = define(
    "maximum",
    where_zero="this operand is nowhere the larger one",
    work="arithmetic",
    formula="max(a, b); NaN if either is; ties share the derivative",
    reference=np.maximum,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot * _share(a, b, y) + b_dot * _share(b, a, y),
    samples=[
        *binary(),
        Sample((exactly(1.0, math.nan, 2.0), exactly(1.0, 1.0, math.nan)), gradients=False),
        Sample((truth(2, 3), truth(2, 3)), gradients=False),
    ],
)
minimum = define(
    "minimum",
    where_zero="this operand is nowhere the smaller one",
    work="arithmetic",
    formula="min(a, b); NaN if either is; ties share the derivative",
    reference=np.minimum,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot * _share(b, a, y) + b_dot * _share(a, b, y),
    samples=[*binary(), Sample((exactly(1.0, math.nan, 2.0), exactly(1.0, 1.0, math.nan)), gradients=False)],
)


def _clip_jvp(x_dot: Any, low_dot: Any, high_dot: Any, y: Any, x: Any, low: Any, high: Any) -> Any:
    below, above = x < low, x > high
    inside = ZERO if x_dot is ZERO else either((x >= low) & (x <= high), x_dot, 0.0)  # not where one of them is NaN
    raised = ZERO if low_dot is ZERO else select(below & (low <= high), low_dot)
    lowered = ZERO if high_dot is ZERO else select(above | (below & (low > high)), high_dot)
    return inside + raised + lowered


clip = define(
    "clip",
    where_zero="all elements of its operand lie outside the bounds",
    work="arithmetic",
    formula="low where x < low, high where x > high, else x; derivative 1 at the bounds",
    reference=lambda x, low, high: np.minimum(np.maximum(x, low), high),
    jvp=_clip_jvp,
    samples=[
        Sample((reals(2, 3), exactly(*(-1.0,) * 6, shape=(2, 3)), exactly(*(1.01,) * 6, shape=(2, 3)))),
        Sample((reals(67), reals(67, low=-1.5, high=-0.5), reals(67, low=0.5, high=1.5))),
        Sample((reals(4), exactly(1.0, 1.0, 1.0, 1.0), exactly(-1.0, -1.0, -1.0, -1.0))),
        Sample((reals(), reals(low=-1.0, high=0.0), reals(low=0.0, high=1.0))),
        Sample((whole(9), whole(9, low=0, high=2), whole(9, low=3, high=5))),
        Sample((reals(0, 4), reals(0, 4), reals(0, 4))),
        Sample(
            (
                exactly(0.5, 0.5, 0.5, math.nan, math.inf, -math.inf),
                exactly(math.nan, 0.0, math.nan, 0.0, 0.0, -math.inf),
                exactly(1.0, math.nan, math.nan, 1.0, math.inf, 1.0),
            ),
            gradients=False,
        ),
    ],
    invalid=[Invalid((reals(2, 3), reals(2, 4), reals(2, 3)), error="ShapeError", match="clip")],
    public=False,
)
abs = define(
    "abs",
    work="arithmetic",
    formula="|x|; derivative 0 at 0",
    reference=np.abs,
    jvp=lambda x_dot, y, x: x_dot * sign(x),
    complex_jvp=lambda x_dot, y, x: real(x_dot * conj(sign(x))),
    samples=unary(gap=0.05, extreme=EXTREME),
)


def _sign_jvp(x_dot: Any, y: Any, x: Any) -> Any:
    # What moves x away from 0 does not turn it: only the part of x_dot across x counts.
    along = OPS["cast"](real(x_dot * conj(y)), y.dtype.code)
    return select(x != 0, x_dot - along * y) / OPS["cast"](abs(x), y.dtype.code)


sign: Op = define(
    "sign",
    where_zero="it is constant between jumps: its derivative is zero",
    work="arithmetic",
    formula="x / |x|, and 0 at 0",
    reference=np.sign,
    jvp="zero",
    complex_jvp=_sign_jvp,
    samples=unary(gap=0.05, extreme=EXTREME),
)


def _stepwise(name: str, formula: str, reference: Any) -> Op:
    return define(
        name,
        where_zero="it is constant between jumps: its derivative is zero",
        formula=formula,
        reference=reference,
        jvp="zero",
        samples=unary(0.1, 0.4, extreme=EXTREME),
    )


floor = _stepwise("floor", "⌊x⌋", np.floor)
ceil = _stepwise("ceil", "⌈x⌉", np.ceil)
round = _stepwise("round", "the nearest integer, halves to even", np.round)
trunc = _stepwise("trunc", "x without its fraction", np.trunc)


def _copysign_jvp(a_dot: Any, b_dot: Any, y: Any, a: Any, b: Any) -> Any:
    if a_dot is ZERO:
        return ZERO
    negative = math.copysign(1.0, b) < 0 if isinstance(b, (int, float)) else signbit(b)
    return a_dot * either(negative, -sign(a), sign(a))


copysign = define(
    "copysign",
    formula="|a| with the sign of b",
    reference=np.copysign,
    jvp=_copysign_jvp,
    samples=binary(a=(0.2, 2.0), gap=0.1),
)
# The step to the next number is the same for neighbours of a, and does not depend on how far away b is.
nextafter = define(
    "nextafter",
    formula="the next number from a towards b; derivative 1 by a, 0 by b",
    reference=np.nextafter,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot,
    samples=[
        *binary(),
        Sample((exactly(0.0, -0.0, 1.0, math.inf, math.nan), exactly(1.0, -1.0, 1.0, 0.0, 0.0)), gradients=False),
    ],
)
