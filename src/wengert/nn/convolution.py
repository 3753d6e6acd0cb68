"""Convolutional layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from wengert import functional as F
from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.functional.convolution import both_sides
from wengert.functional.windows import per_axis
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.tensors.random import Generator, uniform

Sizes = int | Sequence[int]

_PAD_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


class _Convolution(Module):
    """Weight, bias and options of a convolution; both start uniform in ±1/√fan (He et al., 2015, with a = √5)."""

    rank: ClassVar[int]
    transposed: ClassVar[bool] = False
    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: Any = None,
        generator: Generator | None = None,
    ) -> None:
        name, rank = type(self).__name__, self.rank
        if in_channels < 1 or out_channels < 1 or groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"{name}: groups={groups} must divide in_channels={in_channels} and out_channels={out_channels}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = per_axis(name, "kernel_size", kernel_size, rank, least=1)
        self.stride = per_axis(name, "stride", stride, rank, least=1)
        self.dilation = per_axis(name, "dilation", dilation, rank, least=1)
        self.padding = padding if isinstance(padding, str) else per_axis(name, "padding", padding, rank, least=0)
        if padding_mode not in _PAD_MODES:
            raise ArgumentError(f"{name}: padding_mode must be one of {', '.join(_PAD_MODES)}, got {padding_mode!r}")
        self.padding_mode = padding_mode
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (first, second // groups, *self.kernel_size)
        bound = 1.0 / math.sqrt(math.prod(shape[1:]))

        def start(shape: tuple[int, ...]) -> Parameter:
            return Parameter._owning(uniform(-bound, bound, shape, dtype=dtype, generator=generator))

        self.weight = start(shape)
        self.bias = start((out_channels,)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x, convolved."""
        padded = x if self.padding_mode == "zeros" else self._padded(x)
        return type(self).function(
            padded,
            self.weight,
            bias=self.bias,
            stride=self.stride,
            padding=self.padding if padded is x else 0,
            dilation=self.dilation,
            groups=self.groups,
        )

    def _padded(self, x: Tensor) -> Tensor:
        """x with its own elements around it, as many as zeros otherwise."""
        sizes = self.kernel_size, self.stride, self.dilation
        before, after = both_sides(type(self).__name__, self.padding, self.rank, *sizes)
        widths = [(0, 0)] * (x.ndim - self.rank) + list(zip(before, after))
        return F.pad(x, widths, mode=_PAD_MODES[self.padding_mode])

    def extra_repr(self) -> str:
        """Channels and sizes, and the options that are not the usual ones."""
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        usual: dict[str, Any] = {
            "padding": (0,) * self.rank,
            "dilation": (1,) * self.rank,
            "groups": 1,
            "padding_mode": "zeros",
        }
        parts += [f"{k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        return ", ".join(parts) + ("" if self.bias is not None else ", bias=False")


class Conv1d(_Convolution):
    """Convolution over (batch, channels, length) with weight (out_channels, in_channels / groups, kernel).

    >>> import wengert as wg
    >>> Conv1d(2, 4, 3, padding="same")(wg.ones((5, 2, 9))).shape
    (5, 4, 9)
    """

    rank = 1
    function = staticmethod(F.conv1d)


class Conv2d(_Convolution):
    """Convolution over (batch, channels, height, width) with weight (out_channels, in_channels / groups, height, width).

    `padding_mode`: what stands around the input, "zeros", "reflect" (mirrored, without the edge), "replicate" (the edge) or
    "circular" (the other side).

    >>> import wengert as wg
    >>> Conv2d(3, 8, 3, stride=2, padding=1)(wg.ones((5, 3, 8, 8))).shape
    (5, 8, 4, 4)
    """

    rank = 2
    function = staticmethod(F.conv2d)


class Conv3d(_Convolution):
    """Convolution over three spatial axes.

    >>> import wengert as wg
    >>> Conv3d(1, 2, 3)(wg.ones((1, 1, 4, 5, 6))).shape
    (1, 2, 2, 3, 4)
    """

    rank = 3
    function = staticmethod(F.conv3d)


class _TransposedConvolution(_Convolution):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        *,
        dtype: Any = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            dtype=dtype,
            generator=generator,
        )
        self.output_padding = per_axis(type(self).__name__, "output_padding", output_padding, self.rank, least=0)

    def forward(self, x: Tensor) -> Tensor:
        """x, convolved with the transpose."""
        return type(self).function(
            x,
            self.weight,
            bias=self.bias,
            stride=self.stride,
            padding=self.padding,
            output_padding=self.output_padding,
            dilation=self.dilation,
            groups=self.groups,
        )


class ConvTranspose1d(_TransposedConvolution):
    """The transpose of `Conv1d`: weight is (in_channels, out_channels / groups, kernel).

    >>> import wengert as wg
    >>> ConvTranspose1d(2, 4, 4, stride=2, padding=1)(wg.ones((5, 2, 8))).shape
    (5, 4, 16)
    """

    rank = 1
    function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_TransposedConvolution):
    """The transpose of `Conv2d`: weight is (in_channels, out_channels / groups, height, width).

    >>> import wengert as wg
    >>> ConvTranspose2d(2, 4, 2, stride=2)(wg.ones((5, 2, 8, 8))).shape
    (5, 4, 16, 16)
    """

    rank = 2
    function = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_TransposedConvolution):
    """The transpose of `Conv3d`.

    >>> import wengert as wg
    >>> ConvTranspose3d(2, 4, 2)(wg.ones((1, 2, 3, 3, 3))).shape
    (1, 4, 4, 4, 4)
    """

    rank = 3
    function = staticmethod(F.conv_transpose3d)
