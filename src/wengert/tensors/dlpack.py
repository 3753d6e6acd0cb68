"""DLPack, by which libraries share memory without copies: both ways, on the CPU and on GPUs, in order with their streams."""

from __future__ import annotations

from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.errors import ArgumentError, DeviceError
from wengert.tensors import gpus
from wengert.tensors.device import CPU, move, number_of

_HOST, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13  # device types
_ON_GPU = (_CUDA, _CUDA_MANAGED)
_VERSION = (1, 0)
_LEGACY_STREAM, _UNORDERED = 1, -1


def imported(x: Any, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of an array of another library. What is read-only or not aligned is copied."""
    kind, number = (int(i) for i in x.__dlpack_device__())
    if kind not in (_HOST, _CUDA_HOST, *_ON_GPU):
        raise DeviceError(
            f"from_dlpack: the {type(x).__name__} is on a device of DLPack type {kind}, which is not supported; "
            "move it to the CPU or to an NVIDIA GPU first"
        )
    options = {}
    if kind in _ON_GPU:  # what is computed there from here on waits for what the other library has started
        options["stream"] = _core.cuda_stream(gpus.device_number(number))
    try:
        capsule = x.__dlpack__(max_version=_VERSION, **options)
    except TypeError:  # libraries from before DLPack 1.0
        capsule = x.__dlpack__(**options)
    t, copied = _core.from_dlpack(capsule)
    if copied and copy is False:
        raise ArgumentError("asarray: a read-only or unaligned array cannot be shared; pass copy=None or True")
    made: Tensor = _core.copy(t) if copy and not copied else t
    return made


def to_dlpack(
    x: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """The capsule of `x.__dlpack__()`."""
    if not x._plain:
        x.numpy()  # raises, and says why
    place = dlpack_device(x)
    waiting = _stream(stream, place)
    _core.check_leaving(x, "dlpack", array=True)
    # Not every consumer understands memory that must not be written to.
    shared = x.detach().clone() if copy or (x._overlaps and copy is None) else x
    if dl_device is not None and tuple(dl_device) != place:
        if tuple(dl_device) != (_HOST, 0) or copy is False:
            raise BufferError(f"__dlpack__: the tensor is on {x.device}; move it with to() first")
        shared, waiting = move(shared.detach(), CPU), _UNORDERED
    elif shared._overlaps:
        raise BufferError("__dlpack__: elements of the tensor share memory; pass copy=None or True")
    return _core.to_dlpack(shared, max_version is not None and max_version[0] >= 1, shared is not x, waiting)


def _stream(stream: Any, place: tuple[int, int]) -> int:
    """The consumer's stream, whose work is to wait for ours."""
    if place[0] == _HOST:
        if stream not in (None, _UNORDERED):
            raise BufferError("__dlpack__: there are no streams on the CPU; pass stream=None")
        return _UNORDERED
    if stream is None:
        return _LEGACY_STREAM
    if not isinstance(stream, int) or stream == 0 or stream < _UNORDERED:
        raise BufferError(
            f"__dlpack__: stream must be None, -1, or the handle of a stream, which is not 0; got {stream!r}"
        )
    return stream


def dlpack_device(x: Tensor) -> tuple[int, int]:
    """Device type and number, as `x.__dlpack_device__()` gives them."""
    if not x._plain:
        return (_HOST, 0) if number_of(x.device) == 0 else (_CUDA, x.device.ordinal or 0)
    place: tuple[int, int] = _core.dlpack_device(x)
    return place
