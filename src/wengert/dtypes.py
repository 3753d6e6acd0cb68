"""Element types, what they hold, and what several promote to."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from wengert import _core


class DType:
    """An element type: `wg.float32`, `wg.int64`, ... Compares equal to its NumPy counterpart and to its name.

    Functions that take a dtype take any of these.

    >>> import numpy as np, wengert as wg
    >>> wg.float32 == np.float32, wg.float32 == "float32", wg.ones(2, dtype="float64").dtype
    (True, True, wengert.float64)
    """

    __slots__ = ("code", "itemsize", "kind", "name")

    def __init__(self, code: int, name: str, itemsize: int, kind: str) -> None:
        self.code = code
        self.name = name
        self.itemsize = itemsize
        self.kind = kind

    def __repr__(self) -> str:
        return f"wengert.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self.code == other.code
        if not isinstance(other, (str, type, np.dtype)):
            return NotImplemented
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

    def place_of(self, i: int) -> int:
        """How an integer lies to the values of an integral type: -1 below all of them, 1 above, 0 among them."""
        magnitude = 8 * self.itemsize - (self.kind == "i")  # bits
        lowest = -1 << magnitude if self.kind == "i" else 0
        return -1 if i < lowest else int(i >> magnitude > 0)

    def to_numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 is `ml_dtypes.bfloat16`."""
        if self.name == "bfloat16":
            import ml_dtypes

            bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return np.dtype(self.name)


ALL: list[DType] = [DType(code, name, itemsize, kind) for code, (name, itemsize, kind) in enumerate(_core.dtype_table)]
_BY_NAME = {d.name: d for d in ALL}
_FROM_NUMPY = {np.dtype(d.name): d for d in ALL if d.name != "bfloat16"}  # that one is not NumPy's own
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
    if isinstance(spec, np.dtype) and spec in _FROM_NUMPY:
        return _FROM_NUMPY[spec]
    if isinstance(spec, str) and spec in _BY_NAME:
        return _BY_NAME[spec]
    if isinstance(spec, type) and spec in _FROM_PYTHON:
        return _BY_NAME[_FROM_PYTHON[spec]]
    try:
        if spec is None:  # NumPy reads it as float64
            raise TypeError
        return _BY_NAME[np.dtype(spec).name]
    except (TypeError, ValueError, KeyError):
        raise TypeError(f"{spec!r} is not a dtype; use one of {', '.join(_BY_NAME)}") from None


_KINDS: dict[str, str] = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: "bool", "signed integer", "unsigned integer", "integral", "real floating",
    "complex floating", "numeric", another dtype, or a tuple of these (array API).

    >>> isdtype(float32, "real floating"), isdtype(int8, ("bool", int8)), isdtype(bool_, "numeric")
    (True, True, False)
    """
    d = as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(d, k) for k in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return d.kind in _KINDS[kind]
    try:
        return d.code == as_dtype(kind).code
    except TypeError:
        kinds = ", ".join(map(repr, _KINDS))
        raise ValueError(f"isdtype: {kind!r} is neither a dtype nor a kind; kinds are {kinds}") from None


def _dtype_of(x: Any) -> DType:
    return x.dtype if isinstance(x, _core.Tensor) else as_dtype(getattr(x, "dtype", x))


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion may turn the dtype of a tensor, or a dtype, into another: no value is lost by kind or size.

    >>> can_cast(int8, int16), can_cast(float64, float32), can_cast(float32, complex64)
    (True, False, True)
    """
    a, b = _dtype_of(from_), as_dtype(to)
    return _core.promote(a.code, b.code) == b.code


_SCALARS = (bool, int, float, complex)  # in the order of their kinds
_NUMBERS = (*_SCALARS, np.generic)


def _number_type(x: Any) -> type:
    value = x.item() if isinstance(x, np.generic) else x
    return next(t for t in _SCALARS if isinstance(value, t))


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that tensors, dtypes and Python numbers promote to; the numbers are weak (array API).

    >>> result_type(int8, int16), result_type(float32, 2.0), result_type(int64, 1.5)
    (wengert.int16, wengert.float32, wengert.float32)
    """
    if not arrays_and_dtypes:
        raise ValueError("result_type: needs at least one tensor, dtype or number")
    scalars = [_number_type(x) for x in arrays_and_dtypes if isinstance(x, _NUMBERS)]
    dtypes = [_dtype_of(x) for x in arrays_and_dtypes if not isinstance(x, _NUMBERS)]
    if not dtypes:
        return as_dtype(max(scalars, key=_SCALARS.index))
    code = functools.reduce(_core.promote, (d.code for d in dtypes))
    if scalars:  # weak: only the kind counts
        code = _core.promote_number(code, max(scalars, key=_SCALARS.index)(0))
    return ALL[code]


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """Limits of a floating dtype; of a complex one, those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType

    @property
    def tiny(self) -> float:
        """NumPy's name of `smallest_normal`."""
        return self.smallest_normal


@dataclass(frozen=True, slots=True)
class IntegerInfo:
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a floating or complex dtype, or of a tensor's: bits, eps, max, min, smallest_normal, dtype.

    >>> finfo(float32).eps, finfo(complex128).dtype
    (1.1920928955078125e-07, wengert.float64)
    """
    d = _dtype_of(type)
    if not d.is_inexact:
        raise TypeError(f"finfo: {d.name} is not a floating dtype; iinfo describes integers")
    parts = {"complex64": float32, "complex128": float64}.get(d.name, d)
    limits: Any
    if parts.name == "bfloat16":
        import ml_dtypes

        limits = ml_dtypes.finfo(parts.to_numpy())
    else:
        limits = np.finfo(parts.to_numpy())
    eps, high, low, tiny = (float(v) for v in (limits.eps, limits.max, limits.min, limits.smallest_normal))
    return FloatInfo(8 * parts.itemsize, eps, high, low, tiny, parts)


def iinfo(type: Any, /) -> IntegerInfo:
    """Limits of an integer dtype, or of a tensor's: bits, max, min, dtype.

    >>> iinfo(int8).max, iinfo(uint16).bits
    (127, 16)
    """
    d = _dtype_of(type)
    if not d.is_integer:
        raise TypeError(f"iinfo: {d.name} is not an integer dtype; finfo describes floating ones")
    limits = np.iinfo(d.to_numpy())
    return IntegerInfo(8 * d.itemsize, int(limits.max), int(limits.min), d)


_core.set_dtypes(ALL)
