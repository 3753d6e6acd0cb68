"""NaN as a missing number: replaced, or left out of sums, means and extrema."""

from __future__ import annotations

import math
from typing import Any

from wengert._core import Tensor
from wengert.dtypes import bool_, finfo
from wengert.errors import DTypeError
from wengert.foreign_names import explain_keywords
from wengert.functional.reductions import sum
from wengert.tensors.arguments import Axis, all_axes, as_dtype_of, as_floating, as_tensor, describe, native, wide

_where, _isnan, _equal, _not = (native(n) for n in ("where", "isnan", "equal", "logical_not"))
_sum, _max, _min, _all = (native(n) for n in ("sum", "max", "min", "all"))
_real, _imag, _complex = native("real"), native("imag"), native("make_complex")


def _replaced(x: Tensor, nan: float, posinf: float | None, neginf: float | None) -> Tensor:
    limits = finfo(x.dtype)
    y = _where(_isnan(x), nan, x)
    y = _where(_equal(x, math.inf), limits.max if posinf is None else posinf, y)
    return _where(_equal(x, -math.inf), limits.min if neginf is None else neginf, y)


@explain_keywords
def nan_to_num(x: Any, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """x with numbers in place of NaN and infinities (by default the largest and smallest of the dtype). The derivative is
    1 where x is finite, else 0.

    >>> nan_to_num([1.0, float("nan"), float("inf")], posinf=9.0).tolist()
    [1.0, 0.0, 9.0]
    """
    t = as_tensor(x, "nan_to_num")
    if t.dtype.kind == "c":
        return _complex(*(_replaced(part, nan, posinf, neginf) for part in (_real(t), _imag(t))))
    return _replaced(t, nan, posinf, neginf) if t.dtype.is_floating else native("copy")(t)


@explain_keywords
def nansum(x: Any, axis: Axis = None, *, keepdims: bool = False, dtype: Any = None) -> Tensor:
    """Σ x over the axes without the elements that are NaN; 0 if all are.

    >>> nansum([1.0, float("nan"), 2.0]).item()
    3.0
    """
    t = as_tensor(x, "nansum")
    all_axes(axis, t.ndim, "nansum")
    if t.dtype.is_inexact:
        t = _where(_isnan(t), 0.0, t)
    return sum(t, axis, keepdims=keepdims, dtype=dtype)


@explain_keywords
def nanmean(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """Σ x / n over the axes, of the n elements that are not NaN; NaN if there are none.

    >>> nanmean([1.0, float("nan"), 2.0]).item()
    1.5
    """
    t = as_floating(as_tensor(x, "nanmean"))
    axes, missing = all_axes(axis, t.ndim, "nanmean"), _isnan(t)
    terms = wide(_where(missing, 0.0, t))
    count = _sum(as_dtype_of(_not(missing), terms.dtype), axes, int(keepdims))
    return as_dtype_of(_sum(terms, axes, int(keepdims)) / count, t.dtype)


def _extremum(op: Any, x: Any, axis: Axis, keepdims: bool, instead: float, name: str) -> Tensor:
    t = as_tensor(x, name)
    axes = all_axes(axis, t.ndim, name)
    if t.dtype.kind == "c":
        raise DTypeError(f"{name}: complex numbers are not ordered, got {describe(t)}; reduce abs(x)")
    if not t.dtype.is_floating:
        y: Tensor = op(t, axes, int(keepdims))
        return y
    missing = _isnan(t)
    nothing = _all(as_dtype_of(missing, bool_), axes, int(keepdims))
    return _where(nothing, math.nan, op(_where(missing, instead, t), axes, int(keepdims)))


@explain_keywords
def nanmax(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The largest element over the axes that is not NaN; NaN if all are. Elements that tie share the derivative evenly.

    >>> nanmax([1.0, float("nan"), 2.0]).item()
    2.0
    """
    return _extremum(_max, x, axis, keepdims, -math.inf, "nanmax")


@explain_keywords
def nanmin(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """The smallest element over the axes that is not NaN; NaN if all are. Elements that tie share the derivative evenly.

    >>> nanmin([1.0, float("nan"), 2.0]).item()
    1.0
    """
    return _extremum(_min, x, axis, keepdims, math.inf, "nanmin")
