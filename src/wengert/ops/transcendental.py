"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert.ops import series
from wengert.ops.tangents import where
from wengert.registry.record import Op, define
from wengert.registry.samples import EXTREME, binary, unary

exp = define(
    "exp",
    where_zero="its result is zero everywhere: it is too small for the dtype",
    taylor=series.exponential,
    precision="full",
    formula="eˣ",
    reference=np.exp,
    jvp=lambda x_dot, y, x: x_dot * y,
    samples=unary(extreme=EXTREME),
)
exp2 = define(
    "exp2",
    where_zero="its result is zero everywhere: it is too small for the dtype",
    precision="full",
    formula="2ˣ",
    reference=np.exp2,
    jvp=lambda x_dot, y, x: x_dot * (y * math.log(2.0)),
    samples=unary(extreme=EXTREME),
)
expm1 = define(
    "expm1",
    precision="full",
    formula="eˣ − 1, accurate near 0",
    reference=np.expm1,
    jvp=lambda x_dot, y, x: x_dot * exp(x),  # y + 1 would have few digits of it, or none, where x is negative
    samples=unary(extreme=EXTREME),
)
log = define(
    "log",
    taylor=series.logarithm,
    precision="full",
    formula="ln x",
    reference=np.log,
    jvp=lambda x_dot, y, x: x_dot / x,
    samples=unary(0.3, 3.0, extreme=(0.0, math.inf, math.nan, -1.0)),
)
log2 = define(
    "log2",
    precision="full",
    formula="log₂ x",
    reference=np.log2,
    jvp=lambda x_dot, y, x: x_dot / (x * math.log(2.0)),
    samples=unary(0.3, 3.0, extreme=(0.0, math.inf)),
)
log10 = define(
    "log10",
    precision="full",
    formula="log₁₀ x",
    reference=np.log10,
    jvp=lambda x_dot, y, x: x_dot / (x * math.log(10.0)),
    samples=unary(0.3, 3.0, extreme=(0.0, math.inf)),
)
log1p = define(
    "log1p",
    precision="full",
    formula="ln(1 + x), accurate near 0",
    reference=np.log1p,
    jvp=lambda x_dot, y, x: x_dot / (1.0 + x),
    samples=unary(-0.5, 2.0, extreme=(0.0, -1.0, math.inf)),
)
sqrt = define(
    "sqrt",
    taylor=series.square_root,
    formula="√x; derivative ∞ at 0",
    reference=np.sqrt,
    jvp=lambda x_dot, y, x: x_dot / (2.0 * y),
    samples=unary(0.3, 3.0, extreme=(0.0, math.inf, -1.0)),
)
rsqrt = define(
    "rsqrt",
    precision="full",
    formula="1 / √x",
    reference=lambda x: 1 / np.sqrt(x),
    jvp=lambda x_dot, y, x: x_dot * (-0.5 * (y * y * y)),
    samples=unary(0.3, 3.0, extreme=(0.0, math.inf)),
)


def _hypot_jvp(a_dot: Any, b_dot: Any, y: Any, a: Any, b: Any) -> Any:
    length = where(y == 0.0, 1.0, y)  # at the origin the derivative is 0, as that of a norm
    return a_dot * (a / length) + b_dot * (b / length)


hypot = define(
    "hypot",
    precision="full",
    formula="√(a² + b²)",
    reference=np.hypot,
    jvp=_hypot_jvp,
    samples=binary(b=(0.5, 2.0)),
)
sin = define(
    "sin",
    taylor=series.sine,
    formula="sin x",
    reference=np.sin,
    jvp=lambda x_dot, y, x: x_dot * cos(x),
    samples=unary(extreme=(0.0, 1e4, -1e4, math.inf)),
)
cos: Op = define(
    "cos",
    taylor=series.cosine,
    formula="cos x",
    reference=np.cos,
    jvp=lambda x_dot, y, x: x_dot * -sin(x),
    samples=unary(extreme=(0.0, 1e4, -1e4, math.inf)),
)
tan = define(
    "tan",
    precision="full",
    formula="tan x",
    reference=np.tan,
    jvp=lambda x_dot, y, x: x_dot * (1.0 + y * y),
    samples=unary(-1.2, 1.2),
)
asin = define(
    "asin",
    precision="full",
    formula="arcsin x",
    reference=np.arcsin,
    jvp=lambda x_dot, y, x: x_dot * rsqrt(1.0 - x * x),
    samples=unary(-0.9, 0.9),
)
acos = define(
    "acos",
    precision="full",
    formula="arccos x",
    reference=np.arccos,
    jvp=lambda x_dot, y, x: x_dot * -rsqrt(1.0 - x * x),
    samples=unary(-0.9, 0.9),
)
atan = define(
    "atan",
    formula="arctan x",
    reference=np.arctan,
    jvp=lambda x_dot, y, x: x_dot / (1.0 + x * x),
    samples=unary(extreme=EXTREME),
)


def _atan2_jvp(a_dot: Any, b_dot: Any, y: Any, a: Any, b: Any) -> Any:
    # By the length, not its square, which under- and overflows. At the origin the derivative is 0.
    length = hypot(a, b)
    length = where(length == 0.0, 1.0, length)
    return a_dot * (b / length / length) - b_dot * (a / length / length)


atan2 = define(
    "atan2",
    formula="the angle of the point (b, a)",
    reference=np.arctan2,
    jvp=_atan2_jvp,
    samples=binary(b=(0.5, 2.0)),
)
sinh = define(
    "sinh",
    taylor=series.hyperbolic_sine,
    precision="full",
    formula="(eˣ − e⁻ˣ) / 2",
    reference=np.sinh,
    jvp=lambda x_dot, y, x: x_dot * cosh(x),
    samples=unary(),
)
cosh: Op = define(
    "cosh",
    taylor=series.hyperbolic_cosine,
    precision="full",
    formula="(eˣ + e⁻ˣ) / 2",
    reference=np.cosh,
    jvp=lambda x_dot, y, x: x_dot * sinh(x),
    samples=unary(),
)
tanh = define(
    "tanh",
    where_zero="it is saturated, for all elements",
    taylor=series.hyperbolic_tangent,
    formula="(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ)",
    reference=np.tanh,
    jvp=lambda x_dot, y, x: x_dot * (1.0 - y * y),
    samples=unary(extreme=EXTREME),
)
asinh = define(
    "asinh",
    precision="full",
    formula="ln(x + √(x² + 1))",
    reference=np.arcsinh,
    jvp=lambda x_dot, y, x: x_dot * rsqrt(x * x + 1.0),
    samples=unary(),
)
acosh = define(
    "acosh",
    precision="full",
    formula="ln(x + √(x² − 1))",
    reference=np.arccosh,
    jvp=lambda x_dot, y, x: x_dot * rsqrt((x - 1.0) * (x + 1.0)),
    complex_jvp=lambda x_dot, y, x: x_dot / sinh(y),  # √(x − 1) √(x + 1), and y knows the side of the cut
    samples=unary(1.3, 3.0),
)
atanh = define(
    "atanh",
    precision="full",
    formula="½ ln((1 + x) / (1 − x))",
    reference=np.arctanh,
    jvp=lambda x_dot, y, x: x_dot / (1.0 - x * x),
    samples=unary(-0.9, 0.9),
)
