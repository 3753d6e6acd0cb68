"""Normalisation over the last axes. Each is one fused program and one instruction on the tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.dtypes import float32
from wengert.errors import ShapeError
from wengert.functional.arguments import (
    as_dtype_of,
    as_floating,
    as_tensor,
    describe,
    native,
    number,
    product,
    shape_text,
)
from wengert.program.compile import composite

_sum, _square, _rsqrt = native("sum"), native("square"), native("rsqrt")


def _wide(x: Tensor) -> Tensor:
    return as_dtype_of(x, float32) if x.dtype.is_floating and x.dtype.itemsize == 2 else x


def _affine(y: Any, weight: Tensor | None, bias: Tensor | None) -> Any:
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


@composite
def _layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, n_axes: int, eps: float) -> Any:
    axes = tuple(range(x.ndim - n_axes, x.ndim))
    wide = _wide(x)
    n = number(product(x.shape[x.ndim - n_axes :]), wide.dtype)
    centred = wide - _sum(wide, axes, 1) / n
    scale = _rsqrt(_sum(_square(centred), axes, 1) / n + eps)
    return _affine(as_dtype_of(centred * scale, x.dtype), weight, bias)


@composite
def _rms_norm(x: Tensor, weight: Tensor | None, n_axes: int, eps: float) -> Any:
    axes = tuple(range(x.ndim - n_axes, x.ndim))
    wide = _wide(x)
    n = number(product(x.shape[x.ndim - n_axes :]), wide.dtype)
    scale = _rsqrt(_sum(_square(wide), axes, 1) / n + eps)
    return _affine(as_dtype_of(wide * scale, x.dtype), weight, None)


def _normalised_axes(x: Tensor, normalized_shape: int | Sequence[int], name: str, *parameters: Any) -> int:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    n = len(shape)
    if n == 0 or n > x.ndim or any(a != b for a, b in zip(x.shape[x.ndim - n :], shape)):
        raise ShapeError(f"{name}: normalized_shape {shape_text(shape)} is not the end of the shape of {describe(x)}")
    for p in parameters:
        if p is not None and tuple(p.shape) != shape:
            raise ShapeError(f"{name}: weight or bias {describe(p)} does not have normalized_shape {shape_text(shape)}")
    return n


def layer_norm(
    x: Any,
    normalized_shape: int | Sequence[int],
    *,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x − mean) / √(var + eps) · weight + bias over the last axes, those of `normalized_shape` (Ba et al., 2016).

    >>> layer_norm([[1.0, 3.0]], 2, eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    t = as_floating(as_tensor(x, "layer_norm"))
    w = None if weight is None else as_tensor(weight, "layer_norm")
    b = None if bias is None else as_tensor(bias, "layer_norm")
    y: Tensor = _layer_norm(t, w, b, _normalised_axes(t, normalized_shape, "layer_norm", w, b), float(eps))
    return y


def rms_norm(x: Any, normalized_shape: int | Sequence[int], *, weight: Any = None, eps: float | None = None) -> Tensor:
    """x / √(mean x² + eps) · weight over the last axes (Zhang and Sennrich, 2019).

    `eps` is the precision of the dtype by default.

    >>> rms_norm([[3.0, 3.0]], 2).tolist()
    [[1.0, 1.0]]
    """
    t = as_floating(as_tensor(x, "rms_norm"))
    w = None if weight is None else as_tensor(weight, "rms_norm")
    if eps is None:
        eps = float(np.finfo(np.float64 if t.dtype.itemsize == 8 else np.float32).eps)
    y: Tensor = _rms_norm(t, w, _normalised_axes(t, normalized_shape, "rms_norm", w), float(eps))
    return y
