"""NumPy: arrays that share a tensor's memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.autograd.modes import recorded_rule
from wengert.dtypes import bfloat16, uint16
from wengert.errors import CustomOpError


def numpy(x: Tensor) -> np.ndarray[Any, Any]:
    """A NumPy array on the same memory: writing to one changes the other. bfloat16 is `ml_dtypes.bfloat16`.

    Read-only where elements share memory, as those of `broadcast_to` do.

    >>> import wengert as wg
    >>> numpy(wg.tensor([1.0, 2.0]))
    array([1., 2.], dtype=float32)
    """
    if not x._plain:
        raise TypeError(f"numpy: a {type(x).__name__} holds no data of its own")
    rule = getattr(recorded_rule, "name", None)
    if rule is not None and x.requires_grad:
        raise CustomOpError(
            f"{rule}: its derivative is being differentiated, but its rule computes with NumPy, where nothing is recorded; "
            "write the rule in wengert ops"
        )
    if x.dtype.code != bfloat16.code:
        return np.asarray(memoryview(x))  # type: ignore[arg-type]
    bits = _core.from_buffer(x, uint16.code, False)  # the buffer protocol has no word for bfloat16
    a = np.asarray(memoryview(bits)).view(bfloat16.to_numpy())
    a.flags.writeable = not x._overlaps
    return a


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
    a: np.ndarray[Any, Any] = x.numpy()
    if dtype is not None and a.dtype != dtype:
        if copy is False:
            raise ValueError(f"an array of dtype {dtype} cannot share the memory of {x.dtype.name}")
        return a.astype(dtype)
    return a.copy() if copy else a
