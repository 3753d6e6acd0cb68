"""Reading arguments: tensors, axes, shapes and sizes, with errors that name the function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import DType, float32, int64, uint64
from wengert.errors import AxisError, DTypeError, IndexRangeError, ShapeError
from wengert.program.trace import create, filled, real_parts
from wengert.registry.record import OPS
from wengert.tensors.conversion import asarray
from wengert.tensors.device import make_on
from wengert.tensors.numpy import data

Axis = int | Sequence[int] | None
Size = Any  # int, or _core.Dim while tracing

_CONVERTIBLE = (bool, int, float, complex, np.ndarray, np.generic, list, tuple)


def native(name: str) -> Callable[..., Tensor]:
    """The core's function of an op."""
    function: Callable[..., Tensor] = _core.ops[name]
    return function


_cast, _minimum = native("cast"), native("minimum")
_LARGEST = 2**63 - 1  # of int64


def as_tensor(x: Any, name: str) -> Tensor:
    """Convert an array-like (array, nested list, number) to a tensor."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, _CONVERTIBLE) or hasattr(x, "__dlpack__"):
        return asarray(x)
    raise TypeError(f"{name}: got {type(x).__name__}; expected a tensor, an array or a number")


def on_host(x: Tensor) -> bool:
    """Whether the numbers of x can be read without waiting for a device."""
    return x._plain and _core.device_of(x) == 0


def as_dtype_of(x: Tensor, dtype: DType) -> Tensor:
    """x in this dtype; x itself if it already has it."""
    return x if x.dtype.code == dtype.code else _cast(x, dtype.code)


def as_floating(x: Tensor) -> Tensor:
    """x, or float32 for integers and bools."""
    return x if x.dtype.is_inexact else _cast(x, float32.code)


def wide(x: Tensor) -> Tensor:
    """Half-precision values in float32: the sum of many overflows, and a count may not be representable."""
    return _cast(x, float32.code) if x.dtype.is_floating and x.dtype.itemsize == 2 else x


def narrow(x: Tensor, dtype: DType) -> Tensor:
    """Cast a result computed from `wide` values back to their dtype; absolute values of complex numbers are real."""
    return x if dtype.kind == "c" else as_dtype_of(x, dtype)


def as_index(x: Any, name: str) -> Tensor:
    """Indices as int64."""
    t = as_tensor(x, name)
    if t.dtype.is_integer:
        return signed(t, name)
    if t.size == 0 and not isinstance(x, Tensor):  # [] has no dtype of its own
        return _cast(t, int64.code)
    raise DTypeError(f"{name}: indices must be integers, got {describe(t)}")


def signed(index: Tensor, name: str) -> Tensor:
    """Integers as int64. Larger ones stay beyond the end of every axis, where a plain cast would make them negative."""
    if index.dtype.code == uint64.code:
        if index._plain and index.size and (largest := int(data(index).max())) > _LARGEST:
            raise IndexRangeError(f"{name}: index {largest} is out of range for every axis")
        index = _minimum(index, _LARGEST)
    return as_dtype_of(index, int64)


def default_sum_dtype(dtype: DType) -> DType:
    """The dtype for sums and products: int64 for small integers and bools, uint64 for unsigned integers."""
    if dtype.kind == "u":
        return uint64
    return int64 if dtype.kind in "bi" else dtype


def promoted(xs: Sequence[Tensor]) -> list[Tensor]:
    """Cast tensors to their common promoted dtype."""
    code = xs[0].dtype.code
    for x in xs[1:]:
        if x.dtype.code != code:
            code = _core.promote(code, x.dtype.code)
    return [x if x.dtype.code == code else _cast(x, code) for x in xs]


def both_tensors(a: Any, b: Any, name: str) -> tuple[Tensor, Tensor]:
    """Two operands as tensors; a Python number beside a tensor takes its dtype."""

    def beside(value: Any, other: Any) -> Tensor:
        if type(value) in (int, float) and isinstance(other, Tensor):
            fits = other.dtype.is_inexact or (type(value) is int and other.dtype.is_integer)
            return asarray(value, dtype=other.dtype if fits else None)
        return as_tensor(value, name)

    first, second = promoted([beside(a, b), beside(b, a)])
    return first, second


def promoted_for(op: str, xs: Sequence[Tensor]) -> list[Tensor]:
    """As `promoted`, for the operands of an op; unchanged if autocast will cast them to one dtype."""
    codes = [x.dtype.code for x in xs]
    return list(xs) if len(set(codes)) > 1 and _core.unifies_operands(op, codes) else promoted(xs)


def one_axis(axis: Any, ndim: int, name: str) -> int:
    """One axis, counted from the front."""
    try:
        a = operator.index(axis)
    except TypeError:
        raise TypeError(f"{name}: axis must be an integer, got {axis!r}") from None
    if not -ndim <= a < ndim:
        raise AxisError(f"{name}: axis {a} is out of range for a tensor with {ndim} axes")
    return a + ndim if a < 0 else a


def all_axes(axis: Axis, ndim: int, name: str) -> tuple[int, ...]:
    """Axes as a sorted tuple without repetitions, counted from the front; None means all."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, int):
        if 0 <= axis < ndim:
            return (axis,)
        return (one_axis(axis, ndim, name),)
    if not isinstance(axis, (tuple, list)):
        return (one_axis(axis, ndim, name),)
    axes = tuple(sorted(one_axis(a, ndim, name) for a in axis))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: axes {tuple(axis)} repeat an axis")
    return axes


def product(sizes: Sequence[Size]) -> Size:
    """The product of sizes, symbolic or not."""
    n: Size = 1
    for s in sizes:
        n = n * s
    return n


def number(size: Size, dtype: DType) -> Any:
    """A size as an arithmetic operand: a Python number, or while tracing a value that follows the size."""
    if isinstance(size, _core.Dim):
        return create(OPS["size_scalar"], ((size,), real_parts(dtype.code)))
    return float(size) if dtype.is_inexact else size


def is_one(size: Size) -> bool:
    """Whether a size is 1. An expression, such as n - 1, is held to the outcome by a guard; sizes of operands need none, as
    signatures say which of them are 1."""
    return bool(size == 1)


def full(shape: Sequence[Size], value: complex, dtype: DType, like: Any = None) -> Tensor:
    """A tensor filled with one value, now or in the open trace, on the device of the tensor `like`."""
    made: Tensor = _made_like(like, filled, tuple(shape), value, dtype.code)
    return made


def _made_like(like: Any, make: Callable[..., Tensor], *args: Any) -> Tensor:
    """Call `make` with allocations on the device of a tensor."""
    if like is None or _core.device_of(like) <= 0:
        return make(*args)
    return make_on(like.device, make, *args)


def iota(n: Size, start: float = 0.0, step: float = 1.0, like: Any = None) -> Tensor:
    """start, start + step, … as int64, now or in the open trace, on the device of the tensor `like`."""
    return _made_like(like, create, OPS["iota"], ((n,), int64.code, float(start), float(step)))


def decreases(x: Tensor) -> bool:
    """Whether a vector decreases somewhere, if its numbers are known."""
    return bool(x._plain and (np.diff(data(x).astype(np.float64)) < 0).any())


def shape_text(shape: Sequence[Size]) -> str:
    """A shape as errors print it."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def describe(x: Tensor) -> str:
    """Dtype and shape, as errors print them: `float32(2, 3)`."""
    return f"{x.dtype.name}{shape_text(x.shape)}"
