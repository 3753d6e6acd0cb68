"""Shapes, joins, order and search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import wengert as wg
from wengert._core import Tensor
from wengert.interop.numpy_functions.registry import cast, function, on_data
from wengert.tensors.arguments import as_tensor, one_axis


@function("shape")
def _shape(a: Any) -> Any:
    return a.shape


@function("ndim")
def _ndim(a: Any) -> Any:
    return a.ndim


@function("size")
def _size(a: Any, axis: Any = None) -> Any:
    return a.size if axis is None else a.shape[axis]


# Only with like=t: without it NumPy does not ask, and reads the numbers.
@function("array", "asarray", "asanyarray", "ascontiguousarray")
def _array(a: Any, dtype: Any = None, *, copy: bool | None = None, **options: Any) -> Any:
    return wg.asarray(a, dtype=dtype, copy=copy)


@function("copyto")
def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, Tensor):
        np.copyto(dst, np.asarray(src), casting=casting, where=np.asarray(where))  # type: ignore[arg-type]
    else:
        dst[...] = src if where is True else wg.where(where, src, dst)


@function("ravel")
def _ravel(a: Any, order: str = "C") -> Any:
    if order not in ("C", "K", "A"):
        raise TypeError(f"np.ravel: order={order!r}; wengert reads elements in row-major order")
    return wg.flatten(a)


@function("transpose", "permute_dims")
def _transpose(a: Any, axes: Any = None) -> Any:
    return wg.transpose(a, None if axes is None else tuple(axes))


@function("broadcast_arrays")
def _broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    if any(x is None or isinstance(x, str) for x in args):  # columns of a plot, not numbers to compute with
        return on_data("broadcast_arrays", *args)
    return wg.broadcast_arrays(*args)


@function("atleast_1d")
def _atleast_1d(*arys: Any) -> Any:
    return wg.atleast_1d(*arys)


@function("atleast_2d")
def _atleast_2d(*arys: Any) -> Any:
    return wg.atleast_2d(*arys)


@function("atleast_3d")
def _atleast_3d(*arys: Any) -> Any:
    return wg.atleast_3d(*arys)


@function("linspace")
def _linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0
) -> Any:
    y = wg.moveaxis(wg.linspace(start, stop, num, endpoint=endpoint, dtype=dtype), 0, axis)
    return (y, (stop - start) / max(num - 1 if endpoint else num, 1)) if retstep else y


@function("gradient")
def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    slopes = wg.gradient(f, *varargs, axis=axis, edge_order=edge_order)
    return tuple(slopes) if isinstance(slopes, list) else slopes


@function("vstack", "row_stack")
def _vstack(tup: Sequence[Any], *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return cast(wg.concat([_atleast_2d(x) for x in tup], 0), dtype)


@function("hstack")
def _hstack(tup: Sequence[Any], *, dtype: Any = None, casting: str = "same_kind") -> Any:
    xs = [_atleast_1d(x) for x in tup]
    return cast(wg.concat(xs, 0 if xs[0].ndim == 1 else 1), dtype)


@function("dstack")
def _dstack(tup: Sequence[Any]) -> Any:
    return wg.concat([x if x.ndim > 2 else wg.expand_dims(x, -1) for x in map(_atleast_2d, tup)], 2)


@function("column_stack")
def _column_stack(tup: Sequence[Any]) -> Any:
    xs = [as_tensor(x, "column_stack") for x in tup]
    return wg.concat([x if x.ndim > 1 else wg.reshape(x, (x.size, 1)) for x in xs], 1)


@function("concatenate")
def _concatenate(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return cast(wg.concat(arrays, axis), dtype)


@function("stack")
def _stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return cast(wg.stack(arrays, axis), dtype)


@function("append")
def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    return wg.concat([as_tensor(arr, "append"), as_tensor(values, "append")], axis)


@function("array_split")
def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    if hasattr(indices_or_sections, "__len__"):
        return wg.split(ary, indices_or_sections, axis=axis)
    whole, rest = divmod(as_tensor(ary, "array_split").shape[axis], indices_or_sections)
    sizes = [whole + 1] * rest + [whole] * (indices_or_sections - rest)
    return wg.split(ary, np.cumsum(sizes[:-1]).tolist(), axis=axis)


@function("fliplr")
def _fliplr(m: Any) -> Any:
    return wg.flip(m, 1)


@function("flipud")
def _flipud(m: Any) -> Any:
    return wg.flip(m, 0)


@function("pad")
def _pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    return wg.pad(array, pad_width, mode=mode, value=constant_values)


@function("take")
def _take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    if mode != "raise":
        raise TypeError(f"np.take: mode={mode!r} has no counterpart in wengert; indices must be in range")
    x, i = (a, axis) if axis is not None else (wg.flatten(a), 0)
    return x[(slice(None),) * one_axis(i, as_tensor(x, "take").ndim, "take") + (indices,)]


@function("sort")
def _sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    return wg.sort(wg.flatten(a), axis=0) if axis is None else wg.sort(a, axis=axis)


@function("argsort")
def _argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    return wg.argsort(wg.flatten(a), axis=0) if axis is None else wg.argsort(a, axis=axis)


@function("unique")
def _unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: Any = None, *,
    equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    if axis is not None:
        raise TypeError(
            "np.unique: axis= has no counterpart in wengert; use t.detach().numpy() for the data without gradients"
        )
    found = wg.unique_all(ar)
    wanted = [found.values]
    wanted += [x for x, asked in zip(found[1:], (return_index, return_inverse, return_counts)) if asked]
    return wanted[0] if len(wanted) == 1 else tuple(wanted)


@function("result_type")
def _result_type(*arrays_and_dtypes: Any) -> Any:
    return wg.result_type(*arrays_and_dtypes)
