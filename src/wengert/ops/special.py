"""Special functions: of the normal distribution, gamma and its logarithm's derivatives, beta, Bessel's of integer order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert.ops.arithmetic import sign
from wengert.ops.transcendental import exp
from wengert.program.trace import untraced
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import EXTREME, Invalid, Sample, binary, exactly, positive, real, unary, whole
from wengert.tensors.conversion import asarray

_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
_DENSITY_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)


def scipy_special(name: str) -> Any:
    """A function of scipy.special as a reference, imported when a test calls it."""

    def call(*args: Any) -> Any:
        from scipy import special

        return getattr(special, name)(*args)

    return call


erf = define(
    "erf",
    where_zero="it is saturated, for all elements",
    formula="2/√π ∫₀ˣ e^(−t²) dt",
    reference=scipy_special("erf"),
    jvp=lambda x_dot, y, x: x_dot * (_TWO_OVER_SQRT_PI * exp(-x * x)),
    samples=unary(extreme=EXTREME),
)
erfc = define(
    "erfc",
    precision="full",
    formula="1 − erf x",
    reference=scipy_special("erfc"),
    jvp=lambda x_dot, y, x: x_dot * (-_TWO_OVER_SQRT_PI * exp(-x * x)),
    samples=unary(),
)
erfinv = define(
    "erfinv",
    precision="full",
    formula="the x with erf x = y",
    reference=scipy_special("erfinv"),
    jvp=lambda x_dot, y, x: x_dot * (exp(y * y) / _TWO_OVER_SQRT_PI),
    samples=unary(-0.9, 0.9, extreme=(1.0, -1.0, 0.0)),
)
erfcx: Op = define(
    "erfcx",
    precision="full",
    formula="e^(x²) erfc x",
    reference=scipy_special("erfcx"),
    jvp=lambda x_dot, y, x: x_dot * (2.0 * x * y - _TWO_OVER_SQRT_PI),
    samples=unary(extreme=(-30.0, -26.0, -5.0, -0.0, 0.0, 1.0, 30.0, 1e4, math.inf, -math.inf, math.nan)),
)
ndtr = define(
    "ndtr",
    precision="full",
    formula="Φ(x) = ∫₋∞ˣ e^(−t²/2) dt / √(2π)",
    reference=scipy_special("ndtr"),
    jvp=lambda x_dot, y, x: x_dot * (_DENSITY_AT_ZERO * exp(-0.5 * x * x)),
    samples=unary(extreme=(-5.0, -0.0, 0.0, 1.0, 9.0, 1e4, math.inf, -math.inf, math.nan)),
)
ndtri = define(
    "ndtri",
    precision="full",
    formula="the x with Φ(x) = p",
    reference=scipy_special("ndtri"),
    jvp=lambda x_dot, y, x: x_dot * (exp(0.5 * y * y) / _DENSITY_AT_ZERO),
    samples=unary(0.2, 0.8, extreme=(0.0, 1.0, 0.5, 1e-30, 1.5, -0.5, math.nan)),
)
lgamma = define(
    "lgamma",
    precision="full",
    formula="ln |Γ(x)|",
    reference=scipy_special("gammaln"),
    jvp=lambda x_dot, y, x: x_dot * digamma(x),
    samples=unary(0.5, 4.0),
)
gamma = define(
    "gamma",
    precision="full",
    formula="Γ(x)",
    reference=scipy_special("gamma"),
    jvp=lambda x_dot, y, x: x_dot * (y * digamma(x)),
    samples=[
        *unary(0.5, 4.0),
        Sample((exactly(-0.4, -1.7, -3.25),)),
        Sample((exactly(0.0, -0.0, -1.0, -2.0, 170.5, 172.0, -170.5, math.inf, math.nan),), gradients=False),
    ],
)
digamma: Op = define(
    "digamma",
    precision="full",
    formula="d/dx ln Γ(x)",
    reference=scipy_special("digamma"),
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
    precision="full",
    formula="d²/dx² ln Γ(x)",
    reference=lambda x: scipy_special("polygamma")(1, x),
    jvp=lambda x_dot, y, x: x_dot * OPS["polygamma"](x, 2),
    samples=[
        Sample((positive(2, 3),)),
        Sample((exactly(-0.4, -1.7, -20.25),)),
        Sample((exactly(1e-9, 0.5, 1e10, math.inf, math.nan),), gradients=False),
    ],
)

_ORDERS = [
    Invalid((real(3),), (-1,), "ArgumentError", "the order must be"),
    Invalid((whole(3),), (2,), "DTypeError", "real floating"),
]

polygamma: Op = define(
    "polygamma",
    precision="full",
    formula="(d/dx)ⁿ⁺¹ ln Γ(x)",
    reference=lambda x, n: scipy_special("polygamma")(n, x),
    jvp=lambda x_dot, y, x, n: x_dot * polygamma(x, n + 1),
    vmap="elementwise",
    samples=[
        Sample((positive(2, 3),), (2,)),
        Sample((real(7, low=4.0, high=30.0),), (1,)),
        Sample((exactly(-0.4, -1.7, -3.5, -20.25),), (3,)),
        Sample((exactly(1e-3, 0.5, 12.0, 1e5, 1e10, math.inf, math.nan),), (2,), gradients=False),
        Sample((real(0, 4),), (1,)),
    ],
    invalid=_ORDERS,
    expensive=True,
    public=False,
)


def _bessel(scaled: bool) -> Any:
    def call(x: Any, n: int) -> Any:
        from scipy import special

        x = np.abs(x)  # an even function
        near = x < 1e-3
        safe = np.where(near, 1.0, x)
        y = (special.ive if scaled else special.iv)(n, safe) / safe**n
        first = 1 / (2.0**n * math.factorial(n))
        small = first * (1 + x * x / (4 * (n + 1)) * (1 + x * x / (8 * (n + 2))))
        return np.where(near, small * np.exp(-x) if scaled else small, y)

    return call


bessel_i: Op = define(
    "bessel_i",
    precision="full",
    formula="Iₙ(x) / xⁿ",
    reference=_bessel(False),
    jvp=lambda x_dot, y, x, n: x_dot * (x * bessel_i(x, n + 1)),
    vmap="elementwise",
    samples=[
        Sample((real(2, 3),), (0,)),
        Sample((real(7, low=-6.0, high=6.0),), (1,)),
        Sample((exactly(0.0, -0.5, 8.0),), (2,)),
        Sample((exactly(0.0, 1e-9, 24.9, 25.1, 40.0, 700.0, math.nan),), (0,), gradients=False),
        Sample((real(0, 4),), (1,)),
    ],
    invalid=_ORDERS,
    expensive=True,
    public=False,
)
bessel_i_scaled: Op = define(
    "bessel_i_scaled",
    precision="full",
    formula="e^−|x| Iₙ(x) / xⁿ",
    reference=_bessel(True),
    jvp=lambda x_dot, y, x, n: x_dot * (x * bessel_i_scaled(x, n + 1) - sign(x) * y),
    vmap="elementwise",
    samples=[
        Sample((real(2, 3, gap=0.05),), (0,)),
        Sample((exactly(-60.0, 3.0, 25.5, 30.0),), (1,)),
        Sample((exactly(0.0, 1e-9, 24.9, 25.1, 40.0, 1e4, math.nan),), (0,), gradients=False),
        Sample((real(0, 4),), (1,)),
    ],
    invalid=_ORDERS,
    expensive=True,
    public=False,
)


# `bessel_i_scaled` of order 0 as a vector kernel: it took most of the time of the von Mises distribution's density.
i0e: Op = define(
    "i0e",
    precision="full",
    formula="e^−|x| I₀(x)",
    reference=scipy_special("i0e"),
    jvp=lambda x_dot, y, x: x_dot * (x * bessel_i_scaled(x, 1) - sign(x) * y),
    samples=[
        *unary(-6.0, 6.0, gap=0.05, extreme=EXTREME),
        Sample((exactly(1e-9, 7.9999, 8.0, 1e4),), gradients=False),
        Sample((exactly(3.0, 7.9, 8.1, 8.5, 40.0),)),
    ],
    public=False,
)


def _betaln(a: Any, b: Any) -> Any:
    from scipy import special

    return special.betaln(a, b)


def _betaln_jvp(a_dot: Any, b_dot: Any, y: Any, a: Any, b: Any) -> Any:
    both = digamma(a + b)
    return a_dot * (_digamma(a) - both) + b_dot * (_digamma(b) - both)


def _beta_jvp(a_dot: Any, b_dot: Any, y: Any, a: Any, b: Any) -> Any:
    both = digamma(a + b)
    return a_dot * (y * (_digamma(a) - both)) + b_dot * (y * (_digamma(b) - both))


def _digamma(x: Any) -> Any:
    """digamma, also of a literal."""
    if isinstance(x, (int, float)):
        with untraced():  # a literal has a number, also where a function is being traced
            return digamma(asarray(float(x), dtype="float64")).item()
    return digamma(x)


beta = define(
    "beta",
    precision="full",
    formula="B(a, b) = Γ(a) Γ(b) / Γ(a + b)",
    reference=scipy_special("beta"),
    jvp=lambda a_dot, b_dot, y, a, b: _beta_jvp(a_dot, b_dot, y, a, b),
    samples=[
        *binary(a=(0.3, 3.0), b=(0.3, 3.0)),
        Sample((exactly(1e-3, 15.0, 200.0, 0.5), exactly(2.0, 30.0, 1.5, -0.25)), gradients=False),
    ],
)
betaln = define(
    "betaln",
    precision="full",
    formula="ln |Γ(a) Γ(b) / Γ(a + b)|",
    reference=_betaln,
    jvp=_betaln_jvp,
    samples=[
        *binary(a=(0.3, 3.0), b=(0.3, 3.0)),
        *binary(a=(11.0, 30.0), b=(0.3, 30.0))[:1],
        Sample((exactly(1e-3, 15.0, 5.0), exactly(2.0, 30.0, 40.0)), gradients=False),
    ],
)
