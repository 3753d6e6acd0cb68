"""Elementwise ops: one line of calculus each."""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np

from wengert.ops.registry import OPS, Op, define
from wengert.ops.samples import Invalid, Sample, binary, exactly, positive, truth, unary, whole
from wengert.ops.samples import complex as complex_numbers
from wengert.ops.samples import real as reals
from wengert.ops.zero import ZERO

_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
_COMPLEX = [Sample((complex_numbers(2, 3),)), Sample((complex_numbers(),)), Sample((complex_numbers(0, 4),))]
_REAL = [Invalid((reals(3),), error="DTypeError", match="complex numbers")]
_EXTREME = (-1e4, -1.0, -0.0, 0.0, 1.0, 1e4, math.inf, -math.inf, math.nan)


def _or_zero(tangent: Any) -> Any:
    return 0.0 if tangent is ZERO else tangent


def _is_complex(x: Any) -> bool:
    return isinstance(x, complex) if isinstance(x, (int, float, complex)) else x.dtype.kind == "c"


def conj(x: Any) -> Any:
    """The complex conjugate, which the transpose of a product needs; of a real value the value itself: no instruction."""
    if isinstance(x, complex):
        return x.conjugate()
    return OPS["conj"](x) if _is_complex(x) else x


def real(x: Any) -> Any:
    """The real part; of a real value the value itself."""
    return OPS["real"](x) if x is not ZERO and _is_complex(x) else x


# ------------------------------------------------------------------------------------- linear ops of the tangents

add = define(
    "add",
    formula="a + b",
    reference=np.add,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot + b_dot,
    transpose=(lambda y_bar, a, b: y_bar, lambda y_bar, a, b: y_bar),
    samples=[*binary(), Sample((whole(2, 3), whole(2, 3)))],
    invalid=[Invalid((reals(2, 3), reals(2, 4)), error="ShapeError", match="add")],
)
sub = define(
    "sub",
    formula="a − b",
    reference=np.subtract,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot - b_dot,
    transpose=(lambda y_bar, a, b: y_bar, lambda y_bar, a, b: -y_bar),
    samples=[*binary(), Sample((whole(2, 3), whole(2, 3)))],
)
neg = define(
    "neg",
    formula="−x",
    reference=np.negative,
    jvp="linear",
    transpose=lambda y_bar, x: -y_bar,
    samples=unary(extreme=_EXTREME),
    invalid=[Invalid((truth(3),), error="DTypeError", match="neg")],
)
copy = define(
    "copy",
    formula="x",
    reference=np.copy,
    jvp="linear",
    transpose=lambda y_bar, x: y_bar,
    samples=unary(extreme=_EXTREME),
    public=False,
)
# The parts of complex numbers. They are linear over the reals, with <u, v> = Re sum conj(u) v.
define(
    "conj",
    formula="x̄",
    reference=np.conj,
    jvp="linear",
    transpose=lambda y_bar, x: conj(y_bar),
    samples=_COMPLEX,
    invalid=_REAL,
    public=False,
)
define(
    "real",
    formula="Re x",
    reference=np.real,
    jvp="linear",
    transpose=lambda y_bar, x: OPS["cast"](y_bar, x.dtype.code),
    samples=_COMPLEX,
    invalid=_REAL,
    public=False,
)
define(
    "imag",
    formula="Im x",
    reference=np.imag,
    jvp="linear",
    transpose=lambda y_bar, x: make_complex(0.0, y_bar),
    samples=_COMPLEX,
    invalid=_REAL,
    public=False,
)
make_complex: Op = define(
    "make_complex",
    formula="a + i b",
    reference=lambda a, b: a + 1j * b,
    jvp=lambda a_dot, b_dot, y, a, b: make_complex(_or_zero(a_dot), _or_zero(b_dot)),
    transpose=(lambda y_bar, a, b: OPS["real"](y_bar), lambda y_bar, a, b: OPS["imag"](y_bar)),
    samples=binary(),
)
strong_product: Op = define(
    "strong_product",
    formula="a·b, and 0 where either is 0, whatever the other is",
    reference=lambda a, b: np.where((a == 0) | (b == 0), 0, a * b),
    jvp=lambda a_dot, b_dot, y, a, b: _strongly(a_dot, b) + _strongly(b_dot, a),
    transpose=(lambda y_bar, a, b: strong_product(y_bar, conj(b)), None),
    samples=[
        *binary(),
        Sample((exactly(0.0, math.inf, 2.0), exactly(math.nan, 0.0, 3.0)), gradients=False),
        Sample((exactly(0.0, 0.0, 1.5), exactly(0.0, 2.0, 0.0))),
    ],
    public=False,
)


def _strongly(tangent: Any, c: Any) -> Any:
    # Not a selection by c != 0, whose own derivative would be lost where c is 0.
    return ZERO if tangent is ZERO else strong_product(tangent, c)


scale: Op = define(
    "scale",
    formula="t·c, and 0 where t is 0 whatever c is (strong zero)",
    reference=lambda t, c: np.where(t == 0, 0, t * c),
    jvp=lambda t_dot, c_dot, y, t, c: t_dot * c + _strongly(c_dot, t),
    transpose=(lambda y_bar, t, c: scale(y_bar, conj(c)), None),
    samples=[
        *binary(),
        Sample((exactly(0.0, 0.0, 2.0), exactly(math.inf, math.nan, 3.0)), gradients=False),
        Sample((exactly(0.0, 0.0, 1.5), exactly(0.0, 2.0, 0.0))),
    ],
    public=False,
)
unscale: Op = define(
    "unscale",
    formula="t/c, and 0 where t is 0 whatever c is (strong zero)",
    reference=lambda t, c: np.where(t == 0, 0, t / c),
    jvp=lambda t_dot, c_dot, y, t, c: t_dot / c - _strongly(c_dot, unscale(y, c)),
    transpose=(lambda y_bar, t, c: unscale(y_bar, conj(c)), None),
    samples=[*binary(b=(0.5, 2.0)), Sample((exactly(0.0, 2.0), exactly(0.0, 4.0)), gradients=False)],
    public=False,
)


where: Op = define(
    "where",
    formula="a where the condition holds, else b",
    reference=np.where,
    jvp=lambda c_dot, a_dot, b_dot, y, c, a, b: where(c, _or_zero(a_dot), _or_zero(b_dot)),
    transpose=(
        None,
        lambda y_bar, c, a, b: where(c, y_bar, 0.0),
        lambda y_bar, c, a, b: where(c, 0.0, y_bar),
    ),
    samples=[Sample((truth(2, 3), reals(2, 3), reals(2, 3))), Sample((truth(), reals(), reals()))],
)


def _either(condition: Any, a: Any, b: Any) -> Any:
    """`where`, also if the condition is a Python bool: an operand of a rule may be a literal."""
    if isinstance(condition, bool):
        return a if condition else b
    return where(condition, a, b)


def select(condition: Any, tangent: Any) -> Any:
    """The tangent where the condition holds, else zero: the rule of everything piecewise linear."""
    return ZERO if tangent is ZERO else _either(condition, tangent, 0.0)


# --------------------------------------------------------------------------------------------------- arithmetic

mul = define(
    "mul",
    formula="a · b",
    reference=np.multiply,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot * b + b_dot * a,
    samples=[*binary(), Sample((whole(2, 3), whole(2, 3)))],
    invalid=[Invalid((reals(3), reals(4)), error="ShapeError", match="mul")],
)
div = define(
    "div",
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
    formula="x²",
    reference=np.square,
    jvp=lambda x_dot, y, x: x_dot * (2.0 * x),
    samples=unary(extreme=_EXTREME),
)
reciprocal = define(
    "reciprocal",
    formula="1 / x",
    reference=np.reciprocal,
    jvp=lambda x_dot, y, x: -x_dot * (y * y),
    samples=unary(0.5, 2.0),
)


def _log(x: Any, y: Any) -> Any:
    """ln x; of a literal in the kind of the result y."""
    if isinstance(x, complex) or (isinstance(x, (int, float)) and _is_complex(y)):
        return cmath.log(x) if x != 0 else complex(-math.inf)
    if isinstance(x, (int, float)):
        return math.log(x) if x > 0 else math.nan
    return log(x)


def _pow_jvp(a_dot: Any, b_dot: Any, y: Any, a: Any, b: Any) -> Any:
    # x⁰ is 1 for every x, so its derivative is 0 even at x = 0; 0ᵇ is 0 for b > 0, so its derivative by b is 0.
    base = a_dot if a_dot is ZERO else a_dot * _either(b == 0, 0.0, b * pow(a, b - 1.0))
    exponent = b_dot if b_dot is ZERO else b_dot * (_either(a == 0, 0.0, _log(a, y)) * y)
    return base + exponent


pow = define(
    "pow",
    formula="aᵇ",
    reference=np.power,
    jvp=_pow_jvp,
    samples=[
        *binary(a=(0.3, 2.0)),
        Sample((whole(2, 3), whole(2, 3, low=0))),
        Sample((exactly(0.0, 0.0, -2.0, 2.0, 0.0), exactly(0.0, 2.0, 3.0, -1.0, 1.0)), gradients=False),
    ],
)

# ------------------------------------------------------------------------------------------- order and rounding


def _share(a: Any, b: Any, y: Any) -> Any:
    # At a tie both operands are the maximum (or minimum): they share the derivative evenly. An operand may be a literal.
    cast, dtype = OPS["cast"], y.dtype.code
    return cast(a > b, dtype) + 0.5 * cast(a == b, dtype)


maximum = define(
    "maximum",
    formula="max(a, b); NaN if either is; ties share the derivative",
    reference=np.maximum,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot * _share(a, b, y) + b_dot * _share(b, a, y),
    samples=[*binary(), Sample((exactly(1.0, math.nan, 2.0), exactly(1.0, 1.0, math.nan)), gradients=False)],
)
minimum = define(
    "minimum",
    formula="min(a, b); NaN if either is; ties share the derivative",
    reference=np.minimum,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot * _share(b, a, y) + b_dot * _share(a, b, y),
    samples=[*binary(), Sample((exactly(1.0, math.nan, 2.0), exactly(1.0, 1.0, math.nan)), gradients=False)],
)
relu = define(
    "relu",
    formula="max(x, 0); derivative 0 at 0",
    reference=lambda x: np.maximum(x, 0),
    jvp=lambda x_dot, y, x: select(x > 0, x_dot),
    samples=unary(gap=0.05, extreme=_EXTREME),
)


def _clip_jvp(x_dot: Any, low_dot: Any, high_dot: Any, y: Any, x: Any, low: Any, high: Any) -> Any:
    below, above = x < low, x > high  # false where one of them is NaN: then there is no bound
    inside = ZERO if x_dot is ZERO else _either(below | above, 0.0, x_dot)
    raised = ZERO if low_dot is ZERO else select(below & (low <= high), low_dot)
    lowered = ZERO if high_dot is ZERO else select(above | (below & (low > high)), high_dot)
    return inside + raised + lowered


clip = define(
    "clip",
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
    ],
    invalid=[Invalid((reals(2, 3), reals(2, 4), reals(2, 3)), error="ShapeError", match="clip")],
    public=False,
)
# A popular function of several pieces, which a fused group would pass once for each.
hard_swish_slope = define(
    "hard_swish_slope",
    formula="0 for x ≤ −3, 1 for x ≥ 3, else x/3 + ½",
    reference=lambda x: np.where(x <= -3, 0, np.where(x >= 3, 1, x / 3 + 0.5)),
    jvp=lambda x_dot, y, x: select((x > -3.0) & (x < 3.0), x_dot * (1.0 / 3.0)),
    samples=unary(extreme=_EXTREME),
    public=False,
)
hard_swish = define(
    "hard_swish",
    formula="0 for x ≤ −3, x for x ≥ 3, else x (x + 3) / 6",
    reference=lambda x: np.where(x <= -3, 0, np.where(x >= 3, x, x * (x + 3) / 6)),
    jvp=lambda x_dot, y, x: x_dot * hard_swish_slope(x),
    samples=[*unary(extreme=_EXTREME), Sample((reals(40, low=-5.0, high=5.0),))],
    public=False,
)
abs = define(
    "abs",
    formula="|x|; derivative 0 at 0",
    reference=np.abs,
    jvp=lambda x_dot, y, x: x_dot * sign(x),
    complex_jvp=lambda x_dot, y, x: real(x_dot * conj(sign(x))),
    samples=unary(gap=0.05, extreme=_EXTREME),
)


def _sign_jvp(x_dot: Any, y: Any, x: Any) -> Any:
    # What moves x away from 0 does not turn it: only the part of x_dot across x counts.
    along = OPS["cast"](real(x_dot * conj(y)), y.dtype.code)
    return select(x != 0, x_dot - along * y) / OPS["cast"](abs(x), y.dtype.code)


sign: Op = define(
    "sign",
    formula="x / |x|, and 0 at 0",
    reference=np.sign,
    jvp="zero",
    complex_jvp=_sign_jvp,
    samples=unary(gap=0.05, extreme=_EXTREME),
)


def _stepwise(name: str, formula: str, reference: Any) -> Op:
    return define(name, formula=formula, reference=reference, jvp="zero", samples=unary(0.1, 0.4, extreme=_EXTREME))


floor = _stepwise("floor", "⌊x⌋", np.floor)
ceil = _stepwise("ceil", "⌈x⌉", np.ceil)
round = _stepwise("round", "the nearest integer, halves to even", np.round)
trunc = _stepwise("trunc", "x without its fraction", np.trunc)


def _copysign_jvp(a_dot: Any, b_dot: Any, y: Any, a: Any, b: Any) -> Any:
    if a_dot is ZERO:
        return ZERO
    negative = math.copysign(1.0, b) < 0 if isinstance(b, (int, float)) else signbit(b)
    return a_dot * _either(negative, -sign(a), sign(a))


copysign = define(
    "copysign",
    formula="|a| with the sign of b",
    reference=np.copysign,
    jvp=_copysign_jvp,
    samples=binary(a=(0.2, 2.0), gap=0.1),
)
nextafter = define(
    "nextafter",
    formula="the next number from a towards b",
    reference=np.nextafter,
    samples=[Sample((reals(2, 3), reals(2, 3)), gradients=False)],
)

# --------------------------------------------------------------------------------- exponentials and powers

exp = define(
    "exp",
    formula="eˣ",
    reference=np.exp,
    jvp=lambda x_dot, y, x: x_dot * y,
    samples=unary(extreme=_EXTREME),
)
exp2 = define(
    "exp2",
    formula="2ˣ",
    reference=np.exp2,
    jvp=lambda x_dot, y, x: x_dot * (y * math.log(2.0)),
    samples=unary(extreme=_EXTREME),
)
expm1 = define(
    "expm1",
    formula="eˣ − 1, accurate near 0",
    reference=np.expm1,
    jvp=lambda x_dot, y, x: x_dot * (y + 1.0),
    samples=unary(extreme=_EXTREME),
)
log = define(
    "log",
    formula="ln x",
    reference=np.log,
    jvp=lambda x_dot, y, x: x_dot / x,
    samples=unary(0.3, 3.0, extreme=(0.0, math.inf, math.nan, -1.0)),
)
log2 = define(
    "log2",
    formula="log₂ x",
    reference=np.log2,
    jvp=lambda x_dot, y, x: x_dot / (x * math.log(2.0)),
    samples=unary(0.3, 3.0, extreme=(0.0, math.inf)),
)
log10 = define(
    "log10",
    formula="log₁₀ x",
    reference=np.log10,
    jvp=lambda x_dot, y, x: x_dot / (x * math.log(10.0)),
    samples=unary(0.3, 3.0, extreme=(0.0, math.inf)),
)
log1p = define(
    "log1p",
    formula="ln(1 + x), accurate near 0",
    reference=np.log1p,
    jvp=lambda x_dot, y, x: x_dot / (1.0 + x),
    samples=unary(-0.5, 2.0, extreme=(0.0, -1.0, math.inf)),
)
sqrt = define(
    "sqrt",
    formula="√x; derivative ∞ at 0",
    reference=np.sqrt,
    jvp=lambda x_dot, y, x: x_dot / (2.0 * y),
    samples=unary(0.3, 3.0, extreme=(0.0, math.inf, -1.0)),
)
rsqrt = define(
    "rsqrt",
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
    formula="√(a² + b²)",
    reference=np.hypot,
    jvp=_hypot_jvp,
    samples=binary(b=(0.5, 2.0)),
)

# -------------------------------------------------------------------------- trigonometric and hyperbolic

sin = define(
    "sin",
    formula="sin x",
    reference=np.sin,
    jvp=lambda x_dot, y, x: x_dot * cos(x),
    samples=unary(extreme=(0.0, 1e4, -1e4, math.inf)),
)
cos: Op = define(
    "cos",
    formula="cos x",
    reference=np.cos,
    jvp=lambda x_dot, y, x: x_dot * -sin(x),
    samples=unary(extreme=(0.0, 1e4, -1e4, math.inf)),
)
tan = define(
    "tan",
    formula="tan x",
    reference=np.tan,
    jvp=lambda x_dot, y, x: x_dot * (1.0 + y * y),
    samples=unary(-1.2, 1.2),
)
asin = define(
    "asin",
    formula="arcsin x",
    reference=np.arcsin,
    jvp=lambda x_dot, y, x: x_dot * rsqrt(1.0 - x * x),
    samples=unary(-0.9, 0.9),
)
acos = define(
    "acos",
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
    samples=unary(extreme=_EXTREME),
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
    formula="(eˣ − e⁻ˣ) / 2",
    reference=np.sinh,
    jvp=lambda x_dot, y, x: x_dot * cosh(x),
    samples=unary(),
)
cosh: Op = define(
    "cosh",
    formula="(eˣ + e⁻ˣ) / 2",
    reference=np.cosh,
    jvp=lambda x_dot, y, x: x_dot * sinh(x),
    samples=unary(),
)
tanh = define(
    "tanh",
    formula="(eˣ − e⁻ˣ) / (eˣ + e⁻ˣ)",
    reference=np.tanh,
    jvp=lambda x_dot, y, x: x_dot * (1.0 - y * y),
    samples=unary(extreme=_EXTREME),
)
asinh = define(
    "asinh",
    formula="ln(x + √(x² + 1))",
    reference=np.arcsinh,
    jvp=lambda x_dot, y, x: x_dot * rsqrt(x * x + 1.0),
    samples=unary(),
)
acosh = define(
    "acosh",
    formula="ln(x + √(x² − 1))",
    reference=np.arccosh,
    jvp=lambda x_dot, y, x: x_dot * rsqrt((x - 1.0) * (x + 1.0)),
    complex_jvp=lambda x_dot, y, x: x_dot / sinh(y),  # √(x − 1) √(x + 1), and y knows the side of the cut
    samples=unary(1.3, 3.0),
)
atanh = define(
    "atanh",
    formula="½ ln((1 + x) / (1 − x))",
    reference=np.arctanh,
    jvp=lambda x_dot, y, x: x_dot / (1.0 - x * x),
    samples=unary(-0.9, 0.9),
)
sigmoid = define(
    "sigmoid",
    formula="1 / (1 + e⁻ˣ)",
    reference=lambda x: 0.5 * (1 + np.tanh(0.5 * x)),
    jvp=lambda x_dot, y, x: x_dot * (y * (1.0 - y)),
    samples=unary(extreme=_EXTREME),
)

# ------------------------------------------------------------------------------------------- special functions


def _special(name: str) -> Any:
    def call(*args: Any) -> Any:
        from scipy import special

        return getattr(special, name)(*args)

    return call


erf = define(
    "erf",
    formula="2/√π ∫₀ˣ e^(−t²) dt",
    reference=_special("erf"),
    jvp=lambda x_dot, y, x: x_dot * (_TWO_OVER_SQRT_PI * exp(-x * x)),
    samples=unary(extreme=_EXTREME),
)
erfc = define(
    "erfc",
    formula="1 − erf x",
    reference=_special("erfc"),
    jvp=lambda x_dot, y, x: x_dot * (-_TWO_OVER_SQRT_PI * exp(-x * x)),
    samples=unary(),
)
erfinv = define(
    "erfinv",
    formula="the x with erf x = y",
    reference=_special("erfinv"),
    jvp=lambda x_dot, y, x: x_dot * (exp(y * y) / _TWO_OVER_SQRT_PI),
    samples=unary(-0.9, 0.9, extreme=(1.0, -1.0, 0.0)),
)


def _normal_density(x: Any, exp: Any) -> Any:
    return exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))


def _np_gelu(x: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return np.where(x == -np.inf, 0.0, x * _special("ndtr")(x))


def _np_gelu_slope(x: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(x), x > 0, _special("ndtr")(x) + x * _normal_density(x, np.exp))


def _gelu_slope_jvp(x_dot: Any, y: Any, x: Any) -> Any:
    density = _normal_density(x, exp)
    return x_dot * (2.0 * density - x * (x * density))  # x² alone leaves the range of float16


# Of a composite's parts each is a pass, and its sum 1 + erf loses the digits of the left tail.
gelu_slope = define(
    "gelu_slope",
    formula="Φ(x) + x φ(x) with the normal distribution Φ and its density φ",
    reference=_np_gelu_slope,
    jvp=_gelu_slope_jvp,
    samples=[*unary(extreme=_EXTREME), Sample((reals(40, low=-6.0, high=6.0),))],
    public=False,
)
gelu = define(
    "gelu",
    formula="x Φ(x) with the normal distribution Φ",
    reference=_np_gelu,
    jvp=lambda x_dot, y, x: x_dot * gelu_slope(x),
    samples=[*unary(extreme=_EXTREME), Sample((reals(40, low=-9.0, high=9.0),))],
    public=False,
)
lgamma = define(
    "lgamma",
    formula="ln |Γ(x)|",
    reference=_special("gammaln"),
    jvp=lambda x_dot, y, x: x_dot * digamma(x),
    samples=unary(0.5, 4.0),
)
digamma: Op = define(
    "digamma",
    formula="d/dx ln Γ(x)",
    reference=_special("digamma"),
    jvp=lambda x_dot, y, x: x_dot * trigamma(x),
    samples=[
        Sample((positive(2, 3),)),
        Sample((positive(),)),
        Sample((exactly(-0.4, -1.7, -20.25),)),
        Sample((exactly(1e-9, 1.4616321449683622, 1e10, math.inf, -math.inf, math.nan),), gradients=False),
    ],
)
trigamma: Op = define(
    "trigamma",
    formula="d²/dx² ln Γ(x)",
    reference=lambda x: _special("polygamma")(1, x),
    jvp=lambda x_dot, y, x: x_dot * OPS["polygamma"](x, 2),
    samples=[
        Sample((positive(2, 3),)),
        Sample((exactly(-0.4, -1.7, -20.25),)),
        Sample((exactly(1e-9, 0.5, 1e10, math.inf, math.nan),), gradients=False),
    ],
)

# ------------------------------------------------------------------------- comparisons, logic and bits: no gradients


def _comparison(name: str, formula: str, reference: Any) -> Op:
    return define(
        name,
        formula=formula,
        reference=reference,
        samples=[
            Sample((reals(2, 3), reals(2, 3)), gradients=False),
            Sample((exactly(1.0, math.nan, 2.0), exactly(1.0, math.nan, 3.0)), gradients=False),
            Sample((whole(4, 5, low=0, high=3), whole(4, 5, low=0, high=3)), gradients=False),
        ],
    )


equal = _comparison("equal", "a = b", np.equal)
not_equal = _comparison("not_equal", "a ≠ b", np.not_equal)
less = _comparison("less", "a < b", np.less)
less_equal = _comparison("less_equal", "a ≤ b", np.less_equal)
greater = _comparison("greater", "a > b", np.greater)
greater_equal = _comparison("greater_equal", "a ≥ b", np.greater_equal)


def _logic(name: str, formula: str, reference: Any, operands: int = 2) -> Op:
    samples = [Sample((truth(2, 3),) * operands, gradients=False)]
    return define(name, formula=formula, reference=reference, samples=samples)


logical_and = _logic("logical_and", "a ∧ b", np.logical_and)
logical_or = _logic("logical_or", "a ∨ b", np.logical_or)
logical_xor = _logic("logical_xor", "a ⊕ b", np.logical_xor)
logical_not = _logic("logical_not", "¬x", np.logical_not, 1)


def _bits(name: str, formula: str, reference: Any, operands: int = 2, high: int = 16) -> Op:
    samples = [Sample((whole(2, 3, low=0, high=high),) * operands, gradients=False)]
    invalid = [Invalid((reals(3),) * operands, error="DTypeError", match=name)]
    return define(name, formula=formula, reference=reference, samples=samples, invalid=invalid)


bitwise_and = _bits("bitwise_and", "bits of a and b", np.bitwise_and)
bitwise_or = _bits("bitwise_or", "bits of a or b", np.bitwise_or)
bitwise_xor = _bits("bitwise_xor", "bits of either a or b", np.bitwise_xor)
bitwise_invert = _bits("bitwise_invert", "bits that x has not", np.invert, 1)
bitwise_left_shift = _bits("bitwise_left_shift", "a·2ᵇ", np.left_shift, high=5)
bitwise_right_shift = _bits("bitwise_right_shift", "⌊a/2ᵇ⌋", np.right_shift, high=5)


def _predicate(name: str, formula: str, reference: Any) -> Op:
    samples = [Sample((exactly(*_EXTREME),), gradients=False), Sample((reals(2, 3),), gradients=False)]
    return define(name, formula=formula, reference=reference, samples=samples)


isnan = _predicate("isnan", "whether x is NaN", np.isnan)
isinf = _predicate("isinf", "whether x is infinite", np.isinf)
isfinite = _predicate("isfinite", "whether x is a number", np.isfinite)
signbit = _predicate("signbit", "whether the sign bit is set", np.signbit)
