"""The lists of adapters: NumPy functions that are ours after more than a change of names.

Each has NumPy's parameters and conventions, and is composed of wengert functions, so each is differentiable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from wengert._core import Tensor
from wengert.tensors.numpy import data

F = TypeVar("F", bound=Callable[..., Any])
UFUNCS: dict[str, Callable[..., Any]] = {}
FUNCTIONS: dict[str, Callable[..., Any]] = {}

# Functions of the data alone, whose results have no derivative: they run on the tensor's memory.
DATA_ONLY = {
    "array_equal", "array_equiv", "array2string", "array_repr", "array_str", "shares_memory", "may_share_memory",
    "save", "savez", "savez_compressed", "savetxt", "iscomplexobj", "isrealobj", "common_type", "argwhere", "flatnonzero",
    "digitize", "histogram_bin_edges", "lexsort",
}  # fmt: skip


def on_data(name: str, *args: Any, **options: Any) -> Any:
    """A NumPy function on the memory of the tensors among its arguments."""
    plain = {k: _array(v) for k, v in options.items()}
    return getattr(np, name)(*map(_array, args), **plain)


def _array(x: Any) -> Any:
    if isinstance(x, Tensor):
        return data(x)
    return type(x)(map(_array, x)) if isinstance(x, (list, tuple)) else x


def ufunc(*names: str) -> Callable[[F], F]:
    """Registers the adapter of the ufuncs of these names."""

    def register(f: F) -> F:
        UFUNCS.update(dict.fromkeys(names, f))
        return f

    return register


def function(*names: str) -> Callable[[F], F]:
    """Registers the adapter of the functions of these names, such as "linalg.norm"."""

    def register(f: F) -> F:
        FUNCTIONS.update(dict.fromkeys(names, f))
        return f

    return register


def given(value: Any) -> bool:
    """Whether an optional argument of NumPy's was passed."""
    return value is not None and value is not np._NoValue


def cast(x: Tensor, dtype: Any) -> Tensor:
    """x in the dtype that was asked for, if one was."""
    return x if dtype is None else x.astype(dtype)
