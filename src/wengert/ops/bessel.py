"""Bessel functions and Hurwitz' zeta function.

The modified functions have a real order v, zeta has its exponent s. The derivatives in v and s have no closed form; the core
computes them by the algorithm of the function, so the op has the order n of that derivative as an attribute.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.ops.arithmetic import sign
from wengert.ops.special import scipy_special
from wengert.registry.record import Op, define
from wengert.registry.samples import Invalid, Sample, exactly, positive, real, whole
from wengert.registry.zero import ZERO

_EMPTY = (real(0, 4), real(0, 4))


def _cylinder(name: str, scipy: str, samples: list[Sample]) -> Op:
    """J and Y have the same derivative: half the difference of their neighbours (NIST DLMF 10.6.1)."""

    def rule(x_dot: Any, y: Any, x: Any, n: int) -> Any:
        return x_dot * (-op(x, 1) if n == 0 else 0.5 * (op(x, n - 1) - op(x, n + 1)))

    op = define(
        name,
        precision="full",
        formula=f"{name[-1].upper()}ₙ(x)",
        reference=lambda x, n: scipy_special(scipy)(n, x),
        jvp=rule,
        vmap="elementwise",
        samples=samples,
        invalid=[
            Invalid((positive(3),), (-1,), "ArgumentError", "the order must be"),
            Invalid((whole(3),), (2,), "DTypeError", "real floating"),
        ],
        expensive=True,
        public=False,
    )
    return op


bessel_j = _cylinder(
    "bessel_j",
    "jv",
    [
        Sample((real(2, 3),), (0,)),
        Sample((real(7, low=-9.0, high=9.0),), (1,)),
        Sample((exactly(0.0, -0.5, 8.0),), (3,)),
        Sample((exactly(0.0, 1e-9, 40.0, 1e3, math.nan),), (0,), gradients=False),
        Sample((real(0, 4),), (1,)),
    ],
)
bessel_y = _cylinder(
    "bessel_y",
    "yv",
    [
        Sample((positive(2, 3),), (0,)),
        Sample((real(7, low=1.0, high=9.0),), (1,)),
        Sample((exactly(0.7, 3.0, 8.0),), (3,)),
        Sample((exactly(0.0, -1.0, 1e-3, 40.0, 1e3, math.nan),), (0,), gradients=False),
        Sample((real(0, 4),), (1,)),
    ],
)


def _by_order(exact: Callable[[Any, Any], Any], scipy: str) -> Any:
    """SciPy's function for n = 0, and for n > 0 its derivative with respect to the order in many digits."""

    def call(v: Any, x: Any, n: int) -> Any:
        if n == 0:
            return scipy_special(scipy)(v, x)
        import mpmath

        def one(v: float, x: float) -> float:
            with mpmath.workdps(30 + 15 * n):
                return float(mpmath.diff(lambda t: exact(t, mpmath.mpf(x)), v, n))

        return np.vectorize(one, otypes=[float])(v, x)

    return call


def _mpmath(name: str, scale: float = 0.0) -> Any:
    def call(v: Any, x: Any) -> Any:
        import mpmath

        return getattr(mpmath, name)(v, x) * mpmath.exp(scale * abs(x))

    return call


def _modified(name: str, formula: str, reference: Any, slope: Callable[..., Any], ends: Sample) -> Op:
    """I and K: by the order the next derivative, by x what `slope` makes of the neighbours (NIST DLMF 10.29.1)."""

    def rule(v_dot: Any, x_dot: Any, y: Any, v: Any, x: Any, n: int) -> Any:
        by_v = ZERO if v_dot is ZERO else v_dot * op(v, x, n + 1)
        return by_v if x_dot is ZERO else by_v + x_dot * slope(op, v, x, n, y)

    op = define(
        name,
        precision="full",
        formula=formula,
        reference=reference,
        jvp=rule,
        vmap="elementwise",
        samples=[
            Sample((real(2, 3, low=0.2, high=3.0), real(2, 3, low=0.3, high=4.0)), (0,)),
            Sample((real(3, low=0.2, high=3.0), real(3, low=0.3, high=4.0)), (1,)),
            Sample((exactly(0.0, 1.0, 7.25, 2.5), exactly(2.0, 0.5, 9.0, 6.0)), (0,)),
            ends,
            Sample(_EMPTY, (0,)),
        ],
        invalid=[Invalid((positive(3), positive(3)), (5,), "ArgumentError", "the order must be between 0 and 4")],
        expensive=True,
        public=False,
    )
    return op


def _neighbours(op: Op, v: Any, x: Any, n: int) -> Any:
    return 0.5 * (op(v - 1.0, x, n) + op(v + 1.0, x, n))


_I_ENDS = Sample(
    (
        exactly(0.0, 1.0, 2.0, -2.0, -2.5, 3.0, 0.5, math.nan, 1.0, -1.5),
        exactly(0.0, 0.0, -3.0, 3.0, 2.0, -1.5, -1.0, 1.0, math.nan, 0.4),
    ),
    (0,),
    gradients=False,
)
_K_ENDS = Sample(
    (exactly(0.0, 1.0, -2.0, 2.5, 0.5, math.nan, 1.0), exactly(0.0, 0.0, 3.0, 2.0, -1.0, 1.0, math.nan)),
    (0,),
    gradients=False,
)

bessel_iv = _modified(
    "bessel_iv",
    "(∂/∂v)ⁿ I_v(x)",
    _by_order(_mpmath("besseli"), "iv"),
    lambda op, v, x, n, y: _neighbours(op, v, x, n),
    _I_ENDS,
)
bessel_ive = _modified(
    "bessel_ive",
    "e^−|x| (∂/∂v)ⁿ I_v(x)",
    _by_order(_mpmath("besseli", -1.0), "ive"),
    lambda op, v, x, n, y: _neighbours(op, v, x, n) - sign(x) * y,
    _I_ENDS,
)
bessel_kv = _modified(
    "bessel_kv",
    "(∂/∂v)ⁿ K_v(x)",
    _by_order(_mpmath("besselk"), "kv"),
    lambda op, v, x, n, y: -_neighbours(op, v, x, n),
    _K_ENDS,
)
bessel_kve = _modified(
    "bessel_kve",
    "eˣ (∂/∂v)ⁿ K_v(x)",
    _by_order(_mpmath("besselk", 1.0), "kve"),
    lambda op, v, x, n, y: y - _neighbours(op, v, x, n),
    _K_ENDS,
)


def _zeta(s: Any, q: Any, n: int) -> Any:
    if n == 0:
        return scipy_special("zeta")(s, q)
    import mpmath

    return np.vectorize(lambda s, q: float(mpmath.zeta(s, q, n)), otypes=[float])(s, q)


def _zeta_jvp(s_dot: Any, q_dot: Any, y: Any, s: Any, q: Any, n: int) -> Any:
    made = ZERO if s_dot is ZERO else s_dot * zeta_by_s(s, q, n + 1)
    if q_dot is ZERO:
        return made
    slope = s * zeta_by_s(s + 1.0, q, n)  # ∂ζ(s, q)/∂q = −s ζ(s + 1, q)
    return made - q_dot * (slope + float(n) * zeta_by_s(s + 1.0, q, n - 1) if n else slope)


zeta_by_s: Op = define(
    "zeta_by_s",
    precision="full",
    formula="(∂/∂s)ⁿ ζ(s, q) = (∂/∂s)ⁿ Σ (q + k)⁻ˢ over k = 0, 1, …",
    reference=_zeta,
    jvp=_zeta_jvp,
    vmap="elementwise",
    samples=[
        Sample((real(2, 3, low=1.5, high=6.0), real(2, 3, low=0.5, high=4.0)), (0,)),
        Sample((real(3, low=1.5, high=6.0), real(3, low=0.5, high=4.0)), (1,)),
        Sample(
            (exactly(1.0, 0.5, 2.0, 3.0, 2.0, 2.5, 30.0, math.nan), exactly(2.0, 2.0, -1.0, -0.5, 1e6, -0.5, 0.1, 1.0)),
            (0,),
            gradients=False,
        ),
        Sample(_EMPTY, (0,)),
    ],
    invalid=[Invalid((positive(3), positive(3)), (7,), "ArgumentError", "the order must be between 0 and 6")],
    expensive=True,
    public=False,
)
