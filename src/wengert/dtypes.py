"""Element types."""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert import _core


class DType:
    """An element type: `wg.float32`, `wg.int64`, ... Compares equal to its NumPy counterpart and to its name."""

    __slots__ = ("code", "itemsize", "kind", "name")

    def __init__(self, code: int, name: str, itemsize: int, kind: str) -> None:
        self.code = code
        self.name = name
        self.itemsize = itemsize
        self.kind = kind

    def __repr__(self) -> str:
        return f"wengert.{self.name}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self.code == other.code
        try:
            return self.code == as_dtype(other).code
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (as_dtype, (self.name,))

    @property
    def is_floating(self) -> bool:
        """Whether this is a real floating type."""
        return self.kind == "f"

    @property
    def is_inexact(self) -> bool:
        """Whether values of this type have gradients: floating or complex."""
        return self.kind in "fc"

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer type."""
        return self.kind in "iu"

    def to_numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 is `ml_dtypes.bfloat16`."""
        if self.name == "bfloat16":
            import ml_dtypes

            bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return np.dtype(self.name)


ALL: list[DType] = [DType(code, name, itemsize, kind) for code, (name, itemsize, kind) in enumerate(_core.dtype_table)]
_BY_NAME = {d.name: d for d in ALL}
_FROM_PYTHON: dict[type, str] = {float: "float32", int: "int64", bool: "bool", complex: "complex64"}

bool_ = _BY_NAME["bool"]
int8 = _BY_NAME["int8"]
int16 = _BY_NAME["int16"]
int32 = _BY_NAME["int32"]
int64 = _BY_NAME["int64"]
uint8 = _BY_NAME["uint8"]
uint16 = _BY_NAME["uint16"]
uint32 = _BY_NAME["uint32"]
uint64 = _BY_NAME["uint64"]
float16 = _BY_NAME["float16"]
bfloat16 = _BY_NAME["bfloat16"]
float32 = _BY_NAME["float32"]
float64 = _BY_NAME["float64"]
complex64 = _BY_NAME["complex64"]
complex128 = _BY_NAME["complex128"]


def as_dtype(spec: Any) -> DType:
    """The dtype that `spec` names: a DType, a name, a Python type, or a NumPy dtype.

    >>> as_dtype("float32"), as_dtype(float), as_dtype(np.int8)
    (wengert.float32, wengert.float32, wengert.int8)
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and spec in _BY_NAME:
        return _BY_NAME[spec]
    if isinstance(spec, type) and spec in _FROM_PYTHON:
        return _BY_NAME[_FROM_PYTHON[spec]]
    try:
        return _BY_NAME[np.dtype(spec).name]
    except (TypeError, KeyError):
        raise TypeError(f"{spec!r} is not a dtype; use one of {', '.join(_BY_NAME)}") from None


_core.set_dtypes(ALL)
