"""Functions of matrices: powers, the exponential, and any function of a symmetric matrix."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert._core import Tensor
from wengert.autograd.custom import FunctionOp
from wengert.errors import DTypeError
from wengert.functional.linear import matmul
from wengert.functional.reductions import max as largest
from wengert.linalg.solving import inexact, inv, square
from wengert.ops.linalg import adjoint_of, columns, product, rows, symmetric
from wengert.program.trace import Tracer
from wengert.tensors.arguments import as_dtype_of, native
from wengert.tensors.creation import eye, ones_like
from wengert.transforms.functional import jvp

_matrix_exp, _eigh, _where, _abs = (native(name) for name in ("matrix_exp", "eigh", "where", "abs"))
_log, _sqrt, _maximum, _sum = (native(name) for name in ("log", "sqrt", "maximum", "sum"))
_reshape, _broadcast_to = native("reshape"), native("broadcast_to")


def matrix_power(a: Any, n: int) -> Tensor:
    """a · a · … · a, n times; of the inverse for negative n, and the identity for 0.

    >>> matrix_power([[1, 1], [0, 1]], 5).tolist()
    [[1, 5], [0, 1]]
    """
    if not hasattr(n, "__index__"):
        raise TypeError(f"matrix_power: the exponent must be an integer, got {n!r}; use matrix_function for others")
    t, exponent = square(a, "matrix_power"), operator.index(n)
    if exponent == 0:
        return _where(False, t, eye(t.shape[-1], dtype=t.dtype))  # depends on a, with derivative 0
    if exponent < 0:
        t, exponent = inv(t), -exponent
    y: Tensor | None = None
    while exponent:
        if exponent & 1:
            y = t if y is None else matmul(y, t)
        exponent >>= 1
        t = matmul(t, t) if exponent else t
    assert y is not None
    return y


def matrix_exp(a: Any) -> Tensor:
    """Σ aᵏ/k!, by scaling and squaring (Higham, 2005). Alias: expm.

    >>> matrix_exp([[0.0, 0.0], [0.0, 0.0]]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return _matrix_exp(inexact(square(a, "matrix_exp"), "matrix_exp"))


expm = matrix_exp

# --------------------------------------------------------------------------------- functions of symmetric matrices


def matrix_function(f: Callable[[Tensor], Tensor], a: Any) -> Tensor:
    """V diag(f(w)) Vᴴ for symmetric or Hermitian a = V diag(w) Vᴴ, with a real function f, elementwise on tensors.

    Derivatives are by divided differences of f (Daleckii and Krein, 1965), and so exact where eigenvalues are equal, to
    second order; third and higher orders go through the eigenvectors, and need eigenvalues that differ. Of `a` the
    Hermitian part is taken. In a compiled function f runs as a call-back, and equal eigenvalues are right to first order.

    >>> import wengert as wg
    >>> wg.linalg.matrix_function(wg.sqrt, [[4.0, 0.0], [0.0, 9.0]]).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    t = inexact(square(a, "matrix_function"), "matrix_function")
    y: Tensor = _Spectral(f).apply(t)
    return y


def sqrtm(a: Any) -> Tensor:
    """The square root of a symmetric or Hermitian matrix with eigenvalues ≥ 0.

    >>> sqrtm([[4.0, 0.0], [0.0, 9.0]]).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    return matrix_function(_sqrt, a)


def logm(a: Any) -> Tensor:
    """The logarithm of a symmetric or Hermitian matrix with eigenvalues > 0.

    >>> logm([[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    return matrix_function(_log, a)


def _operation(f: Callable[..., Any]) -> FunctionOp:
    def matrix_function(*operands: Tensor) -> Any:  # the name that errors give
        return f(*operands)

    return FunctionOp(matrix_function)


class _Spectral:
    """One function of symmetric matrices, with its first two derivatives as custom operations."""

    def __init__(self, f: Callable[[Tensor], Tensor]) -> None:
        self.f = f
        self.apply, self.push = _operation(self._value), _operation(self._pushed)
        # The derivative is self-adjoint: f is real.
        self.apply.defjvp(self._tangent)
        self.apply.defvjp(lambda y_bar, y, a: self.push(a, y_bar))
        self.push.defjvp(lambda a_dot, e_dot, y, a, e: self.push(a, e_dot) + self._second(a, e, a_dot))
        self.push.defvjp(lambda y_bar, y, a, e: (self._second(a, e, y_bar), self.push(a, y_bar)))

    def _value(self, a: Tensor) -> Any:
        w, v = _eigh(a)
        return product(v * _like(columns(self._checked(self.f(w), w)), v), adjoint_of(v))

    def _tangent(self, a_dot: Tensor, y: Tensor, a: Tensor) -> Tensor:
        # A rule that is being traced is transposed there, so it must be made of linear ops, not of one that calls back.
        pushed: Tensor = self._pushed(a, a_dot) if isinstance(a_dot, Tracer) else self.push(a, a_dot)
        return pushed

    def _pushed(self, a: Tensor, e: Tensor) -> Any:
        """d/dt f(a + t e) at t = 0."""
        w, v = _eigh(a)
        inner = product(adjoint_of(v), symmetric(e), v)
        return product(v, inner * _like(self.differences(w), v), adjoint_of(v))

    def _second(self, a: Tensor, e: Tensor, g: Tensor) -> Any:
        """d²/ds dt f(a + s e + t g) at 0: Σₖ f[i, k, j] (Eᵢₖ Gₖⱼ + Gᵢₖ Eₖⱼ) in the eigenbasis."""
        w, v = _eigh(a)
        p, q = (product(adjoint_of(v), symmetric(x), v) for x in (e, g))
        of_ik = [_reshape(x, (*x.shape, 1)) for x in (p, q)]
        of_kj = [_reshape(x, (*x.shape[:-2], 1, *x.shape[-2:])) for x in (q, p)]
        terms = of_ik[0] * of_kj[0] + of_ik[1] * of_kj[1]
        inner = _sum(terms * _like(self.second_differences(w), v), (terms.ndim - 2,), 0)
        return product(v, inner, adjoint_of(v))

    def _checked(self, y: Any, w: Tensor) -> Tensor:
        if not isinstance(y, Tensor) or y.dtype.code != w.dtype.code or tuple(y.shape) != tuple(w.shape):
            raise DTypeError(
                f"matrix_function: f must be a real elementwise function of tensors, but made {y!r} of {w.dtype.name} "
                f"{tuple(w.shape)}"
            )
        return y

    def slope(self, w: Tensor) -> Tensor:
        """f′."""
        y: Tensor = jvp(self.f, (w,), (ones_like(w),))[1]
        return y

    def curvature(self, w: Tensor) -> Tensor:
        """f″."""
        y: Tensor = jvp(self.slope, (w,), (ones_like(w),))[1]
        return y

    def differences(self, w: Tensor) -> Tensor:
        """f[wᵢ, wⱼ] = (f(wᵢ) − f(wⱼ)) / (wᵢ − wⱼ); where that cancels, the mean of f′ between (Gauss, three points)."""
        fw = self.f(w)
        gap, rise = rows(w) - columns(w), rows(fw) - columns(fw)
        middle, reach = (rows(w) + columns(w)) * 0.5, gap * (0.5 * 0.6**0.5)
        mean = self.slope(middle) * (4 / 9) + (self.slope(middle - reach) + self.slope(middle + reach)) * (5 / 18)
        cancels = _maximum(_abs(rows(fw)), _abs(columns(fw))) * _NOISE[w.dtype.name] >= _abs(gap * mean)
        near = cancels & (_abs(gap) <= _scale(w, 1e-2))
        return _where(near, mean, rise / _where(near | (gap == 0.0), 1.0, gap))

    def second_differences(self, w: Tensor) -> Tensor:
        """f[wᵢ, wₖ, wⱼ] = (f[·, ·] − f[·, ·]) / gap over the widest gap of the three; where all are near, from f″."""
        first = self.differences(w)
        n, lead = w.shape[-1], w.shape[:-1]
        x, y, z = (_reshape(w, (*lead, *(n if axis == k else 1 for k in range(3)))) for axis in range(3))
        of_xy, of_yz = _reshape(first, (*lead, n, n, 1)), _reshape(first, (*lead, 1, n, n))
        of_xz = _reshape(first, (*lead, n, 1, n))
        across, left, right = _abs(x - z), _abs(x - y), _abs(y - z)
        narrow = _scale(w, 1e-3)
        narrow = _reshape(narrow, (*narrow.shape, 1))
        near = (across <= narrow) & (left <= narrow) & (right <= narrow)
        points = [(p * 4.0 + q + r) * (1 / 6) for p, q, r in ((x, y, z), (y, z, x), (z, x, y))]
        shape = (*lead, n, n, n)
        inside = sum(self.curvature(_broadcast_to(p, shape) * 1.0) for p in points) * (1 / 6)
        over_x_z = (of_xy - of_yz) / _where(x == z, 1.0, x - z)
        over_x_y = (of_xz - of_yz) / _where(x == y, 1.0, x - y)
        over_y_z = (of_xy - of_xz) / _where(y == z, 1.0, y - z)
        widest = _where((across >= left) & (across >= right), over_x_z, _where(left >= right, over_x_y, over_y_z))
        return _where(near, inside, widest)


# A difference that is this part of its terms, or less, has lost a quarter of its digits.
_NOISE = {name: float(np.finfo(name).eps) ** 0.25 for name in ("float32", "float64")}


def _scale(w: Tensor, part: float) -> Any:
    """A part of the largest |w| (at least of 1), for each pair."""
    size = _maximum(largest(_abs(w), -1, keepdims=True), 1.0) if w.shape[-1] else _abs(w)
    return rows(size) * part


def _like(coefficient: Tensor, v: Tensor) -> Tensor:
    return coefficient if v.dtype.code == coefficient.dtype.code else as_dtype_of(coefficient, v.dtype)
