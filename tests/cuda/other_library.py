"""Another library on the emulated GPU: it calls the driver itself, with memory and streams of its own."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tests.tensors.dlpack_capsules import CODES, Foreign
from wengert.dtypes import as_dtype

driver = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: Any) -> None:
    status = getattr(driver, name)(*arguments)
    assert status == 0, f"{name} failed with {status}"


def handle(name: str, *arguments: Any) -> int:
    """What a call of the driver makes, by its first argument."""
    made = ctypes.c_uint64()
    call(name, ctypes.byref(made), *arguments)
    return made.value


def make_stream() -> int:
    return handle("cuStreamCreate", 1)


def pinned(values: Any, dtype: str = "float32") -> np.ndarray[Any, Any]:
    """An array in page-locked memory: copies from and to it happen when it is their turn."""
    a = np.asarray(values).astype(as_dtype(dtype).to_numpy())
    address = handle("cuMemHostAlloc", ctypes.c_size_t(max(a.nbytes, 1)), 1)
    made = np.frombuffer((ctypes.c_char * a.nbytes).from_address(address), a.dtype).reshape(a.shape)
    made[...] = a
    return made


def read_later(address: int, like: np.ndarray[Any, Any], stream: int) -> np.ndarray[Any, Any]:
    """Memory of the GPU, copied when the stream gets there."""
    target = pinned(np.full_like(like, -99))
    call("cuMemcpyDtoHAsync_v2", target.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(address),
         ctypes.c_size_t(target.nbytes), ctypes.c_void_p(stream))  # fmt: skip
    return target


def wait(stream: int) -> None:
    call("cuStreamSynchronize", ctypes.c_void_p(stream))


class Array:
    """An array of the other library. Its contents arrive on its stream, and not before somebody waits for that."""

    def __init__(self, values: Any, dtype: str = "float32", ordinal: int = 0) -> None:
        self.source, self.ordinal = pinned(values, dtype), ordinal
        self.stream = make_stream()
        self.address = handle("cuMemAlloc_v2", ctypes.c_size_t(max(self.source.nbytes, 1)))
        call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(self.address), self.source.ctypes.data_as(ctypes.c_void_p),
             ctypes.c_size_t(self.source.nbytes), ctypes.c_void_p(self.stream))  # fmt: skip
        self.seen_streams: list[int] = []
        # The emulated GPU's memory is the host's, so that NumPy can describe it.
        memory = (ctypes.c_char * self.source.nbytes).from_address(self.address)
        seen = np.frombuffer(memory, self.source.dtype).reshape(self.source.shape)
        kind = (4, 16, 1) if dtype == "bfloat16" else (CODES[seen.dtype.kind], 8 * seen.itemsize, 1)
        self.described = Foreign(seen, device=(2, ordinal), element=kind)

    def let_wait(self, stream: int) -> None:
        event = handle("cuEventCreate", 2)
        call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(self.stream))
        call("cuStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), 0)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.ordinal

    def __dlpack__(self, *, stream: int, max_version: Any = None) -> Any:
        self.seen_streams.append(stream)
        self.let_wait(stream)
        return self.described.__dlpack__(max_version=max_version)

    @property
    def drops(self) -> int:
        return self.described.drops


class OlderArray:
    """The same array, by the CUDA array interface alone."""

    def __init__(self, array: Array, *, read_only: bool = False, mask: Any = None) -> None:
        self._array = array
        self.__cuda_array_interface__ = {
            "shape": array.source.shape,
            "typestr": array.source.dtype.str,
            "data": (array.address, read_only),
            "strides": None,
            "version": 3,
            "stream": array.stream,
            "mask": mask,
        }
