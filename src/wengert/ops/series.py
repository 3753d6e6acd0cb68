"""Series of ops: the coefficients of results from those of operands, as Taylor mode asks for them (Griewank & Walther,
Evaluating Derivatives, 2008, chapter 13). Records name them in their field `taylor`; `transforms/taylor.py` applies them."""

from __future__ import annotations

from typing import Any

from wengert._core import Tensor
from wengert.passes.evaluate import apply
from wengert.registry.record import OPS, Op
from wengert.registry.zero import ZERO

Series = list[Any]  # coefficients of tᵏ; ZERO for those that vanish as a whole


def convolved(op: Op, a: Series, b: Series, attrs: tuple[Any, ...], order: int) -> Series:
    """yₖ = Σⱼ aⱼ bₖ₋ⱼ, with the op as the product."""
    return [_sum(_times(op, a[j], b[k - j], attrs) for j in range(k + 1)) for k in range(order + 1)]


def _times(op: Op, a: Any, b: Any, attrs: tuple[Any, ...] = ()) -> Any:
    return ZERO if a is ZERO or b is ZERO else apply(op, [a, b], attrs)


def _product(a: Any, b: Any) -> Any:
    return ZERO if a is ZERO or b is ZERO else a * b


def _sum(terms: Any) -> Any:
    total: Any = ZERO
    for term in terms:
        total = total + term
    return total


def _squared(y: Series, k: int, first: int = 0) -> Any:
    """Σⱼ yⱼ yₖ₋ⱼ from `first` to k − `first`; equal products are computed once."""
    pairs = _sum(_product(y[j], y[k - j]) for j in range(first, (k + 1) // 2))
    total = pairs if pairs is ZERO else pairs * 2.0
    return total + _product(y[k // 2], y[k // 2]) if k % 2 == 0 and k // 2 >= first else total


def _integrated(u: Series, slope: Series, k: int) -> Any:
    """yₖ of y' = u' · slope: (1/k) Σⱼ j uⱼ slopeₖ₋ⱼ."""
    total = _sum(_product(u[j], slope[k - j]) * float(j) for j in range(1, k + 1))
    return total if total is ZERO else total * (1.0 / k)


def quotient(op: Op, operands: list[Series], order: int) -> Series:
    """b y = a, by coefficients."""
    a, b = operands
    y = [apply(op, [a[0], b[0]], ())]
    for k in range(1, order + 1):
        left = a[k] - _sum(_product(b[j], y[k - j]) for j in range(1, k + 1))
        y.append(_times(op, left, b[0]))
    return y


def exponential(op: Op, operands: list[Series], order: int) -> Series:
    """y' = y u'."""
    (u,) = operands
    y = [op(u[0])]
    for k in range(1, order + 1):
        y.append(_integrated(u, y, k))
    return y


def logarithm(op: Op, operands: list[Series], order: int) -> Series:
    """u y' = u'."""
    (u,) = operands
    y = [op(u[0])]
    for k in range(1, order + 1):
        inner = _sum(_product(y[j], u[k - j]) * float(j) for j in range(1, k))
        left = u[k] - (inner if inner is ZERO else inner * (1.0 / k))
        y.append(left if left is ZERO else left / u[0])
    return y


def square_root(op: Op, operands: list[Series], order: int) -> Series:
    """y² = u, by coefficients."""
    (u,) = operands
    y = [op(u[0])]
    for k in range(1, order + 1):
        left = u[k] - _squared([*y, ZERO], k, 1)
        y.append(left if left is ZERO else left / (y[0] * 2.0))
    return y


def square(op: Op, operands: list[Series], order: int) -> Series:
    """y = u², by coefficients."""
    (u,) = operands
    return [op(u[0]), *(_squared(u, k) for k in range(1, order + 1))]


def whole_power(op: Op, operands: list[Series], order: int) -> Series | None:
    """Whole powers as products, which hold at zero, too; others by the rule of the op."""
    u, exponent = operands[0], operands[1][0]
    if isinstance(exponent, Tensor) or not 2 <= exponent <= _LARGEST_POWER or exponent != int(exponent):
        return None
    n, found, power = int(exponent), None, u
    while n:
        if n & 1:
            found = power if found is None else convolved(OPS["mul"], found, power, (), order)
        n >>= 1
        power = convolved(OPS["mul"], power, power, (), order) if n else power
    assert found is not None
    return [apply(op, [u[0], exponent], ()), *found[1:]]


_LARGEST_POWER = 16


def sine(op: Op, operands: list[Series], order: int) -> Series:
    """sin' = cos · u'."""
    return _sine_and_cosine(operands[0], order)[0]


def cosine(op: Op, operands: list[Series], order: int) -> Series:
    """cos' = −sin · u'."""
    return _sine_and_cosine(operands[0], order)[1]


def _sine_and_cosine(u: Series, order: int) -> tuple[Series, Series]:
    sin, cos = [OPS["sin"](u[0])], [OPS["cos"](u[0])]
    for k in range(1, order + 1):
        rising, falling = _integrated(u, cos, k), _integrated(u, sin, k)
        sin.append(rising)
        cos.append(-falling)
    return sin, cos


def hyperbolic_sine(op: Op, operands: list[Series], order: int) -> Series:
    """sinh' = cosh · u'."""
    return _hyperbolic_sine_and_cosine(operands[0], order)[0]


def hyperbolic_cosine(op: Op, operands: list[Series], order: int) -> Series:
    """cosh' = sinh · u'."""
    return _hyperbolic_sine_and_cosine(operands[0], order)[1]


def _hyperbolic_sine_and_cosine(u: Series, order: int) -> tuple[Series, Series]:
    sinh, cosh = [OPS["sinh"](u[0])], [OPS["cosh"](u[0])]
    for k in range(1, order + 1):
        rising, other = _integrated(u, cosh, k), _integrated(u, sinh, k)
        sinh.append(rising)
        cosh.append(other)
    return sinh, cosh


def hyperbolic_tangent(op: Op, operands: list[Series], order: int) -> Series:
    """y' = (1 − y²) u'."""
    (u,) = operands
    y = [op(u[0])]
    slope = [1.0 - y[0] * y[0]]
    for k in range(1, order + 1):
        y.append(_integrated(u, slope, k))
        slope.append(-_squared(y, k))
    return y


def logistic(op: Op, operands: list[Series], order: int) -> Series:
    """y' = (y − y²) u'."""
    (u,) = operands
    y = [op(u[0])]
    slope = [y[0] - y[0] * y[0]]
    for k in range(1, order + 1):
        y.append(_integrated(u, slope, k))
        slope.append(y[k] - _squared(y, k))
    return y
