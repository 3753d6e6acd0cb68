"""Activation functions. Each is one fused program and one instruction on the tape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import ArgumentError, ShapeError
from wengert.foreign_names import explain_keywords
from wengert.functional.elementwise import _softplus
from wengert.program.numbers import as_real
from wengert.tensors.arguments import (
    all_axes,
    as_dtype_of,
    as_floating,
    as_tensor,
    describe,
    native,
    one_axis,
    product,
    wide,
)

_where, _exp, _expm1, _log = native("where"), native("exp"), native("expm1"), native("log")
_gelu, _tanh, _sigmoid = native("gelu"), native("tanh"), native("sigmoid")
_abs, _slice, _permute = native("abs"), native("slice"), native("permute")
_max, _sum, _reshape, _copy = native("max"), native("sum"), native("reshape"), native("copy")
_softmax_of_rows, _log_softmax_of_rows, _hard_swish = native("softmax"), native("log_softmax"), native("hard_swish")

# Klambauer et al., "Self-normalizing neural networks", 2017.
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _input(x: Any, name: str) -> Tensor:
    return x if isinstance(x, Tensor) and x.dtype.is_inexact else as_floating(as_tensor(x, name))


@composite(functions=("leaky_relu",))
def _leaky_relu(x: Tensor, slope: float) -> Any:
    return _where(x > 0.0, x, x * slope)


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope · x.

    >>> leaky_relu([-2.0, 3.0], 0.5).tolist()
    [-1.0, 3.0]
    """
    y: Tensor = _leaky_relu(_input(x, "leaky_relu"), as_real(negative_slope))
    return y


@composite(functions=("elu",))
def _elu(x: Tensor, alpha: float, scale: float) -> Any:
    return _where(x > 0.0, x * scale, _expm1(x) * (alpha * scale))


def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else α(eˣ − 1).

    >>> elu([-1e4, 2.0]).tolist()
    [-1.0, 2.0]
    """
    y: Tensor = _elu(_input(x, "elu"), as_real(alpha), 1.0)
    return y


@composite(functions=("celu",))
def _celu(x: Tensor, alpha: float) -> Any:
    return _where(x > 0.0, x, _expm1(x * (1.0 / alpha)) * alpha)


def celu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else α(e^(x/α) − 1): continuous slope for every α (Barron, 2017).

    >>> celu([-1e4, 2.0], 0.5).tolist()
    [-0.5, 2.0]
    """
    if alpha == 0:
        raise ArgumentError("celu: alpha must not be 0")
    y: Tensor = _celu(_input(x, "celu"), as_real(alpha))
    return y


def selu(x: Any) -> Tensor:
    """λ·x where x > 0, else λα(eˣ − 1): keeps mean 0 and variance 1 (Klambauer et al., 2017).

    >>> selu([0.0, 1.0]).tolist()
    [0.0, 1.05070...]
    """
    y: Tensor = _elu(_input(x, "selu"), _SELU_ALPHA, _SELU_SCALE)
    return y


@composite(functions=("silu",))
def _silu(x: Tensor) -> Any:
    return x * _sigmoid(x)


def silu(x: Any) -> Tensor:
    """x / (1 + e⁻ˣ), also called swish.

    >>> silu([0.0, 1e4]).tolist()
    [0.0, 10000.0]
    """
    y: Tensor = _silu(_input(x, "silu"))
    return y


@composite(functions=("gelu",))
def _gelu_tanh(x: Tensor) -> Any:
    # ½ (1 + tanh u) is the sigmoid of 2u, which keeps its digits where the tanh is near −1.
    return x * _sigmoid((x + 0.044715 * (x * x * x)) * (2.0 * math.sqrt(2.0 / math.pi)))


def gelu(x: Any, *, approximate: str = "none") -> Tensor:
    """x Φ(x) with the normal distribution Φ; `approximate="tanh"` replaces it by a tanh (Hendrycks and Gimpel, 2016).

    >>> gelu([0.0, 1.0]).tolist()
    [0.0, 0.8413...]
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    t = _input(x, "gelu")
    y: Tensor = _gelu(t) if approximate == "none" else _gelu_tanh(t)
    return y


@composite(functions=("mish",))
def _mish(x: Tensor) -> Any:
    return x * _tanh(_softplus(x))


def mish(x: Any) -> Tensor:
    """x tanh(ln(1 + eˣ)) (Misra, 2019).

    >>> mish([0.0, 1e4]).tolist()
    [0.0, 10000.0]
    """
    y: Tensor = _mish(_input(x, "mish"))
    return y


def _saturated(x: Tensor, low: float, high: float) -> Tensor:
    """x between the bounds; derivative 0 at and beyond them."""
    return _where(x <= low, low, _where(x >= high, high, x))


@composite(functions=("hard_tanh",))
def _hard_tanh(x: Tensor, low: float, high: float) -> Any:
    return _saturated(x, low, high)


def hard_tanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x cut off at min_val and max_val; derivative 0 at and beyond them.

    >>> hard_tanh([-3.0, 0.5, 2.0]).tolist()
    [-1.0, 0.5, 1.0]
    """
    if min_val > max_val:
        raise ArgumentError(f"hard_tanh: min_val must not be greater than max_val, got {min_val} and {max_val}")
    y: Tensor = _hard_tanh(_input(x, "hard_tanh"), as_real(min_val), as_real(max_val))
    return y


def relu6(x: Any) -> Tensor:
    """min(max(x, 0), 6); derivative 0 at 0 and 6.

    >>> relu6([-1.0, 3.0, 8.0]).tolist()
    [0.0, 3.0, 6.0]
    """
    y: Tensor = _hard_tanh(_input(x, "relu6"), 0.0, 6.0)
    return y


@composite(functions=("hard_sigmoid",))
def _hard_sigmoid(x: Tensor) -> Any:
    return _saturated(x, -3.0, 3.0) * (1.0 / 6.0) + 0.5


def hard_sigmoid(x: Any) -> Tensor:
    """0 for x ≤ −3, 1 for x ≥ 3, else x/6 + ½.

    >>> hard_sigmoid([-4.0, 0.0, 4.0]).tolist()
    [0.0, 0.5, 1.0]
    """
    y: Tensor = _hard_sigmoid(_input(x, "hard_sigmoid"))
    return y


def hard_swish(x: Any) -> Tensor:
    """x · hard_sigmoid(x) (Howard et al., 2019).

    >>> hard_swish([-4.0, 0.0, 4.0]).tolist()
    [0.0, 0.0, 4.0]
    """
    y: Tensor = _hard_swish(_input(x, "hard_swish"))
    return y


@composite(functions=("softsign",))
def _softsign(x: Tensor) -> Any:
    return x / (1.0 + _abs(x))


def softsign(x: Any) -> Tensor:
    """x / (1 + |x|).

    >>> softsign([-1.0, 0.0, 3.0]).tolist()
    [-0.5, 0.0, 0.75]
    """
    y: Tensor = _softsign(_input(x, "softsign"))
    return y


@composite(functions=("tanh_shrink",))
def _tanh_shrink(x: Tensor) -> Any:
    return x - _tanh(x)


def tanh_shrink(x: Any) -> Tensor:
    """x − tanh x.

    >>> tanh_shrink([-1e4, 0.0, 1.0]).tolist()
    [-9999.0, 0.0, 0.2384...]
    """
    y: Tensor = _tanh_shrink(_input(x, "tanh_shrink"))
    return y


@composite(functions=("threshold",))
def _threshold(x: Tensor, threshold: float, value: float) -> Any:
    return _where(x > threshold, x, value)


def threshold(x: Any, threshold: float, value: float) -> Tensor:
    """x where x > threshold, else value.

    >>> threshold([0.5, 2.0], 1.0, -7.0).tolist()
    [-7.0, 2.0]
    """
    y: Tensor = _threshold(_input(x, "threshold"), as_real(threshold), as_real(value))
    return y


@composite(functions=("hard_shrink",))
def _hard_shrink(x: Tensor, limit: float) -> Any:
    return _where(_abs(x) > limit, x, 0.0)


def hard_shrink(x: Any, limit: float = 0.5) -> Tensor:
    """x where |x| > limit, else 0.

    >>> hard_shrink([-2.0, 0.5, 1.0]).tolist()
    [-2.0, 0.0, 1.0]
    """
    y: Tensor = _hard_shrink(_input(x, "hard_shrink"), as_real(limit))
    return y


@composite(functions=("soft_shrink",))
def _soft_shrink(x: Tensor, limit: float) -> Any:
    return _where(x > limit, x - limit, _where(x < -limit, x + limit, 0.0))


def soft_shrink(x: Any, limit: float = 0.5) -> Tensor:
    """x moved towards 0 by limit, and 0 within it.

    >>> soft_shrink([-2.0, 0.3, 1.0]).tolist()
    [-1.5, 0.0, 0.5]
    """
    if limit < 0:
        raise ArgumentError(f"soft_shrink: limit must not be negative, got {limit}")
    y: Tensor = _soft_shrink(_input(x, "soft_shrink"), as_real(limit))
    return y


@composite(functions=("glu",))
def _glu(x: Tensor, axis: int) -> Any:
    half = int(x.shape[axis]) // 2
    sizes = tuple(half if i == axis else n for i, n in enumerate(x.shape))
    steps = (1,) * x.ndim
    a = _slice(x, (0,) * x.ndim, sizes, steps)
    return a * _sigmoid(_slice(x, tuple(half if i == axis else 0 for i in range(x.ndim)), sizes, steps))


@explain_keywords
def glu(x: Any, axis: int = -1) -> Tensor:
    """a · sigmoid(b), with a and b the two halves of x along an axis (Dauphin et al., 2017).

    >>> glu([2.0, 6.0, 0.0, 0.0]).tolist()
    [1.0, 3.0]
    """
    t = _input(x, "glu")
    k = one_axis(axis, t.ndim, "glu")
    if int(t.shape[k]) % 2:
        raise ShapeError(f"glu: axis {k} must have an even size, got {describe(t)}")
    y: Tensor = _glu(t, k)
    return y


@composite(functions=("prelu",))
def _prelu(x: Tensor, weight: Tensor) -> Any:
    return _where(x > 0.0, x, x * weight)


def prelu(x: Any, weight: Any) -> Tensor:
    """x where x > 0, else weight · x; one weight, or one for each channel (axis 1).

    >>> prelu([[-2.0, 3.0]], [0.5, 0.5]).tolist()
    [[-1.0, 3.0]]
    """
    t, w = _input(x, "prelu"), _input(weight, "prelu")
    if w.ndim > 1:
        raise ShapeError(f"prelu: weight must have one element, or one for each channel, got {describe(w)}")
    if w.ndim == 1 and w.shape[0] != 1:
        channel = min(1, t.ndim - 1)
        if t.ndim == 0 or t.shape[channel] != w.shape[0]:
            raise ShapeError(f"prelu: weight {describe(w)} does not fit the channels (axis 1) of {describe(t)}")
        w = _reshape(w, tuple(w.shape[0] if i == channel else 1 for i in range(t.ndim)))
    elif w.ndim == 1:
        w = _reshape(w, ())
    y: Tensor = _prelu(t, w)
    return y


def shifted(x: Tensor, axis: int) -> Any:
    """x − max x, the shift that keeps exponentials in range. It cancels, so no derivative goes through it."""
    return x - _max(x, (axis,), 1).detach()


def _softmax(x: Tensor, axis: int) -> Tensor:
    if axis == x.ndim - 1:
        return _softmax_of_rows(x)
    order = (*(i for i in range(x.ndim) if i != axis), axis)
    back = tuple(order.index(i) for i in range(x.ndim))
    return _permute(_softmax_of_rows(_permute(x, order)), back)


def _as_rows(t: Tensor, axis: Sequence[int], name: str, of_rows: Callable[[Tensor], Tensor]) -> Tensor:
    """A function of rows, of several axes as one."""
    axes = all_axes(tuple(axis), t.ndim, name)
    order = (*(i for i in range(t.ndim) if i not in axes), *axes)
    moved = _permute(t, order)
    rows = _reshape(moved, (*moved.shape[: t.ndim - len(axes)], product(moved.shape[t.ndim - len(axes) :])))
    return _permute(_reshape(of_rows(rows), moved.shape), tuple(order.index(i) for i in range(t.ndim)))


@explain_keywords
def softmax(x: Any, axis: int | Sequence[int] = -1) -> Tensor:
    """eˣ / Σ eˣ along an axis, or over several, without overflow.

    >>> softmax([1e4, 1e4]).tolist()
    [0.5, 0.5]
    """
    t = _input(x, "softmax")
    if t.size == 0:
        return _copy(t)
    if isinstance(axis, (tuple, list)):
        return _as_rows(t, axis, "softmax", _softmax_of_rows)
    return _softmax(t, one_axis(axis, t.ndim, "softmax"))


@explain_keywords
def softmin(x: Any, axis: int | Sequence[int] = -1) -> Tensor:
    """e⁻ˣ / Σ e⁻ˣ along an axis, or over several: the softmax of −x.

    >>> softmin([1e4, 1e4]).tolist()
    [0.5, 0.5]
    """
    return softmax(-_input(x, "softmin"), axis)


def log_probabilities(x: Tensor, axis: int) -> Any:
    """ln softmax, as part of larger composites."""
    if axis == x.ndim - 1:
        return _log_softmax_of_rows(x)
    z = shifted(x, axis)
    return z - _log(_sum(_exp(z), (axis,), 1))


@composite(precision="full", functions=("log_softmax",))
def _log_softmax(x: Tensor, axis: int) -> Any:
    if axis == x.ndim - 1:  # rows are summed in float32 as it is
        return log_probabilities(x, axis)
    return as_dtype_of(log_probabilities(wide(x), axis), x.dtype)


@explain_keywords
def log_softmax(x: Any, axis: int | Sequence[int] = -1) -> Tensor:
    """x − ln Σ eˣ along an axis, or over several, without overflow.

    >>> log_softmax([1e4, 0.0]).tolist()
    [0.0, -10000.0]
    """
    t = _input(x, "log_softmax")
    if t.size == 0:
        return _copy(t)
    if isinstance(axis, (tuple, list)):
        return _as_rows(t, axis, "log_softmax", _log_softmax_of_rows)
    k = one_axis(axis, t.ndim, "log_softmax")
    y: Tensor = _log_softmax_of_rows(t) if k == t.ndim - 1 else _log_softmax(t, k)
    return y
