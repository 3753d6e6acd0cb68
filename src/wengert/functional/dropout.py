"""Dropout: the mask is a function of the generator's key and counter, drawn again in the backward pass, never kept."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.errors import ArgumentError, ShapeError
from wengert.tensors.arguments import as_dtype_of, as_floating, as_tensor, describe, full, native, product
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


def _of_channels(
    name: str, x: Any, p: float, ranks: dict[int, int], training: bool, generator: Generator | None
) -> Tensor:
    """Dropout of whole channels; `ranks` are the numbers of axes that x may have, with how many of them lead."""
    p = check_probability(p, name)
    t = as_floating(as_tensor(x, name))
    if t.ndim not in ranks:
        allowed = " or ".join(map(str, sorted(ranks)))
        raise ShapeError(f"{name}: takes x with {allowed} axes, got {describe(t)}")
    if not training or p == 0.0:
        return t
    lead = ranks[t.ndim]
    shape = (*t.shape[:lead], *(1,) * (t.ndim - lead))
    return t * dropout(full(shape, 1.0, t.dtype, like=t).detach(), p, generator=generator)


def dropout1d(x: Any, p: float = 0.5, *, training: bool = True, generator: Generator | None = None) -> Tensor:
    """Whole channels of (batch, channels, length), or without batch, are 0 with probability p (Tompson et al., 2015).

    The others are scaled by 1/(1 − p); see `dropout`.

    >>> import wengert as wg
    >>> y = dropout1d(wg.ones((2, 5, 7)), 0.5)
    >>> bool((y == y[:, :, :1]).all())
    True
    """
    return _of_channels("dropout1d", x, p, {2: 1, 3: 2}, training, generator)


def dropout2d(x: Any, p: float = 0.5, *, training: bool = True, generator: Generator | None = None) -> Tensor:
    """Whole channels of (batch, channels, height, width) are 0 with probability p, the others scaled by 1/(1 − p).

    Three axes are (batch, channels, length), as in PyTorch.

    >>> import wengert as wg
    >>> y = dropout2d(wg.ones((2, 5, 4, 4)), 0.5)
    >>> bool((y == y[:, :, :1, :1]).all())
    True
    """
    return _of_channels("dropout2d", x, p, {3: 2, 4: 2}, training, generator)


def dropout3d(x: Any, p: float = 0.5, *, training: bool = True, generator: Generator | None = None) -> Tensor:
    """Whole channels over three spatial axes, with batch or without, are 0 with probability p; see `dropout1d`.

    >>> import wengert as wg
    >>> dropout3d(wg.ones((2, 5, 4, 4, 4)), 0.5, training=False).shape
    (2, 5, 4, 4, 4)
    """
    return _of_channels("dropout3d", x, p, {4: 1, 5: 2}, training, generator)


_SATURATION = -1.7580993408473766  # −λα of selu: its value for x → −∞


def _alpha(name: str, x: Any, p: float, of_channels: bool, training: bool, generator: Generator | None) -> Tensor:
    p = check_probability(p, name)
    t = as_floating(as_tensor(x, name))
    if of_channels and t.ndim < 2:
        raise ShapeError(f"{name}: takes x of shape (batch, channels, …), got {describe(t)}")
    if not training or p == 0.0:
        return t
    if p == 1.0:
        return t * full((), 0.0, t.dtype, like=t)
    shape = (*t.shape[:2], *(1,) * (t.ndim - 2)) if of_channels else tuple(t.shape)
    kept = as_dtype_of(dropout(full(shape, 1.0, t.dtype, like=t).detach(), p, generator=generator) > 0.0, t.dtype)
    scale = 1.0 / math.sqrt((1.0 - p) * (1.0 + p * _SATURATION**2))
    return (t * kept + (1.0 - kept) * _SATURATION) * scale - p * _SATURATION * scale


def alpha_dropout(x: Any, p: float = 0.5, *, training: bool = True, generator: Generator | None = None) -> Tensor:
    """Dropout for `selu`: elements become its lower limit −λα with probability p, then all are scaled and shifted.

    Mean 0 and variance 1 stay 0 and 1 (Klambauer et al., 2017).

    >>> alpha_dropout([1.0, 2.0], 0.5, training=False).tolist()
    [1.0, 2.0]
    """
    return _alpha("alpha_dropout", x, p, False, training, generator)


def feature_alpha_dropout(
    x: Any, p: float = 0.5, *, training: bool = True, generator: Generator | None = None
) -> Tensor:
    """`alpha_dropout` of whole channels of (batch, channels, …).

    >>> import wengert as wg
    >>> y = feature_alpha_dropout(wg.ones((2, 5, 7)), 0.5)
    >>> bool((y == y[:, :, :1]).all())
    True
    """
    return _alpha("feature_alpha_dropout", x, p, True, training, generator)
