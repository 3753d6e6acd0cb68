"""Functions that are given by samples: integrals, interpolation, convolution and correlation of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.dtypes import int64
from wengert.errors import ArgumentError, DTypeError, ShapeError
from wengert.foreign_names import explain_keywords
from wengert.functional.convolution import conv1d
from wengert.functional.elementwise import conj
from wengert.functional.joining import concat, flip
from wengert.functional.padding import pad
from wengert.functional.scanning import diff
from wengert.tensors.arguments import (
    as_floating,
    as_tensor,
    decreases,
    describe,
    iota,
    native,
    number,
    one_axis,
    promoted,
)

_sum, _slice, _reshape, _take, _where = (native(n) for n in ("sum", "slice", "reshape", "take", "where"))
_searchsorted, _isnan, _remainder, _argsort = (native(n) for n in ("searchsorted", "isnan", "remainder", "argsort"))
_maximum, _minimum = native("maximum"), native("minimum")
_real, _imag, _complex = native("real"), native("imag"), native("make_complex")


@explain_keywords
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, *, axis: int = -1) -> Tensor:
    """Σ ½(yᵢ + yᵢ₊₁)(xᵢ₊₁ − xᵢ) along an axis: the integral of y by the trapezoidal rule, as NumPy.

    Samples are `dx` apart, or at the points x: a vector, or a tensor of y's shape. Derivatives flow to y, x and dx.

    >>> trapezoid([1.0, 2.0, 3.0]).item(), trapezoid([1.0, 2.0, 3.0], x=[4.0, 6.0, 8.0]).item()
    (4.0, 8.0)
    """
    t = as_floating(as_tensor(y, "trapezoid"))
    k = one_axis(axis, t.ndim, "trapezoid")
    step = dx
    if x is not None:
        points = as_floating(as_tensor(x, "trapezoid"))
        if points.ndim == 1:
            points = _reshape(points, tuple(points.shape[0] if i == k else 1 for i in range(t.ndim)))
        if points.ndim != t.ndim or points.shape[k] != t.shape[k]:
            raise ShapeError(f"trapezoid: points {describe(points)} do not fit axis {k} of {describe(t)}")
        step = diff(points, axis=k)
    if t.shape[k] == 0:
        return _sum(t, (k,), 0)
    zeros, ones = (0,) * t.ndim, (1,) * t.ndim
    sizes = tuple(n - 1 if i == k else n for i, n in enumerate(t.shape))
    later = _slice(t, tuple(int(i == k) for i in range(t.ndim)), sizes, ones)
    return _sum((_slice(t, zeros, sizes, ones) + later) * step * 0.5, (k,), 0)


# --------------------------------------------------------------------------------------------------- interpolation


def _knots(xp: Any, fp: Any, ordered: bool) -> tuple[Tensor, Tensor]:
    given = as_tensor(xp, "interp")
    places, values = as_floating(given), as_floating(as_tensor(fp, "interp"))
    if places.ndim != 1 or values.ndim != 1 or places.shape[0] != values.shape[0]:
        raise ShapeError(
            f"interp: xp and fp must be vectors of the same length, got {describe(places)} and {describe(values)}"
        )
    if places.shape[0] == 0:
        raise ShapeError("interp: needs at least one point, got none")
    if places.dtype.kind == "c":
        raise DTypeError(f"interp: the places xp must be real, got {describe(places)}")
    if ordered and decreases(given):
        raise ArgumentError("interp: xp must be increasing; sort the points first")
    return places, values


def _periodic(x: Tensor, xp: Tensor, fp: Tensor, period: float) -> tuple[Tensor, Tensor, Tensor]:
    """x and the points within one period, and one more point on each side."""
    x, xp = _remainder(x, abs(period)), _remainder(xp, abs(period))
    order = _argsort(xp.detach(), 0, 0, 0)
    xp, fp = _take(xp, order, 0), _take(fp, order, 0)
    n: Any = xp.shape[0]
    ends = [_slice(xp, (n - 1,), (1,), (1,)) - abs(period), xp, _slice(xp, (0,), (1,), (1,)) + abs(period)]
    return x, concat(ends), concat([_slice(fp, (n - 1,), (1,), (1,)), fp, _slice(fp, (0,), (1,), (1,))])


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None) -> Tensor:
    """The piecewise linear function through the points (xpᵢ, fpᵢ) at x, as NumPy; xp must increase.

    Below xp₀ it is `left` (fp₀ by default), above the last point `right`; with `period` it repeats, and xp may have any
    order. Derivatives flow to x, xp and fp; at a point the one by x is the slope to its right, at the last point the one
    to its left, and outside it is 0.

    >>> interp([0.5, 2.5, 9.0], [0.0, 1.0, 3.0], [0.0, 10.0, 30.0]).tolist()
    [5.0, 25.0, 30.0]
    """
    places, values = _knots(xp, fp, period is None)
    t = as_floating(as_tensor(x, "interp"))
    if t.dtype.kind == "c":
        raise DTypeError(f"interp: x must be real, got {describe(t)}")
    t, places = promoted([t, places])
    if period is not None:
        if period == 0:
            raise ArgumentError("interp: the period must not be 0")
        t, places, values = _periodic(t, places, values, float(period))
        left = right = None
    n: Any = places.shape[0]
    missing = _isnan(t)
    first, last = (_reshape(_slice(places, (i,), (1,), (1,)), ()) for i in (0, n - 1))
    low, high = (_reshape(_slice(values, (i,), (1,), (1,)), ()) for i in (0, n - 1))
    inside = _where(missing, first, _minimum(_maximum(t, first), last)).detach()
    i = _maximum(_minimum(_searchsorted(places.detach(), inside, 1, 0) - 1, number(n - 2, int64)), 0)
    j = _minimum(i + 1, number(n - 1, int64))
    a, b = _take(places, i, 0), _take(values, i, 0)
    width, rise = _take(places, j, 0) - a, _take(values, j, 0) - b
    apart = width > 0.0
    y = b + _where(apart, rise * ((t - a) / _where(apart, width, 1.0)), 0.0)
    y = _where(t < first, low if left is None else left, y)
    y = _where(t > last, high if right is None else right, y)
    return _where(missing, t if y.dtype.kind != "c" else y * np.nan, y)


# ------------------------------------------------------------------------------------------------------ convolution


def _windows_product(x: Tensor, weight: Tensor, n: Any, m: Any) -> Tensor:
    """Integers: every window as a row, times the weight. Exact, where a floating convolution is not."""
    places = _reshape(iota(n, like=x), (n, 1)) + _reshape(iota(m, like=x), (1, m))
    return _sum(_take(x, places, 0) * weight, (1,), 0)


def _valid(a: Tensor, v: Tensor) -> Tensor:
    """Σⱼ aᵢ₊ⱼ vⱼ where all of v lies in a."""
    if a.dtype.kind == "c":
        ar, ai, vr, vi = _real(a), _imag(a), _real(v), _imag(v)
        return _complex(_valid(ar, vr) - _valid(ai, vi), _valid(ar, vi) + _valid(ai, vr))
    n, m = a.shape[0], v.shape[0]
    if not a.dtype.is_floating:
        return _windows_product(a, v, n - m + 1, m)
    y = conv1d(_reshape(a, (1, 1, n)), _reshape(v, (1, 1, m)))
    return _reshape(y, (y.shape[2],))


def _slid(a: Tensor, v: Tensor, mode: str, name: str) -> Tensor:
    """`correlate` of real tensors without conjugation, v no longer than a."""
    m = int(v.shape[0])
    around = {"full": (m - 1, m - 1), "same": (m // 2, m - 1 - m // 2), "valid": (0, 0)}
    if mode not in around:
        raise ArgumentError(f"{name}: mode must be 'full', 'same' or 'valid', got {mode!r}")
    return _valid(pad(a, (around[mode],)) if mode != "valid" else a, v)


def _vectors(a: Any, v: Any, name: str) -> list[Tensor]:
    xs = promoted([as_tensor(a, name), as_tensor(v, name)])
    for x in xs:
        if x.ndim > 1:
            raise ShapeError(f"{name}: takes vectors, got {describe(x)}; conv1d and conv2d take batches")
        if x.dtype.kind == "b":
            raise DTypeError(f"{name}: takes numbers, got {describe(x)}; convert with astype first")
        if x.size == 0:
            raise ShapeError(f"{name}: vectors must not be empty, got {describe(x)}")
    return [_reshape(x, (1,)) if x.ndim == 0 else x for x in xs]


def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """Σⱼ aⱼ vᵢ₋ⱼ of vectors, as NumPy: all of it ("full"), the middle of the longer one's length ("same"), or where
    they overlap wholly ("valid").

    >>> convolve([1.0, 2.0, 3.0], [0.0, 1.0, 0.5]).tolist()
    [0.0, 1.0, 2.5, 4.0, 1.5]
    """
    x, w = _vectors(a, v, "convolve")
    if w.shape[0] > x.shape[0]:
        x, w = w, x
    return _slid(x, flip(w), mode, "convolve")


def correlate(a: Any, v: Any, mode: str = "valid") -> Tensor:
    """Σⱼ aᵢ₊ⱼ conj(vⱼ) of vectors, as NumPy; modes as in `convolve`.

    >>> correlate([1.0, 2.0, 3.0], [0.0, 1.0, 0.5]).tolist()
    [3.5]
    """
    x, w = _vectors(a, v, "correlate")
    w = conj(w)
    if w.shape[0] > x.shape[0]:
        return flip(_slid(w, x, mode, "correlate"))
    return _slid(x, w, mode, "correlate")


def _part(x: Tensor, axis: int, start: Any, size: Any) -> Tensor:
    starts, sizes = [0] * x.ndim, list(x.shape)
    starts[axis], sizes[axis] = start, size
    return _slice(x, tuple(starts), tuple(sizes), (1,) * x.ndim)


def _slopes(y: Tensor, spacing: Any, axis: int, edge_order: int) -> Tensor:
    """Second-order differences inside, one-sided ones at the ends (of the order that is asked for)."""
    n = y.shape[axis]
    if n < edge_order + 1:
        raise ShapeError(f"gradient: needs {edge_order + 1} samples along axis {axis}, got {describe(y)}")
    h: Any = spacing
    if isinstance(spacing, Tensor) and spacing.ndim == 1:
        if spacing.shape[0] != n:
            raise ShapeError(f"gradient: {describe(spacing)} are not coordinates for axis {axis} of {describe(y)}")
        steps = diff(spacing)
        h = _reshape(steps, tuple(n - 1 if k == axis else 1 for k in range(y.ndim)))
    secants = diff(y, axis=axis) / h
    uneven = isinstance(h, Tensor) and h.ndim > 0
    first, last = _part(secants, axis, 0, 1), _part(secants, axis, n - 2, 1)
    if n == 2:
        return concat([first, last], axis)
    before, after = _part(secants, axis, 0, n - 2), _part(secants, axis, 1, n - 2)
    weight: Any = 0.5
    if uneven:
        left, right = _part(h, axis, 0, n - 2), _part(h, axis, 1, n - 2)
        weight = right / (left + right)
    inside = weight * before + (1.0 - weight) * after
    if edge_order == 2:  # through the secant beside it: the slope changes evenly
        first = first + (first - _part(inside, axis, 0, 1))
        last = last + (last - _part(inside, axis, n - 3, 1))
    return concat([first, inside, last], axis)


def gradient(y: Any, *spacing: Any, axis: int | Sequence[int] | None = None, edge_order: int = 1) -> Any:
    """The slopes of samples along an axis, or a list of them for several (all by default), as numpy.gradient: differences
    of second order inside, of `edge_order` at the ends. The spacing is a number or the coordinates, one for all axes or
    one for each; derivatives flow to it as well.

    >>> gradient([1.0, 4.0, 9.0, 16.0]).tolist()
    [3.0, 4.0, 6.0, 7.0]
    """
    t = as_floating(as_tensor(y, "gradient"))
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order must be 1 or 2, got {edge_order}")
    axes = range(t.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    named = [one_axis(a, t.ndim, "gradient") for a in axes]
    given = [1.0] if not spacing else list(spacing)
    if len(given) == 1:
        given = given * len(named)
    if len(given) != len(named):
        raise ArgumentError(f"gradient: one spacing for all axes, or one for each of {len(named)}, got {len(given)}")
    steps = [h if isinstance(h, (int, float)) else as_floating(as_tensor(h, "gradient")) for h in given]
    made = [_slopes(t, h, k, edge_order) for k, h in zip(named, steps)]
    return made[0] if len(made) == 1 and (axis is None or isinstance(axis, int)) else made
