"""Tensors of few numbers, made in less than a microsecond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wengert import _core
from wengert import functional as F
from wengert.dtypes import DType


def vector(values: Sequence[float], dtype: DType) -> Any:
    """A tensor of these numbers, of float64 or float32."""
    return _core.row_of_numbers(values, dtype.code)


def number(value: float, dtype: DType) -> Any:
    """A tensor without axes."""
    return F.reshape(vector((value,), dtype), ())
