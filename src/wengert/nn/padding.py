"""Layers that pad the spatial axes of (batch, channels, spatial), or of the same without batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from wengert import functional as F
from wengert._core import Tensor
from wengert.errors import ArgumentError, ShapeError
from wengert.nn.module import Module
from wengert.tensors.arguments import describe


class _Pad(Module):
    rank: ClassVar[int]
    mode: ClassVar[str] = "constant"
    value: float = 0.0

    def __init__(self, padding: int | Sequence[int]) -> None:
        widths = (padding,) * (2 * self.rank) if isinstance(padding, int) else tuple(padding)
        if len(widths) != 2 * self.rank:
            raise ArgumentError(
                f"{type(self).__name__}: padding must be one number or {2 * self.rank}, before and after each axis from "
                f"the last axis on, got {padding}"
            )
        if any(w < 0 for w in widths):
            raise ArgumentError(f"{type(self).__name__}: padding must not be negative, got {padding}")
        self.padding = widths

    def forward(self, x: Tensor) -> Tensor:
        """x with more elements around."""
        if x.ndim not in (self.rank + 1, self.rank + 2):
            raise ShapeError(
                f"{type(self).__name__}: takes x of shape (batch, channels, {self.rank} spatial) or without batch, got "
                f"{describe(x)}"
            )
        pairs = [(self.padding[2 * k], self.padding[2 * k + 1]) for k in reversed(range(self.rank))]
        return F.pad(x, [(0, 0)] * (x.ndim - self.rank) + pairs, mode=self.mode, value=self.value)

    def extra_repr(self) -> str:
        """The widths."""
        return str(self.padding)


class _ConstantPad(_Pad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """The widths and the number."""
        return f"padding={self.padding}, value={self.value}"


class ZeroPad1d(_Pad):
    """Zeros around the last axis: `padding` is (left, right).

    >>> import wengert as wg
    >>> ZeroPad1d((2, 1))(wg.tensor([[[1.0, 2.0, 3.0]]])).tolist()
    [[[0.0, 0.0, 1.0, 2.0, 3.0, 0.0]]]
    """

    rank = 1


class ZeroPad2d(_Pad):
    """Zeros around the last two axes: `padding` is (left, right, top, bottom).

    >>> import wengert as wg
    >>> ZeroPad2d((1, 1, 2, 0))(wg.ones((1, 3, 4, 5))).shape
    (1, 3, 6, 7)
    """

    rank = 2


class ZeroPad3d(_Pad):
    """Zeros around the last three axes: `padding` is (left, right, top, bottom, front, back).

    >>> import wengert as wg
    >>> ZeroPad3d(1)(wg.ones((1, 2, 3, 4, 5))).shape
    (1, 2, 5, 6, 7)
    """

    rank = 3


class ConstantPad1d(_ConstantPad):
    """One number around the last axis: `padding` is (left, right).

    >>> import wengert as wg
    >>> ConstantPad1d((2, 1), 7.0)(wg.tensor([[[1.0, 2.0, 3.0]]])).tolist()
    [[[7.0, 7.0, 1.0, 2.0, 3.0, 7.0]]]
    """

    rank = 1


class ConstantPad2d(_ConstantPad):
    """One number around the last two axes: `padding` is (left, right, top, bottom).

    >>> import wengert as wg
    >>> ConstantPad2d((1, 1, 2, 0), 7.0)(wg.ones((1, 3, 4, 5))).shape
    (1, 3, 6, 7)
    """

    rank = 2


class ConstantPad3d(_ConstantPad):
    """One number around the last three axes: `padding` is (left, right, top, bottom, front, back).

    >>> import wengert as wg
    >>> ConstantPad3d(1, 7.0)(wg.ones((1, 2, 3, 4, 5))).shape
    (1, 2, 5, 6, 7)
    """

    rank = 3


class ReflectionPad1d(_Pad):
    """Elements mirrored, without those of the border, around the last axis: `padding` is (left, right).

    >>> import wengert as wg
    >>> ReflectionPad1d((2, 1))(wg.tensor([[[1.0, 2.0, 3.0]]])).tolist()
    [[[3.0, 2.0, 1.0, 2.0, 3.0, 2.0]]]
    """

    rank = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """Elements mirrored, without those of the border, around the last two axes: `padding` is (left, right, top, bottom).

    >>> import wengert as wg
    >>> ReflectionPad2d((1, 1, 2, 0))(wg.ones((1, 3, 4, 5))).shape
    (1, 3, 6, 7)
    """

    rank = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """Elements mirrored, without those of the border, around the last three axes.

    `padding` is (left, right, top, bottom, front, back).

    >>> import wengert as wg
    >>> ReflectionPad3d(1)(wg.ones((1, 2, 3, 4, 5))).shape
    (1, 2, 5, 6, 7)
    """

    rank = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """The elements of the border around the last axis: `padding` is (left, right).

    >>> import wengert as wg
    >>> ReplicationPad1d((2, 1))(wg.tensor([[[1.0, 2.0, 3.0]]])).tolist()
    [[[1.0, 1.0, 1.0, 2.0, 3.0, 3.0]]]
    """

    rank = 1
    mode = "edge"


class ReplicationPad2d(_Pad):
    """The elements of the border around the last two axes: `padding` is (left, right, top, bottom).

    >>> import wengert as wg
    >>> ReplicationPad2d((1, 1, 2, 0))(wg.ones((1, 3, 4, 5))).shape
    (1, 3, 6, 7)
    """

    rank = 2
    mode = "edge"


class ReplicationPad3d(_Pad):
    """The elements of the border around the last three axes: `padding` is (left, right, top, bottom, front, back).

    >>> import wengert as wg
    >>> ReplicationPad3d(1)(wg.ones((1, 2, 3, 4, 5))).shape
    (1, 2, 5, 6, 7)
    """

    rank = 3
    mode = "edge"


class CircularPad1d(_Pad):
    """The elements of the other end around the last axis: `padding` is (left, right).

    >>> import wengert as wg
    >>> CircularPad1d((2, 1))(wg.tensor([[[1.0, 2.0, 3.0]]])).tolist()
    [[[2.0, 3.0, 1.0, 2.0, 3.0, 1.0]]]
    """

    rank = 1
    mode = "wrap"


class CircularPad2d(_Pad):
    """The elements of the other end around the last two axes: `padding` is (left, right, top, bottom).

    >>> import wengert as wg
    >>> CircularPad2d((1, 1, 2, 0))(wg.ones((1, 3, 4, 5))).shape
    (1, 3, 6, 7)
    """

    rank = 2
    mode = "wrap"


class CircularPad3d(_Pad):
    """The elements of the other end around the last three axes: `padding` is (left, right, top, bottom, front, back).

    >>> import wengert as wg
    >>> CircularPad3d(1)(wg.ones((1, 2, 3, 4, 5))).shape
    (1, 2, 5, 6, 7)
    """

    rank = 3
    mode = "wrap"
