"""Draws of distributions with parameters, and how draws of the gamma distribution move with theirs (`angles` has the
von Mises distribution).

A draw z of Gamma(a, 1) keeps its probability P(a, z) while a changes (Figurnov, Mohamed and Mnih, "Implicit
reparameterization gradients", 2018). With p the density and l = ln z, d ln z/da is

    −∂P/∂a / (z p(z)) = (l − ψ(a)) T₀ + T₁,   Tₖ = ∫ ln(t/z)ᵏ t^(a−1) e^−t dt / (z^a e^−z),

integrated over one of the two tails that z cuts off. The Tₖ are closed under derivatives, so every order is exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert.ops.special import digamma, trigamma
from wengert.ops.transcendental import exp, log
from wengert.passes.example_axis import all_mapped
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Invalid, Sample, exactly, real, whole

_STREAM = ((1, 2), (3,))
_NOT_FLOATING = Invalid((whole(3),), (0, *_STREAM), "DTypeError", "real floating")


def _np_tail(a: Any, l: Any, order: int) -> Any:
    """By Gauss–Legendre quadrature with far more nodes than necessary, element by element."""
    x, w = np.polynomial.legendre.leggauss(60)
    x, w = (x + 1) / 2, w / 2

    def one(a: float, l: float) -> float:
        z = math.exp(l)
        side = -1.0 if z <= a else 1.0
        ends = np.concatenate([np.arange(0.0, 8.0, 0.25), np.geomspace(8.0, 800.0, 60)]) / max(1.0, math.sqrt(a))
        s = (ends[:-1, None] + np.diff(ends)[:, None] * x).ravel()
        weight = (np.diff(ends)[:, None] * w).ravel()
        with np.errstate(over="ignore", under="ignore"):
            phi = abs(z - a) * s + z * (np.expm1(side * s) - side * s)
            return float(side * np.sum(weight * (side * s) ** order * np.exp(-phi)))

    return np.vectorize(one, otypes=[float])(np.asarray(a, float), np.asarray(l, float))


def _np_slope(a: Any, l: Any) -> Any:
    from scipy.special import digamma

    return (l - digamma(np.asarray(a, float))) * _np_tail(a, l, 0) + _np_tail(a, l, 1)


def _gamma_jvp(a_dot: Any, y: Any, a: Any, logarithm: int, key: Any, counter: Any) -> Any:
    return a_dot * (gamma_slope(a, y) if logarithm else y * gamma_slope(a, log(y)))


def _slope_jvp(a_dot: Any, l_dot: Any, y: Any, a: Any, l: Any) -> Any:
    excess = l - digamma(a)
    by_a = excess * gamma_tail(a, l, 1) + gamma_tail(a, l, 2) - trigamma(a) * gamma_tail(a, l, 0)
    return a_dot * by_a - l_dot * (excess + (a - exp(l)) * y)


def _tail_jvp(a_dot: Any, l_dot: Any, y: Any, a: Any, l: Any, order: int) -> Any:
    edge = gamma_tail(a, l, order - 1) * float(order) if order else 1.0
    return a_dot * gamma_tail(a, l, order + 1) + l_dot * ((exp(l) - a) * y - edge)


random_gamma: Op = define(
    "random_gamma",
    precision="full",
    formula="z with the density z^(a−1) e^−z / Γ(a), or ln z; its derivative keeps the probability of less than z",
    jvp=_gamma_jvp,
    sparsity="elementwise",
    vmap="leading",
    samples=[
        Sample((real(3, 4, low=0.3, high=3.0),), (0, *_STREAM), gradients=False),
        Sample((exactly(1e-3, 0.5, 1.0, 2.5, 100.0),), (1, *_STREAM), gradients=False),
        Sample((real(0, 4),), (0, *_STREAM), gradients=False),
    ],
    invalid=[_NOT_FLOATING, Invalid((real(3),), (0, (1,), (3,)), "ArgumentError", "key must have 2 entries")],
    expensive=True,
    public=False,
)
gamma_slope: Op = define(
    "gamma_slope",
    precision="full",
    formula="d ln z/da of a draw z of Gamma(a, 1) at l = ln z",
    reference=_np_slope,
    jvp=_slope_jvp,
    sparsity="elementwise",
    vmap="leading",
    samples=[
        Sample((real(2, 3, low=0.5, high=3.0), real(2, 3, low=-1.0, high=1.5))),
        Sample((exactly(0.8, 2.5, 20.0, 50.0, 50.0), exactly(0.7, 0.2, 2.9, 3.7, 4.1))),
        Sample((exactly(0.1, 0.1, 1e3, 1e3, 7.0), exactly(-3.0, 1.5, 6.8, 7.0, -0.5)), gradients=False),
        Sample((real(0, 4), real(0, 4))),
    ],
    invalid=[Invalid((real(3), real(4)), (), "ShapeError", "same shape")],
    expensive=True,
    public=False,
)
gamma_tail: Op = define(
    "gamma_tail",
    precision="full",
    formula="∫ ln(t/z)ᵏ t^(a−1) e^−t dt / (z^a e^−z), z = e^l, over t > z, or minus that over t < z where z <= a",
    reference=_np_tail,
    jvp=_tail_jvp,
    sparsity="elementwise",
    vmap="leading",
    samples=[
        Sample((real(2, 3, low=2.0, high=3.0), real(2, 3, low=-1.0, high=0.6)), (0,)),
        Sample((real(2, 3, low=1.0, high=2.0), real(2, 3, low=0.8, high=1.5)), (1,)),
        Sample((exactly(0.8, 2.5, 20.0, 50.0, 50.0), exactly(0.7, 0.2, 2.9, 3.7, 4.1)), (2,)),
        Sample((real(0, 4), real(0, 4)), (0,)),
    ],
    invalid=[Invalid((real(3), real(3)), (-1,), "ArgumentError", "the order must be")],
    expensive=True,
    public=False,
)
random_poisson: Op = define(
    "random_poisson",
    precision="full",
    formula="k with the probability λᵏ e^−λ / k!",
    vmap="leading",
    samples=[
        Sample((real(3, 4, low=0.3, high=30.0),), _STREAM, gradients=False),
        Sample((real(0, 4),), _STREAM, gradients=False),
    ],
    invalid=[Invalid((whole(3),), _STREAM, "DTypeError", "real floating")],
    expensive=True,
    public=False,
)
random_binomial: Op = define(
    "random_binomial",
    precision="full",
    formula="how many of n trials succeed, each with the probability p",
    vmap="leading",
    samples=[Sample((exactly(5.0, 100.0, 0.0), exactly(0.25, 0.75, 0.5)), _STREAM, gradients=False)],
    invalid=[Invalid((real(3), real(4)), _STREAM, "ShapeError", "same shape")],
    expensive=True,
    public=False,
)
random_multinomial: Op = define(
    "random_multinomial",
    precision="full",
    formula="how many of n trials fall into each class of a row of weights",
    vmap="leading",
    samples=[Sample((exactly(5.0, 100.0), real(2, 4, low=0.1, high=1.0)), _STREAM, gradients=False)],
    invalid=[
        Invalid((real(3), real(4, 2)), _STREAM, "ShapeError", "one count for each row"),
        Invalid((real(3), real(3, 0)), _STREAM, "ShapeError", "at least one class"),
    ],
    expensive=True,
    public=False,
)


def _categorical_of_examples(size: Any, mapped: Any, p: Any, draws: Any, key: Any, counter: Any) -> Any:
    """With a row of weights per draw, so that the counters of an example are consecutive."""
    (p,) = all_mapped(size, mapped, (p,))
    rows, classes = p.shape[1:]
    (n,) = draws
    each = OPS["broadcast_to"](OPS["reshape"](p, (size, 1, rows, classes)), (size, n, rows, classes))
    y = random_categorical(OPS["reshape"](each, (size * n * rows, classes)), (1,), key, counter)
    return OPS["reshape"](y, (size, n, rows))


random_categorical: Op = define(
    "random_categorical",
    precision="full",
    formula="the class of each draw from every row of weights",
    vmap=_categorical_of_examples,
    samples=[Sample((real(2, 4, low=0.1, high=1.0),), ((5,), *_STREAM), gradients=False)],
    invalid=[Invalid((real(4),), ((5,), *_STREAM), "ShapeError", "takes a matrix")],
    expensive=True,
    public=False,
)
