"""Making tensors: from data, from nothing, at random."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.autograd.device import check_device
from wengert.dtypes import DType, as_dtype, bfloat16, complex64, float32, int64, result_type
from wengert.errors import ArgumentError, DTypeError, NumberRangeError, ShapeError
from wengert.ops.registry import OPS
from wengert.program.call_trace import call_trace
from wengert.program.trace import create, filled

_EXACT = 2**53  # every smaller integer is a float64


def _finish(t: Tensor, requires_grad: bool | None) -> Tensor:
    if requires_grad is not None:
        t.requires_grad = requires_grad
    return t


def _from_numpy(a: np.ndarray[Any, Any], copy: bool | None) -> Tensor:
    try:
        dtype = as_dtype(a.dtype)
    except TypeError:
        raise DTypeError(f"asarray: NumPy dtype {a.dtype} has no counterpart; convert the array first") from None
    if not a.dtype.isnative:
        a, copy = a.astype(a.dtype.newbyteorder("=")), False
    element = a.dtype.itemsize
    aligned = a.flags.aligned and all(s % element == 0 for s in a.strides)
    if not aligned or not a.flags.writeable:
        if copy is False:
            raise ArgumentError("asarray: a read-only or unaligned array cannot be shared; pass copy=None or True")
        a = np.array(a, copy=True)
        copy = False
    raw = a.view(np.uint16) if dtype == bfloat16 else a
    t: Tensor = _core.from_buffer(raw, dtype.code, True)
    return _made(_core.copy(t) if copy else t)


def _made(t: Tensor) -> Tensor:
    """t, known as the function's own to the trace that is open, if there is one."""
    trace = call_trace()
    if trace is not None:
        trace.made[id(t)] = t
    return t


def tensor(data: Any, *, dtype: Any = None, requires_grad: bool | None = None, device: Any = None) -> Tensor:
    """A new tensor that owns a copy of `data`: a number, nested lists, an array, or another tensor.

    Python floats become float32, ints int64, bools bool; arrays keep their dtype.

    >>> tensor([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    """
    check_device(device)
    if isinstance(data, Tensor):
        t = data.detach()
        t = _core.copy(t) if t._plain else t.clone()
        return _finish(t if dtype is None else t.astype(dtype), requires_grad)
    if call_trace() is not None:
        return _finish(asarray(data, dtype=dtype, copy=True), requires_grad)
    return _finish(_core.copy(asarray(data, dtype=dtype).detach()), requires_grad)


def asarray(
    obj: Any, *, dtype: Any = None, copy: bool | None = None, requires_grad: bool | None = None, device: Any = None
) -> Tensor:
    """A tensor of `obj`, sharing its memory where it can (array API). Lists of tensors are stacked, with their gradients.

    >>> a = np.arange(3.0)
    >>> asarray(a).dtype
    wengert.float64
    """
    check_device(device)
    if copy is False and dtype is not None and hasattr(obj, "dtype") and as_dtype(dtype) != as_dtype(obj.dtype):
        raise ArgumentError(
            f"asarray: {obj.dtype} becomes {as_dtype(dtype).name} only by a copy; pass copy=None or True"
        )
    if isinstance(obj, Tensor):
        t = obj if dtype is None or obj.dtype == dtype else obj.astype(dtype)
        return _finish(t.clone() if copy and t is obj else t, requires_grad)
    if isinstance(obj, (list, tuple)) and _holds_tensors(obj):
        return _finish(_stacked(obj, result_type(*_leaves(obj)) if dtype is None else as_dtype(dtype)), requires_grad)
    if isinstance(obj, (np.ndarray, np.generic)):
        a = np.asarray(obj)
    elif hasattr(obj, "__dlpack__"):
        from wengert.interop.dlpack import from_dlpack

        return asarray(from_dlpack(obj), dtype=dtype, copy=copy, requires_grad=requires_grad)
    else:
        a = _from_nested(obj, dtype)
        copy = False
    if dtype is not None and as_dtype(a.dtype) != as_dtype(dtype):
        a, copy = _converted(a, as_dtype(dtype)), False
    return _finish(_from_numpy(a, copy), requires_grad)


def _from_nested(obj: Any, dtype: Any) -> np.ndarray[Any, Any]:
    try:
        a = np.array(obj)
    except ValueError as e:
        raise ShapeError(f"asarray: nested lists of different lengths do not make a tensor ({e})") from None
    if a.dtype == object and all(isinstance(x, (int, float, complex)) for x in _leaves(obj)):
        return _from_large(obj, int64 if dtype is None else as_dtype(dtype))
    if a.dtype == object and any(isinstance(x, _core.Dim) for x in _leaves(obj)):
        return _from_nested([int(x) if isinstance(x, _core.Dim) else x for x in _leaves(obj)], dtype).reshape(a.shape)
    if a.dtype == object or a.dtype.kind in "US":
        raise DTypeError(f"asarray: cannot make a tensor of {type(obj).__name__} (NumPy gives dtype {a.dtype})")
    if dtype is not None:
        t = as_dtype(dtype)
        return _whole_numbers(obj, a, t) if t.is_integer and not _holds_numpy(obj) else _converted(a, t)
    if not _holds_numpy(obj):  # Python numbers have our default dtypes
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
    """Python numbers, of which NumPy made `a`, in an integral dtype that has to hold those that are integers."""
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
    """Numbers among which are integers beyond 64 bits, which only floating types can hold."""
    if dtype.is_integer:
        for x in _leaves(obj):
            check_range(x, dtype, "asarray")
    return _converted(np.array(obj, np.complex128 if dtype.kind == "c" else np.float64), dtype)


def check_range(x: Any, dtype: DType, name: str) -> None:
    """Refuse an integer that an integral dtype cannot hold."""
    if isinstance(x, (int, np.integer)) and dtype.is_integer and dtype.place_of(int(x)):
        limits = np.iinfo(dtype.name)
        raise NumberRangeError(
            f"{name}: the integer {x} does not fit {dtype.name}, which holds {limits.min} to {limits.max}; "
            "pass another dtype"
        )


def _holds_tensors(obj: Any) -> bool:
    return isinstance(obj, Tensor) or (isinstance(obj, (list, tuple)) and any(map(_holds_tensors, obj)))


def _holds_numpy(obj: Any) -> bool:
    if isinstance(obj, (np.ndarray, np.generic)):
        return True
    return isinstance(obj, (list, tuple)) and any(map(_holds_numpy, obj))


def _leaves(obj: Any) -> Iterator[Any]:
    if isinstance(obj, (list, tuple)):
        for x in obj:
            yield from _leaves(x)
    else:
        yield obj


def _stacked(obj: Any, dtype: DType) -> Tensor:
    """Nested lists that hold tensors, along new first axes."""
    from wengert.functional.joining import stack

    return stack([_stacked(x, dtype) for x in obj]) if isinstance(obj, (list, tuple)) else asarray(obj, dtype=dtype)


def as_shape(shape: Any, *more: Any) -> tuple[Any, ...]:
    """A shape from `(2, 3)`, `[2, 3]`, `2` or `2, 3`."""
    if more:
        shape = (shape, *more)
    if isinstance(shape, (int, np.integer, _core.Dim)):
        shape = (shape,)
    try:
        if isinstance(shape, (str, float)):
            raise TypeError
        sizes = tuple(s if isinstance(s, _core.Dim) else operator.index(s) for s in shape)
    except TypeError:
        raise TypeError(f"a shape is an integer or a sequence of integers, got {shape!r}") from None
    for s in sizes:
        if isinstance(s, int) and s < 0:
            raise ShapeError(f"shape {sizes} has a negative size")
    return sizes


def full(
    shape: Any, fill_value: Any, *, dtype: Any = None, requires_grad: bool | None = None, device: Any = None
) -> Tensor:
    """A tensor of one value.

    >>> full((2,), 7).tolist()
    [7, 7]
    """
    check_device(device)
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    elif isinstance(fill_value, _core.Dim):
        fill_value = int(fill_value)
    t = as_dtype(type(fill_value) if dtype is None else dtype)
    check_range(fill_value, t, "full")
    if t.is_integer and not isinstance(fill_value, complex) and abs(int(fill_value)) > _EXACT:
        one = asarray(fill_value, dtype=t)  # the attribute of the op is a float64, which would round it
        return _finish(OPS["copy"](OPS["broadcast_to"](one, as_shape(shape))), requires_grad)
    return _finish(filled(as_shape(shape), fill_value, t.code), requires_grad)


def zeros(shape: Any, *, dtype: Any = float32, requires_grad: bool | None = None, device: Any = None) -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0.0, dtype=dtype or float32, requires_grad=requires_grad, device=device)


def ones(shape: Any, *, dtype: Any = float32, requires_grad: bool | None = None, device: Any = None) -> Tensor:
    """A tensor of ones."""
    return full(shape, 1.0, dtype=dtype or float32, requires_grad=requires_grad, device=device)


def empty(shape: Any, *, dtype: Any = float32, requires_grad: bool | None = None, device: Any = None) -> Tensor:
    """A tensor to be filled; its contents are zeros here, but do not rely on it."""
    return zeros(shape, dtype=dtype, requires_grad=requires_grad, device=device)


def full_like(
    x: Tensor, fill_value: Any, *, dtype: Any = None, requires_grad: bool | None = None, device: Any = None
) -> Tensor:
    """A tensor of one value with the shape and dtype of x."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, requires_grad=requires_grad, device=device)


def zeros_like(x: Tensor, *, dtype: Any = None, requires_grad: bool | None = None, device: Any = None) -> Tensor:
    """Zeros with the shape and dtype of x."""
    return full_like(x, 0.0, dtype=dtype, requires_grad=requires_grad, device=device)


def ones_like(x: Tensor, *, dtype: Any = None, requires_grad: bool | None = None, device: Any = None) -> Tensor:
    """Ones with the shape and dtype of x."""
    return full_like(x, 1.0, dtype=dtype, requires_grad=requires_grad, device=device)


def empty_like(x: Tensor, *, dtype: Any = None, requires_grad: bool | None = None, device: Any = None) -> Tensor:
    """A tensor to be filled, with the shape and dtype of x."""
    return zeros_like(x, dtype=dtype, requires_grad=requires_grad, device=device)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    requires_grad: bool | None = None,
    device: Any = None,
) -> Tensor:
    """start, start + step, ... up to but not including stop.

    >>> arange(3).tolist()
    [0, 1, 2]
    """
    check_device(device)
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ArgumentError("arange: the step must not be 0")
    whole = all(isinstance(v, (int, np.integer, _core.Dim)) for v in (start, stop, step))
    t = as_dtype(dtype) if dtype is not None else int64 if whole else float32
    n = max(0, -((start - stop) // step) if whole else math.ceil((stop - start) / step))
    if whole and isinstance(n, int) and n:
        for end in (start, start + (n - 1) * step):
            check_range(end, t, "arange")
    if whole and any(isinstance(v, (int, np.integer)) and abs(v) > _EXACT for v in (start, stop)):
        return _finish(asarray(_large_range(int(start), int(step), int(n)), dtype=t), requires_grad)
    return _finish(create(OPS["iota"], ((n,), t.code, float(start), float(step))), requires_grad)


def _large_range(start: int, step: int, n: int) -> np.ndarray[Any, Any]:
    """Integers that float64 would round; the sums wrap around at 2⁶⁴, and so are right in the end."""
    values = np.arange(n, dtype=np.uint64) * np.uint64(step % 2**64) + np.uint64(start % 2**64)
    return values if max(start, start + (n - 1) * step) >= 2**63 else values.view(np.int64)


def _ends(start: Any, stop: Any, num: Any, name: str) -> tuple[Any, Any, int]:
    """The ends of a range and how many numbers are in it, checked."""
    ends = [int(x) if isinstance(x, _core.Dim) else x for x in (start, stop)]
    for x in ends:
        if not isinstance(x, (int, float, complex, np.number)):
            remedy = "; item() reads the one of a tensor" if isinstance(x, Tensor) else ""
            raise TypeError(f"{name}: start and stop are numbers, got a {type(x).__name__}{remedy}")
    if not hasattr(num, "__index__") or isinstance(num, Tensor):
        raise TypeError(f"{name}: num is an integer, got {num!r}")
    if num < 0:
        raise ArgumentError(f"{name}: num must not be negative, got {num}")
    return ends[0], ends[1], operator.index(num)


def linspace(
    start: complex,
    stop: complex,
    num: int,
    *,
    endpoint: bool = True,
    dtype: Any = None,
    requires_grad: bool | None = None,
    device: Any = None,
) -> Tensor:
    """`num` evenly spaced numbers from start to stop.

    >>> linspace(0.0, 1.0, 3).tolist()
    [0.0, 0.5, 1.0]
    """
    check_device(device)
    start, stop, num = _ends(start, stop, num, "linspace")
    return _spaced(np.linspace(start, stop, num, endpoint=endpoint), dtype, requires_grad)


def logspace(
    start: complex,
    stop: complex,
    num: int = 50,
    *,
    endpoint: bool = True,
    base: float = 10.0,
    dtype: Any = None,
    requires_grad: bool | None = None,
    device: Any = None,
) -> Tensor:
    """`num` numbers from base^start to base^stop whose logarithms are evenly spaced.

    >>> logspace(0.0, 2.0, 3).tolist()
    [1.0, 10.0, 100.0]
    """
    check_device(device)
    start, stop, num = _ends(start, stop, num, "logspace")
    return _spaced(np.logspace(start, stop, num, endpoint=endpoint, base=base), dtype, requires_grad)


def geomspace(
    start: complex,
    stop: complex,
    num: int = 50,
    *,
    endpoint: bool = True,
    dtype: Any = None,
    requires_grad: bool | None = None,
    device: Any = None,
) -> Tensor:
    """`num` numbers from start to stop, each the same multiple of the one before it.

    >>> geomspace(1.0, 8.0, 4).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    check_device(device)
    start, stop, num = _ends(start, stop, num, "geomspace")
    if start == 0 or stop == 0:
        raise ArgumentError(f"geomspace: no multiples lead from {start} to {stop}; neither end may be 0")
    if np.isrealobj(start) and np.isrealobj(stop) and np.sign(start) != np.sign(stop):
        raise ArgumentError(f"geomspace: no real multiples lead from {start} to {stop}; make one of them complex")
    return _spaced(np.geomspace(start, stop, num, endpoint=endpoint), dtype, requires_grad)


def _spaced(a: np.ndarray[Any, Any], dtype: Any, requires_grad: bool | None) -> Tensor:
    default = complex64 if a.dtype.kind == "c" else float32
    return asarray(a, dtype=default if dtype is None else dtype, requires_grad=requires_grad)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    *,
    k: int = 0,
    dtype: Any = float32,
    requires_grad: bool | None = None,
    device: Any = None,
) -> Tensor:
    """Ones on diagonal k, zeros elsewhere.

    >>> eye(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    check_device(device)
    a = np.eye(n_rows, n_cols, k, dtype=as_dtype(dtype or float32).to_numpy())
    return asarray(a, requires_grad=requires_grad)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinate matrices from coordinate vectors (array API)."""
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing is 'xy' or 'ij', got {indexing!r}")
    n = len(arrays)
    order = list(range(n))
    if indexing == "xy" and n >= 2:
        order[:2] = [1, 0]
    shape = tuple(arrays[i].size for i in order)
    out = []
    for i, a in enumerate(arrays):
        view = [1] * n
        view[order.index(i)] = a.size
        out.append(OPS["broadcast_to"](OPS["reshape"](a, tuple(view)), shape))
    return tuple(out)


def one_dtype(dtypes: Sequence[DType]) -> DType:
    """The dtype that several promote to."""
    from wengert.dtypes import ALL

    code = dtypes[0].code
    for d in dtypes[1:]:
        code = _core.promote(code, d.code)
    return ALL[code]
