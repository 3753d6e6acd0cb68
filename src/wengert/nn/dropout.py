"""Dropout as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from wengert import functional as F
from wengert._core import Tensor
from wengert.functional.dropout import check_probability
from wengert.nn.module import Module
from wengert.tensors.random import Generator


class _Dropout(Module):
    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, p: float = 0.5, *, generator: Generator | None = None) -> None:
        self.p = check_probability(p, type(self).__name__)
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        """x, thinned out while training."""
        return type(self).function(x, self.p, training=self.training, generator=self.generator)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"


class Dropout(_Dropout):
    """While training, each element is 0 with probability p, and the others are scaled by 1/(1 − p).

    >>> import wengert as wg
    >>> Dropout(0.5).eval()(wg.ones((3,))).tolist()
    [1.0, 1.0, 1.0]
    """

    function = staticmethod(F.dropout)


class Dropout1d(_Dropout):
    """While training, whole channels of (batch, channels, length) are 0 with probability p; see `dropout1d`.

    >>> import wengert as wg
    >>> Dropout1d(0.5)(wg.ones((2, 3, 4))).shape
    (2, 3, 4)
    """

    function = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    """While training, whole channels of (batch, channels, height, width) are 0 with probability p; see `dropout2d`.

    >>> import wengert as wg
    >>> Dropout2d(0.5)(wg.ones((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    function = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    """While training, whole channels over three spatial axes are 0 with probability p; see `dropout3d`.

    >>> import wengert as wg
    >>> Dropout3d(0.5)(wg.ones((2, 3, 4, 4, 4))).shape
    (2, 3, 4, 4, 4)
    """

    function = staticmethod(F.dropout3d)


class AlphaDropout(_Dropout):
    """Dropout for `SELU` that keeps mean 0 and variance 1 while training; see `alpha_dropout`.

    >>> import wengert as wg
    >>> AlphaDropout(0.5).eval()(wg.ones((3,))).tolist()
    [1.0, 1.0, 1.0]
    """

    function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels of (batch, channels, …); see `feature_alpha_dropout`.

    >>> import wengert as wg
    >>> FeatureAlphaDropout(0.5)(wg.ones((2, 3, 4))).shape
    (2, 3, 4)
    """

    function = staticmethod(F.feature_alpha_dropout)
