"""Activation functions as modules."""

from __future__ import annotations

from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.tensors.arguments import native
from wengert.tensors.random import Generator

_relu, _tanh, _sigmoid = native("relu"), native("tanh"), native("sigmoid")


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


class ReLU6(Module):
    """min(max(x, 0), 6).

    >>> import wengert as wg
    >>> ReLU6()(wg.tensor([-1.0, 7.0])).tolist()
    [0.0, 6.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """min(max(x, 0), 6)."""
        return F.relu6(x)


class SELU(Module):
    """λ·x where x > 0, else λα(eˣ − 1).

    >>> import wengert as wg
    >>> SELU()(wg.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """λ·x where x > 0, else λα(eˣ − 1)."""
        return F.selu(x)


class Mish(Module):
    """x tanh(ln(1 + eˣ)).

    >>> import wengert as wg
    >>> Mish()(wg.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """x tanh(ln(1 + eˣ))."""
        return F.mish(x)


class HardSwish(Module):
    """x · hard_sigmoid(x).

    >>> import wengert as wg
    >>> HardSwish()(wg.tensor([-4.0, 4.0])).tolist()
    [0.0, 4.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """x · hard_sigmoid(x)."""
        return F.hard_swish(x)


class HardSigmoid(Module):
    """0 for x ≤ −3, 1 for x ≥ 3, else x/6 + ½.

    >>> import wengert as wg
    >>> HardSigmoid()(wg.tensor([-4.0, 0.0])).tolist()
    [0.0, 0.5]
    """

    def forward(self, x: Tensor) -> Tensor:
        """0 for x ≤ −3, 1 for x ≥ 3, else x/6 + ½."""
        return F.hard_sigmoid(x)


class Softplus(Module):
    """ln(1 + e^βx) / β.

    >>> import wengert as wg
    >>> Softplus()(wg.tensor([1000.0])).tolist()
    [1000.0]
    """

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = beta

    def forward(self, x: Tensor) -> Tensor:
        """ln(1 + e^βx) / β."""
        return F.softplus(x, self.beta)


class LogSigmoid(Module):
    """ln(1 / (1 + e⁻ˣ)).

    >>> import wengert as wg
    >>> LogSigmoid()(wg.tensor([-1000.0])).tolist()
    [-1000.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """ln(1 / (1 + e⁻ˣ))."""
        return F.log_sigmoid(x)


class Softsign(Module):
    """x / (1 + |x|).

    >>> import wengert as wg
    >>> Softsign()(wg.tensor([1.0])).tolist()
    [0.5]
    """

    def forward(self, x: Tensor) -> Tensor:
        """x / (1 + |x|)."""
        return F.softsign(x)


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


class CELU(Module):
    """x where x > 0, else α(e^(x/α) − 1).

    >>> import wengert as wg
    >>> CELU()(wg.tensor([2.0])).tolist()
    [2.0]
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """x where x > 0, else α(e^(x/α) − 1)."""
        return F.celu(x, self.alpha)

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.alpha}"


class HardTanh(Module):
    """x cut off at min_val and max_val.

    >>> import wengert as wg
    >>> HardTanh()(wg.tensor([-3.0, 0.5])).tolist()
    [-1.0, 0.5]
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Tensor) -> Tensor:
        """x cut off at min_val and max_val."""
        return F.hard_tanh(x, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.min_val}, {self.max_val}"


class HardShrink(Module):
    """x where |x| > limit, else 0.

    >>> import wengert as wg
    >>> HardShrink()(wg.tensor([0.3, 1.0])).tolist()
    [0.0, 1.0]
    """

    def __init__(self, limit: float = 0.5) -> None:
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        """x where |x| > limit, else 0."""
        return F.hard_shrink(x, self.limit)

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.limit}"


class SoftShrink(Module):
    """x moved towards 0 by limit, and 0 within it.

    >>> import wengert as wg
    >>> SoftShrink()(wg.tensor([0.3, 1.0])).tolist()
    [0.0, 0.5]
    """

    def __init__(self, limit: float = 0.5) -> None:
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        """x moved towards 0 by limit, and 0 within it."""
        return F.soft_shrink(x, self.limit)

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.limit}"


class Threshold(Module):
    """x where x > threshold, else value.

    >>> import wengert as wg
    >>> Threshold(1.0, -7.0)(wg.tensor([0.5, 2.0])).tolist()
    [-7.0, 2.0]
    """

    def __init__(self, threshold: float, value: float) -> None:
        self.threshold, self.value = threshold, value

    def forward(self, x: Tensor) -> Tensor:
        """x where x > threshold, else value."""
        return F.threshold(x, self.threshold, self.value)

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.threshold}, {self.value}"


class PReLU(Module):
    """x where x > 0, else weight · x, with one learned weight or one for each channel (He et al., 2015).

    >>> import wengert as wg
    >>> PReLU()(wg.tensor([-2.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: Any = None) -> None:
        self.weight = Parameter.ones((num_parameters,), dtype=dtype)
        self.weight.apply_update(self.weight.tensor * (init - 1.0))

    def forward(self, x: Tensor) -> Tensor:
        """x where x > 0, else weight · x."""
        return F.prelu(x, self.weight)

    def extra_repr(self) -> str:
        """How many weights."""
        return f"{self.weight.shape[0]}"


class GLU(Module):
    """a · sigmoid(b), with a and b the two halves of x along an axis.

    >>> import wengert as wg
    >>> GLU()(wg.tensor([2.0, 0.0])).tolist()
    [1.0]
    """

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        """a · sigmoid(b), with a and b the two halves of x along an axis."""
        return F.glu(x, self.axis)

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.axis}"


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


class Softmin(Module):
    """e⁻ˣ / Σ e⁻ˣ along an axis.

    >>> import wengert as wg
    >>> Softmin()(wg.zeros((4,))).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        """The softmin of x."""
        return F.softmin(x, self.axis)


class TanhShrink(Module):
    """x − tanh x.

    >>> import wengert as wg
    >>> TanhShrink()(wg.tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """x − tanh x."""
        return F.tanh_shrink(x)


class RReLU(Module):
    """x where x > 0, else a · x: while training each a is uniform in [lower, upper), else their mean.

    >>> import wengert as wg
    >>> RReLU(0.25, 0.75).eval()(wg.tensor([-2.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    def __init__(
        self, lower: float = 1.0 / 8.0, upper: float = 1.0 / 3.0, *, generator: Generator | None = None
    ) -> None:
        self.lower, self.upper, self.generator = lower, upper, generator

    def forward(self, x: Tensor) -> Tensor:
        """x, or a · x."""
        return F.rrelu(x, self.lower, self.upper, training=self.training, generator=self.generator)
