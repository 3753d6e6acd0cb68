"""The CUDA array interface, version 3, which Numba and older libraries use to share a GPU's memory: both ways."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import as_dtype
from wengert.errors import ArgumentError, DTypeError
from wengert.tensors import gpus


def interface(x: Tensor) -> dict[str, Any]:
    """What `x.__cuda_array_interface__` gives; tensors on the CPU have no such attribute."""
    if _core.device_of(x) == 0:
        raise AttributeError("__cuda_array_interface__: the tensor is on the CPU; use __array_interface__ or DLPack")
    kind = np.dtype(x.dtype.to_numpy())
    if kind.kind == "V":
        raise AttributeError(f"__cuda_array_interface__: it has no word for {x.dtype.name}; use DLPack")
    address, shape, strides, stream = _core.cuda_array(x)
    return {
        "shape": shape,
        "typestr": kind.str,
        "data": (address, False),
        "strides": strides,
        "version": 3,
        "stream": stream,
    }


def imported(x: Any, copy: bool | None = None) -> Tensor:
    """A tensor on the GPU memory of an array that has `__cuda_array_interface__`. What is read-only is copied."""
    described = x.__cuda_array_interface__
    if described.get("mask") is not None:
        raise ArgumentError("asarray: masked arrays are not supported; fill the array first")
    kind = np.dtype(described["typestr"])
    try:
        dtype = as_dtype(kind)
    except TypeError:
        raise DTypeError(f"asarray: elements of type {kind} are not supported; convert the array first") from None
    address, read_only = described["data"]
    strides = described.get("strides") or ()
    if address % kind.itemsize or any(s % kind.itemsize for s in strides):
        raise ArgumentError("asarray: the array is not aligned to its elements; copy it first")
    if read_only and copy is False:
        raise ArgumentError("asarray: a read-only array cannot be shared; pass copy=None or True")
    gpus.require()
    steps = [s // kind.itemsize for s in strides]
    t: Tensor = _core.from_cuda_array(
        x, address, dtype.code, list(described["shape"]), steps, described.get("stream") or 0
    )
    made: Tensor = _core.copy(t) if copy or read_only else t
    return made
