"""Linear layers, flattening, and distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.tensors.random import Generator, uniform


class Linear(Module):
    """The affine map y = x Wᵀ + b, with weight W of shape (out_features, in_features).

    x has shape (…, in_features), y has shape (…, out_features). `bias=False` leaves out b. Both start uniform in
    ±1/√in_features (PyTorch's default; He et al., 2015, with a = √5).

    >>> import wengert as wg
    >>> Linear(3, 2)(wg.ones((5, 3))).shape
    (5, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: Any = None,
        generator: Generator | None = None,
    ) -> None:
        if in_features < 0 or out_features < 0:
            raise ArgumentError(f"Linear: sizes must not be negative, got {in_features} and {out_features}")
        bound = 1.0 / math.sqrt(in_features) if in_features else 0.0

        def start(shape: tuple[int, ...]) -> Parameter:
            return Parameter._owning(uniform(-bound, bound, shape, dtype=dtype, generator=generator))

        self.weight = start((out_features, in_features))
        self.bias = start((out_features,)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x Wᵀ + b over the last axis of x."""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes."""
        out_features, in_features = self.weight.shape
        return f"{in_features}, {out_features}" + ("" if self.bias is not None else ", bias=False")


class Bilinear(Module):
    """y[o] = Σ a[i] W[o, i, j] b[j] + bias[o], with weight W of shape (out_features, in1_features, in2_features).

    Both start uniform in ±1/√in1_features.

    >>> import wengert as wg
    >>> Bilinear(3, 4, 2)(wg.ones((5, 3)), wg.ones((5, 4))).shape
    (5, 2)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: Any = None,
        generator: Generator | None = None,
    ) -> None:
        if min(in1_features, in2_features, out_features) < 1:
            raise ArgumentError(
                f"Bilinear: sizes must be positive, got {in1_features}, {in2_features} and {out_features}"
            )
        bound = 1.0 / math.sqrt(in1_features)

        def start(*shape: int) -> Parameter:
            return Parameter._owning(uniform(-bound, bound, shape, dtype=dtype, generator=generator))

        self.weight = start(out_features, in1_features, in2_features)
        self.bias = start(out_features) if bias else None

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of the last axes of a and b."""
        return F.bilinear(a, b, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes."""
        out_features, first, second = self.weight.shape
        return f"{first}, {second}, {out_features}" + ("" if self.bias is not None else ", bias=False")


class Identity(Module):
    """Return the input unchanged: a placeholder for a layer.

    >>> import wengert as wg
    >>> Identity()(wg.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def forward(self, x: Any) -> Any:
        """x."""
        return x


class Flatten(Module):
    """Merge the axes from `start_axis` to `end_axis`, by default all but the first.

    >>> import wengert as wg
    >>> Flatten()(wg.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_axis: int = 1, end_axis: int = -1) -> None:
        self.start_axis, self.end_axis = start_axis, end_axis

    def forward(self, x: Tensor) -> Tensor:
        """x with those axes as one."""
        return F.flatten(x, start_axis=self.start_axis, end_axis=self.end_axis)


class Unflatten(Module):
    """One axis as several: the inverse of `Flatten`.

    >>> import wengert as wg
    >>> Unflatten(1, (3, 4))(wg.ones((2, 12))).shape
    (2, 3, 4)
    """

    def __init__(self, axis: int, shape: Sequence[int]) -> None:
        self.axis, self.shape = axis, tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        """x with that axis as several."""
        return F.unflatten(x, self.axis, self.shape)

    def extra_repr(self) -> str:
        """The axis and its sizes."""
        return f"{self.axis}, {self.shape}"


class CosineSimilarity(Module):
    """Σ ab / (|a| |b|) along an axis, by default 1; see `cosine_similarity`.

    >>> import wengert as wg
    >>> CosineSimilarity()(wg.tensor([[3.0, 0.0]]), wg.tensor([[1.0, 0.0]])).tolist()
    [1.0]
    """

    def __init__(self, axis: int = 1, eps: float = 1e-8) -> None:
        self.axis, self.eps = axis, eps

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """The cosines."""
        return F.cosine_similarity(a, b, axis=self.axis, eps=self.eps)


class PairwiseDistance(Module):
    """(Σ |a − b + eps|ᵖ)^(1/p) along the last axis; see `pairwise_distance`.

    >>> import wengert as wg
    >>> PairwiseDistance(1.0, eps=0.0)(wg.tensor([[3.0, 4.0]]), wg.zeros((1, 2))).tolist()
    [7.0]
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> None:
        self.p, self.eps, self.keepdims = p, eps, keepdims

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """The distances."""
        return F.pairwise_distance(a, b, p=self.p, eps=self.eps, keepdims=self.keepdims)
