"""Layers: linear, activations, dropout."""

from __future__ import annotations

import math
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.autograd.random import Generator, rand, uniform
from wengert.errors import ArgumentError
from wengert.functional.arguments import as_dtype_of, native
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter

_relu, _tanh, _sigmoid = native("relu"), native("tanh"), native("sigmoid")


class Linear(Module):
    """x Wᵀ + b, with weight W of shape (out_features, in_features).

    Both start uniform in ±1/√in_features (PyTorch's default; He et al., 2015, with a = √5).

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


class Flatten(Module):
    """All axes from `start_axis` to `end_axis` as one; by default all but the first.

    >>> import wengert as wg
    >>> Flatten()(wg.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_axis: int = 1, end_axis: int = -1) -> None:
        self.start_axis, self.end_axis = start_axis, end_axis

    def forward(self, x: Tensor) -> Tensor:
        """x with those axes as one."""
        return F.flatten(x, start_axis=self.start_axis, end_axis=self.end_axis)


class Dropout(Module):
    """While training, each element is 0 with probability p, and the others are scaled by 1/(1 − p).

    >>> import wengert as wg
    >>> Dropout(0.5).eval()(wg.ones((3,))).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, p: float = 0.5, *, generator: Generator | None = None) -> None:
        if not 0.0 <= p < 1.0:
            raise ArgumentError(f"Dropout: p lies in [0, 1), got {p}")
        self.p = p
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        """x, thinned out while training."""
        if not self.training or self.p == 0.0:
            return x
        kept = as_dtype_of(rand(x.shape, generator=self.generator) >= self.p, x.dtype)
        return x * (kept * (1.0 / (1.0 - self.p)))

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"


class ReLU(Module):
    """max(x, 0).

    >>> import wengert as wg
    >>> ReLU()(wg.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """max(x, 0)."""
        return _relu(x)


class Tanh(Module):
    """tanh x.

    >>> import wengert as wg
    >>> Tanh()(wg.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """tanh x."""
        return _tanh(x)


class Sigmoid(Module):
    """1 / (1 + e⁻ˣ).

    >>> import wengert as wg
    >>> Sigmoid()(wg.tensor([0.0])).tolist()
    [0.5]
    """

    def forward(self, x: Tensor) -> Tensor:
        """1 / (1 + e⁻ˣ)."""
        return _sigmoid(x)


class SiLU(Module):
    """x · sigmoid(x).

    >>> import wengert as wg
    >>> SiLU()(wg.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """x · sigmoid(x)."""
        return F.silu(x)


class GELU(Module):
    """x Φ(x), exact or by its tanh approximation.

    >>> import wengert as wg
    >>> GELU()(wg.tensor([0.0])).tolist()
    [0.0]
    """

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """x Φ(x)."""
        return F.gelu(x, approximate=self.approximate)


class LeakyReLU(Module):
    """x where x > 0, else negative_slope · x.

    >>> import wengert as wg
    >>> LeakyReLU(0.5)(wg.tensor([-2.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """x where x > 0, else negative_slope · x."""
        return F.leaky_relu(x, self.negative_slope)


class ELU(Module):
    """x where x > 0, else α(eˣ − 1).

    >>> import wengert as wg
    >>> ELU()(wg.tensor([2.0])).tolist()
    [2.0]
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """x where x > 0, else α(eˣ − 1)."""
        return F.elu(x, self.alpha)


class Softmax(Module):
    """eˣ / Σ eˣ along an axis.

    >>> import wengert as wg
    >>> Softmax()(wg.zeros((2,))).tolist()
    [0.5, 0.5]
    """

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        """eˣ / Σ eˣ."""
        return F.softmax(x, self.axis)


class LogSoftmax(Module):
    """ln softmax(x) along an axis.

    >>> import wengert as wg
    >>> LogSoftmax()(wg.zeros((1,))).tolist()
    [0.0]
    """

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        """ln softmax(x)."""
        return F.log_softmax(x, self.axis)
