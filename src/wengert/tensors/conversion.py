"""Making tensors from numbers, nested lists, arrays and other tensors."""

from __future__ import annotations

import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import DType, as_dtype, bfloat16, complex64, float32, float64, int64, result_type
from wengert.errors import ArgumentError, DTypeError, NumberRangeError, ShapeError
from wengert.program.call_trace import call_trace
from wengert.registry.record import OPS
from wengert.tensors import cuda_array, dlpack
from wengert.tensors.device import move
from wengert.tensors.leaving import refuse_leaving

EXACT = 2**53  # every integer up to here is exact in float64


def finish(t: Tensor, requires_grad: bool | None) -> Tensor:
    """t, with requires_grad set if it was given."""
    if requires_grad is not None:
        t.requires_grad = requires_grad
    return t


def _from_numpy(a: np.ndarray[Any, Any], copy: bool | None) -> Tensor:
    try:
        dtype = as_dtype(a.dtype)
    except TypeError:
        raise DTypeError(f"asarray: NumPy dtype {a.dtype} is not supported; convert the array first") from None
    if not a.dtype.isnative:
        a, copy = a.astype(a.dtype.newbyteorder("=")), False
    if a.dtype == bool and a.size and a.view(np.uint8).max() > 1:  # other bytes are true to NumPy, and would count here
        if copy is False:
            raise ArgumentError("asarray: bools with other bytes than 0 and 1 cannot be shared; pass copy=None or True")
        a, copy = a.view(np.uint8) != 0, False
    flags, element = a.flags, a.dtype.itemsize
    aligned = flags.aligned and (flags.c_contiguous or all(s % element == 0 for s in a.strides))
    if not aligned or not flags.writeable:
        if copy is False:
            raise ArgumentError("asarray: a read-only or unaligned array cannot be shared; pass copy=None or True")
        a = np.array(a, copy=True)
        copy = False
    raw = a.view(np.uint16) if dtype == bfloat16 else a
    t: Tensor = _core.from_buffer(raw, dtype.code, True)
    return _made(_core.copy(t) if copy else t)


def _made(t: Tensor) -> Tensor:
    """t, registered with the open trace, if any, as created by the traced function."""
    trace = call_trace()
    if trace is not None:
        trace.made[id(t)] = t
    return t


def as_constant(t: Tensor) -> Tensor:
    """t, registered with the recording tapes as a constant."""
    if _core.recording_tapes():
        kept = _core.copy(t)
        _core.log_custom("constant", lambda: [kept], [], [t])
    return t


def tensor(data: Any, *, dtype: Any = None, requires_grad: bool | None = None, device: Any = None) -> Tensor:
    """Make a tensor from a number, nested lists, an array or another tensor; the result owns a copy of the data.

    - `data`: what to copy. Tensors, also inside lists, keep their gradients.
    - `dtype`: the element type. By default Python floats become float32, ints int64 and bools bool; arrays keep
      theirs.
    - `requires_grad`: if given, the result is a leaf with this setting. `True` makes `backward` compute its gradient.
    - `device`: `"cpu"` (the default) or `"cuda"`.

    `asarray` shares memory with an array instead of copying it.

    >>> tensor([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    >>> tensor([1, 2], dtype="float64", requires_grad=True)
    tensor([1., 2.], dtype=float64, requires_grad=True)
    """
    if device is not None:
        return _as_leaf(move(tensor(data, dtype=dtype), device), requires_grad)
    if isinstance(data, Tensor):
        t = asarray(data, dtype=dtype)
        return _as_leaf(OPS["copy"](t) if t is data else t, requires_grad)
    if call_trace() is not None:
        return finish(asarray(data, dtype=dtype, copy=True), requires_grad)
    t = asarray(data, dtype=dtype)
    if t.requires_grad or not t._plain:  # stacked from tensors, so its memory is its own
        return _as_leaf(t, requires_grad)
    return finish(_core.copy(t), requires_grad)


def _as_leaf(t: Tensor, requires_grad: bool | None) -> Tensor:
    """t, or a leaf with its data if requires_grad was given."""
    if requires_grad is None:
        return t
    if hasattr(t, "tangent"):
        refuse_leaving(t, "tensor", True)
    _core.check_leaving(t, "tensor")
    return finish(t.detach(), requires_grad)


def asarray(
    obj: Any, *, dtype: Any = None, copy: bool | None = None, requires_grad: bool | None = None, device: Any = None
) -> Tensor:
    """Convert `obj` to a tensor, without a copy where possible (array API).

    NumPy arrays, buffers and objects with `__dlpack__` share their memory and keep their dtype: float64 stays
    float64. Python floats become float32, ints int64. Lists of tensors are stacked and keep their gradients.
    `copy=True` always copies; `copy=False` raises where a copy would be needed.

    >>> a = np.arange(3.0)
    >>> x = asarray(a)
    >>> a[0] = 7.0  # seen through the tensor
    >>> x
    tensor([7., 1., 2.], dtype=float64)
    """
    if device is not None:
        made = asarray(obj, dtype=dtype, copy=copy)
        return finish(move(made, device), requires_grad)
    if copy is False and dtype is not None and hasattr(obj, "dtype") and as_dtype(dtype) != as_dtype(obj.dtype):
        raise ArgumentError(
            f"asarray: {obj.dtype} becomes {as_dtype(dtype).name} only by a copy; pass copy=None or True"
        )
    if isinstance(obj, Tensor):
        t = obj if dtype is None or obj.dtype == dtype else obj.astype(dtype)
        return finish(t.clone() if copy and t is obj else t, requires_grad)
    if isinstance(obj, (np.ndarray, np.generic, array.array, memoryview, bytearray)):
        a = np.asarray(obj)
    elif not isinstance(obj, (list, tuple, int, float)) and (protocol := _sharing_protocol(obj)):
        t = _made(protocol.imported(obj, copy))
        return finish(t if dtype is None else t.astype(dtype), requires_grad)
    else:
        types = _types_in(obj)
        if any(issubclass(t, Tensor) for t in types):
            dtype = result_type(*_leaves(obj)) if dtype is None else as_dtype(dtype)
            return finish(_stacked(obj, dtype), requires_grad)
        quick = _from_numbers(obj, types, dtype)
        if quick is not None:
            return finish(_made(quick), requires_grad)
        a = _from_nested(obj, types, dtype)
        copy = False
    if dtype is not None and as_dtype(a.dtype) != as_dtype(dtype):
        a, copy = _converted(a, as_dtype(dtype)), False
    t = _from_numpy(a, copy)
    return finish(as_constant(t) if isinstance(obj, (list, tuple, int, float, complex)) else t, requires_grad)


def _sharing_protocol(obj: Any) -> Any:
    """The module of the protocol by which the array of another library shares its memory, or None."""
    if hasattr(obj, "__dlpack__"):
        return dlpack
    return cuda_array if hasattr(obj, "__cuda_array_interface__") else None


def _types_in(obj: Any) -> set[type]:
    """The types of what nested lists hold."""
    if not isinstance(obj, (list, tuple)):
        return {type(obj)}
    found = set(map(type, obj))
    nested = {t for t in found if issubclass(t, (list, tuple))}
    if nested:
        found = (found - nested).union(*(_types_in(x) for x in obj if type(x) in nested))
    return found


_CODES = {(float, float32.code): "f", (float, float64.code): "d", (int, int64.code): "q"}  # of the module array


def _from_numbers(obj: Any, types: set[type], dtype: Any) -> Tensor | None:
    """Convert a number, or a list of Python numbers of one kind, ten times as fast as NumPy; or return None."""
    if len(types) != 1:
        return None
    (kind,) = types
    if kind not in (float, int):
        return None
    t = as_dtype(kind if dtype is None else dtype)
    code = _CODES.get((kind, t.code))
    if code is None:
        return None
    if obj.__class__ is kind:
        rounded = kind is int and abs(obj) > EXACT  # the attribute of the op is a float64
        return None if rounded else OPS["full"].function((), t.code, float(obj))
    if any(isinstance(x, (list, tuple)) for x in obj[:1]):
        return None
    try:
        return as_constant(_core.from_buffer(array.array(code, obj), t.code, True))
    except (OverflowError, TypeError):  # beyond int64; lists of different depths
        return None


def _from_nested(obj: Any, types: set[type], dtype: Any) -> np.ndarray[Any, Any]:
    try:
        a = np.array(obj)
    except ValueError as e:
        raise ShapeError(f"asarray: nested lists of different lengths do not make a tensor ({e})") from None
    if a.dtype == object and all(issubclass(t, (int, float, complex)) for t in types):
        return _from_large(obj, int64 if dtype is None else as_dtype(dtype))
    if a.dtype == object and _core.Dim in types:
        row = [int(x) if isinstance(x, _core.Dim) else x for x in _leaves(obj)]
        return _from_nested(row, _types_in(row), dtype).reshape(a.shape)
    if a.dtype == object or a.dtype.kind in "US":
        raise DTypeError(f"asarray: cannot make a tensor of {type(obj).__name__} (NumPy gives dtype {a.dtype})")
    numbers = all(issubclass(t, (int, float, complex)) and not issubclass(t, np.generic) for t in types)
    if dtype is not None:
        t = as_dtype(dtype)
        return _whole_numbers(obj, a, t) if t.is_integer and numbers else _converted(a, t)
    if numbers:  # Python numbers get the default dtypes; everything else keeps its dtype
        defaults = {"f": float32, "i": int64, "c": complex64}
        if a.dtype.kind in defaults:
            a = _converted(a, defaults[a.dtype.kind])
    return a


def _converted(a: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    if a.dtype.kind == "c" and dtype.kind not in "cb":
        raise DTypeError(f"asarray: {a.dtype} to {dtype.name} would drop the imaginary part; take its real part first")
    with np.errstate(over="ignore", invalid="ignore"):  # 1e39 is inf in float32, as it is in any computation
        return a.astype(dtype.to_numpy())


def _whole_numbers(obj: Any, a: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Python numbers, converted to `a` by NumPy, in an integral dtype, which must hold those that are integers."""
    if a.dtype.kind not in "iu":  # NumPy makes floats of integers if some fit int64 and others uint64 only
        for x in _leaves(obj):
            check_range(x, dtype, "asarray")
        if all(isinstance(x, int) for x in _leaves(obj)):
            return np.array(obj, dtype.to_numpy())
    elif a.size:
        for end in (a.min(), a.max()):
            check_range(end, dtype, "asarray")
    return _converted(a, dtype)


def _from_large(obj: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """Numbers that include integers beyond 64 bits, which only floating types can hold."""
    if dtype.is_integer:
        for x in _leaves(obj):
            check_range(x, dtype, "asarray")
    return _converted(np.array(obj, np.complex128 if dtype.kind == "c" else np.float64), dtype)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of an array of another library, on the CPU or a GPU.

    Writing to one changes the other. Read-only memory is copied. What is computed from the tensor on a GPU waits for what
    the other library has started on its stream.

    >>> from_dlpack(np.arange(3.0)).tolist()
    [0.0, 1.0, 2.0]
    """
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"from_dlpack: a {type(x).__name__} has no __dlpack__ method; use asarray")
    if isinstance(x, Tensor):
        t = x.clone().detach() if copy else x.detach()
    else:
        t = asarray(x, copy=copy)  # of NumPy's own arrays as well: it does not export those that are read-only
    return t if device is None else move(t, device)


def check_range(x: Any, dtype: DType, name: str) -> None:
    """Refuse an integer that an integral dtype cannot hold."""
    if isinstance(x, (int, np.integer)) and dtype.is_integer and dtype.place_of(int(x)):
        limits = np.iinfo(dtype.name)
        raise NumberRangeError(
            f"{name}: the integer {x} does not fit {dtype.name}, which holds {limits.min} to {limits.max}; "
            "pass another dtype"
        )


def _leaves(obj: Any) -> Iterator[Any]:
    if isinstance(obj, (list, tuple)):
        for x in obj:
            yield from _leaves(x)
    else:
        yield obj


def _stacked(obj: Any, dtype: DType) -> Tensor:
    """Nested lists that hold tensors, along new first axes."""
    if not isinstance(obj, (list, tuple)):
        return asarray(obj, dtype=dtype)
    if not obj:
        return asarray(obj, dtype=dtype)
    rows = [_stacked(x, dtype) for x in obj]
    for row in rows:
        if row.shape != rows[0].shape:
            raise ShapeError(
                f"asarray: the parts of a nested list must have one shape, got {tuple(rows[0].shape)} and {tuple(row.shape)}"
            )
    made: Tensor = OPS["concat"]([OPS["reshape"](row, (1, *row.shape)) for row in rows], 0)
    return made
