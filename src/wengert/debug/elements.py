"""Elements of tensors that are infinite or NaN: which, where, and what stands beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.dtypes import float64
from wengert.modes import no_grad
from wengert.tensors.device import move


def numbers(x: Tensor) -> Any:
    """A plain tensor as an array of float64, complex128, integers or bools."""
    with no_grad():
        y = move(x.detach(), "cpu")
        array = np.asarray(y.astype(float64) if y.dtype.kind == "f" else y)
    return array


def first_bad(array: Any) -> tuple[int, ...] | None:
    """The index of the first NaN, or else of the first infinity; None if all are finite."""
    if array.dtype.kind not in "fc":
        return None
    for test in (np.isnan, np.isinf):
        found = test(array)
        if found.any():
            return tuple(int(k) for k in np.unravel_index(int(found.argmax()), array.shape))
    return None


def has_nan(array: Any) -> bool:
    """Whether there is a NaN."""
    return array.dtype.kind in "fc" and bool(np.isnan(array).any())


def not_finite(x: Any) -> int:
    """How many elements of a tensor are infinite or NaN; none, if it is something else."""
    if not isinstance(x, Tensor) or not x.dtype.is_inexact:
        return 0
    return int(x.size) - int(np.isfinite(numbers(x)).sum())


def at(array: Any, index: tuple[int, ...], shape: tuple[int, ...]) -> Any | None:
    """The element that an elementwise result of this shape reads at an index; None if the shapes do not fit."""
    try:
        return np.broadcast_to(array, shape)[index].item()
    except (ValueError, IndexError):
        return None


def written(value: Any) -> str:
    """A number as it is shown."""
    return f"{value:g}" if isinstance(value, (float, complex)) else str(value)


def described(x: Tensor) -> str:
    """Dtype and shape."""
    return f"{x.dtype.name}{tuple(x.shape)}"


def summary(array: Any) -> str:
    """Its range, and how many elements are not finite."""
    if array.size == 0:
        return "no elements"
    if array.dtype.kind not in "fc":
        return f"from {array.min()} to {array.max()}" if array.dtype.kind in "iu" else "bools"
    finite = np.isfinite(array)
    bad = array.size - int(finite.sum())
    parts = [f"{bad} of {array.size} elements not finite"] if bad else []
    if array.dtype.kind == "f" and bad < array.size:
        kept = array[finite]
        parts.append(f"from {kept.min():g} to {kept.max():g}" if kept.size > 1 else f"{kept[0]:g}")
    return ", ".join(parts) or "finite"
