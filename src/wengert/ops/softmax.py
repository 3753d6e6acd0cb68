"""Rows as distributions: positive numbers that add up to 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.ops.reduce import sum
from wengert.ops.registry import define
from wengert.ops.samples import Invalid, Sample, exactly, real, whole
from wengert.ops.shape import broadcast_to


def _softmax_jvp(x_dot: Any, y: Any, x: Any) -> Any:
    weighted = x_dot * y
    return weighted - y * broadcast_to(sum(weighted, (x.ndim - 1,), 1), x.shape)


def _np_softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


softmax = define(
    "softmax",
    formula="eˣ / Σ eˣ along rows",
    reference=_np_softmax,
    jvp=_softmax_jvp,
    samples=[
        Sample((real(3, 5),)),
        Sample((real(7),)),
        Sample((real(2, 3, 67),)),
        Sample((real(2, 0),)),
        Sample((real(0, 3),)),
        Sample((exactly(1e4, -1e4, 1e4),), gradients=False),
        Sample((exactly(0.0, -np.inf, 1.0),), gradients=False),
    ],
    invalid=[
        Invalid((whole(2, 3),), (), "DTypeError", "real floating"),
        Invalid((real(),), (), "ShapeError", "takes rows"),
    ],
    dear=True,
    public=False,
)
