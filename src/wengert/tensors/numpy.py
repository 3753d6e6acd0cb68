"""NumPy: arrays that share a tensor's memory."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import bfloat16, uint16
from wengert.tensors.scipy_distributions import refuse_distributions


def numpy(x: Tensor) -> np.ndarray[Any, Any]:
    """A NumPy array that shares the tensor's memory: writing to one changes the other. bfloat16 is
    `ml_dtypes.bfloat16`.

    Read-only if several elements share memory, as after `broadcast_to`. Arrays hold no gradient, so this
    raises for the result of a recorded operation, and for whatever depends on the argument that `grad` and similar
    functions differentiate with respect to. `x.detach().numpy()` says that no gradient is wanted.

    >>> import wengert as wg
    >>> numpy(wg.tensor([1.0, 2.0]))
    array([1., 2.], dtype=float32)
    """
    if not x._plain:
        raise TypeError(f"numpy: a {type(x).__name__} holds no data of its own")
    if x.dtype.code != bfloat16.code:
        return np.asarray(memoryview(x))  # type: ignore[arg-type]
    bits = _core.from_buffer(x, uint16.code, False)  # the buffer protocol has no word for bfloat16
    a = np.asarray(memoryview(bits)).view(bfloat16.to_numpy())
    a.flags.writeable = not x._overlaps
    return a


def data(x: Tensor) -> np.ndarray[Any, Any]:
    """The numbers of x for reading only: checks, messages, choices without a derivative.

    >>> import wengert as wg
    >>> data(wg.tensor([1.0], requires_grad=True) * 2.0)
    array([2.], dtype=float32)
    """
    return numpy(_core.data(x if x._plain else x.detach()))


def tolist(x: Tensor) -> Any:
    """The elements as nested lists of Python numbers; of a tensor without axes, the number.

    >>> import wengert as wg
    >>> tolist(wg.tensor([[1, 2]]))
    [[1, 2]]
    """
    if not x._plain:
        x.numpy()  # raises a helpful error
    _core.check_leaving(x, "tolist")
    a = data(x)
    return a.astype(np.float32).tolist() if x.dtype.code == bfloat16.code else a.tolist()


def array(x: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """What `numpy.asarray(x)` calls (the `__array__` protocol)."""
    if _asked_by_sparse_product():
        return np.array(None, object)  # an object array, so that SciPy falls back to our operator
    if x._plain and x.requires_grad:
        refuse_distributions(x)
    a: np.ndarray[Any, Any] = x.numpy()
    if dtype is not None and a.dtype != dtype:
        if copy is False:
            raise ValueError(f"an array of dtype {dtype} cannot share the memory of {x.dtype.name}")
        return a.astype(dtype)
    return a.copy() if copy else a


def _asked_by_sparse_product() -> bool:
    """Whether `A @ x` with a scipy.sparse matrix is converting x; `core/bind/tensor_buffer.cpp` has the same test."""
    caller = sys._getframe(2)
    return caller.f_code.co_name == "_matmul_dispatch" and caller.f_globals["__name__"].startswith("scipy.sparse")
