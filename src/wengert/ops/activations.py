"""Activations that are ops: as composites they would take a pass for each of their parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert.ops import series
from wengert.ops.special import scipy_special
from wengert.ops.tangents import select
from wengert.ops.transcendental import exp
from wengert.registry.record import define
from wengert.registry.samples import EXTREME, Sample, unary
from wengert.registry.samples import real as reals

relu = define(
    "relu",
    where_zero="all elements of its operand are negative or zero, in every row: dead units",
    work="arithmetic",
    formula="max(x, 0); derivative 0 at 0",
    reference=lambda x: np.maximum(x, 0),
    jvp=lambda x_dot, y, x: select(x > 0, x_dot),
    samples=unary(gap=0.05, extreme=EXTREME),
)
# Of several pieces, each of which would be a pass of a fused group.
hard_swish_slope = define(
    "hard_swish_slope",
    formula="0 for x ≤ −3, 1 for x ≥ 3, else x/3 + ½",
    reference=lambda x: np.where(x <= -3, 0, np.where(x >= 3, 1, x / 3 + 0.5)),
    jvp=lambda x_dot, y, x: select((x > -3.0) & (x < 3.0), x_dot * (1.0 / 3.0)),
    samples=unary(extreme=EXTREME),
    public=False,
)
hard_swish = define(
    "hard_swish",
    formula="0 for x ≤ −3, x for x ≥ 3, else x (x + 3) / 6",
    reference=lambda x: np.where(x <= -3, 0, np.where(x >= 3, x, x * (x + 3) / 6)),
    jvp=lambda x_dot, y, x: x_dot * hard_swish_slope(x),
    samples=[*unary(extreme=EXTREME), Sample((reals(40, low=-5.0, high=5.0),))],
    public=False,
)
sigmoid = define(
    "sigmoid",
    where_zero="it is saturated, for all elements",
    taylor=series.logistic,
    formula="1 / (1 + e⁻ˣ)",
    reference=lambda x: 0.5 * (1 + np.tanh(0.5 * x)),
    jvp=lambda x_dot, y, x: x_dot * (y * (1.0 - y)),
    samples=unary(extreme=EXTREME),
)


def _normal_density(x: Any, exp: Any) -> Any:
    return exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))


def _np_gelu(x: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return np.where(x == -np.inf, 0.0, x * scipy_special("ndtr")(x))


def _np_gelu_slope(x: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(x), x > 0, scipy_special("ndtr")(x) + x * _normal_density(x, np.exp))


def _gelu_slope_jvp(x_dot: Any, y: Any, x: Any) -> Any:
    density = _normal_density(x, exp)
    return x_dot * (2.0 * density - x * (x * density))  # x² alone leaves the range of float16


# Of a composite's parts each is a pass, and its sum 1 + erf loses the digits of the left tail.
gelu_slope = define(
    "gelu_slope",
    formula="Φ(x) + x φ(x) with the normal distribution Φ and its density φ",
    reference=_np_gelu_slope,
    jvp=_gelu_slope_jvp,
    samples=[*unary(extreme=EXTREME), Sample((reals(40, low=-6.0, high=6.0),))],
    public=False,
)
gelu = define(
    "gelu",
    where_zero="it is saturated, for all elements",
    formula="x Φ(x) with the normal distribution Φ",
    reference=_np_gelu,
    jvp=lambda x_dot, y, x: x_dot * gelu_slope(x),
    samples=[*unary(extreme=EXTREME), Sample((reals(40, low=-9.0, high=9.0),))],
    public=False,
)
