"""Convolution and transposed convolution over one, two and three spatial axes, as PyTorch defines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wengert._core import Tensor
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.windows import per_axis, with_batch, without_batch
from wengert.tensors.arguments import as_dtype_of, as_floating, as_tensor, describe, native, promoted_for, shape_text

_conv, _conv_bias, _conv_transpose = native("conv"), native("conv_bias"), native("conv_transpose")
_reshape = native("reshape")

Sizes = int | Sequence[int]


def _operands(
    name: str, op: str, rank: int, x: Any, weight: Any, bias: Any
) -> tuple[Tensor, Tensor, Tensor | None, bool]:
    """Operands in one dtype, unless autocast sees to that; and whether x has no batch axis, and was given one."""
    given = [as_tensor(x, name), as_tensor(weight, name)]
    if bias is not None:
        given.append(as_tensor(bias, name))
    x, weight, *rest = promoted_for(op, [as_floating(t) for t in given])
    if weight.ndim != rank + 2:
        raise ShapeError(
            f"{name}: takes a weight with {rank + 2} axes, got {describe(x)} and weight {describe(weight)}"
        )
    x, single = with_batch(name, rank, x)
    return x, weight, rest[0] if rest else None, single


def _check_groups(name: str, groups: int, x: Tensor, weight: Tensor) -> None:
    if groups < 1:
        raise ArgumentError(f"{name}: groups must be positive, got {groups}")
    for channels, what in ((x.shape[1], "channels of x"), (weight.shape[0], "channels of the weight")):
        if channels // groups * groups != channels:
            raise ShapeError(
                f"{name}: groups={groups} does not divide the {channels} {what}, got {describe(x)} and {describe(weight)}"
            )


def _check_bias(name: str, bias: Tensor | None, channels: Any) -> None:
    if bias is not None and (bias.ndim != 1 or bias.shape[0] != channels):
        raise ShapeError(f"{name}: the bias must have shape {shape_text((channels,))}, got {describe(bias)}")


def both_sides(
    name: str, padding: Any, rank: int, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after every axis."""
    if isinstance(padding, str):
        if padding == "valid":
            return (0,) * rank, (0,) * rank
        if padding != "same":
            raise ArgumentError(f'{name}: padding must be one number per axis, "same" or "valid", got {padding!r}')
        if any(s != 1 for s in stride):
            raise ArgumentError(f'{name}: padding="same" needs stride 1, got {shape_text(stride)}')
        total = [d * (int(k) - 1) for d, k in zip(dilation, kernel)]
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    p = per_axis(name, "padding", padding, rank, least=0)
    return p, p


def _convolve(
    name: str, rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    x, weight, b, single = _operands(name, "conv", rank, x, weight, bias)
    step = per_axis(name, "stride", stride, rank, least=1)
    gap = per_axis(name, "dilation", dilation, rank, least=1)
    _check_groups(name, groups, x, weight)
    if x.shape[1] != weight.shape[1] * groups:
        raise ShapeError(
            f"{name}: the weight takes {weight.shape[1]}·{groups} channels, x has {x.shape[1]}: "
            f"{describe(x)} and {describe(weight)}"
        )
    _check_bias(name, b, weight.shape[0])
    kernel = weight.shape[2:]
    before, after = both_sides(name, padding, rank, kernel, step, gap)
    sizes = []
    for n, k, s, d, p, q in zip(x.shape[2:], kernel, step, gap, before, after):
        room = n + p + q - d * (k - 1) - 1
        if k < 1 or room < 0:
            raise ShapeError(
                f"{name}: a kernel of {shape_text(kernel)} with dilation {shape_text(gap)} is larger than the padded input: "
                f"{describe(x)} with padding {shape_text(before)}"
            )
        sizes.append(room // s + 1)
    attrs = (tuple(sizes), step, before, gap, groups)
    y = _conv(x, weight, *attrs) if b is None else _conv_bias(x, weight, b, *attrs)
    return without_batch(y, single)


def conv1d(
    x: Any,
    weight: Any,
    *,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Σ weight[o, c, k] · x[n, c, j·stride + k·dilation − padding] + bias[o] over c and k: a cross-correlation.

    x is (batch, channels, length), or without batch; weight is (outputs, channels / groups, kernel). `padding` is a
    number of zeros on both sides, `"valid"` (none) or `"same"` (as many outputs as inputs; stride 1 only).

    >>> conv1d([[[1.0, 2.0, 3.0, 4.0]]], [[[1.0, -1.0]]]).tolist()
    [[[-1.0, -1.0, -1.0]]]
    """
    return _convolve("conv1d", 1, x, weight, bias, stride, padding, dilation, groups)


def conv2d(
    x: Any,
    weight: Any,
    *,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Σ weight[o, c, k] · x[n, c, j·stride + k·dilation − padding] + bias[o] over c and the two axes of k.

    x is (batch, channels, height, width), or without batch; weight is (outputs, channels / groups, height, width).
    Options are numbers, or pairs for the two axes; see `conv1d`.

    >>> import wengert as wg
    >>> conv2d(wg.ones((1, 1, 3, 3)), wg.ones((1, 1, 2, 2))).tolist()
    [[[[4.0, 4.0], [4.0, 4.0]]]]
    """
    return _convolve("conv2d", 2, x, weight, bias, stride, padding, dilation, groups)


def conv3d(
    x: Any,
    weight: Any,
    *,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over three spatial axes: x is (batch, channels, depth, height, width); see `conv1d`.

    >>> import wengert as wg
    >>> conv3d(wg.ones((1, 2, 3, 3, 3)), wg.ones((4, 2, 3, 3, 3))).shape
    (1, 4, 1, 1, 1)
    """
    return _convolve("conv3d", 3, x, weight, bias, stride, padding, dilation, groups)


def _convolve_transposed(
    name: str,
    rank: int,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    x, weight, b, single = _operands(name, "conv_transpose", rank, x, weight, bias)
    step = per_axis(name, "stride", stride, rank, least=1)
    gap = per_axis(name, "dilation", dilation, rank, least=1)
    before = per_axis(name, "padding", padding, rank, least=0)
    extra = per_axis(name, "output_padding", output_padding, rank, least=0)
    _check_groups(name, groups, x, weight)
    if x.shape[1] != weight.shape[0]:
        raise ShapeError(
            f"{name}: the weight takes {weight.shape[0]} channels, x has {x.shape[1]}: {describe(x)} and {describe(weight)}"
        )
    _check_bias(name, b, weight.shape[1] * groups)
    kernel = weight.shape[2:]
    sizes = []
    for n, k, s, d, p, e in zip(x.shape[2:], kernel, step, gap, before, extra):
        if e >= max(s, d):
            raise ArgumentError(
                f"{name}: output_padding {shape_text(extra)} must be smaller than stride {shape_text(step)} or "
                f"dilation {shape_text(gap)}"
            )
        size = (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        if k < 1 or n < 1 or size < 1:
            raise ShapeError(
                f"{name}: the result would be empty: {describe(x)}, weight {describe(weight)}, "
                f"padding {shape_text(before)}"
            )
        sizes.append(size)
    y = _conv_transpose(x, weight, tuple(sizes), step, before, gap, groups)
    if b is not None:
        y = y + _reshape(as_dtype_of(b, y.dtype), (b.shape[0], *(1 for _ in range(rank))))
    return without_batch(y, single)


def conv_transpose1d(
    x: Any,
    weight: Any,
    *,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The transpose of `conv1d` as a linear map, plus bias: y[j·stride + k·dilation − padding] gets x[j] · weight[k].

    weight is (inputs, outputs / groups, kernel). The result has (length − 1)·stride − 2·padding + dilation·(kernel − 1)
    + output_padding + 1 positions.

    >>> conv_transpose1d([[[1.0, 2.0]]], [[[1.0, 1.0, 1.0]]], stride=2).tolist()
    [[[1.0, 1.0, 3.0, 2.0, 2.0]]]
    """
    return _convolve_transposed(
        "conv_transpose1d", 1, x, weight, bias, stride, padding, output_padding, dilation, groups
    )


def conv_transpose2d(
    x: Any,
    weight: Any,
    *,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The transpose of `conv2d` as a linear map, plus bias; weight is (inputs, outputs / groups, height, width).

    >>> import wengert as wg
    >>> conv_transpose2d(wg.ones((1, 3, 4, 4)), wg.ones((3, 2, 2, 2)), stride=2).shape
    (1, 2, 8, 8)
    """
    return _convolve_transposed(
        "conv_transpose2d", 2, x, weight, bias, stride, padding, output_padding, dilation, groups
    )


def conv_transpose3d(
    x: Any,
    weight: Any,
    *,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The transpose of `conv3d` as a linear map, plus bias; weight is (inputs, outputs / groups, three spatial).

    >>> import wengert as wg
    >>> conv_transpose3d(wg.ones((1, 3, 2, 2, 2)), wg.ones((3, 2, 3, 3, 3))).shape
    (1, 2, 4, 4, 4)
    """
    return _convolve_transposed(
        "conv_transpose3d", 3, x, weight, bias, stride, padding, output_padding, dilation, groups
    )
