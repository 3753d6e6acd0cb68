"""Dropout: the mask is a function of the generator's key and counter, drawn again in the backward pass, never kept."""

from __future__ import annotations

from typing import Any

from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.tensors.arguments import as_floating, as_tensor, full, native, product
from wengert.tensors.random import Generator, default_generator

_dropout = native("random_dropout")


def reserve(shape: Any, generator: Generator | None, like: Tensor) -> tuple[tuple[Any, Any], tuple[Any]]:
    """Key and counter of a draw of one 32-bit number for each element of `shape`, to be used with a tensor."""
    return (generator or default_generator).place(product(shape), False, like)


def check_probability(p: float, name: str) -> float:
    """A probability, as a float."""
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"{name}: the probability must be between 0 and 1, got {p}")
    return float(p)


def dropout(x: Any, p: float = 0.5, *, training: bool = True, generator: Generator | None = None) -> Tensor:
    """Each element is 0 with probability p, and the others are scaled by 1/(1 − p) (Srivastava et al., 2014).

    With `training=False`, x itself. The mask is not stored: backward draws it again from the generator's key and counter.

    >>> dropout([1.0, 2.0], 0.5, training=False).tolist()
    [1.0, 2.0]
    >>> set(dropout([1.0] * 100, 0.5).tolist()) == {0.0, 2.0}
    True
    """
    p = check_probability(p, "dropout")
    t = as_floating(as_tensor(x, "dropout"))
    if not training or p == 0.0:
        return t
    if p == 1.0:
        return t * full((), 0.0, t.dtype, like=t)
    key, counter = reserve(t.shape, generator, t)
    return _dropout(t, p, key, counter)
