"""Normalisation: over the last axes, over groups of channels, over batches. Each is one fused program on the tape."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.compiling.compile import checked_composite, composite
from wengert.dtypes import float32
from wengert.errors import ArgumentError, DTypeError, ShapeError
from wengert.modes import no_grad
from wengert.program.numbers import as_real
from wengert.recomputing import recomputing
from wengert.tensors.arguments import (
    Size,
    as_dtype_of,
    as_floating,
    as_tensor,
    describe,
    full,
    native,
    number,
    product,
    promoted,
    shape_text,
)

_sum, _square, _rsqrt, _standardise = native("sum"), native("square"), native("rsqrt"), native("standardise")
_reshape, _broadcast_to = native("reshape"), native("broadcast_to")
_slice, _unslice, _pow = native("slice"), native("unslice"), native("pow")


def _operands(name: str, x: Any, *parameters: Any) -> list[Any]:
    """The operands as tensors of real numbers; absent parameters stay None."""
    tensors = [as_floating(as_tensor(x, name)), *(None if p is None else as_tensor(p, name) for p in parameters)]
    for t in tensors:
        if t is not None and t.dtype.kind == "c":
            raise DTypeError(f"{name}: operands must be real numbers, got {describe(t)}")
    return tensors


def _wide(x: Tensor) -> Tensor:
    return as_dtype_of(x, float32) if x.dtype.is_floating and x.dtype.itemsize == 2 else x


def _affine(y: Any, weight: Tensor | None, bias: Tensor | None) -> Any:
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


def _standardised(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    layout: tuple[Size, ...],
    eps: float,
    *,
    centred: bool = True,
    across: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """x as (batch, groups, members, length): rows of mean 0 and variance 1, then the affine map of members.

    A row is the last two axes, or those and the batch. Also their mean and variance.
    """
    given = [p for p in (weight, bias) if p is not None]
    x, *given = promoted([x, *given])
    rows = _wide(x)
    parameters = [full(layout[1:3], value, rows.dtype, like=rows) for value in (1.0, 0.0)]
    for place, p in enumerate((weight, bias)):
        if p is not None:
            parameters[place] = _reshape(_wide(given.pop(0)), layout[1:3])
    y, mean, variance = _standardise(_reshape(rows, layout), *parameters, eps, int(centred), int(across))
    return as_dtype_of(_reshape(y, x.shape), x.dtype), mean, variance


def _in_groups(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, layout: tuple[Size, ...], eps: float, centred: bool = True
) -> Tensor:
    if weight is None and bias is None:  # then nothing tells groups and members apart
        layout = (layout[0] * layout[1], 1, 1, layout[2] * layout[3])
    return _standardised(x, weight, bias, layout, eps, centred=centred)[0]


def _over_last_axes(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n_axes: int, eps: float, centred: bool
) -> Tensor:
    rows, length = product(x.shape[: x.ndim - n_axes]), product(x.shape[x.ndim - n_axes :])
    return _in_groups(x, weight, bias, (rows, 1, length, 1), eps, centred)


def _layer_norm_operands(x: Any, weight: Any, bias: Any, normalized_shape: Any, eps: Any) -> tuple[Any, ...]:
    return (*_operands("layer_norm", x, weight, bias), _sizes(normalized_shape), as_real(eps))


@checked_composite(_layer_norm_operands, precision="full", functions=("layer_norm",))
def _layer_norm(x: Any, weight: Any, bias: Any, normalized_shape: Any, eps: float) -> Any:
    t, w, b = _operands("layer_norm", x, weight, bias)
    n_axes = _normalised_axes(t, normalized_shape, "layer_norm", w, b)
    return _over_last_axes(t, w, b, n_axes, as_real(eps), centred=True)


def _rms_norm_operands(x: Any, weight: Any, normalized_shape: Any, eps: Any) -> tuple[Any, ...]:
    return (*_operands("rms_norm", x, weight), _sizes(normalized_shape), None if eps is None else as_real(eps))


@checked_composite(_rms_norm_operands, precision="full", functions=("rms_norm",))
def _rms_norm(x: Any, weight: Any, normalized_shape: Any, eps: float | None) -> Any:
    t, w = _operands("rms_norm", x, weight)
    if eps is None:
        eps = float(np.finfo(np.float64 if t.dtype.itemsize == 8 else np.float32).eps)
    n_axes = _normalised_axes(t, normalized_shape, "rms_norm", w)
    return _over_last_axes(t, w, None, n_axes, as_real(eps), centred=False)


def _sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _normalised_axes(x: Tensor, normalized_shape: int | Sequence[int], name: str, *parameters: Any) -> int:
    shape = _sizes(normalized_shape)
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
    y: Tensor = _layer_norm(x, weight, bias, normalized_shape, eps)
    return y


def rms_norm(x: Any, normalized_shape: int | Sequence[int], *, weight: Any = None, eps: float | None = None) -> Tensor:
    """x / √(mean x² + eps) · weight over the last axes (Zhang and Sennrich, 2019).

    `eps` is the precision of the dtype by default.

    >>> rms_norm([[3.0, 3.0]], 2).tolist()
    [[1.0, 1.0]]
    """
    y: Tensor = _rms_norm(x, weight, normalized_shape, eps)
    return y


@composite(precision="full", functions=("group_norm",))
def _group_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Any:
    layout = (x.shape[0], groups, x.shape[1] // groups, product(x.shape[2:]))
    return _in_groups(x, weight, bias, layout, eps)


@composite(precision="full", functions=("instance_norm",))
def _instance_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    return _in_groups(x, weight, bias, (x.shape[0], x.shape[1], 1, product(x.shape[2:])), eps)


def _per_channel(parameter: Tensor | None, x: Tensor) -> Any:
    """A parameter with one entry per channel, in a shape that broadcasts to x."""
    return None if parameter is None else _reshape(parameter, (x.shape[1], *(1 for _ in x.shape[2:])))


def _check_channels(name: str, x: Tensor, *parameters: Any) -> None:
    if x.ndim < 2:
        raise ShapeError(f"{name}: x must have shape (batch, channels, ...), got {describe(x)}")
    for p in parameters:
        if p is not None and (p.ndim != 1 or p.shape[0] != x.shape[1]):
            raise ShapeError(
                f"{name}: weight, bias and statistics must have one entry per channel, got {describe(p)} for {describe(x)}"
            )


def group_norm(x: Any, num_groups: int, *, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """(x − mean) / √(var + eps) · weight + bias over `num_groups` groups of the channels of each sample (Wu and He, 2018).

    x is (batch, channels, ...); weight and bias have one entry per channel.

    >>> group_norm([[1.0, 3.0, 5.0, 9.0]], 2, eps=0.0).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """
    t, w, b = _operands("group_norm", x, weight, bias)
    _check_channels("group_norm", t, w, b)
    if num_groups < 1 or t.shape[1] // num_groups * num_groups != t.shape[1]:
        raise ShapeError(f"group_norm: num_groups={num_groups} does not divide the channels of {describe(t)}")
    y: Tensor = _group_norm(t, w, b, int(num_groups), as_real(eps))
    return y


def instance_norm(x: Any, *, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """(x − mean) / √(var + eps) · weight + bias over the spatial axes of each channel of each sample (Ulyanov et al., 2016).

    >>> instance_norm([[[1.0, 3.0], [5.0, 9.0]]], eps=0.0).tolist()
    [[[-1.0, 1.0], [-1.0, 1.0]]]
    """
    t, w, b = _operands("instance_norm", x, weight, bias)
    _check_channels("instance_norm", t, w, b)
    if product(t.shape[2:]) == 1:
        raise ShapeError(f"instance_norm: a channel of one value has no variance, got {describe(t)}")
    y: Tensor = _instance_norm(t, w, b, as_real(eps))
    return y


@composite(precision="full", functions=("batch_norm",))
def _batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    """The result, the mean and the unbiased variance."""
    channels = x.shape[1]
    layout = (x.shape[0], channels, 1, product(x.shape[2:]))
    y, mean, variance = _standardised(x, weight, bias, layout, eps, across=True)
    n = number(layout[0] * layout[3], variance.dtype)
    return y, _reshape(mean, (channels,)), _reshape(variance * (n / (n - 1.0)), (channels,))


@composite(precision="full", functions=("batch_norm",))
def _batch_norm_of_columns(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    """The same if a channel has one value per sample."""
    wide = _wide(x)
    n = number(x.shape[0], wide.dtype)
    mean = _sum(wide, (0,), 0) / n
    centred = wide - mean
    squares = _sum(_square(centred), (0,), 0)
    y = _affine(centred * _rsqrt(squares / n + eps), weight, bias)
    return as_dtype_of(y, x.dtype), mean, squares / (n - 1.0)


@composite(precision="full", functions=("batch_norm",))
def _batch_norm_fixed(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    centred = x - _per_channel(mean, x)
    y = centred * _rsqrt(_per_channel(var, x) + eps)
    return _affine(y, _per_channel(weight, x), _per_channel(bias, x))


def batch_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x − mean) / √(var + eps) · weight + bias for every channel, axis 1 (Ioffe and Szegedy, 2015).

    While training, mean and variance are those of the batch and all positions, and the running ones, if given, move
    towards them in place by `momentum` (the variance unbiased). Otherwise the running ones are used.

    >>> batch_norm([[1.0, 5.0], [3.0, 9.0]], eps=0.0).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """
    t, w, b = _operands("batch_norm", x, weight, bias)
    _check_channels("batch_norm", t, w, b, running_mean, running_var)
    y: Tensor
    if not training:
        if running_mean is None or running_var is None:
            raise ArgumentError("batch_norm: training=False needs running_mean and running_var")
        y = _batch_norm_fixed(t, running_mean, running_var, w, b, as_real(eps))
        return y
    n = product((t.shape[0], *t.shape[2:]))
    if n < 2:
        raise ShapeError(
            f"batch_norm: {'one value' if n == 1 else 'no value'} per channel has no variance, got {describe(t)}; "
            "use more samples, or training=False"
        )
    compute = _batch_norm_of_columns if t.ndim == 2 else _batch_norm
    y, mean, var = compute(t, w, b, as_real(eps))
    for running, now in ((running_mean, mean), (running_var, var)):
        if running is not None:
            _move(running, now, momentum)
    return y


def _move(running: Tensor, towards: Tensor, momentum: float) -> None:
    if recomputing():  # they moved the first time
        return
    with no_grad():
        running += momentum * (as_dtype_of(towards.detach(), running.dtype) - running)


@composite(precision="full", functions=("local_response_norm",))
def _local_response(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Any:
    t = _wide(x)
    channels: Size = t.shape[1]
    before = size // 2
    shape = tuple(channels + size - 1 if i == 1 else n for i, n in enumerate(t.shape))
    starts, steps = tuple(before if i == 1 else 0 for i in range(t.ndim)), (1,) * t.ndim
    padded = _unslice(_square(t), shape, starts, steps)
    sums: Any = 0.0
    for shift in range(size):
        sums = sums + _slice(padded, tuple(shift if i == 1 else 0 for i in range(t.ndim)), t.shape, steps)
    return as_dtype_of(t * _pow(sums * (alpha / size) + k, -beta), x.dtype)


def local_response_norm(x: Any, size: int, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + α Σ x² / size)^β with the sum over `size` neighbouring channels of (batch, channels, …).

    Krizhevsky et al., 2012.

    >>> local_response_norm([[1.0, 2.0, 3.0]], 1, alpha=1.0, beta=1.0, k=0.0).tolist()
    [[1.0, 0.5, 0.3333...]]
    """
    t = _operands("local_response_norm", x)[0]
    if t.ndim < 2:
        raise ShapeError(f"local_response_norm: takes x of shape (batch, channels, …), got {describe(t)}")
    if size < 1:
        raise ArgumentError(f"local_response_norm: size must be positive, got {size}")
    y: Tensor = _local_response(t, operator.index(size), as_real(alpha), as_real(beta), as_real(k))
    return y
