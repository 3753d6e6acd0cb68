"""Elementwise ops that are linear: what tangents and cotangents are made of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert.ops import series
from wengert.ops.simplifications import joined_slices, over_one, same_value, times_one, undone
from wengert.ops.sparsity import selection
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import EXTREME, Invalid, Sample, binary, exactly, truth, unary, whole
from wengert.registry.samples import complex as complex_numbers
from wengert.registry.samples import real as reals
from wengert.registry.zero import ZERO

_COMPLEX = [Sample((complex_numbers(2, 3),)), Sample((complex_numbers(),)), Sample((complex_numbers(0, 4),))]
_REAL = [Invalid((reals(3),), error="DTypeError", match="complex numbers")]


def or_zero(tangent: Any) -> Any:
    """The tangent as an operand: a number for a symbolic zero."""
    return 0.0 if tangent is ZERO else tangent


def is_complex(x: Any) -> bool:
    """Whether an operand of a rule, which may be a literal, is complex."""
    return isinstance(x, complex) if isinstance(x, (int, float, complex)) else x.dtype.kind == "c"


def conj(x: Any) -> Any:
    """The complex conjugate, which the transpose of a product needs; of a real value the value itself: no instruction."""
    if isinstance(x, complex):
        return x.conjugate()
    return OPS["conj"](x) if is_complex(x) else x


def real(x: Any) -> Any:
    """The real part; of a real value the value itself."""
    return OPS["real"](x) if x is not ZERO and is_complex(x) else x


add = define(
    "add",
    taylor="linear",
    work="arithmetic",
    simplified=joined_slices,
    formula="a + b",
    reference=np.add,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot + b_dot,
    transpose=(lambda y_bar, a, b: y_bar, lambda y_bar, a, b: y_bar),
    samples=[*binary(), Sample((whole(2, 3), whole(2, 3)))],
    invalid=[Invalid((reals(2, 3), reals(2, 4)), error="ShapeError", match="add")],
)
sub = define(
    "sub",
    taylor="linear",
    work="arithmetic",
    formula="a − b",
    reference=np.subtract,
    jvp=lambda a_dot, b_dot, y, a, b: a_dot - b_dot,
    transpose=(lambda y_bar, a, b: y_bar, lambda y_bar, a, b: -y_bar),
    samples=[*binary(), Sample((whole(2, 3), whole(2, 3)))],
)
neg = define(
    "neg",
    work="arithmetic",
    simplified=undone,
    formula="−x",
    reference=np.negative,
    jvp="linear",
    transpose=lambda y_bar, x: -y_bar,
    samples=unary(extreme=EXTREME),
    invalid=[Invalid((truth(3),), error="DTypeError", match="neg")],
)
copy = define(
    "copy",
    work="arithmetic",
    simplified=same_value,
    formula="x",
    reference=np.copy,
    jvp="linear",
    transpose=lambda y_bar, x: y_bar,
    sparsity="same",
    samples=unary(extreme=EXTREME),
    public=False,
)
# The parts of complex numbers. They are linear over the reals, with <u, v> = Re sum conj(u) v.
define(
    "conj",
    work="arithmetic",
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
    work="arithmetic",
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
    work="arithmetic",
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
    taylor="linear",
    work="arithmetic",
    formula="a + i b",
    reference=lambda a, b: a + 1j * b,
    jvp=lambda a_dot, b_dot, y, a, b: make_complex(or_zero(a_dot), or_zero(b_dot)),
    transpose=(lambda y_bar, a, b: OPS["real"](y_bar), lambda y_bar, a, b: OPS["imag"](y_bar)),
    samples=binary(),
)
strong_product: Op = define(
    "strong_product",
    taylor="bilinear",
    work="arithmetic",
    simplified=times_one,
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
    taylor="bilinear",
    work="arithmetic",
    simplified=times_one,
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
    taylor=series.quotient,
    work="arithmetic",
    simplified=over_one,
    formula="t/c, and 0 where t is 0 whatever c is (strong zero)",
    reference=lambda t, c: np.where(t == 0, 0, t / c),
    jvp=lambda t_dot, c_dot, y, t, c: t_dot / c - _strongly(c_dot, unscale(y, c)),
    transpose=(lambda y_bar, t, c: unscale(y_bar, conj(c)), None),
    samples=[*binary(b=(0.5, 2.0)), Sample((exactly(0.0, 2.0), exactly(0.0, 4.0)), gradients=False)],
    public=False,
)
where: Op = define(
    "where",
    where_zero="no element is taken from this operand",
    taylor="linear",
    work="arithmetic",
    formula="a where the condition holds, else b",
    reference=np.where,
    jvp=lambda c_dot, a_dot, b_dot, y, c, a, b: where(c, or_zero(a_dot), or_zero(b_dot)),
    transpose=(
        None,
        lambda y_bar, c, a, b: where(c, y_bar, 0.0),
        lambda y_bar, c, a, b: where(c, 0.0, y_bar),
    ),
    sparsity=selection,
    samples=[Sample((truth(2, 3), reals(2, 3), reals(2, 3))), Sample((truth(), reals(), reals()))],
)


def either(condition: Any, a: Any, b: Any) -> Any:
    """`where`, also if the condition is a Python bool: an operand of a rule may be a literal."""
    if isinstance(condition, bool):
        return a if condition else b
    return where(condition, a, b)


def select(condition: Any, tangent: Any) -> Any:
    """The tangent where the condition holds, else zero: the rule of everything piecewise linear."""
    return ZERO if tangent is ZERO else either(condition, tangent, 0.0)
