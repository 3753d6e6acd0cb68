"""DLPack, both ways, without copies on the CPU. NumPy, which speaks the protocol and shares our memory, packs."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.dtypes import bfloat16
from wengert.errors import DTypeError
from wengert.tensors.device import check_device

_CPU = (1, 0)  # kDLCPU, device 0


def imported(x: Any) -> np.ndarray[Any, Any]:
    """A NumPy array on the memory of an array of another library."""
    kind = x.__dlpack_device__()[0]
    if int(kind) != _CPU[0]:
        check_device(f"DLPack device type {int(kind)}")
    try:
        return np.from_dlpack(x)
    except (RuntimeError, BufferError) as e:
        raise DTypeError(
            f"from_dlpack: NumPy cannot take this array ({e}); convert it to a dtype that NumPy has"
        ) from None


def to_dlpack(
    x: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: Any = None,
    copy: bool | None = None,
) -> Any:
    """The capsule of `x.__dlpack__()`."""
    if x.dtype.code == bfloat16.code:
        raise BufferError("__dlpack__: NumPy, which packs for us, has no bfloat16; use astype(wg.float32)")
    if stream is not None:
        raise BufferError("__dlpack__: there are no streams on the CPU; pass stream=None")
    a = x.numpy()
    if (
        not a.flags.writeable and copy is None
    ):  # elements share memory, and not every consumer understands read-only arrays
        a = a.copy()
    return a.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)


def dlpack_device(x: Tensor) -> tuple[int, int]:
    """Device type and number, as `x.__dlpack_device__()` gives them."""
    return _CPU
