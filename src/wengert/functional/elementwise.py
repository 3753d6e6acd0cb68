"""Elementwise functions that are composed of ops, and the array API's other names of ops."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert._core import Dim, Tensor
from wengert.compiling.compile import composite
from wengert.dtypes import bool_, complex128, float32, float64
from wengert.errors import ArgumentError, DTypeError, TraceError
from wengert.foreign_names import explain_keywords
from wengert.functional.reductions import all
from wengert.functional.shortcuts import shortcut
from wengert.tensors.arguments import as_dtype_of, as_floating, as_tensor, both_tensors, full, native
from wengert.tensors.numpy import data
from wengert.tensors.operands import convert_operand

_where, _pow, _square, _sqrt, _reciprocal = (native(n) for n in ("where", "pow", "square", "sqrt", "reciprocal"))
_exp, _log, _log1p, _abs, _copy = (native(n) for n in ("exp", "log", "log1p", "abs", "copy"))
_isfinite, _isnan, _equal, _rsqrt = (native(n) for n in ("isfinite", "isnan", "equal", "rsqrt"))
_conj, _real, _imag, _atan2, _signbit = (native(n) for n in ("conj", "real", "imag", "atan2", "signbit"))
_and, _or, _less_equal, _clip = (native(n) for n in ("logical_and", "logical_or", "less_equal", "clip"))

_round, _remainder, _copysign = native("round"), native("remainder"), native("copysign")

subtract = native("sub")
multiply = native("mul")
divide = native("div")
negative = native("neg")


def positive(x: Any) -> Tensor:
    """+x, a copy.

    >>> positive([1.0]).tolist()
    [1.0]
    """
    return _copy(as_tensor(x, "positive"))


@explain_keywords
def round(x: Any, decimals: int | None = None) -> Tensor:
    """x rounded to so many decimals, by default none, to the even one of two numbers that are equally near.

    >>> round([1.25, -0.117], 1).tolist()
    [1.2..., -0.1...]
    """
    t, n = as_tensor(x, "round"), 0 if decimals is None else operator.index(decimals)
    if n == 0 or (n > 0 and not t.dtype.is_inexact):
        return _round(t)
    if t.dtype.is_inexact and t.dtype.itemsize > 2:
        return _round_decimals(t, n)
    # Half precision has not the range for the power of ten, and integers not the fractions.
    return as_dtype_of(_round_decimals(as_dtype_of(t, float32 if t.dtype.is_inexact else float64), n), t.dtype)


def _round_decimals(t: Tensor, n: int) -> Tensor:
    most = 308 if t.dtype in (float64, complex128) else 38  # powers of ten that its dtype has
    if n > most:
        return _copy(t)
    if n < -most:
        return _where(_isfinite(t), t * 0.0, t)
    scale = 10.0 ** builtins.abs(n)
    if n < 0:
        return _round(t / scale) * scale
    scaled = t * scale
    return _where(_isfinite(scaled), _round(scaled) / scale, t)  # else it has no digits there


def conj(x: Any) -> Tensor:
    """The complex conjugate, Re x − i Im x; a real tensor is its own.

    >>> conj([1 + 2j]).tolist()
    [(1-2j)]
    """
    t = as_tensor(x, "conj")
    return _conj(t) if t.dtype.kind == "c" else t


def real(x: Any) -> Tensor:
    """The real part; a real tensor is its own.

    >>> real([1 + 2j]).tolist()
    [1.0]
    """
    t = as_tensor(x, "real")
    return _real(t) if t.dtype.kind == "c" else t


def imag(x: Any) -> Tensor:
    """The imaginary part; zeros for a real tensor.

    >>> imag([1 + 2j]).tolist()
    [2.0]
    """
    t = as_tensor(x, "imag")
    return _imag(t) if t.dtype.kind == "c" else _where(False, t, full((), 0.0, t.dtype, like=t))  # derivative 0


@composite
def _angle(x: Tensor) -> Any:
    if x.dtype.kind != "c":
        return _where(_isnan(x), x, _where(_signbit(x), full((), math.pi, x.dtype, like=x), 0.0))
    # The angle of 0 turns with every direction: nothing flows there.
    zero = _equal(x, 0.0)
    re, im = _real(x), _imag(x)
    return _atan2(_where(zero, im.detach(), im), _where(zero, re.detach(), re))


def angle(x: Any) -> Tensor:
    """The angle of x in the complex plane, in (−π, π]; its derivative at 0 is 0. Of a real number 0 or π.

    >>> angle([1j, -1.0]).tolist()
    [1.5707..., 3.1415...]
    """
    y: Tensor = _angle(as_floating(as_tensor(x, "angle")))
    return y


@shortcut
def pow(a: Any, b: Any) -> Tensor:
    """aᵇ. The exponents 1, 2, 3, ½, −½ and −1 are copies, products, roots and reciprocals.

    Integers to a floating power are floating; to a negative integer they raise, as in NumPy and PyTorch.

    >>> pow([2.0, 3.0], 2).tolist()
    [4.0, 9.0]
    """
    if isinstance(b, (Dim, np.generic)):
        b = int(b) if isinstance(b, Dim) else b.item()
    if isinstance(a, Tensor) and isinstance(b, (int, float)):
        y = _number_power(a, b)
        if y is not None:
            return y
    return _pow(a, b)


def _number_power(x: Tensor, n: float) -> Tensor | None:
    """xⁿ by something simpler than a power, or None."""
    if x.dtype.is_inexact:
        if n == 3 and x.dtype in _WIDE:
            y: Tensor = _cube(x)
            return y
        return _SIMPLE[n](x) if n in _SIMPLE else None
    if not isinstance(n, int) or x.dtype.kind == "b":
        return None
    if n < 0:
        raise ArgumentError(
            f"pow: integers to the negative power {n} are fractions, which {x.dtype.name} does not hold; use a float, "
            f"{float(n)}, or astype"
        )
    return _WHOLE[n](x) if n in _WHOLE else None


@composite(precision="full", functions=("pow",))
def _cube(x: Tensor) -> Any:
    return x * x * x


_WIDE = (float32, float64)  # narrow types would round twice to their few digits

_WHOLE: dict[float, Callable[..., Tensor]] = {1: _copy, 2: _square}
_SIMPLE = {**_WHOLE, 0.5: _sqrt, -0.5: _rsqrt, -1: _reciprocal}


def is_operand(x: Any) -> bool:
    """Whether x can stand beside a tensor in an expression."""
    if isinstance(x, (Tensor, int, float, complex, Dim)):
        return True
    return convert_operand(x) is not NotImplemented


def power_operator(a: Any, b: Any) -> Any:
    """a ** b: as `pow`, but what is not an operand is left to its own type."""
    return pow(a, b) if is_operand(a) and is_operand(b) else NotImplemented


@explain_keywords
def clip(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """min where x < min, max where x > max, else x; NaN if x or a bound is. The derivative is 1 for min ≤ x ≤ max, bounds
    included, else 0.

    >>> clip([-2.0, 0.5, 3.0], 0.0, 1.0).tolist()
    [0.0, 0.5, 1.0]
    """
    t = as_tensor(x, "clip")
    if min is None and max is None:
        return _copy(t)
    if max is None:
        return _where(_or_nan(t < min, min), min, t)
    if min is None:
        return _where(_or_nan(t > max, max), max, t)
    y: Tensor = _clip(t, min, max)
    return y


def _or_nan(outside: Tensor, bound: Any) -> Tensor:
    """Whether x is outside the bound, or the bound is NaN."""
    if isinstance(bound, (int, float)):
        return outside if bound == bound else _or(outside, True)
    return _or(outside, _isnan(as_tensor(bound, "clip")))


def _softplus(x: Tensor) -> Any:
    # The sign is chosen by `where`, not by |x|: every derivative exists at 0.
    right = x > 0.0
    return _where(right, x, 0.0) + _log1p(_exp(_where(right, -x, x)))


@composite(precision="full", functions=("softplus",))
def _compiled_softplus(x: Tensor, beta: float) -> Any:
    return _softplus(x) if beta == 1.0 else _softplus(x * beta) / beta


def softplus(x: Any, beta: float = 1.0) -> Tensor:
    """ln(1 + e^βx) / β, without overflow.

    >>> softplus([0.0, 1000.0]).tolist()
    [0.693147..., 1000.0]
    """
    if not beta > 0.0:
        raise ArgumentError(f"softplus: beta must be positive, got {beta}")
    y: Tensor = _compiled_softplus(as_floating(as_tensor(x, "softplus")), float(beta))
    return y


@composite(precision="full", functions=("log_sigmoid",))
def _log_sigmoid(x: Tensor) -> Any:
    return -_softplus(-x)


def log_sigmoid(x: Any) -> Tensor:
    """ln(1 / (1 + e⁻ˣ)), without overflow.

    >>> log_sigmoid([-1000.0]).tolist()
    [-1000.0]
    """
    y: Tensor = _log_sigmoid(as_floating(as_tensor(x, "log_sigmoid")))
    return y


@composite(precision="full", functions=("logaddexp",))
def _logaddexp(a: Tensor, b: Tensor) -> Any:
    swap = a > b
    high, low = _where(swap, a, b), _where(swap, b, a)
    return high + _log1p(_exp(_where(_isfinite(high), low - high, 0.0)))


def logaddexp(a: Any, b: Any) -> Tensor:
    """ln(eᵃ + eᵇ), without overflow.

    >>> logaddexp([1000.0], [1000.0]).tolist()
    [1000.693...]
    """
    y: Tensor = _logaddexp(as_floating(as_tensor(a, "logaddexp")), as_floating(as_tensor(b, "logaddexp")))
    return y


def _xlogy(a: Tensor, b: Tensor) -> Any:
    nothing = _and(_equal(a, 0.0), _or(_less_equal(b, 0.0), _equal(b, math.inf)))
    return _where(nothing, 0.0, a * _log(_where(nothing, 1.0, b)))


@composite(precision="full", functions=("xlogy",))
def _compiled_xlogy(a: Tensor, b: Tensor) -> Any:
    return _xlogy(a, b)


def xlogy(a: Any, b: Any) -> Tensor:
    """a ln b, and 0 where a is 0.

    >>> xlogy([0.0, 2.0], [0.0, 1.0]).tolist()
    [0.0, 0.0]
    """
    y: Tensor = _compiled_xlogy(as_floating(as_tensor(a, "xlogy")), as_floating(as_tensor(b, "xlogy")))
    return y


def isclose(a: Any, b: Any, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """|a − b| ≤ atol + rtol·|b|; infinities of one sign are close.

    >>> isclose([1.0, 2.0], [1.0000001, 3.0]).tolist()
    [True, False]
    """
    a, b = as_tensor(a, "isclose").detach(), as_tensor(b, "isclose").detach()
    if not (a.dtype.is_inexact or b.dtype.is_inexact) or bool_ in (a.dtype, b.dtype):
        a, b = as_floating(a), as_floating(b)
    near = _less_equal(_abs(a - b), atol + rtol * _abs(b))
    y = _or(_equal(a, b), _and(near, _and(_isfinite(a), _isfinite(b))))
    return _or(y, _and(_isnan(a), _isnan(b))) if equal_nan else y


def allclose(a: Any, b: Any, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close.

    >>> allclose([1.0, 2.0], [1.0, 2.0])
    True
    """
    return bool(all(isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)))


@composite
def _fmod(a: Tensor, b: Tensor) -> Any:
    # The remainder of positive numbers, which is exact, with the sign of a.
    size = _remainder(_abs(a), _abs(b))
    return _where(a < 0, -size, size) if a.dtype.is_integer else _copysign(size, a)


def fmod(a: Any, b: Any) -> Tensor:
    """The remainder of a / b with the sign of a, as C's fmod; `remainder` has the sign of b.

    >>> fmod([-7.0, 7.0], 3.0).tolist()
    [-1.0, 1.0]
    """
    y: Tensor = _fmod(*both_tensors(a, b, "fmod"))
    return y


def select(conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0) -> Tensor:
    """For each element, the choice of the first condition that holds, or else the default.

    >>> import wengert as wg
    >>> x = wg.tensor([-2.0, 0.5, 3.0])
    >>> select([x < 0, x > 1], [-x, x * x], 1.0).tolist()
    [2.0, 1.0, 9.0]
    """
    if len(conditions) != len(choices) or not conditions:
        raise ArgumentError(f"select: needs as many choices as conditions, got {len(choices)} and {len(conditions)}")
    for condition in conditions:
        if as_tensor(condition, "select").dtype.code != bool_.code:
            raise DTypeError(f"select: conditions must be bool, got {as_tensor(condition, 'select').dtype.name}")
    y = default
    for condition, choice in zip(reversed(conditions), reversed(choices)):
        y = _where(as_tensor(condition, "select"), choice, y)
    chosen: Tensor = y
    return chosen


def real_if_close(x: Any, tol: float = 100.0) -> Tensor:
    """The real part, if all imaginary parts are smaller than `tol` times the precision of the dtype (or than `tol`, where it
    is 1 or less); else x. The dtype depends on data, so it is refused while tracing.

    >>> real_if_close([2.0 + 1e-18j]).tolist()
    [2.0]
    """
    t = as_tensor(x, "real_if_close")
    if t.dtype.kind != "c":
        return t
    if not t._plain and not hasattr(t, "value"):
        raise TraceError(
            "real_if_close: whether the result is real depends on the data, which a traced function cannot read; use real(x)"
        )
    limit = tol * float(np.finfo(t.dtype.name).eps) if tol > 1 else tol
    return real(t) if bool((np.abs(np.imag(data(t))) < limit).all()) else t
