"""Covariance and correlation of variables that are observed together."""

from __future__ import annotations

from typing import Any

from wengert._core import Tensor
from wengert.errors import ShapeError
from wengert.functional.diagonals import diagonal
from wengert.functional.elementwise import conj
from wengert.functional.joining import concat
from wengert.functional.linear import matmul
from wengert.tensors.arguments import as_dtype_of, as_floating, as_tensor, describe, native, number, promoted, wide

_sum, _reshape, _permute = (native(n) for n in ("sum", "reshape", "permute"))
_sqrt, _real, _maximum = native("sqrt"), native("real"), native("maximum")


def _variables(x: Any, rowvar: bool, name: str) -> Tensor:
    """A matrix with a variable in each row."""
    t = as_floating(as_tensor(x, name))
    if t.ndim > 2:
        raise ShapeError(f"{name}: takes a vector or a matrix, got {describe(t)}")
    if t.ndim < 2:
        return _reshape(t, (1, t.size))
    return t if rowvar or t.shape[0] == 1 else _permute(t, (1, 0))


def _weights(w: Any, t: Tensor, name: str) -> Tensor | None:
    if w is None:
        return None
    v = as_tensor(w, "cov")
    if v.ndim != 1 or v.shape[0] != t.shape[1]:
        raise ShapeError(f"cov: {name} {describe(v)} must hold one number for each of {t.shape[1]} observations")
    return as_dtype_of(v, t.dtype)


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: float | None = None,
    fweights: Any = None,
    aweights: Any = None,
) -> Tensor:
    """Σₖ (xᵢₖ − x̄ᵢ) conj(xⱼₖ − x̄ⱼ) / (n − ddof): the covariance of the rows of a matrix (of its columns with
    `rowvar=False`), and of the variables in y. `ddof` is 1 by default, 0 with `bias`, as NumPy.

    `fweights` are how often each observation was made, `aweights` how important it is.

    >>> cov([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    t = _variables(m, rowvar, "cov")
    if y is not None:
        t, other = promoted([t, _variables(y, rowvar, "cov")])
        if t.shape[1] != other.shape[1]:
            raise ShapeError(
                f"cov: m and y must have the same number of observations, got {t.shape[1]} and {other.shape[1]}"
            )
        t = concat([t, other], 0)
    dtype, t = t.dtype, wide(t)
    correction = (0.0 if bias else 1.0) if ddof is None else float(ddof)
    f, a = _weights(fweights, t, "fweights"), _weights(aweights, t, "aweights")
    w: Any = f if a is None else a if f is None else f * a
    total = number(t.shape[1], t.dtype) if w is None else _sum(w, (0,), 0)
    mean = _sum(t if w is None else t * w, (1,), 1) / total
    used: Any = correction if a is None else correction * _sum(w * a, (0,), 0) / total
    centred = t - mean
    left = total - used
    freedom = _maximum(left, 0.0) if isinstance(left, Tensor) else max(left, 0.0)
    c = matmul(centred if w is None else centred * w, _permute(conj(centred), (1, 0))) / freedom
    c = c if dtype.kind == "c" else as_dtype_of(c, dtype)
    return _reshape(c, ()) if t.shape[0] == 1 else c


def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Tensor:
    """cᵢⱼ / √(cᵢᵢ cⱼⱼ) with the covariance c: the correlation of the rows of a matrix, as NumPy.

    >>> corrcoef([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    c = cov(x, y, rowvar)
    if c.ndim == 0:
        return c / c
    scale = _sqrt(_real(diagonal(c)) if c.dtype.kind == "c" else diagonal(c))
    n = c.shape[0]
    return c / _reshape(scale, (n, 1)) / _reshape(scale, (1, n))
