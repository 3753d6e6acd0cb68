"""Rows as distributions: positive numbers that add up to 1, their logarithms, and the derivatives of both."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.ops.reduce import sum
from wengert.ops.shape import broadcast_to
from wengert.ops.transcendental import exp
from wengert.registry.record import Op, define
from wengert.registry.samples import Invalid, Sample, exactly, real, whole
from wengert.registry.zero import ZERO


def _total(x: Any) -> Any:
    """The sum of each row, in the place of every element."""
    return broadcast_to(sum(x, (x.ndim - 1,), 1), x.shape)


_MAP_SAMPLES = [
    Sample((real(3, 5),)),
    Sample((real(7),)),
    Sample((real(2, 3, 67),)),
    Sample((real(2, 1100),), second=False),
    Sample((real(2, 0),)),
    Sample((real(0, 3),)),
    Sample((exactly(1e4, -1e4, 1e4),), gradients=False),
    Sample((exactly(0.0, -np.inf, 1.0),), gradients=False),
]
_MAP_INVALID = [
    Invalid((whole(2, 3),), (), "DTypeError", "real floating"),
    Invalid((real(),), (), "ShapeError", "takes rows"),
]


def _push_samples(low: float, high: float) -> list[Sample]:
    """Samples with long rows whose size is between `low` and `high`."""
    return [
        Sample((real(3, 5), real(3, 5))),
        Sample((real(7), real(7))),
        Sample((real(2, 3, 67), real(2, 3, 67))),
        Sample((real(2, 1100), real(2, 1100, low=low, high=high)), second=False),
        Sample((real(0, 3), real(0, 3))),
    ]


_PUSH_INVALID = [
    Invalid((whole(2, 3), whole(2, 3)), (), "DTypeError", "real floating"),
    Invalid((real(2, 3), real(2, 4)), (), "ShapeError", "same shape"),
    Invalid((real(), real()), (), "ShapeError", "takes rows"),
]


def _np_softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


softmax = define(
    "softmax",
    where_zero="it is saturated, or all elements of a row get the same gradient, as in the sum of a softmax",
    precision="full",
    formula="eˣ / Σ eˣ along rows",
    reference=_np_softmax,
    jvp=lambda x_dot, y, x: softmax_push(x_dot, y),
    sparsity="row",
    vmap="leading",
    samples=_MAP_SAMPLES,
    invalid=_MAP_INVALID,
    expensive=True,
    public=False,
)


def _softmax_push_jvp(t_dot: Any, y_dot: Any, out: Any, t: Any, y: Any) -> Any:
    total = ZERO if t_dot is ZERO else softmax_push(t_dot, y)
    if y_dot is not ZERO:
        total = total + y_dot * (t - _total(t * y)) - _total(y_dot * t) * y
    return total


# The derivative of `softmax` in the direction t, given its result. It is symmetric: its own transpose.
softmax_push: Op = define(
    "softmax_push",
    formula="y (t − Σ y t) along rows",
    reference=lambda t, y: y * (t - (y * t).sum(-1, keepdims=True)),
    jvp=_softmax_push_jvp,
    transpose=(lambda y_bar, t, y: softmax_push(y_bar, y), None),
    sparsity="row",
    vmap="leading",
    samples=_push_samples(0.0, 0.002),
    invalid=_PUSH_INVALID,
    expensive=True,
    public=False,
)


def _np_log_softmax(x: Any) -> Any:
    z = x - x.max(-1, keepdims=True, initial=-np.inf)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


log_softmax = define(
    "log_softmax",
    where_zero="it is saturated, or all elements of a row get the same gradient, as in the sum of a softmax",
    precision="full",
    formula="x − ln Σ eˣ along rows",
    reference=_np_log_softmax,
    jvp=lambda x_dot, y, x: log_softmax_push(x_dot, y),
    sparsity="row",
    vmap="leading",
    samples=_MAP_SAMPLES,
    invalid=_MAP_INVALID,
    expensive=True,
    public=False,
)


def _log_softmax_push_jvp(t_dot: Any, y_dot: Any, out: Any, t: Any, y: Any) -> Any:
    total = ZERO if t_dot is ZERO else log_softmax_push(t_dot, y)
    return total if y_dot is ZERO else total - _total(y_dot * (exp(y) * t))


# The derivative of `log_softmax` in the direction t, given its result.
log_softmax_push: Op = define(
    "log_softmax_push",
    formula="t − Σ eʸ t along rows",
    reference=lambda t, y: t - (np.exp(y) * t).sum(-1, keepdims=True),
    jvp=_log_softmax_push_jvp,
    transpose=(lambda y_bar, t, y: log_softmax_pull(y_bar, y), None),
    sparsity="row",
    vmap="leading",
    samples=_push_samples(-9.0, -6.0),
    invalid=_PUSH_INVALID,
    expensive=True,
    public=False,
)


def _log_softmax_pull_jvp(t_dot: Any, y_dot: Any, out: Any, t: Any, y: Any) -> Any:
    total = ZERO if t_dot is ZERO else log_softmax_pull(t_dot, y)
    return total if y_dot is ZERO else total - y_dot * (exp(y) * _total(t))


# The transpose of `log_softmax_push`.
log_softmax_pull: Op = define(
    "log_softmax_pull",
    formula="t − eʸ Σ t along rows",
    reference=lambda t, y: t - np.exp(y) * t.sum(-1, keepdims=True),
    jvp=_log_softmax_pull_jvp,
    transpose=(lambda y_bar, t, y: log_softmax_push(y_bar, y), None),
    sparsity="row",
    vmap="leading",
    samples=_push_samples(-9.0, -6.0),
    invalid=_PUSH_INVALID,
    expensive=True,
    public=False,
)
