"""CuPy, played by NumPy on the memory of the emulated GPU, as far as `wengert.cuda.cupy_kernels` uses it."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as _np
from numpy import *
from numpy import fft, linalg

del block  # noqa: F821  NumPy has it, CuPy has not

_driver = ctypes.CDLL("libcuda.so.1")


class _Scope:
    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class _Stream(_Scope):
    """What the stream was given before comes first; what NumPy computes is done at once."""

    @classmethod
    def from_external(cls, stream: Any) -> _Stream:
        version, handle = stream.__cuda_stream__()
        assert version == 0
        assert _driver.cuStreamSynchronize(ctypes.c_void_p(handle)) == 0
        return cls()


def _ndarray(shape: Any, dtype: Any, memory: Any, strides: Any) -> Any:
    start, size, offset = memory
    whole = (ctypes.c_char * size).from_address(start)
    return _np.ndarray(shape, dtype, whole, offset, strides)


class _OutOfMemoryError(Exception):
    pass


ndarray = _ndarray
asnumpy = _np.asarray
cuda = SimpleNamespace(
    Device=_Scope,
    Stream=_Stream,
    UnownedMemory=lambda start, size, owner: (start, size),
    MemoryPointer=lambda memory, offset: (*memory, offset),
    memory=SimpleNamespace(OutOfMemoryError=_OutOfMemoryError),
)
