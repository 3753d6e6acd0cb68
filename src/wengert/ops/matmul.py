"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert.ops.registry import define
from wengert.ops.samples import Invalid, Sample, real
from wengert.ops.tangents import conj


def _reference(a: Any, b: Any, transpose_a: int, transpose_b: int) -> Any:
    return (np.swapaxes(a, -1, -2) if transpose_a else a) @ (np.swapaxes(b, -1, -2) if transpose_b else b)


def _left(y_bar: Any, a: Any, b: Any, transpose_a: int, transpose_b: int) -> Any:
    if transpose_a:
        return matmul(conj(b), y_bar, transpose_b, 1)
    return matmul(y_bar, conj(b), 0, 1 - transpose_b)


def _right(y_bar: Any, a: Any, b: Any, transpose_a: int, transpose_b: int) -> Any:
    if transpose_b:
        return matmul(y_bar, conj(a), 1, transpose_a)
    return matmul(conj(a), y_bar, 1 - transpose_a, 0)


matmul = define(
    "matmul",
    formula="Σₖ aᵢₖ bₖⱼ, with flags for transposed operands",
    reference=_reference,
    jvp="bilinear",
    transpose=(_left, _right),
    samples=[
        Sample((real(2, 3), real(3, 4)), (0, 0)),
        Sample((real(3, 2), real(3, 4)), (1, 0)),
        Sample((real(2, 3), real(4, 3)), (0, 1)),
        Sample((real(3, 2), real(4, 3)), (1, 1)),
        Sample((real(5, 2, 3), real(5, 3, 1)), (0, 0)),
        Sample((real(2, 0), real(0, 3)), (0, 0)),
    ],
    invalid=[Invalid((real(2, 3), real(4, 5)), (0, 0), "ShapeError", "matmul")],
    dear=True,
    public=False,
)
