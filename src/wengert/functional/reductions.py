"""Reductions over axes: sums, extrema, moments, norms, positions."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any, Literal, overload

from wengert import _core
from wengert._core import Tensor
from wengert.compiling.compile import checked_composite, composite
from wengert.dtypes import as_dtype, bool_, int64
from wengert.errors import ArgumentError
from wengert.foreign_names import explain_keywords
from wengert.functional.shortcuts import shortcut
from wengert.program.trace import broadcast_shapes as common_shape
from wengert.tensors.arguments import (
    Axis,
    all_axes,
    as_dtype_of,
    as_floating,
    as_tensor,
    default_sum_dtype,
    full,
    narrow,
    native,
    number,
    one_axis,
    product,
    promoted,
    wide,
)

_sum, _prod, _max, _min = native("sum"), native("prod"), native("max"), native("min")
_any, _all, _argmax, _argmin = native("any"), native("all"), native("argmax"), native("argmin")
_square, _sqrt, _where, _abs, _pow = (native(n) for n in ("square", "sqrt", "where", "abs", "pow"))
_exp, _log, _isfinite, _reshape = (
    native("exp"),
    native("log"),
    native("isfinite"),
    native("reshape"),
)
_maximum, _not_equal, _equal, _sign = (native(n) for n in ("maximum", "not_equal", "equal", "sign"))
_broadcast_to = native("broadcast_to")
_real, _imag = native("real"), native("imag")


def accumulable(x: Any, dtype: Any, name: str) -> Tensor:
    """x in the dtype that its sums and products are computed in."""
    t = as_tensor(x, name)
    if dtype is not None:
        return as_dtype_of(t, as_dtype(dtype))
    return t if t.dtype.is_inexact else as_dtype_of(t, default_sum_dtype(t.dtype))


@shortcut
@explain_keywords
def sum(x: Any, axis: Axis = None, *, keepdims: bool = False, dtype: Any = None) -> Tensor:
    """The sum over the axes, or over all elements if no axis is given.

    `axis` is an integer or a tuple of integers. `keepdims` keeps reduced axes with size 1. Small integers and bools
    are summed as int64, unsigned ones as uint64, unless `dtype` is given.

    >>> sum([[1.0, 2.0], [3.0, 4.0]], 0).tolist()
    [4.0, 6.0]
    """
    t = accumulable(x, dtype, "sum")
    return _sum(t, all_axes(axis, t.ndim, "sum"), int(keepdims))


@explain_keywords
def prod(x: Any, axis: Axis = None, *, keepdims: bool = False, dtype: Any = None) -> Tensor:
    """Π x over the axes. The derivative is right where elements are zero.

    >>> prod([2.0, 3.0, 4.0]).item()
    24.0
    """
    t = accumulable(x, dtype, "prod")
    return _prod(t, all_axes(axis, t.ndim, "prod"), int(keepdims))


def _single(axis: Axis, name: str) -> int | None:
    if axis is not None and not isinstance(axis, int):
        raise ArgumentError(f"{name}: with return_indices, axis must be one integer or None, got {axis}")
    return axis


@overload
def max(x: Any, axis: Axis = None, *, keepdims: bool = False, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def max(
    x: Any, axis: Axis = None, *, keepdims: bool = False, return_indices: Literal[True]
) -> tuple[Tensor, Tensor]: ...
@shortcut
@explain_keywords
def max(x: Any, axis: Axis = None, *, keepdims: bool = False, return_indices: bool = False) -> Any:
    """The largest element over the axes; NaN if one is. Elements that tie share the derivative evenly.

    With `return_indices` also where the first of them is, as `argmax` says: (values, indices).

    >>> max([[1.0, 5.0], [3.0, 4.0]], 1).tolist()
    [5.0, 4.0]
    """
    t = as_tensor(x, "max")
    values = _max(t, all_axes(axis, t.ndim, "max"), int(keepdims))
    return (values, argmax(t, _single(axis, "max"), keepdims=keepdims)) if return_indices else values


@overload
def min(x: Any, axis: Axis = None, *, keepdims: bool = False, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def min(
    x: Any, axis: Axis = None, *, keepdims: bool = False, return_indices: Literal[True]
) -> tuple[Tensor, Tensor]: ...
@shortcut
@explain_keywords
def min(x: Any, axis: Axis = None, *, keepdims: bool = False, return_indices: bool = False) -> Any:
    """The smallest element over the axes; NaN if one is. Elements that tie share the derivative evenly.

    With `return_indices` also where the first of them is, as `argmin` says: (values, indices).

    >>> min([[1.0, 5.0], [3.0, 4.0]], 1).tolist()
    [1.0, 3.0]
    """
    t = as_tensor(x, "min")
    values = _min(t, all_axes(axis, t.ndim, "min"), int(keepdims))
    return (values, argmin(t, _single(axis, "min"), keepdims=keepdims)) if return_indices else values


def _count(x: Tensor, axes: tuple[int, ...]) -> Any:
    return product([x.shape[a] for a in axes])


def _mean(x: Tensor, axes: tuple[int, ...], keepdims: int) -> Any:
    return _sum(x, axes, keepdims) / number(_count(x, axes), x.dtype)


@shortcut
@explain_keywords
def mean(x: Any, axis: Axis = None, *, keepdims: bool = False, dtype: Any = None) -> Tensor:
    """Σ x / n over the axes. Integers give float32; half precision is summed in float32.

    >>> mean([[1.0, 2.0], [3.0, 6.0]], 1).tolist()
    [1.5, 4.5]
    """
    t = as_tensor(x, "mean")
    t = as_floating(t) if dtype is None else as_dtype_of(t, as_dtype(dtype))
    return as_dtype_of(_mean(wide(t), all_axes(axis, t.ndim, "mean"), int(keepdims)), t.dtype)


def _degrees_of_freedom(x: Tensor, axes: tuple[int, ...], correction: float) -> Any:
    n = _count(x, axes)
    if isinstance(n, _core.Dim):
        return number(n, x.dtype) if correction == 0 else _maximum(number(n, x.dtype) - correction, 0.0)
    return builtins.max(float(n) - correction, 0.0)


def squared_size(x: Tensor) -> Tensor:
    """|x|²."""
    return _square(_real(x)) + _square(_imag(x)) if x.dtype.kind == "c" else _square(x)


def _variance(x: Tensor, axes: tuple[int, ...], keepdims: int, correction: float) -> Any:
    deviation = x - _mean(x, axes, 1)
    return _sum(squared_size(deviation), axes, keepdims) / _degrees_of_freedom(x, axes, correction)


def _named(name: str) -> Callable[..., tuple[Any, ...]]:
    """The operands of a reduction as a tensor, None or numbers or a tuple of axes, and numbers."""

    def operands(x: Any, axis: Any, *options: Any) -> tuple[Any, ...]:
        return as_tensor(x, name), tuple(axis) if isinstance(axis, list) else axis, *options

    return operands


@checked_composite(_named("var"), precision="full", functions=("var",))
def _var(x: Any, axis: Axis, correction: float, keepdims: bool) -> Any:
    t = as_floating(as_tensor(x, "var"))
    return narrow(_variance(wide(t), all_axes(axis, t.ndim, "var"), int(keepdims), correction), t.dtype)


@checked_composite(_named("std"), precision="full", functions=("std",))
def _std(x: Any, axis: Axis, correction: float, keepdims: bool) -> Any:
    t = as_floating(as_tensor(x, "std"))
    return narrow(root(_variance(wide(t), all_axes(axis, t.ndim, "std"), int(keepdims), correction)), t.dtype)


@checked_composite(_named("norm"), precision="full", functions=("norm",))
def _norm(x: Any, axis: Axis, ord: Any, keepdims: bool) -> Any:
    t = as_floating(as_tensor(x, "norm"))
    if not isinstance(ord, (int, float)):
        raise ArgumentError(f"norm: ord must be a number, got {ord!r}")
    return narrow(_size(wide(t), all_axes(axis, t.ndim, "norm"), int(keepdims), ord), t.dtype)


@explain_keywords
def var(x: Any, axis: Axis = None, *, correction: float = 0, keepdims: bool = False) -> Tensor:
    """Σ |x − mean|² / (n − correction) over the axes. `correction=1` gives the unbiased estimate.

    >>> var([1.0, 3.0]).item(), var([1.0, 3.0], correction=1).item()
    (1.0, 2.0)
    """
    y: Tensor = _var(x, axis, correction, keepdims)
    return y


def root(x: Tensor) -> Tensor:
    """√x of a sum of squares, with derivative 0 (not ∞·0) where the sum is 0."""
    positive = x > 0.0
    return _where(positive, _sqrt(_where(positive, x, 1.0)), x)


@explain_keywords
def std(x: Any, axis: Axis = None, *, correction: float = 0, keepdims: bool = False) -> Tensor:
    """√var over the axes; the derivative is 0 where all elements are equal.

    >>> std([1.0, 3.0, 5.0, 7.0], correction=0).item() ** 2
    5.000000...
    """
    y: Tensor = _std(x, axis, correction, keepdims)
    return y


@explain_keywords
def any(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Whether one element is true (not zero) along the axes.

    >>> any([[0, 0], [0, 2]], 1).tolist()
    [False, True]
    """
    t = as_dtype_of(as_tensor(x, "any"), bool_)
    return _any(t, all_axes(axis, t.ndim, "any"), int(keepdims))


@explain_keywords
def all(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Whether every element is true (not zero) along the axes.

    >>> all([[1, 0], [1, 2]], 1).tolist()
    [False, True]
    """
    t = as_dtype_of(as_tensor(x, "all"), bool_)
    return _all(t, all_axes(axis, t.ndim, "all"), int(keepdims))


@explain_keywords
def count_nonzero(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """How many elements are not zero along the axes, as int64.

    >>> count_nonzero([[0, 1], [2, 3]], 0).tolist()
    [1, 2]
    """
    t = as_dtype_of(as_dtype_of(as_tensor(x, "count_nonzero"), bool_), int64)
    return _sum(t, all_axes(axis, t.ndim, "count_nonzero"), int(keepdims))


def _position(op: Any, x: Any, axis: int | None, keepdims: bool, name: str) -> Tensor:
    t = as_tensor(x, name)
    if t.dtype.kind == "b":
        t = as_dtype_of(t, int64)
    if axis is not None:
        found: Tensor = op(t, one_axis(axis, t.ndim, name), int(keepdims))
        return found
    flat: Tensor = op(_reshape(t, (t.size,)), 0, 0)
    return _reshape(flat, (1,) * t.ndim) if keepdims else flat


@explain_keywords
def argmax(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The position of the first largest element along an axis, or in the flattened tensor.

    >>> argmax([[1.0, 9.0, 9.0], [4.0, 2.0, 0.0]], 1).tolist()
    [1, 0]
    """
    return _position(_argmax, x, axis, keepdims, "argmax")


@explain_keywords
def argmin(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """The position of the first smallest element along an axis, or in the flattened tensor.

    >>> argmin([[1.0, 9.0, 9.0], [4.0, 2.0, 0.0]], 1).tolist()
    [0, 2]
    """
    return _position(_argmin, x, axis, keepdims, "argmin")


@composite(precision="full", functions=("logsumexp",))
def _logsumexp(x: Tensor, axis: Axis, keepdims: bool) -> Any:
    axes, dtype, x = all_axes(axis, x.ndim, "logsumexp"), x.dtype, wide(x)
    largest = _max(x, axes, 1).detach()  # any shift gives the same value and derivative
    shift = _where(_isfinite(largest), largest, 0.0)
    nothing = largest == -math.inf  # the sum is 0: its logarithm is −∞, and nothing flows through it
    total = _where(nothing, 1.0, _sum(_exp(x - shift), axes, 1))
    y = as_dtype_of(_where(nothing, -math.inf, _log(total) + shift), dtype)
    return y if keepdims else _reshape(y, tuple(n for i, n in enumerate(x.shape) if i not in axes))


@composite(precision="full", functions=("logsumexp",))
def _signed_logsumexp(x: Tensor, b: Tensor, axes: tuple[int, ...], keepdims: int) -> Any:
    counts = _not_equal(b, 0.0)
    largest = _max(_where(counts, x, -math.inf), axes, 1).detach()
    shift = _where(_isfinite(largest), largest, 0.0)
    total = _sum(_where(counts, b * _exp(_where(counts, x, 0.0) - shift), 0.0), axes, keepdims)
    size = _abs(total)
    nothing = _equal(size, 0.0)
    rest = shift if keepdims else _reshape(shift, size.shape)
    y = _where(nothing, -math.inf, _log(_where(nothing, 1.0, size)) + rest)
    return y, _sign(total.detach())


@overload
def logsumexp(
    x: Any, axis: Axis = -1, *, b: Any = None, keepdims: bool = False, return_sign: Literal[False] = False
) -> Tensor: ...
@overload
def logsumexp(
    x: Any, axis: Axis = -1, *, b: Any = None, keepdims: bool = False, return_sign: Literal[True]
) -> tuple[Tensor, Tensor]: ...
@explain_keywords
def logsumexp(x: Any, axis: Axis = -1, *, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    """ln Σ eˣ over the axes (the last by default, all for None), without overflow; −∞ if there is nothing to sum.

    `b` are factors, ln |Σ b eˣ|, which may be negative; with `return_sign` the result is a pair, the logarithm and the sign
    of the sum. Without it a negative sum gives NaN.

    >>> logsumexp([1000.0, 1000.0]).item()
    1000.693...
    >>> [t.item() for t in logsumexp([0.0, 1.0], b=[1.0, -1.0], return_sign=True)]
    [0.541324..., -1.0]
    """
    t = as_floating(as_tensor(x, "logsumexp"))
    if b is not None or return_sign:
        factors = full(t.shape, 1.0, t.dtype, like=t) if b is None else as_floating(as_tensor(b, "logsumexp"))
        shape = common_shape("logsumexp", t.shape, factors.shape)
        t, factors = (_broadcast_to(z, shape) for z in promoted([t, factors]))
        axes = all_axes(axis, t.ndim, "logsumexp") if t.ndim else ()
        value, sign = _signed_logsumexp(wide(t), wide(factors), axes, int(keepdims))
        value, sign = as_dtype_of(value, t.dtype), as_dtype_of(sign, t.dtype)
        return (value, sign) if return_sign else _where(sign < 0.0, math.nan, value)
    if t.ndim == 0 and axis == -1:
        return t
    if isinstance(axis, (list, tuple)):
        axis = all_axes(axis, t.ndim, "logsumexp")
    if t.size == 0:  # sums of nothing are 0
        return _log(_sum(t, all_axes(axis, t.ndim, "logsumexp"), int(keepdims)))
    y: Tensor = _logsumexp(t, axis, bool(keepdims))
    return y


def _size(x: Tensor, axes: tuple[int, ...], keepdims: int, ord: float) -> Tensor:
    if ord == 2:
        return root(_sum(squared_size(x), axes, keepdims))
    size = _abs(x)
    if ord == math.inf:
        return _max(size, axes, keepdims)
    if ord == -math.inf:
        return _min(size, axes, keepdims)
    if ord == 0:
        return _sum(_where(size != 0.0, 1.0, size), axes, keepdims)  # depends on x, with derivative 0
    if ord == 1:
        return _sum(size, axes, keepdims)
    # Powers of 0 are constants here: their slopes are infinite or multiply one that is, and a norm has none at 0.
    at_zero = 0.0 if ord > 0 else math.inf
    total = _sum(_power(size, float(ord), at_zero), axes, keepdims)
    return _power(total, 1.0 / ord, at_zero)


def _power(x: Tensor, exponent: float, at_zero: float) -> Tensor:
    """x to a power, with the value `at_zero` and derivative 0 at 0."""
    zero = x == 0.0
    return _where(zero, at_zero, _pow(_where(zero, 1.0, x), exponent))


@explain_keywords
def norm(x: Any, axis: Axis = None, *, ord: float = 2, keepdims: bool = False) -> Tensor:
    """(Σ |x|ᵖ)^(1/p) over the axes; `ord` is p, with ±inf the largest and smallest |x|, 0 the count of non-zeros.

    It has derivative 0 at 0, and for p < 1 by elements that are 0.

    >>> norm([3.0, 4.0]).item()
    5.0
    """
    y: Tensor = _norm(x, axis, ord, keepdims)
    return y
