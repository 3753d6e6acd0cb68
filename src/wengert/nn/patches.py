"""Layers without parameters that take pictures apart and put them together."""

from __future__ import annotations

from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.nn.module import Module


class PixelShuffle(Module):
    """(…, channels · r², height, width) as (…, channels, height · r, width · r); see `pixel_shuffle`.

    >>> import wengert as wg
    >>> PixelShuffle(2)(wg.ones((1, 12, 3, 4))).shape
    (1, 3, 6, 8)
    """

    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """x with fewer channels and more pixels."""
        return F.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Module):
    """(…, channels, height · r, width · r) as (…, channels · r², height, width); see `pixel_unshuffle`.

    >>> import wengert as wg
    >>> PixelUnshuffle(2)(wg.ones((1, 3, 6, 8))).shape
    (1, 12, 3, 4)
    """

    def __init__(self, downscale_factor: int) -> None:
        self.downscale_factor = downscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """x with more channels and fewer pixels."""
        return F.pixel_unshuffle(x, self.downscale_factor)


class Unfold(Module):
    """The windows of (batch, channels, height, width) as columns; see `unfold`.

    >>> import wengert as wg
    >>> Unfold(2)(wg.ones((1, 3, 4, 5))).shape
    (1, 12, 12)
    """

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels · elements of a window, windows)."""
        return F.unfold(x, self.kernel_size, dilation=self.dilation, padding=self.padding, stride=self.stride)


class Fold(Module):
    """Columns of windows added up to pictures; see `fold`.

    >>> import wengert as wg
    >>> Fold((4, 5), 2)(wg.ones((1, 12, 12))).shape
    (1, 3, 4, 5)
    """

    def __init__(
        self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width)."""
        options = {"dilation": self.dilation, "padding": self.padding, "stride": self.stride}
        return F.fold(x, self.output_size, self.kernel_size, **options)
