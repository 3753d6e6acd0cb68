"""Arithmetic on the scalars of an update: Python floats in the step, tensors without axes in the pure form."""

from __future__ import annotations

import math
from math import expm1, log
from typing import Any

from wengert._core import Tensor
from wengert.tensors.arguments import native

_sqrt, _exp, _expm1, _pow = (native(n) for n in ("sqrt", "exp", "expm1", "pow"))
_minimum, _maximum, _where = (native(n) for n in ("minimum", "maximum", "where"))


def sqrt(x: Any) -> Any:
    """√x.

    >>> sqrt(4.0)
    2.0
    """
    return _sqrt(x) if isinstance(x, Tensor) else math.sqrt(x)


def power(x: Any, exponent: float) -> Any:
    """x to a constant power, for x > 0.

    >>> power(4.0, -0.5)
    0.5
    """
    return _pow(x, exponent) if isinstance(x, Tensor) else x**exponent


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two numbers.

    >>> minimum(1.0, 2.0)
    1.0
    """
    return _minimum(a, b) if isinstance(a, Tensor) or isinstance(b, Tensor) else min(a, b)


def at_first(step: Any, first: float, later: float) -> Any:
    """One number at step 1, another from then on.

    >>> at_first(1, 0.5, 0.9), at_first(2, 0.5, 0.9)
    (0.5, 0.9)
    """
    if first == later:
        return first
    return _where(step == 1.0, first, later) if isinstance(step, Tensor) else (first if step == 1 else later)


def one_minus_power(beta: float, step: Any) -> Any:
    """1 − βᵗ, in a form that keeps its digits while βᵗ is near 1.

    >>> round(one_minus_power(0.9, 2), 12)
    0.19
    """
    if beta == 0.0:
        return 1.0
    exponent = step * log(beta)
    return -(_expm1(exponent) if isinstance(exponent, Tensor) else expm1(exponent))


def power_of(base: float, exponent: Any) -> Any:
    """A constant to any power.

    >>> power_of(2.0, 3)
    8.0
    """
    return _exp(exponent * log(base)) if isinstance(exponent, Tensor) else base**exponent


def maximum(a: Any, b: float) -> Any:
    """The larger of two numbers.

    >>> maximum(1.0, 2.0)
    2.0
    """
    return _maximum(a, b) if isinstance(a, Tensor) else max(a, b)


def choose(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, else b.

    >>> choose(True, 1.0, 2.0)
    1.0
    """
    return _where(condition, a, b) if isinstance(condition, Tensor) else (a if condition else b)
