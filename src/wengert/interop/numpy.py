"""NumPy: arrays that share a tensor's memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.dtypes import bfloat16


def numpy(x: Tensor) -> np.ndarray[Any, Any]:
    """A NumPy array on the same memory: writing to one changes the other. bfloat16 is `ml_dtypes.bfloat16`.

    >>> import wengert as wg
    >>> numpy(wg.tensor([1.0, 2.0]))
    array([1., 2.], dtype=float32)
    """
    if not x._plain:
        raise TypeError(f"numpy: a {type(x).__name__} holds no data of its own")
    a = np.asarray(memoryview(x))  # type: ignore[arg-type]
    return a.view(bfloat16.to_numpy()) if x.dtype.code == bfloat16.code else a


def tolist(x: Tensor) -> Any:
    """The elements as nested lists of Python numbers; of a tensor without axes, the number.

    >>> import wengert as wg
    >>> tolist(wg.tensor([[1, 2]]))
    [[1, 2]]
    """
    a = x.numpy()
    return a.astype(np.float32).tolist() if x.dtype.code == bfloat16.code else a.tolist()


def array(x: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """What `numpy.asarray(x)` calls (the `__array__` protocol)."""
    a = x.numpy()
    if dtype is not None and a.dtype != dtype:
        if copy is False:
            raise ValueError(f"an array of dtype {dtype} cannot share the memory of {x.dtype.name}")
        return a.astype(dtype)
    return a.copy() if copy else a
