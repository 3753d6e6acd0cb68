"""DLPack capsules made and read by hand, with everything in them that other libraries may put there."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np

INT, UNSIGNED, FLOAT, BFLOAT, COMPLEX, BOOL = 0, 1, 2, 4, 5, 6
READ_ONLY, COPIED = 1, 2
# A capsule points to its name, and does not copy it: these live as long as every capsule.
NAMES = {True: b"dltensor_versioned", False: b"dltensor"}  # by whether the capsule is versioned
NAMES_OF_TAKEN = {True: b"used_dltensor_versioned", False: b"used_dltensor"}
CODES = {"i": INT, "u": UNSIGNED, "f": FLOAT, "c": COMPLEX, "b": BOOL}


class Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


DROP = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Unversioned(ctypes.Structure):
    _fields_ = (("array", Array), ("owner", ctypes.c_void_p), ("drop", DROP))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("owner", ctypes.c_void_p),
        ("drop", DROP),
        ("flags", ctypes.c_uint64),
        ("array", Array),
    )


_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


class Foreign:
    """Another library's array, on the memory of a NumPy array. What a test says of it may be wrong on purpose."""

    held: ClassVar[list[Foreign]] = []  # by consumers, until they drop them

    def __init__(
        self,
        a: np.ndarray[Any, Any],
        *,
        versioned: bool = True,
        flags: int = 0,
        element: tuple[int, int, int] | None = None,
        device: tuple[int, int] = (1, 0),
        strides: bool = True,
        offset: int = 0,
        major: int = 1,
    ) -> None:
        self.a, self.versioned, self.device = a, versioned, device
        self.drops = 0
        self.options: dict[str, Any] = {}
        self._shape = (ctypes.c_int64 * a.ndim)(*a.shape)
        self._strides = (ctypes.c_int64 * a.ndim)(*(s // a.itemsize for s in a.strides))
        code, bits, lanes = element or (CODES[a.dtype.kind], 8 * a.itemsize, 1)
        array = Array(
            a.ctypes.data - offset,
            *device,
            a.ndim,
            code,
            bits,
            lanes,
            self._shape,
            self._strides if strides else None,
            offset,
        )
        drop = DROP(self._dropped)
        self._managed = Versioned(major, 0, None, drop, flags, array) if versioned else Unversioned(array, None, drop)

    def _dropped(self, _: Any) -> None:
        self.drops += 1
        self.held.remove(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        if not self.versioned and "max_version" in options:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.options = options
        self.held.append(self)
        return _new(ctypes.addressof(self._managed), NAMES[self.versioned], None)


class Taken:
    """What a consumer gets out of a capsule."""

    def __init__(self, capsule: Any) -> None:
        self.versioned = b"versioned" in repr(capsule).encode()
        self.address = _pointer(capsule, NAMES[self.versioned])
        self.managed: Any = (Versioned if self.versioned else Unversioned).from_address(self.address)
        _rename(capsule, NAMES_OF_TAKEN[self.versioned])

    @property
    def element(self) -> tuple[int, int, int]:
        a = self.managed.array
        return a.code, a.bits, a.lanes

    def numpy(self, dtype: Any) -> np.ndarray[Any, Any]:
        """The memory as NumPy sees it: valid until `drop`."""
        a = self.managed.array
        shape, strides = a.shape[: a.ndim], a.strides[: a.ndim]
        size = np.dtype(dtype).itemsize
        span = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 if all(shape) else 0
        memory = (ctypes.c_char * (span * size)).from_address(a.data + a.byte_offset)
        return np.ndarray(tuple(shape), dtype, memory, strides=tuple(s * size for s in strides))

    def drop(self) -> None:
        """Without the GIL, as ctypes calls functions."""
        function = ctypes.cast(self.managed.drop, ctypes.c_void_p).value
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function or 0)(self.address)
