"""Initialisers: they fill a tensor in place, unrecorded, and return it. PyTorch's defaults and names, without underscore."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert import functional as F
from wengert._core import Tensor
from wengert.dtypes import float32, float64
from wengert.errors import ArgumentError, ShapeError
from wengert.modes import no_grad
from wengert.tensors import conversion, creation, random
from wengert.tensors.random import Generator

__all__ = [
    "calculate_gain",
    "constant",
    "eye",
    "fans",
    "kaiming_normal",
    "kaiming_uniform",
    "normal",
    "ones",
    "orthogonal",
    "trunc_normal",
    "uniform",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]

_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which initialisers compensate for a nonlinearity that shrinks its input. Convolutions count as linear.

    >>> calculate_gain("leaky_relu", 1.0)
    1.0
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else float(param)
        return math.sqrt(2.0 / (1.0 + slope * slope))
    if nonlinearity.startswith("conv"):
        return 1.0
    if nonlinearity not in _GAINS:
        raise ArgumentError(f"calculate_gain: no gain for {nonlinearity!r}; there are leaky_relu, {', '.join(_GAINS)}")
    return _GAINS[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output of this weight has, and how many outputs an input: (out, in, *kernel).

    >>> fans(creation.zeros((8, 3, 5, 5)))
    (75, 200)
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"init: fills a tensor or parameter in place, got {type(tensor).__name__}")
    if tensor.ndim < 2:
        raise ShapeError(f"init: a weight must have at least two axes, got {tensor.dtype.name}{tuple(tensor.shape)}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fill(tensor: Tensor, values: Tensor) -> Tensor:
    with no_grad():
        tensor._assign(values if values.dtype == tensor.dtype else values.astype(tensor.dtype), "init")
    return tensor


def constant(tensor: Tensor, value: float) -> Tensor:
    """One value everywhere.

    >>> constant(creation.zeros((2,)), 3.0).tolist()
    [3.0, 3.0]
    """
    return _fill(tensor, creation.full(tuple(tensor.shape), value, dtype=tensor.dtype))


def zeros(tensor: Tensor) -> Tensor:
    """Fill with zeros.

    >>> import wengert as wg
    >>> zeros(wg.ones((2,))).tolist()
    [0.0, 0.0]
    """
    return constant(tensor, 0.0)


def ones(tensor: Tensor) -> Tensor:
    """Fill with ones.

    >>> import wengert as wg
    >>> ones(wg.zeros((2,))).tolist()
    [1.0, 1.0]
    """
    return constant(tensor, 1.0)


def eye(tensor: Tensor) -> Tensor:
    """1 on the diagonal of a matrix, 0 elsewhere.

    >>> eye(creation.zeros((2, 3))).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if tensor.ndim != 2:
        raise ShapeError(f"init.eye: takes a matrix, got {tensor.dtype.name}{tuple(tensor.shape)}")
    return _fill(tensor, creation.eye(tensor.shape[0], tensor.shape[1], dtype=tensor.dtype))


def uniform(tensor: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers uniform in [a, b).

    >>> import wengert as wg
    >>> w = uniform(wg.zeros((100,)), 2.0, 3.0)
    >>> bool((w >= 2.0).all() and (w < 3.0).all())
    True
    """
    return _fill(tensor, random.uniform(a, b, tuple(tensor.shape), dtype=tensor.dtype, generator=generator))


def normal(tensor: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Normal with this mean and standard deviation.

    >>> import wengert as wg
    >>> normal(wg.zeros((2, 3)), std=0.02).shape
    (2, 3)
    """
    return _fill(tensor, random.normal(mean, std, tuple(tensor.shape), dtype=tensor.dtype, generator=generator))


def trunc_normal(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Normal, cut off below a and above b: Φ⁻¹ of uniform numbers between Φ(a) and Φ(b).

    >>> bool((abs(trunc_normal(creation.zeros((100,)))) <= 2.0).all())
    True
    """
    low, high = (math.erf((x - mean) / (std * math.sqrt(2.0))) for x in (a, b))
    kind = float64 if tensor.dtype == float64 else float32
    drawn = random.uniform(low, high, tuple(tensor.shape), dtype=kind, generator=generator)
    return _fill(tensor, F.clip(F.erfinv(drawn) * (std * math.sqrt(2.0)) + mean, a, b))


def xavier_uniform(tensor: Tensor, gain: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Uniform in ±gain √(6 / (fan_in + fan_out)) (Glorot & Bengio, 2010).

    >>> import wengert as wg
    >>> bool((wg.abs(xavier_uniform(wg.zeros((4, 2)))) <= 1.0).all())
    True
    """
    bound = gain * math.sqrt(6.0 / max(sum(fans(tensor)), 1))
    return uniform(tensor, -bound, bound, generator=generator)


def xavier_normal(tensor: Tensor, gain: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Normal with σ = gain √(2 / (fan_in + fan_out)) (Glorot & Bengio, 2010).

    >>> import wengert as wg
    >>> xavier_normal(wg.zeros((4, 2))).shape
    (4, 2)
    """
    return normal(tensor, 0.0, gain * math.sqrt(2.0 / max(sum(fans(tensor)), 1)), generator=generator)


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"init: mode must be 'fan_in' or 'fan_out', got {mode!r}")
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fans(tensor)[mode == "fan_out"], 1))


def kaiming_uniform(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform in ±gain √(3 / fan) (He et al., 2015); `a` is the slope of a leaky ReLU.

    >>> bool((abs(kaiming_uniform(creation.zeros((4, 6)))) <= 1.0).all())
    True
    """
    bound = math.sqrt(3.0) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform(tensor, -bound, bound, generator=generator)


def kaiming_normal(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Normal with σ = gain / √fan (He et al., 2015); `a` is the slope of a leaky ReLU.

    >>> import wengert as wg
    >>> kaiming_normal(wg.zeros((4, 2))).shape
    (4, 2)
    """
    return normal(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity), generator=generator)


def orthogonal(tensor: Tensor, gain: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """A random orthogonal matrix (rows, or columns if there are fewer of them), times gain (Saxe et al., 2014).

    >>> w = orthogonal(creation.zeros((2, 3)))
    >>> bool(F.allclose(w @ w.mT, creation.eye(2), atol=1e-6))
    True
    """
    if tensor.ndim < 2:
        raise ShapeError(f"init.orthogonal: takes at least two axes, got {tensor.dtype.name}{tuple(tensor.shape)}")
    rows = tensor.shape[0]
    flat = (rows, math.prod(tensor.shape[1:]))
    a = random.randn(flat, dtype=float64, generator=generator).numpy()
    q, r = np.linalg.qr(a.T if flat[0] < flat[1] else a)
    q = q * np.where(np.diag(r) < 0.0, -1.0, 1.0)  # else the distribution would not be uniform (Mezzadri, 2007)
    q = q.T if flat[0] < flat[1] else q
    return _fill(tensor, conversion.tensor(np.ascontiguousarray(gain * q).reshape(tuple(tensor.shape))))


def __getattr__(name: str) -> Any:
    """PyTorch's names end with an underscore: `init.kaiming_uniform_` is `init.kaiming_uniform`."""
    found = globals().get(name[:-1]) if name.endswith("_") and not name.startswith("_") else None
    if not callable(found):
        raise AttributeError(f"module 'wengert.nn.init' has no attribute {name!r}")
    return found


def __dir__() -> list[str]:
    return __all__
