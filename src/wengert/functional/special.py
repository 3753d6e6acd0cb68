"""Special functions that are composed of ops. Those that are ops stand in `wengert` under their names: `erf`, `lgamma`, …"""

from __future__ import annotations

import math
import operator
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import ArgumentError
from wengert.tensors.arguments import as_dtype_of, as_floating, as_tensor, native, wide

_digamma, _trigamma, _polygamma = native("digamma"), native("trigamma"), native("polygamma")
_bessel_i, _bessel_i_scaled, _i0e = native("bessel_i"), native("bessel_i_scaled"), native("i0e")
_log, _log1p, _where, _sin, _abs = (native(n) for n in ("log", "log1p", "where", "sin", "abs"))
_sign = native("sign")
_round, _remainder = native("round"), native("remainder")
_erfcx, _ndtr, _ndtri = native("erfcx"), native("ndtr"), native("ndtri")
_gamma, _lgamma, _exp, _isnan = native("gamma"), native("lgamma"), native("exp"), native("isnan")
_equal, _and, _or, _less_equal = (native(n) for n in ("equal", "logical_and", "logical_or", "less_equal"))

expit = native("sigmoid")


def polygamma(n: int, x: Any) -> Tensor:
    """The n-th derivative of digamma, (d/dx)ⁿ⁺¹ ln Γ(x), for n = 0, 1, … (NIST DLMF 5.15).

    >>> polygamma(1, 1.0).item()
    1.644934...
    """
    try:
        order = operator.index(n)
    except TypeError:
        raise TypeError(f"polygamma: the order n must be an integer, got {n!r}") from None
    if order < 0:
        raise ArgumentError(f"polygamma: the order n must not be negative, got {order}")
    t = as_floating(as_tensor(x, "polygamma"))
    if order == 0:
        return _digamma(t)
    return _trigamma(t) if order == 1 else _polygamma(t, order)


@composite(precision="full", functions=("multigammaln",))
def _multigammaln(a: Tensor, d: int) -> Any:
    y: Any = 0.25 * d * (d - 1) * math.log(math.pi)
    for j in range(d):
        y = y + _lgamma(a - 0.5 * j)
    return y


def multigammaln(a: Any, d: int) -> Tensor:
    """ln Γ_d(a) = d(d − 1)/4 · ln π + Σ ln Γ(a − j/2) over j < d, the multivariate gamma function's; a > (d − 1)/2.

    >>> multigammaln(2.5, 2).item()
    0.857047...
    """
    order = operator.index(d)
    if order < 1:
        raise ArgumentError(f"multigammaln: the dimension d must be positive, got {d}")
    y: Tensor = _multigammaln(as_floating(as_tensor(a, "multigammaln")), order)
    return y


def i0(x: Any) -> Tensor:
    """The modified Bessel function I₀(x) (NIST DLMF 10.25).

    >>> i0(1.0).item()
    1.266065...
    """
    return _bessel_i(as_floating(as_tensor(x, "i0")), 0)


def i0e(x: Any) -> Tensor:
    """e^−|x| I₀(x), which does not overflow.

    >>> i0e(1000.0).item()
    0.012617...
    """
    return _i0e(as_floating(as_tensor(x, "i0e")))


def i1(x: Any) -> Tensor:
    """The modified Bessel function I₁(x), the derivative of I₀.

    >>> i1(1.0).item()
    0.565159...
    """
    t = as_floating(as_tensor(x, "i1"))
    y: Tensor = t * _bessel_i(t, 1)
    return y


@composite(precision="full", functions=("i1e",))
def _i1e(x: Tensor) -> Any:
    # x · I₁(x) / x; far out, where the quotient underflows, I₁ is I₀ to the last digit.
    t: Any = wide(x)
    far = _abs(t) > 1e17
    near = _where(far, 1.0, t)
    return as_dtype_of(_where(far, _sign(t) * _i0e(t), near * _bessel_i_scaled(near, 1)), x.dtype)


def i1e(x: Any) -> Tensor:
    """e^−|x| I₁(x), which does not overflow.

    >>> i1e(1000.0).item()
    0.012610...
    """
    y: Tensor = _i1e(as_floating(as_tensor(x, "i1e")))
    return y


_SQRT_HALF = math.sqrt(0.5)


@composite(precision="full", functions=("log_ndtr",))
def _log_ndtr(x: Tensor) -> Any:
    # Left of −1 ln(½ erfcx(−x/√2)) − x²/2; right of it ln(1 − Φ(−x)), where Φ(−x) is small.
    left = x < -1.0
    tail = _where(left, x, -1.0)
    body = _where(left, 0.0, x)
    return _where(left, _log(0.5 * _erfcx(tail * -_SQRT_HALF)) - 0.5 * tail * tail, _log1p(-_ndtr(-body)))


def log_ndtr(x: Any) -> Tensor:
    """ln Φ(x), the logarithm of the normal distribution function; also where Φ(x) underflows.

    >>> log_ndtr([-40.0, 0.0]).tolist()
    [-804.608..., -0.693147...]
    """
    y: Tensor = _log_ndtr(as_floating(as_tensor(x, "log_ndtr")))
    return y


@composite(precision="full", functions=("erfcinv",))
def _erfcinv(x: Tensor) -> Any:
    return _ndtri(0.5 * x) * -_SQRT_HALF


def erfcinv(x: Any) -> Tensor:
    """The y with erfc(y) = x, for x from 0 to 2.

    >>> erfcinv([1.0, 1e-10]).tolist()
    [..., 4.572824...]
    """
    y: Tensor = _erfcinv(as_floating(as_tensor(x, "erfcinv")))
    return y


@composite(precision="full", functions=("logit",))
def _logit(x: Tensor) -> Any:
    near = _abs(x - 0.5) < 0.25  # where the quotient is near 1
    middle = _where(near, x, 0.5)
    # Two logarithms instead of that of the quotient, whose slope at 0 would be ∞ · 0.
    return _where(near, _log1p((2.0 * middle - 1.0) / (1.0 - middle)), _log(x) - _log1p(-x))


def logit(x: Any) -> Tensor:
    """ln(x / (1 − x)), the inverse of the sigmoid.

    >>> logit([0.5, 0.75]).tolist()
    [0.0, 1.098612...]
    """
    y: Tensor = _logit(as_floating(as_tensor(x, "logit")))
    return y


@composite(precision="full", functions=("rgamma",))
def _rgamma(x: Tensor) -> Any:
    # 1/Γ; left of ½ its reflection sin(πx) Γ(1 − x) / π, which has no poles; far to the right, where Γ overflows, e^−ln Γ.
    # Γ(1 − x) as −x Γ(−x), because 1 − x is rounded.
    left, right = x < 0.5, x > 100.0
    reflected = _where(left, x, 0.0)
    whole = _round(reflected)
    sine = _sin((reflected - whole) * math.pi) * (1.0 - 2.0 * _remainder(whole, 2.0))
    turned = x < -0.5
    away = _where(turned, -x, 1.0)
    mirrored = _where(turned, away * _gamma(away), _gamma(_where(turned, 1.0, 1.0 - reflected)))
    near = _where(_or(left, right), 1.0, x)
    far = _exp(-_lgamma(_where(right, x, 200.0)))
    return _where(left, sine * mirrored * (1.0 / math.pi), _where(right, far, 1.0 / _gamma(near)))


def rgamma(x: Any) -> Tensor:
    """1/Γ(x), which is 0 at the poles of Γ and has derivatives there.

    >>> rgamma([3.0, -1.0]).tolist()
    [0.5, ...]
    """
    y: Tensor = _rgamma(as_floating(as_tensor(x, "rgamma")))
    return y


@composite(precision="full", functions=("entr",))
def _entr(x: Tensor) -> Any:
    positive = x > 0.0
    inside = -x * _log(_where(positive, x, 1.0))
    return _where(_or(positive, _isnan(x)), inside, _where(_equal(x, 0.0), 0.0, -math.inf))


def entr(x: Any) -> Tensor:
    """−x ln x, 0 at 0 and −∞ left of it: the terms of an entropy. The derivative at 0 is 0.

    >>> entr([0.0, 0.5, 1.0]).tolist()
    [0.0, 0.346573..., -0.0]
    """
    y: Tensor = _entr(as_floating(as_tensor(x, "entr")))
    return y


@composite(precision="full", functions=("rel_entr",))
def _rel_entr(x: Tensor, y: Tensor) -> Any:
    inside, nan = _and(x > 0.0, y > 0.0), _or(_isnan(x), _isnan(y))
    quotient = _log(_where(inside, x, 1.0) / _where(inside, y, 1.0))
    other = _where(nan, math.nan, _where(_and(_equal(x, 0.0), y >= 0.0), 0.0, math.inf))
    return _where(inside, x * quotient, other)


def rel_entr(x: Any, y: Any) -> Tensor:
    """x ln(x / y), 0 where x is 0 and ∞ where one is negative or y is 0: the terms of Kullback and Leibler's divergence.

    >>> rel_entr([0.0, 0.5], [0.5, 0.25]).tolist()
    [0.0, 0.346573...]
    """
    z: Tensor = _rel_entr(as_floating(as_tensor(x, "rel_entr")), as_floating(as_tensor(y, "rel_entr")))
    return z


@composite(precision="full", functions=("sinc",))
def _sinc(x: Tensor) -> Any:
    # Near 0 the Taylor series, of which every derivative is right.
    a = x * math.pi
    near = _abs(a) < 0.5
    z = _where(near, a, 0.0)
    z = z * z
    series: Any = 1.0 / math.factorial(21)
    for k in range(9, -1, -1):
        series = (-1.0) ** k / math.factorial(2 * k + 1) + z * series
    # sin(πx) = ± sin(π(x − ⌊x⌉)): 0 at the integers, and accurate around them.
    whole = _round(x)
    sine = _sin((x - whole) * math.pi) * (1.0 - 2.0 * _remainder(whole, 2.0))
    return _where(near, series, sine / _where(near, 1.0, a))


def sinc(x: Any) -> Tensor:
    """sin(πx) / (πx), and 1 at 0.

    >>> sinc([0.0, 0.5]).tolist()
    [1.0, 0.636619...]
    """
    y: Tensor = _sinc(as_floating(as_tensor(x, "sinc")))
    return y


@composite(precision="full", functions=("xlog1py",))
def _xlog1py(a: Tensor, b: Tensor) -> Any:
    nothing = _and(_equal(a, 0.0), _or(_less_equal(b, -1.0), _equal(b, math.inf)))
    return _where(nothing, 0.0, a * _log1p(_where(nothing, 0.0, b)))


def xlog1py(a: Any, b: Any) -> Tensor:
    """a ln(1 + b), and 0 where a is 0.

    >>> xlog1py([0.0, 2.0], [-1.0, 0.0]).tolist()
    [0.0, 0.0]
    """
    y: Tensor = _xlog1py(as_floating(as_tensor(a, "xlog1py")), as_floating(as_tensor(b, "xlog1py")))
    return y
