"""The incomplete gamma and beta functions, their inverses, and the derivatives with respect to their parameters.

The derivatives with respect to the parameters have no closed form. The core computes them by the function's own
algorithm, run on truncated Taylor series (`gammainc_by_a`, `betainc_by_ab`), as accurately as the function, up to fourth
order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert.ops.special import digamma, polygamma, scipy_special
from wengert.ops.transcendental import log, log1p
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Invalid, Sample, binary, exactly, positive, real
from wengert.registry.zero import ZERO


def tensors(*operands: Any) -> tuple[Any, ...]:
    """Operands of a rule with literals filled to the shape of the others. The clamp is the literal whatever it clamps."""
    like = next(x for x in operands if not isinstance(x, (int, float)))
    clip = OPS["clip"]
    return tuple(clip(like, x, x) if isinstance(x, (int, float)) else x for x in operands)


def _psi(n: int, x: Any) -> Any:
    return digamma(x) if n == 0 else polygamma(x, n)


def bell(density: Any, slopes: list[Any]) -> Any:
    """The n-th derivative of e^L where e^L is the density and L', L'', … the n slopes: Bell's recurrence."""
    made = [density]
    for n in range(1, len(slopes) + 1):
        terms = (made[k] * slopes[n - 1 - k] * math.comb(n - 1, k) for k in range(n))
        made.append(sum(terms, start=ZERO))
    return made[-1]


# ------------------------------------------------------------------------------------------------------- gamma


def _gammainc_jvp(sign: float) -> Any:
    def rule(a_dot: Any, x_dot: Any, y: Any, a: Any, x: Any) -> Any:
        by_x = ZERO if x_dot is ZERO else x_dot * (sign * gammainc_density(a, x))
        return by_x if a_dot is ZERO else by_x + a_dot * (sign * gammainc_by_a(*tensors(a, x), 1))

    return rule


def _density_by_a(a: Any, x: Any, n: int) -> Any:
    slopes = [log(x) - digamma(a), *(-_psi(k, a) for k in range(1, n))]
    return bell(gammainc_density(a, x), slopes)


def _gammainc_by_a_jvp(a_dot: Any, x_dot: Any, y: Any, a: Any, x: Any, n: int) -> Any:
    by_a = ZERO if a_dot is ZERO else a_dot * gammainc_by_a(a, x, n + 1)
    return by_a if x_dot is ZERO else by_a + x_dot * _density_by_a(a, x, n)


def _gammainc_density_jvp(a_dot: Any, x_dot: Any, y: Any, a: Any, x: Any) -> Any:
    a, x = tensors(a, x)
    by_x = ZERO if x_dot is ZERO else x_dot * (y * ((a - 1.0) / x - 1.0))
    return by_x if a_dot is ZERO else by_x + a_dot * (y * (log(x) - digamma(a)))


def _gamma_quantile_jvp(sign: float) -> Any:
    def rule(a_dot: Any, p_dot: Any, y: Any, a: Any, p: Any) -> Any:
        (a, y) = tensors(a, y)
        slope = gammainc_density(a, y)
        by_p = ZERO if p_dot is ZERO else p_dot * (sign / slope)
        return by_p if a_dot is ZERO else by_p - a_dot * (gammainc_by_a(a, y, 1) / slope)

    return rule


def _gammainc_by_a(a: Any, x: Any, n: int) -> Any:
    import mpmath

    def one(a: float, x: float) -> float:
        if not (a > 0 and x >= 0) or math.isinf(a) or math.isinf(x) or x == 0:
            return 0.0 if a > 0 and x >= 0 else math.nan
        with mpmath.workdps(30 + 15 * n):
            return -float(mpmath.diff(lambda t: mpmath.gammainc(t, x, mpmath.inf, regularized=True), a, n))

    return np.vectorize(one, otypes=[float])(a, x)


_GAMMA_PAIRS = [
    *binary(a=(0.3, 4.0), b=(0.2, 5.0)),
    Sample((real(5, low=45.0, high=60.0), real(5, low=40.0, high=70.0))),
]

gammainc: Op = define(
    "gammainc",
    precision="full",
    formula="P(a, x) = ∫₀ˣ tᵃ⁻¹ e⁻ᵗ dt / Γ(a)",
    reference=scipy_special("gammainc"),
    jvp=_gammainc_jvp(1.0),
    samples=[
        *_GAMMA_PAIRS,
        Sample(
            (exactly(0.0, 0.0, 1.0, 1.0, -1.0, 1.0, math.inf, 2.0, math.nan, 1.0, 1e-10, 1e4),
             exactly(0.0, 1.0, 0.0, math.inf, 1.0, -1.0, 1.0, 3.0, 1.0, math.nan, 1e-10, 1.01e4)),
            gradients=False,
        ),
    ],
    expensive=True,
)  # fmt: skip
gammaincc: Op = define(
    "gammaincc",
    precision="full",
    formula="Q(a, x) = ∫ₓ^∞ tᵃ⁻¹ e⁻ᵗ dt / Γ(a)",
    reference=scipy_special("gammaincc"),
    jvp=_gammainc_jvp(-1.0),
    samples=[
        *_GAMMA_PAIRS,
        Sample(
            (exactly(0.0, 0.0, 1.0, 1.0, -1.0, 1.0, math.inf, 2.0, math.nan, 1.0, 1e-10),
             exactly(0.0, 1.0, 0.0, math.inf, 1.0, -1.0, 1.0, 30.0, 1.0, math.nan, 1e-10)),
            gradients=False,
        ),
    ],
    expensive=True,
)  # fmt: skip
gammainc_density: Op = define(
    "gammainc_density",
    precision="full",
    formula="∂P(a, x)/∂x = xᵃ⁻¹ e⁻ˣ / Γ(a)",
    reference=lambda a, x: np.exp(
        scipy_special("xlogy")(a - 1, x) - x - scipy_special("gammaln")(a)
    ),
    jvp=_gammainc_density_jvp,
    samples=[*binary(a=(0.3, 4.0), b=(0.2, 5.0)), Sample((real(5, low=11.0, high=30.0), real(5, low=5.0, high=30.0)))],
    expensive=True,
    public=False,
)  # fmt: skip
gammainc_by_a: Op = define(
    "gammainc_by_a",
    precision="full",
    formula="(∂/∂a)ⁿ P(a, x)",
    reference=_gammainc_by_a,
    jvp=_gammainc_by_a_jvp,
    vmap="elementwise",
    samples=[
        Sample((real(2, 3, low=0.3, high=4.0), real(2, 3, low=0.2, high=5.0)), (1,)),
        Sample((real(4, low=0.3, high=30.0), real(4, low=0.2, high=40.0)), (2,)),
        Sample((real(5, low=45.0, high=60.0), real(5, low=40.0, high=70.0)), (1,)),
        Sample((exactly(2.0, 200.0, 1.0, 1.0), exactly(3.0, 202.0, 0.0, math.inf)), (3,), gradients=False),
        Sample((real(0, 4), real(0, 4)), (1,)),
    ],
    invalid=[
        Invalid((positive(3), positive(3)), (0,), "ArgumentError", "the order must be between 1 and 4"),
        Invalid((positive(3), positive(3)), (5,), "ArgumentError", "the order must be between 1 and 4"),
        Invalid((positive(3), positive(4)), (1,), "ShapeError", "same shape"),
    ],
    expensive=True,
    public=False,
)
gammaincinv: Op = define(
    "gammaincinv",
    precision="full",
    formula="the x with P(a, x) = p",
    reference=scipy_special("gammaincinv"),
    jvp=_gamma_quantile_jvp(1.0),
    samples=[
        *binary(a=(0.3, 8.0), b=(0.05, 0.95)),
        Sample(
            (exactly(1.0, 1.0, 1.0, -1.0, 50.0, 0.5, math.nan), exactly(0.0, 1.0, 1.5, 0.5, 0.01, 1e-12, 0.5)),
            gradients=False,
        ),
    ],
    expensive=True,
)
gammainccinv: Op = define(
    "gammainccinv",
    precision="full",
    formula="the x with Q(a, x) = q",
    reference=scipy_special("gammainccinv"),
    jvp=_gamma_quantile_jvp(-1.0),
    samples=[
        *binary(a=(0.3, 8.0), b=(0.05, 0.95)),
        Sample(
            (exactly(1.0, 1.0, 1.0, -1.0, 50.0, 0.5, math.nan), exactly(0.0, 1.0, 1.5, 0.5, 0.01, 1e-12, 0.5)),
            gradients=False,
        ),
    ],
    expensive=True,
)


# -------------------------------------------------------------------------------------------------------- beta


def _betainc_jvp(a_dot: Any, b_dot: Any, x_dot: Any, y: Any, a: Any, b: Any, x: Any) -> Any:
    made = ZERO if x_dot is ZERO else x_dot * betainc_density(a, b, x)
    if a_dot is not ZERO:
        made = made + a_dot * betainc_by_ab(*tensors(a, b, x), 1, 0)
    return made if b_dot is ZERO else made + b_dot * betainc_by_ab(*tensors(a, b, x), 0, 1)


def _betainc_by_ab_jvp(a_dot: Any, b_dot: Any, x_dot: Any, y: Any, a: Any, b: Any, x: Any, m: int, n: int) -> Any:
    made = ZERO if x_dot is ZERO else x_dot * _beta_density_by_ab(a, b, x, m, n)
    if a_dot is not ZERO:
        made = made + a_dot * betainc_by_ab(a, b, x, m + 1, n)
    return made if b_dot is ZERO else made + b_dot * betainc_by_ab(a, b, x, m, n + 1)


def _beta_density_by_ab(a: Any, b: Any, x: Any, m: int, n: int) -> Any:
    """By recurrence: the derivative of e^L with respect to a is e^L L_a, and with respect to b it is e^L L_b."""
    if m == 0 and n == 0:
        return betainc_density(a, b, x)
    over_a = m > 0
    p, q = (m - 1, n) if over_a else (m, n - 1)
    total: Any = ZERO
    for i in range(p + 1):
        for j in range(q + 1):
            slope = _beta_slope(a, b, x, p - i, q - j) if over_a else _beta_slope(b, a, 1.0 - x, q - j, p - i)
            weight = math.comb(p, i) * math.comb(q, j)
            total = total + _beta_density_by_ab(a, b, x, i, j) * slope * float(weight)
    return total


def _beta_slope(a: Any, b: Any, x: Any, p: int, q: int) -> Any:
    """(∂/∂a)ᵖ (∂/∂b)^q of ln x − ψ(a) + ψ(a + b)."""
    slope = _psi(p + q, a + b)
    if q == 0:
        slope = slope - _psi(p, a)
    return slope + log(x) if p == q == 0 else slope


def _betainc_density_jvp(a_dot: Any, b_dot: Any, x_dot: Any, y: Any, a: Any, b: Any, x: Any) -> Any:
    a, b, x = tensors(a, b, x)
    made = ZERO if x_dot is ZERO else x_dot * (y * ((a - 1.0) / x - (b - 1.0) / (1.0 - x)))
    both = digamma(a + b)
    if a_dot is not ZERO:
        made = made + a_dot * (y * (log(x) - digamma(a) + both))
    return made if b_dot is ZERO else made + b_dot * (y * (log1p(-x) - digamma(b) + both))


def _betaincinv_jvp(a_dot: Any, b_dot: Any, p_dot: Any, y: Any, a: Any, b: Any, p: Any) -> Any:
    a, b, y = tensors(a, b, y)
    slope = betainc_density(a, b, y)
    made = ZERO if p_dot is ZERO else p_dot / slope
    if a_dot is not ZERO:
        made = made - a_dot * (betainc_by_ab(a, b, y, 1, 0) / slope)
    return made if b_dot is ZERO else made - b_dot * (betainc_by_ab(a, b, y, 0, 1) / slope)


def _betainc_by_ab(a: Any, b: Any, x: Any, m: int, n: int) -> Any:
    import mpmath

    def one(a: float, b: float, x: float) -> float:
        if x in (0.0, 1.0):
            return 0.0
        with mpmath.workdps(30 + 15 * (m + n)):
            return float(mpmath.diff(lambda s, t: mpmath.betainc(s, t, 0, x, regularized=True), (a, b), (m, n)))

    return np.vectorize(one, otypes=[float])(a, b, x)


def _betainc_density(a: Any, b: Any, x: Any) -> Any:
    import mpmath

    def one(a: float, b: float, x: float) -> float:
        return float(mpmath.mpf(x) ** (a - 1) * (1 - mpmath.mpf(x)) ** (b - 1) / mpmath.beta(a, b))

    return np.vectorize(one, otypes=[float])(a, b, x)


def _triple(*shape: int, high: float = 4.0) -> tuple[Any, Any, Any]:
    return real(*shape, low=0.3, high=high), real(*shape, low=0.3, high=high), real(*shape, low=0.05, high=0.95)


_LARGE = (real(5, low=11.0, high=40.0), real(5, low=11.0, high=40.0), real(5, low=0.2, high=0.8))

betainc: Op = define(
    "betainc",
    precision="full",
    formula="Iₓ(a, b) = ∫₀ˣ tᵃ⁻¹ (1 − t)ᵇ⁻¹ dt / B(a, b)",
    reference=scipy_special("betainc"),
    jvp=_betainc_jvp,
    samples=[
        Sample(_triple(2, 3)),
        Sample(_triple()),
        Sample(_triple(0, 4)),
        Sample(_LARGE),
        Sample(
            (exactly(1.0, 1.0, 1.0, 1.0, -1.0, math.nan, 0.5), exactly(2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 0.5),
             exactly(0.0, 1.0, -0.5, 1.5, 0.5, 0.5, 1e-10)),
            gradients=False,
        ),
    ],
    expensive=True,
)  # fmt: skip
betainc_density: Op = define(
    "betainc_density",
    precision="full",
    formula="∂Iₓ(a, b)/∂x = xᵃ⁻¹ (1 − x)ᵇ⁻¹ / B(a, b)",
    reference=_betainc_density,
    jvp=_betainc_density_jvp,
    samples=[Sample(_triple(2, 3)), Sample(_triple()), Sample(_triple(0, 4)), Sample(_LARGE)],
    expensive=True,
    public=False,
)
betainc_by_ab: Op = define(
    "betainc_by_ab",
    precision="full",
    formula="(∂/∂a)ᵐ (∂/∂b)ⁿ Iₓ(a, b)",
    reference=_betainc_by_ab,
    jvp=_betainc_by_ab_jvp,
    vmap="elementwise",
    samples=[
        Sample(_triple(2, 3), (1, 0)),
        Sample(_triple(2), (0, 1)),
        Sample(_triple(2), (1, 1)),
        Sample(_LARGE, (1, 0)),
        Sample((exactly(2.0, 0.5), exactly(3.0, 0.5), exactly(0.0, 1.0)), (0, 2), gradients=False),
        Sample(_triple(0, 4), (1, 0)),
    ],
    invalid=[
        Invalid(_triple(3), (0, 0), "ArgumentError", "the order must be between 1 and 4"),
        Invalid(_triple(3), (3, 2), "ArgumentError", "the order must be between 1 and 4"),
    ],
    expensive=True,
    public=False,
)
betaincinv: Op = define(
    "betaincinv",
    precision="full",
    formula="the x with Iₓ(a, b) = p",
    reference=scipy_special("betaincinv"),
    jvp=_betaincinv_jvp,
    samples=[
        Sample(_triple(2, 3)),
        Sample(_triple()),
        Sample(_triple(0, 4)),
        Sample(
            (exactly(1.0, 1.0, 2.0, 2.0, -1.0), exactly(2.0, 2.0, 30.0, 2.0, 1.0), exactly(0.0, 1.0, 1e-9, 1.5, 0.5)),
            gradients=False,
        ),
    ],
    expensive=True,
)
