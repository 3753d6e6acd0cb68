"""Distances between points: of pairs, and of all pairs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.reductions import squared_size
from wengert.program.numbers import as_real
from wengert.program.trace import broadcast_shapes
from wengert.tensors.arguments import as_dtype_of, as_floating, as_tensor, describe, native, promoted, wide
from wengert.tensors.conversion import asarray

_sum, _max, _abs, _sqrt, _pow = (native(n) for n in ("sum", "max", "abs", "sqrt", "pow"))
_where, _reshape, _take = (native(n) for n in ("where", "reshape", "take"))


def norm_of_rows(d: Any, p: float) -> Any:
    """(Σ |d|ᵖ)^(1/p) along the last axis; where it is 0, so is its derivative, as in PyTorch."""
    last = (d.ndim - 1,)
    if p == 0.0:
        return _sum(as_dtype_of(d != 0.0, d.dtype), last, 0)
    if p == 1.0:
        return _sum(_abs(d), last, 0)
    if p == math.inf:
        return _max(_abs(d), last, 0)
    # Powers have infinite or no derivatives at 0: those elements, and rows of such elements, are replaced by 1 there.
    none = d == 0.0
    powers = squared_size(d) if p == 2.0 else _where(none, 0.0, _pow(_abs(_where(none, 1.0, d)), p))
    total = _sum(powers, last, 0)
    same = total == 0.0
    safe = _where(same, 1.0, total)
    return _where(same, 0.0, _sqrt(safe) if p == 2.0 else _pow(safe, 1.0 / p))


def _points(name: str, *xs: Any) -> list[Tensor]:
    found = promoted([as_floating(as_tensor(x, name)) for x in xs])
    for t in found:
        if t.dtype.kind == "c":
            raise ArgumentError(f"{name}: points must have real coordinates, got {describe(t)}")
    return found


def _check_norm(name: str, p: float) -> float:
    if not p >= 0:
        raise ArgumentError(f"{name}: p must not be negative, got {p}")
    return float(p)


@composite(precision="full", functions=("pairwise_distance",))
def _pairwise(a: Tensor, b: Tensor, p: float, eps: float, keepdims: bool) -> Any:
    d = norm_of_rows(wide(a) - wide(b) + eps, p)
    return as_dtype_of(_reshape(d, (*d.shape, 1)) if keepdims else d, a.dtype)


def pairwise_distance(a: Any, b: Any, *, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Tensor:
    """(Σ |a − b + eps|ᵖ)^(1/p) along the last axis. The small `eps` keeps the root smooth where a and b are equal.

    >>> pairwise_distance([[0.0, 0.0]], [[3.0, 4.0]], eps=0).tolist()
    [5.0]
    """
    name = "pairwise_distance"
    x, y = _points(name, a, b)
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError(f"{name}: points need an axis of coordinates, got {describe(x)} and {describe(y)}")
    broadcast_shapes(name, x.shape, y.shape)
    d: Tensor = _pairwise(x, y, _check_norm(name, p), as_real(eps), keepdims)
    return d


@composite(precision="full", functions=("cdist",))
def _all_pairs(a: Tensor, b: Tensor, p: float) -> Any:
    left = _reshape(wide(a), (*a.shape[:-1], 1, a.shape[-1]))
    right = _reshape(wide(b), (*b.shape[:-2], 1, *b.shape[-2:]))
    return as_dtype_of(norm_of_rows(left - right, p), a.dtype)


def cdist(a: Any, b: Any, *, p: float = 2.0) -> Tensor:
    """The distances (Σ |a_i − b_j|ᵖ)^(1/p) of all points a_i and b_j: (…, n, m) from (…, n, k) and (…, m, k).

    The differences are formed, so equal points have distance 0, with derivative 0.

    >>> cdist([[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0]]).tolist()
    [[0.0], [5.0]]
    """
    x, y = _points("cdist", a, b)
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"cdist: takes (…, n, k) and (…, m, k), got {describe(x)} and {describe(y)}")
    broadcast_shapes("cdist", x.shape[:-2], y.shape[:-2])
    d: Tensor = _all_pairs(x, y, _check_norm("cdist", p))
    return d


@composite(precision="full", functions=("pdist",))
def _pairs(x: Tensor, first: Tensor, second: Tensor, p: float) -> Any:
    t = wide(x)
    return as_dtype_of(norm_of_rows(_take(t, first, 0) - _take(t, second, 0), p), x.dtype)


def pdist(x: Any, *, p: float = 2.0) -> Tensor:
    """The distances of all pairs i < j of the rows of a matrix, row by row: n (n − 1) / 2 of them.

    >>> pdist([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]).tolist()
    [5.0, 1.0, 4.2426...]
    """
    (t,) = _points("pdist", x)
    if t.ndim != 2:
        raise ShapeError(f"pdist: takes a matrix of points, got {describe(t)}")
    first, second = (asarray(i) for i in np.triu_indices(int(t.shape[0]), 1))
    d: Tensor = _pairs(t, first, second, _check_norm("pdist", p))
    return d
