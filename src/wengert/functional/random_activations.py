"""Activations that draw random numbers while training."""

from __future__ import annotations

from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import ArgumentError, ShapeError
from wengert.foreign_names import explain_keywords
from wengert.functional.activations import leaky_relu, softmax
from wengert.functional.noise import gumbel_like, uniform_like
from wengert.functional.reductions import argmax
from wengert.program.numbers import as_real
from wengert.tensors.arguments import as_dtype_of, as_floating, as_tensor, describe, iota, native, one_axis
from wengert.tensors.random import Generator

_where, _equal, _reshape = native("where"), native("equal"), native("reshape")


@explain_keywords
def gumbel_softmax(
    logits: Any, tau: float = 1.0, *, hard: bool = False, axis: int = -1, generator: Generator | None = None
) -> Tensor:
    """softmax((logits + G) / tau) with standard Gumbel noise G: classes drawn so that gradients flow to the logits.

    For tau → 0 this is one class, 1 with probability softmax(logits), the others 0. With `hard=True` the result is that
    class, and the derivative that of the softmax (Jang et al., 2017; Maddison et al., 2017).

    >>> import wengert as wg
    >>> y = gumbel_softmax(wg.zeros((4, 3)), hard=True)
    >>> y.sum(axis=-1).tolist(), y.max(axis=-1).tolist()
    ([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0])
    """
    t = as_floating(as_tensor(logits, "gumbel_softmax"))
    if not tau > 0:
        raise ArgumentError(f"gumbel_softmax: tau must be positive, got {tau}")
    if t.ndim == 0 or t.dtype.kind == "c":
        raise ShapeError(f"gumbel_softmax: needs an axis of real logits, got {describe(t)}")
    k = one_axis(axis, t.ndim, "gumbel_softmax")
    noise: Any = gumbel_like(t, generator)
    soft: Any = softmax((t + noise) / tau, k)
    if not hard or t.size == 0:
        return soft  # type: ignore[no-any-return]
    largest = argmax(soft.detach(), axis=k, keepdims=True)
    classes = _reshape(iota(t.shape[k], like=t), tuple(t.shape[k] if i == k else 1 for i in range(t.ndim)))
    # The difference is 0, to the bit; its derivative is that of the softmax.
    return as_dtype_of(_equal(largest, classes), t.dtype) + (soft - soft.detach())  # type: ignore[no-any-return]


@composite(functions=("rrelu",))
def _rrelu(x: Tensor, u: Tensor, lower: float, upper: float) -> Any:
    return _where(x > 0.0, x, x * (u * (upper - lower) + lower))


def rrelu(
    x: Any,
    lower: float = 1.0 / 8.0,
    upper: float = 1.0 / 3.0,
    *,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """x where x > 0, else a · x: while training, each a is uniform in [lower, upper), else their mean (Xu et al., 2015).

    >>> rrelu([-2.0, 3.0], 0.25, 0.75).tolist()
    [-1.0, 3.0]
    """
    if not lower <= upper:
        raise ArgumentError(f"rrelu: lower must be at most upper, got {lower} and {upper}")
    t = as_floating(as_tensor(x, "rrelu"))
    if not training:
        return leaky_relu(t, (lower + upper) / 2.0)
    y: Tensor = _rrelu(t, uniform_like(t.detach(), generator), as_real(lower), as_real(upper))
    return y
