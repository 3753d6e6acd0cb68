"""Reductions, running ones, and methods of ufuncs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import wengert as wg
from wengert.interop.numpy_functions.registry import function, given
from wengert.tensors.arguments import as_tensor, one_axis
from wengert.tensors.conversion import check_range

_JOIN = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "logsumexp": "logaddexp", "any": "logical_or",
         "all": "logical_and"}  # fmt: skip
_NOTHING = {"sum": 0, "prod": 1, "any": False, "all": True, "logsumexp": -math.inf}


def ufunc_reduce(
    name: str, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None,
    where: Any = True,
) -> Any:  # fmt: skip
    """`np.add.reduce` and the like: our reduction `name`, along axis 0 if nothing is said."""
    x = as_tensor(a, name)
    x = x if dtype is None else x.astype(dtype)
    if where is not True and where is not np._NoValue:
        if name not in _NOTHING and not given(initial):
            raise ValueError(f"np.{name}: where= needs initial=, since {name} of nothing has no value")
        x = wg.where(where, x, _NOTHING.get(name, initial))
    y = getattr(wg, name)(x, axis, keepdims=keepdims is True)
    return getattr(wg, _JOIN[name])(y, initial) if given(initial) else y


def reduction(name: str, a: Any, axis: Any = None, *options: Any, **named: Any) -> Any:
    """`np.sum`, `np.prod` and those whose third parameter is `dtype`."""
    return ufunc_reduce(name, a, axis, *options, **named)


def reduction_without_dtype(name: str, a: Any, axis: Any = None, out: Any = None, *options: Any, **named: Any) -> Any:
    """`np.max`, `np.min`, `np.any`, `np.all`: the third parameter is `out`."""
    named.update(zip(("keepdims", "initial", "where"), options))
    return ufunc_reduce(name, a, axis, **named)


def ufunc_accumulate(function: Callable[..., Any], a: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
    """`np.add.accumulate` and the like."""
    x = as_tensor(a, "accumulate")
    return function(x if dtype is None else x.astype(dtype), axis=axis)


def ufunc_outer(function: Callable[..., Any], a: Any, b: Any, **options: Any) -> Any:
    """`np.multiply.outer(a, b)`: the function of every pair of an element of a and one of b."""
    x, y = as_tensor(a, "outer"), as_tensor(b, "outer")
    return function(wg.reshape(x, (*x.shape, *(1,) * y.ndim)), y, **options)


def running_extremum(name: str, x: Any, axis: int) -> Any:
    """`np.maximum.accumulate`: the values of `cummax`."""
    return getattr(wg, name)(x, axis=axis)[0]


def ufunc_at(sign: int, a: Any, indices: Any, b: Any) -> None:
    """`np.add.at(a, indices, b)`: a[indices] += b, in which an index that stands there twice counts twice."""
    if not isinstance(a, wg.Tensor):
        raise TypeError(
            f"ufunc.at: a {type(a).__name__} holds no gradient; make it a tensor, or pass t.detach().numpy()"
        )
    check_range(b, a.dtype, "ufunc.at")
    values = as_tensor(b, "at")
    places = wg.reshape(wg.arange(a.size), a.shape)[indices]
    values = wg.flatten(wg.broadcast_to(sign * values, places.shape))
    summed = wg.scatter_add(wg.flatten(a), wg.flatten(places), values.astype(a.dtype), axis=0)
    a[...] = wg.reshape(summed, a.shape)


@function("cumsum")
def _cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return wg.cumulative_sum(a, axis=axis, dtype=dtype) if axis is not None else _flat_scan(wg.cumulative_sum, a, dtype)


@function("cumprod")
def _cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return (
        wg.cumulative_prod(a, axis=axis, dtype=dtype) if axis is not None else _flat_scan(wg.cumulative_prod, a, dtype)
    )


def _flat_scan(function: Callable[..., Any], a: Any, dtype: Any) -> Any:
    return function(wg.flatten(a), axis=0, dtype=dtype)


@function("ptp")
def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return wg.max(a, axis, keepdims=keepdims is True) - wg.min(a, axis, keepdims=keepdims is True)


@function("average")
def _average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    x, keep = as_tensor(a, "average"), keepdims is True
    w = wg.ones_like(x) if weights is None else as_tensor(weights, "average")
    if w.ndim == 1 and x.ndim > 1:
        k = one_axis(axis, x.ndim, "average")
        w = wg.reshape(w, tuple(-1 if i == k else 1 for i in range(x.ndim)))
    total = wg.sum(wg.broadcast_to(w, x.shape), axis, keepdims=keep)
    y = wg.sum(x * w, axis, keepdims=keep) / total
    return (y, total) if returned else y


@function("percentile")
def _percentile(a: Any, q: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    return wg.quantile(a, np.asarray(q) / 100.0, axis=axis, keepdims=keepdims is True)


@function("trace")
def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    return wg.sum(wg.diagonal(a, offset=offset, axis1=axis1, axis2=axis2), -1, dtype=dtype)


@function("diagonal")
def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return wg.diagonal(a, offset=offset, axis1=axis1, axis2=axis2)


@function("diff")
def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = np._NoValue, append: Any = np._NoValue) -> Any:
    return wg.diff(
        a, axis=axis, n=n, prepend=prepend if given(prepend) else None, append=append if given(append) else None
    )
