"""Layers without parameters that change the size of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from wengert import functional as F
from wengert._core import Tensor
from wengert.nn.module import Module

Sizes = int | Sequence[int]


class _MaxPool(Module):
    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        *,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> None:
        self.return_indices = return_indices
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.ceil_mode = ceil_mode

    def forward(self, x: Tensor) -> Any:
        """The windows' largest elements; with `return_indices` also where they are."""
        return type(self).function(
            x,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self) -> str:
        """The window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool1d(_MaxPool):
    """The largest element of every window of (batch, channels, length).

    >>> import wengert as wg
    >>> MaxPool1d(2)(wg.ones((1, 3, 8))).shape
    (1, 3, 4)
    """

    function = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """The largest element of every window of (batch, channels, height, width).

    >>> import wengert as wg
    >>> MaxPool2d(3, stride=2, padding=1)(wg.ones((1, 3, 8, 8))).shape
    (1, 3, 4, 4)
    """

    function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """The largest element of every window over three spatial axes.

    >>> import wengert as wg
    >>> MaxPool3d(2)(wg.ones((1, 3, 4, 4, 4))).shape
    (1, 3, 2, 2, 2)
    """

    function = staticmethod(F.max_pool3d)


class _MaxUnpool(Module):
    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride

    def forward(self, x: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """Zeros with the elements of x at the indices."""
        options = {"stride": self.stride, "padding": self.padding, "output_size": output_size}
        return type(self).function(x, indices, self.kernel_size, **options)

    def extra_repr(self) -> str:
        """The window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Zeros with elements where `MaxPool1d(…, return_indices=True)` found them.

    >>> import wengert as wg
    >>> MaxUnpool1d(2)(*MaxPool1d(2, return_indices=True)(wg.tensor([[[1.0, 3.0, 2.0, 0.0]]]))).tolist()
    [[[0.0, 3.0, 2.0, 0.0]]]
    """

    function = staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """Zeros with elements where `MaxPool2d(…, return_indices=True)` found them.

    >>> import wengert as wg
    >>> MaxUnpool2d(2)(*MaxPool2d(2, return_indices=True)(wg.ones((1, 3, 8, 8)))).shape
    (1, 3, 8, 8)
    """

    function = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """Zeros with elements where `MaxPool3d(…, return_indices=True)` found them.

    >>> import wengert as wg
    >>> MaxUnpool3d(2)(*MaxPool3d(2, return_indices=True)(wg.ones((1, 3, 4, 4, 4)))).shape
    (1, 3, 4, 4, 4)
    """

    function = staticmethod(F.max_unpool3d)


class _AvgPool(Module):
    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """The windows' means."""
        return type(self).function(
            x,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
        )

    def extra_repr(self) -> str:
        """The window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of every window of (batch, channels, length).

    >>> import wengert as wg
    >>> AvgPool1d(2)(wg.ones((1, 3, 8))).shape
    (1, 3, 4)
    """

    function = staticmethod(F.avg_pool1d)


class AvgPool2d(_AvgPool):
    """The mean of every window of (batch, channels, height, width).

    >>> import wengert as wg
    >>> AvgPool2d(2)(wg.ones((1, 3, 8, 8))).shape
    (1, 3, 4, 4)
    """

    function = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPool):
    """The mean of every window over three spatial axes.

    >>> import wengert as wg
    >>> AvgPool3d(2)(wg.ones((1, 3, 4, 4, 4))).shape
    (1, 3, 2, 2, 2)
    """

    function = staticmethod(F.avg_pool3d)


class _AdaptivePool(Module):
    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, output_size: Any) -> None:
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """One number for every window."""
        return type(self).function(x, self.output_size)

    def extra_repr(self) -> str:
        """The size."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptivePool):
    """Means of as many windows as wanted, over (batch, channels, length).

    >>> import wengert as wg
    >>> AdaptiveAvgPool1d(3)(wg.ones((1, 2, 7))).shape
    (1, 2, 3)
    """

    function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptivePool):
    """Means of as many windows as wanted, over (batch, channels, height, width).

    >>> import wengert as wg
    >>> AdaptiveAvgPool2d(1)(wg.ones((1, 2, 7, 7))).shape
    (1, 2, 1, 1)
    """

    function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptivePool):
    """Means of as many windows as wanted, over three spatial axes.

    >>> import wengert as wg
    >>> AdaptiveAvgPool3d((1, 2, 3))(wg.ones((1, 2, 6, 6, 6))).shape
    (1, 2, 1, 2, 3)
    """

    function = staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        """The windows' largest elements; with `return_indices` also where they are."""
        return type(self).function(x, self.output_size, return_indices=self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest elements of as many windows as wanted, over (batch, channels, length).

    >>> import wengert as wg
    >>> AdaptiveMaxPool1d(3)(wg.ones((1, 2, 7))).shape
    (1, 2, 3)
    """

    function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest elements of as many windows as wanted, over (batch, channels, height, width).

    >>> import wengert as wg
    >>> AdaptiveMaxPool2d((3, None))(wg.ones((1, 2, 7, 5))).shape
    (1, 2, 3, 5)
    """

    function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest elements of as many windows as wanted, over three spatial axes.

    >>> import wengert as wg
    >>> AdaptiveMaxPool3d((1, 2, 3))(wg.ones((1, 2, 6, 6, 6))).shape
    (1, 2, 1, 2, 3)
    """

    function = staticmethod(F.adaptive_max_pool3d)


class Upsample(Module):
    """Resize images to `size`, or by the factor `scale_factor`.

    >>> import wengert as wg
    >>> Upsample(scale_factor=2, mode="bilinear")(wg.ones((1, 2, 4, 4))).shape
    (1, 2, 8, 8)
    """

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool = False
    ) -> None:
        self.size, self.scale_factor = size, scale_factor
        self.mode, self.align_corners = mode, align_corners

    def forward(self, x: Tensor) -> Tensor:
        """x, resized."""
        return F.upsample(
            x, size=self.size, scale=self.scale_factor, mode=self.mode, align_corners=bool(self.align_corners)
        )

    def extra_repr(self) -> str:
        """Size or factor, and how."""
        what = f"size={self.size}" if self.size is not None else f"scale_factor={self.scale_factor}"
        return f"{what}, mode={self.mode!r}"


class _LPPool(Module):
    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, *, ceil_mode: bool = False
    ) -> None:
        self.norm_type, self.kernel_size, self.ceil_mode = norm_type, kernel_size, ceil_mode
        self.stride = kernel_size if stride is None else stride

    def forward(self, x: Tensor) -> Tensor:
        """The windows' norms."""
        return type(self).function(x, self.norm_type, self.kernel_size, stride=self.stride, ceil_mode=self.ceil_mode)

    def extra_repr(self) -> str:
        """The norm and the window."""
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}"


class LPPool1d(_LPPool):
    """(Σ xᵖ)^(1/p) over every window of (batch, channels, length); see `lp_pool1d`.

    >>> import wengert as wg
    >>> LPPool1d(2, 2)(wg.ones((1, 3, 8))).shape
    (1, 3, 4)
    """

    function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """(Σ xᵖ)^(1/p) over every window of (batch, channels, height, width); see `lp_pool2d`.

    >>> import wengert as wg
    >>> LPPool2d(2, (2, 4))(wg.ones((1, 3, 8, 8))).shape
    (1, 3, 4, 2)
    """

    function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """(Σ xᵖ)^(1/p) over every window over three spatial axes; see `lp_pool3d`.

    >>> import wengert as wg
    >>> LPPool3d(2, 2)(wg.ones((1, 3, 4, 4, 4))).shape
    (1, 3, 2, 2, 2)
    """

    function = staticmethod(F.lp_pool3d)
