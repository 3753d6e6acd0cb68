"""Tensors of one value and of ranges."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import as_dtype, complex64, float32, int64
from wengert.errors import ArgumentError, ShapeError
from wengert.program.trace import create, filled
from wengert.registry.record import OPS
from wengert.tensors.arguments import as_dtype_of, as_floating, both_tensors, iota
from wengert.tensors.conversion import EXACT, as_constant, asarray, check_range, finish
from wengert.tensors.device import like, make_on, move

_WHOLE = (int, np.integer, _core.Dim)
_TOO_MANY = 2**60


def as_shape(shape: Any, *more: Any) -> tuple[Any, ...]:
    """A shape from `(2, 3)`, `[2, 3]`, `2` or `2, 3`."""
    if more:
        shape = (shape, *more)
    if type(shape) is tuple and all(type(s) is int and 0 <= s < _TOO_MANY for s in shape):
        return shape
    if isinstance(shape, (int, np.integer, _core.Dim)):
        shape = (shape,)
    try:
        if isinstance(shape, (str, float)):
            raise TypeError
        sizes = tuple(s if isinstance(s, _core.Dim) else operator.index(s) for s in shape)
    except TypeError:
        raise TypeError(f"a shape must be an integer or a sequence of integers, got {shape!r}") from None
    for s in sizes:
        if isinstance(s, int) and s < 0:
            raise ShapeError(f"shape {sizes} has a negative size")
        if isinstance(s, int):
            check_count(s, "shape", sizes)
    return sizes


def check_count(n: int, *what: Any) -> None:
    """Raise if no machine has memory for n elements; still larger counts would overflow."""
    if n >= _TOO_MANY:
        raise MemoryError(f"{' '.join(map(str, what))}: out of memory: {n} elements exceed the address space")


def full(
    shape: Any, fill_value: Any, *, dtype: Any = None, requires_grad: bool | None = None, device: Any = None
) -> Tensor:
    """Make a tensor of this shape whose elements are all `fill_value`.

    The dtype is that of `fill_value` (float32, int64 or bool for Python's numbers) unless `dtype` is given.

    >>> full((2,), 7).tolist()
    [7, 7]
    """
    if device is not None:
        return make_on(device, full, shape, fill_value, dtype=dtype, requires_grad=requires_grad)
    if isinstance(fill_value, Tensor):
        return finish(_filled_with(fill_value, as_shape(shape), dtype), requires_grad)
    if isinstance(fill_value, _core.Dim):
        fill_value = int(fill_value)
    t = as_dtype(type(fill_value) if dtype is None else dtype)
    check_range(fill_value, t, "full")
    if t.is_integer and not isinstance(fill_value, complex) and abs(int(fill_value)) > EXACT:
        one = asarray(fill_value, dtype=t)  # the attribute of the op is a float64, which would round it
        return finish(OPS["copy"](OPS["broadcast_to"](one, as_shape(shape))), requires_grad)
    return finish(filled(as_shape(shape), fill_value, t.code), requires_grad)


def _filled_with(x: Tensor, shape: tuple[Any, ...], dtype: Any) -> Tensor:
    """A tensor filled with the one element of x, differentiable."""
    if x.size != 1:
        raise ShapeError(f"full: the value must be a number, got a tensor of shape {tuple(x.shape)}; use broadcast_to")
    one = OPS["reshape"](x if dtype is None else x.astype(dtype), ())
    made: Tensor = OPS["copy"](OPS["broadcast_to"](one, shape))
    return made


def _constant(shape: Any, value: float, dtype: Any, requires_grad: bool | None, device: Any) -> Tensor:
    """`full` for a number that every dtype can represent."""
    if device is not None:
        return make_on(device, _constant, shape, value, dtype, requires_grad, None)
    return finish(filled(as_shape(shape), value, as_dtype(dtype).code), requires_grad)


def zeros(
    shape: Any, *more: Any, dtype: Any = float32, requires_grad: bool | None = None, device: Any = None
) -> Tensor:
    """Make a tensor of zeros: `zeros((2, 3))` or `zeros(2, 3)`. The dtype is float32 unless `dtype` says otherwise.

    >>> zeros(2).tolist(), zeros(2, 1, dtype=int).tolist()
    ([0.0, 0.0], [[0], [0]])
    """
    return _constant((shape, *more) if more else shape, 0.0, dtype or float32, requires_grad, device)


def ones(shape: Any, *more: Any, dtype: Any = float32, requires_grad: bool | None = None, device: Any = None) -> Tensor:
    """Make a tensor of ones: `ones((2, 3))` or `ones(2, 3)`. The dtype is float32 unless `dtype` says otherwise.

    >>> ones(2).tolist(), ones(2, 1, dtype=int).tolist()
    ([1.0, 1.0], [[1], [1]])
    """
    return _constant((shape, *more) if more else shape, 1.0, dtype or float32, requires_grad, device)


def empty(
    shape: Any, *more: Any, dtype: Any = float32, requires_grad: bool | None = None, device: Any = None
) -> Tensor:
    """A tensor to be filled; its contents are zeros here, but do not rely on it.

    >>> empty(2, 3).shape
    (2, 3)
    """
    return zeros(shape, *more, dtype=dtype, requires_grad=requires_grad, device=device)


def as_model(x: Any) -> Any:
    """Anything with a shape and a dtype unchanged; numbers and lists as tensors."""
    return x if hasattr(x, "shape") and hasattr(x, "dtype") else asarray(x)


def full_like(
    x: Tensor, fill_value: Any, *, dtype: Any = None, requires_grad: bool | None = None, device: Any = None
) -> Tensor:
    """A tensor of one value with the shape and dtype of x.

    >>> full_like(zeros(2), 7).tolist()
    [7.0, 7.0]
    """
    x = as_model(x)
    return full(x.shape, fill_value, dtype=dtype or x.dtype, requires_grad=requires_grad, device=device or like(x))


def zeros_like(x: Tensor, *, dtype: Any = None, requires_grad: bool | None = None, device: Any = None) -> Tensor:
    """Zeros with the shape and dtype of x.

    >>> zeros_like(ones(2, dtype=int)).tolist()
    [0, 0]
    """
    x = as_model(x)
    return _constant(x.shape, 0.0, dtype or x.dtype, requires_grad, device or like(x))


def ones_like(x: Tensor, *, dtype: Any = None, requires_grad: bool | None = None, device: Any = None) -> Tensor:
    """Ones with the shape and dtype of x.

    >>> ones_like(zeros(2, dtype=int)).tolist()
    [1, 1]
    """
    x = as_model(x)
    return _constant(x.shape, 1.0, dtype or x.dtype, requires_grad, device or like(x))


def empty_like(x: Tensor, *, dtype: Any = None, requires_grad: bool | None = None, device: Any = None) -> Tensor:
    """A tensor to be filled, with the shape and dtype of x.

    >>> empty_like(zeros(2, 3)).shape
    (2, 3)
    """
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
    """The numbers start, start + step, … up to but not including stop; with one argument, 0 … stop − 1.

    The dtype is int64 if all arguments are integers, otherwise float32, unless `dtype` is given.

    >>> arange(3).tolist(), arange(1.0, 2.0, 0.25).tolist()
    ([0, 1, 2], [1.0, 1.25, 1.5, 1.75])
    """
    if device is not None:
        return make_on(device, arange, start, stop, step, dtype=dtype, requires_grad=requires_grad)
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ArgumentError("arange: the step must not be 0")
    whole = isinstance(start, _WHOLE) and isinstance(stop, _WHOLE) and isinstance(step, _WHOLE)
    t = as_dtype(dtype) if dtype is not None else int64 if whole else float32
    n = max(0, -((start - stop) // step) if whole else math.ceil((stop - start) / step))
    if isinstance(n, int):
        check_count(n, "arange")
    if whole and isinstance(n, int) and n:
        for end in (start, start + (n - 1) * step):
            check_range(end, t, "arange")
    if whole and any(isinstance(v, (int, np.integer)) and abs(v) > EXACT for v in (start, stop)):
        return finish(asarray(_large_range(int(start), int(step), int(n)), dtype=t), requires_grad)
    return finish(create(OPS["iota"], ((n,), t.code, float(start), float(step))), requires_grad)


def _large_range(start: int, step: int, n: int) -> np.ndarray[Any, Any]:
    """A range of integers that float64 would round. Sums wrap around at 2⁶⁴, so the results are right."""
    values = np.arange(n, dtype=np.uint64) * np.uint64(step % 2**64) + np.uint64(start % 2**64)
    return values if max(start, start + (n - 1) * step) >= 2**63 else values.view(np.int64)


def _ends(start: Any, stop: Any, num: Any, name: str) -> tuple[Any, Any, int]:
    """The ends of a range and its length, checked."""
    ends = [int(x) if isinstance(x, _core.Dim) else x for x in (start, stop)]
    for x in ends:
        if not isinstance(x, (int, float, complex, np.number)):
            remedy = (
                "; use start + (stop - start) * linspace(0.0, 1.0, num), or detach().item()"
                if isinstance(x, Tensor)
                else ""
            )
            raise TypeError(f"{name}: start and stop must be numbers, got {type(x).__name__}{remedy}")
    if not hasattr(num, "__index__") or isinstance(num, Tensor):
        raise TypeError(f"{name}: num must be an integer, got {num!r}")
    if num < 0:
        raise ArgumentError(f"{name}: num must not be negative, got {num}")
    check_count(num, name)
    return ends[0], ends[1], operator.index(num)


def _between(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any) -> Tensor:
    """`linspace` of tensors: along a new first axis, evenly spaced, with derivatives to both ends. The last value is the
    stop itself."""
    a, b = both_tensors(start, stop, "linspace")
    a, b = as_floating(a), as_floating(b)
    parts = num - 1 if endpoint else num
    places = as_dtype_of(iota(num, like=a), a.dtype) / float(max(parts, 1))
    places = OPS["reshape"](places, (num, *(1,) * max(a.ndim, b.ndim)))
    y = a * (1.0 - places) + b * places
    return y if dtype is None else as_dtype_of(y, as_dtype(dtype))


def linspace(
    start: Any,
    stop: Any,
    num: int,
    *,
    endpoint: bool = True,
    dtype: Any = None,
    requires_grad: bool | None = None,
    device: Any = None,
) -> Tensor:
    """`num` evenly spaced numbers from start to stop, stop included unless `endpoint=False`.

    Start and stop may be tensors: the numbers then lie along a new first axis, and gradients flow to both ends.

    >>> linspace(0.0, 1.0, 3).tolist()
    [0.0, 0.5, 1.0]
    """
    if isinstance(start, Tensor) or isinstance(stop, Tensor):
        return _between(start, stop, _ends(0, 1, num, "linspace")[2], endpoint, dtype)
    start, stop, num = _ends(start, stop, num, "linspace")
    return _spaced(np.linspace(start, stop, num, endpoint=endpoint), dtype, requires_grad, device)


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
    start, stop, num = _ends(start, stop, num, "logspace")
    return _spaced(np.logspace(start, stop, num, endpoint=endpoint, base=base), dtype, requires_grad, device)


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
    start, stop, num = _ends(start, stop, num, "geomspace")
    if start == 0 or stop == 0:
        raise ArgumentError(f"geomspace: no multiples lead from {start} to {stop}; neither end may be 0")
    if np.isrealobj(start) and np.isrealobj(stop) and np.sign(start) != np.sign(stop):
        raise ArgumentError(f"geomspace: no real multiples lead from {start} to {stop}; make one of them complex")
    return _spaced(np.geomspace(start, stop, num, endpoint=endpoint), dtype, requires_grad, device)


def _spaced(a: np.ndarray[Any, Any], dtype: Any, requires_grad: bool | None, device: Any) -> Tensor:
    default = complex64 if a.dtype.kind == "c" else float32
    made = as_constant(asarray(a, dtype=default if dtype is None else dtype))
    return finish(made if device is None else move(made, device), requires_grad)


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
    check_count(n_rows * (n_rows if n_cols is None else n_cols), "eye")
    a = np.eye(n_rows, n_cols, k, dtype=as_dtype(dtype or float32).to_numpy())
    made = as_constant(asarray(a))
    return finish(made if device is None else move(made, device), requires_grad)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinate matrices from coordinate vectors (array API); copies.

    >>> [t.tolist() for t in meshgrid(arange(2), arange(3))]
    [[[0, 1], [0, 1], [0, 1]], [[0, 0], [1, 1], [2, 2]]]
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    n = len(arrays)
    order = list(range(n))
    if indexing == "xy" and n >= 2:
        order[:2] = [1, 0]
    shape = tuple(arrays[i].size for i in order)
    out = []
    for i, a in enumerate(arrays):
        view = [1] * n
        view[order.index(i)] = a.size
        out.append(OPS["copy"](OPS["broadcast_to"](OPS["reshape"](a, tuple(view)), shape)))
    return tuple(out)
