"""Comparisons, logic, bits and predicates: no gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert.registry.record import Op, define
from wengert.registry.samples import EXTREME, Invalid, Sample, exactly, truth, whole
from wengert.registry.samples import real as reals


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
    samples = [Sample((exactly(*EXTREME),), gradients=False), Sample((reals(2, 3),), gradients=False)]
    return define(name, formula=formula, reference=reference, samples=samples)


isnan = _predicate("isnan", "whether x is NaN", np.isnan)
isinf = _predicate("isinf", "whether x is infinite", np.isinf)
isfinite = _predicate("isfinite", "whether x is a number", np.isfinite)
signbit = _predicate("signbit", "whether the sign bit is set", np.signbit)
