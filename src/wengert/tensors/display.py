"""How tensors print."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.tensors.numpy import data

_DEFAULT = ("float32", "int64", "bool")


def tensor_repr(x: Tensor) -> str:
    """NumPy's layout, with the dtype where it is not a default one, and whether gradients are recorded.

    >>> import wengert as wg
    >>> wg.tensor([1.0, 2.0], requires_grad=True)
    tensor([1., 2.], requires_grad=True)
    """
    a = data(x)
    text = np.array2string(a, separator=", ", prefix="tensor(") if a.size else "[]"
    notes = [] if x.dtype.name in _DEFAULT else [f"dtype={x.dtype.name}"]
    if not a.size and a.shape != (0,):
        notes.append(f"shape={a.shape}")
    if x.device != "cpu":
        notes.append(f"device={str(x.device)!r}")
    if x.requires_grad:
        notes.append("requires_grad=True")
    name = type(x).__name__
    return ", ".join([f"{'tensor' if name == 'Tensor' else name}({text}", *notes]) + ")"


def tensor_format(x: Tensor, spec: str) -> str:
    """`f"{x:.3f}"` for one element; without a specification, as `str`.

    >>> import wengert as wg
    >>> f"{wg.tensor(1.23456):.2f}"
    '1.23'
    """
    if not spec:
        return str(x)
    if x.size != 1:
        raise TypeError(f"format {spec!r} applies to one element; this tensor has shape {tuple(x.shape)}")
    value: Any = data(x).item()
    return format(value, spec)
