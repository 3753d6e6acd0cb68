"""Layers that normalise: over the last axes, over groups of channels, over batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from wengert import functional as F
from wengert._core import Tensor
from wengert.dtypes import float64, int64
from wengert.errors import ArgumentError, ShapeError
from wengert.modes import no_grad
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.recomputing import recomputing
from wengert.tensors import creation
from wengert.tensors.arguments import describe


class LayerNorm(Module):
    """(x − mean) / √(variance + eps) · weight + bias over the last axes (Ba et al., 2016).

    >>> import wengert as wg
    >>> LayerNorm(4)(wg.ones((2, 4))).tolist()[0]
    [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        one = isinstance(normalized_shape, int)
        self.normalized_shape: tuple[int, ...] = (normalized_shape,) if one else tuple(normalized_shape)  # type: ignore[arg-type, assignment]
        self.eps = eps
        self.weight = Parameter.ones(self.normalized_shape, dtype=dtype) if elementwise_affine else None
        self.bias = Parameter.zeros(self.normalized_shape, dtype=dtype) if elementwise_affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x, normalised."""
        return F.layer_norm(x, self.normalized_shape, weight=self.weight, bias=self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        """The normalised sizes."""
        return ", ".join(map(str, self.normalized_shape))


class RMSNorm(Module):
    """x / √(mean x² + eps) · weight over the last axes (Zhang and Sennrich, 2019).

    >>> import wengert as wg
    >>> RMSNorm(2)(wg.tensor([[3.0, 3.0]])).tolist()
    [[1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        one = isinstance(normalized_shape, int)
        self.normalized_shape: tuple[int, ...] = (normalized_shape,) if one else tuple(normalized_shape)  # type: ignore[arg-type, assignment]
        self.eps = eps
        self.weight = Parameter.ones(self.normalized_shape, dtype=dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        """x, normalised."""
        return F.rms_norm(x, self.normalized_shape, weight=self.weight, eps=self.eps)

    def extra_repr(self) -> str:
        """The normalised sizes."""
        return ", ".join(map(str, self.normalized_shape))


class GroupNorm(Module):
    """Normalisation over groups of the channels of each sample (Wu and He, 2018).

    >>> import wengert as wg
    >>> GroupNorm(2, 4)(wg.ones((1, 4, 3, 3))).shape
    (1, 4, 3, 3)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *, dtype: Any = None
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(f"GroupNorm: num_groups={num_groups} does not divide num_channels={num_channels}")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Parameter.ones((num_channels,), dtype=dtype) if affine else None
        self.bias = Parameter.zeros((num_channels,), dtype=dtype) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """x, normalised."""
        return F.group_norm(x, self.num_groups, weight=self.weight, bias=self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        """Groups and channels."""
        return f"{self.num_groups}, {self.num_channels}"


class _ChannelNorm(Module):
    ranks: ClassVar[tuple[int, ...]]  # of x

    def _check(self, x: Tensor) -> None:
        if x.ndim not in self.ranks:
            wanted = " or ".join(map(str, self.ranks))
            raise ShapeError(f"{type(self).__name__}: takes {wanted} axes, (batch, channels, ...), got {describe(x)}")


class _InstanceNorm(_ChannelNorm):
    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = False, *, dtype: Any = None) -> None:
        self.num_features, self.eps = num_features, eps
        self.weight = Parameter.ones((num_features,), dtype=dtype) if affine else None
        self.bias = Parameter.zeros((num_features,), dtype=dtype) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """x, normalised."""
        self._check(x)
        return F.instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        """Channels."""
        return str(self.num_features)


class InstanceNorm1d(_InstanceNorm):
    """Normalisation of each channel of each sample of (batch, channels, length); no statistics are kept.

    >>> import wengert as wg
    >>> InstanceNorm1d(3)(wg.ones((2, 3, 4))).shape
    (2, 3, 4)
    """

    ranks = (3,)


class InstanceNorm2d(_InstanceNorm):
    """Normalisation of each channel of each sample of (batch, channels, height, width) (Ulyanov et al., 2016).

    >>> import wengert as wg
    >>> InstanceNorm2d(3)(wg.ones((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    ranks = (4,)


class InstanceNorm3d(_InstanceNorm):
    """Normalisation of each channel of each sample over three spatial axes.

    >>> import wengert as wg
    >>> InstanceNorm3d(3)(wg.ones((2, 3, 2, 2, 2))).shape
    (2, 3, 2, 2, 2)
    """

    ranks = (5,)


class _BatchNorm(_ChannelNorm):
    """Statistics of the batch while training, running ones otherwise; `momentum=None` averages over all batches."""

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.track_running_stats = track_running_stats
        self.weight = Parameter.ones((num_features,), dtype=dtype) if affine else None
        self.bias = Parameter.zeros((num_features,), dtype=dtype) if affine else None
        track = track_running_stats
        self.register_buffer("running_mean", creation.zeros((num_features,), dtype=dtype) if track else None)
        self.register_buffer("running_var", creation.ones((num_features,), dtype=dtype) if track else None)
        self.register_buffer("num_batches_tracked", creation.zeros((), dtype=int64) if track else None)

    def forward(self, x: Tensor) -> Tensor:
        """x, normalised."""
        self._check(x)
        momentum: Any = self.momentum
        if self.training and self.num_batches_tracked is not None and not recomputing():
            with no_grad():
                self.num_batches_tracked += 1
                if momentum is None and self.running_mean is not None:  # a tensor: a compiled function has no number
                    momentum = (1.0 / self.num_batches_tracked.astype(float64)).astype(self.running_mean.dtype)
        return F.batch_norm(
            x,
            self.weight,
            self.bias,
            running_mean=self.running_mean,
            running_var=self.running_var,
            training=self.training or not self.track_running_stats,
            momentum=0.0 if momentum is None else momentum,
            eps=self.eps,
        )

    def extra_repr(self) -> str:
        """Channels."""
        return str(self.num_features)


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (batch, channels) or (batch, channels, length) (Ioffe and Szegedy, 2015).

    >>> import wengert as wg
    >>> BatchNorm1d(3)(wg.ones((4, 3))).shape
    (4, 3)
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (batch, channels, height, width) (Ioffe and Szegedy, 2015).

    >>> import wengert as wg
    >>> layer = BatchNorm2d(3)
    >>> layer(wg.ones((4, 3, 2, 2))).shape, list(layer.state_dict())
    ((4, 3, 2, 2), ['weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked'])
    """

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation over three spatial axes.

    >>> import wengert as wg
    >>> BatchNorm3d(3)(wg.ones((4, 3, 2, 2, 2))).shape
    (4, 3, 2, 2, 2)
    """

    ranks = (5,)


class LocalResponseNorm(Module):
    """x / (k + α Σ x² / size)^β with the sum over neighbouring channels; see `local_response_norm`.

    >>> import wengert as wg
    >>> LocalResponseNorm(2)(wg.ones((1, 4, 3))).shape
    (1, 4, 3)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """x, normalised."""
        return F.local_response_norm(x, self.size, alpha=self.alpha, beta=self.beta, k=self.k)

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
