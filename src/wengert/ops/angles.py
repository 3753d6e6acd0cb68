"""The von Mises distribution: its distribution function, quantiles and draws.

The derivatives of F(x; κ) by the concentration have no closed form; the core computes them by the algorithm of F itself,
run on truncated Taylor series. A draw keeps its probability F while κ changes (Figurnov, Mohamed and Mnih, "Implicit
reparameterization gradients", 2018), so it moves by −(∂F/∂κ) / p.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert.ops.incomplete import bell, tensors
from wengert.ops.special import bessel_i_scaled, i0e
from wengert.ops.transcendental import cos, exp
from wengert.registry.record import Op, define
from wengert.registry.samples import Invalid, Sample, exactly, real, whole
from wengert.registry.zero import ZERO

_STREAM = ((1, 2), (3,))


def _density(x: Any, k: Any) -> Any:
    return exp(k * (cos(x) - 1.0)) / (i0e(k) * (2.0 * math.pi))


def _density_by_k(x: Any, k: Any, n: int) -> Any:
    """(∂/∂κ)ⁿ p. With A = I₁(κ)/I₀(κ), ∂ ln p/∂κ = cos x − A, and A' = 1 − A/κ − A²."""
    if n == 0:
        return _density(x, k)
    first, second, third = (bessel_i_scaled(k, m) / i0e(k) for m in (1, 2, 3))  # Iₘ(κ) / κᵐ I₀(κ)
    a, b_by_k = k * first, k * (second - first * first)
    a_by_k = 1.0 - first - a * a
    slopes = [cos(x) - a, -a_by_k]
    if n > 2:
        a_twice = -b_by_k - 2.0 * a * a_by_k
        b_twice = (second - first * first) + k * (k * (third - second * first) - 2.0 * first * b_by_k)
        slopes += [-a_twice, b_twice + 2.0 * (a_by_k * a_by_k + a * a_twice)]
    return bell(_density(x, k), slopes[:n])


def _cdf_jvp(x_dot: Any, k_dot: Any, y: Any, x: Any, k: Any, n: int) -> Any:
    by_x = ZERO if x_dot is ZERO else x_dot * _density_by_k(x, k, n)
    return by_x if k_dot is ZERO else by_x + k_dot * von_mises_cdf(x, k, n + 1)


def _quantile_jvp(p_dot: Any, k_dot: Any, y: Any, p: Any, k: Any) -> Any:
    (k, y) = tensors(k, y)
    density = _density(y, k)
    by_p = ZERO if p_dot is ZERO else p_dot / density
    return by_p if k_dot is ZERO else by_p - k_dot * (von_mises_cdf(y, k, 1) / density)


def _draw_jvp(k_dot: Any, y: Any, k: Any, key: Any, counter: Any) -> Any:
    return -k_dot * (von_mises_cdf(y, k, 1) / _density(y, k))


def _np_ratios(k: Any, n: int) -> Any:
    """(∂/∂κ)ⁿ Iⱼ(κ)/I₀(κ) for j = 0, 1, …, by Iⱼ' = (Iⱼ₋₁ + Iⱼ₊₁)/2, n up to 2."""
    from scipy.special import ive

    order = np.arange(300)
    made = [ive(order, k) / ive(0, k)]
    for m in range(n):
        y = made[-1]
        neighbours = (np.append(y[1], y[:-1]) + np.append(y[1:], 0.0)) / 2
        made.append(neighbours - sum(math.comb(m, i) * made[i] * made[m - i][1] for i in range(m + 1)))
    return made[n]


def _np_cdf(x: Any, k: Any, n: int) -> Any:
    """½ + x/2π + Σ Iⱼ(κ)/I₀(κ) sin(jx)/jπ, element by element."""
    order = np.arange(1, 300)

    def one(x: float, k: float) -> float:
        terms = _np_ratios(k, n)[1:] * np.sin(order * x) / (order * math.pi)
        return math.fsum([*terms, *((0.5, x / (2 * math.pi)) if n == 0 else ())])

    return np.vectorize(one, otypes=[float])(np.asarray(x, float), np.asarray(k, float))


def _np_icdf(p: Any, k: Any) -> Any:
    from scipy.special import i0e
    from scipy.stats import vonmises

    p, k = np.broadcast_arrays(np.asarray(p, float), np.asarray(k, float))
    x = np.where((p == 0) | (p == 1), math.pi * (2 * p - 1), vonmises.ppf(p, k))
    for _ in range(3):  # SciPy's has ten digits: Newton's steps
        density = np.exp(-2 * k * np.sin(x / 2) ** 2) / (2 * math.pi * i0e(k))
        x = np.where((p > 0) & (p < 1), x - (_np_cdf(np.nan_to_num(x), k, 0) - p) / density, x)
    return x


von_mises_cdf: Op = define(
    "von_mises_cdf",
    precision="full",
    formula="(∂/∂κ)ⁿ ∫ exp(κ cos t) dt / (2π I₀(κ)) from −π to x",
    reference=_np_cdf,
    jvp=_cdf_jvp,
    vmap="elementwise",
    samples=[
        Sample((real(2, 3, low=-3.0, high=3.0), real(2, 3, low=0.2, high=4.0)), (0,)),
        Sample((real(3, low=-0.6, high=0.6), real(3, low=29.0, high=40.0)), (0,)),
        Sample((real(3, low=-2.0, high=2.0), real(3, low=0.3, high=4.0)), (1,)),
        Sample((exactly(-0.3, 0.1, 0.2), exactly(31.0, 40.0, 90.0)), (2,), gradients=False),
        Sample((real(0, 4), real(0, 4)), (0,)),
    ],
    invalid=[
        Invalid((real(3), real(4)), (0,), "ShapeError", "same shape"),
        Invalid((real(3), real(3)), (5,), "ArgumentError", "the order must be between 0 and 4"),
    ],
    expensive=True,
    public=False,
)
von_mises_icdf: Op = define(
    "von_mises_icdf",
    precision="full",
    formula="the x with F(x; κ) = p, in [−π, π]",
    reference=_np_icdf,
    jvp=_quantile_jvp,
    samples=[
        Sample((real(2, 3, low=0.1, high=0.9), real(2, 3, low=0.1, high=0.9))),
        Sample((exactly(0.2, 0.5, 0.7), exactly(31.0, 3.0, 35.0))),
        Sample((real(0, 4), real(0, 4))),
    ],
    expensive=True,
    public=False,
)
random_von_mises: Op = define(
    "random_von_mises",
    precision="full",
    formula="x in [−π, π] with the density exp(κ cos x) / (2π I₀(κ)); its derivative keeps the probability of less than x",
    jvp=_draw_jvp,
    sparsity="elementwise",
    vmap="leading",
    samples=[Sample((real(3, 4, low=0.3, high=30.0),), _STREAM, gradients=False)],
    invalid=[Invalid((whole(3),), _STREAM, "DTypeError", "real floating")],
    expensive=True,
    public=False,
)
