"""Functions of each element."""

from __future__ import annotations

import math
from typing import Any

import wengert as wg
from wengert._core import Tensor
from wengert.functional.elementwise import round as round_to
from wengert.interop.numpy_functions.registry import function, given, ufunc
from wengert.tensors.arguments import as_tensor


@ufunc("deg2rad", "radians")
def _radians(x: Any) -> Any:
    return x * (math.pi / 180)


@ufunc("rad2deg", "degrees")
def _degrees(x: Any) -> Any:
    return x * (180 / math.pi)


@ufunc("cbrt")
def _cbrt(x: Any) -> Any:
    return wg.copysign(wg.abs(x) ** (1 / 3), x)


@ufunc("divmod")
def _divmod(a: Any, b: Any) -> tuple[Any, Any]:
    return wg.floor_divide(a, b), wg.remainder(a, b)


@ufunc("modf")
def _modf(x: Any) -> tuple[Any, Any]:
    whole = wg.trunc(x)
    return wg.where(wg.isinf(x), wg.copysign(wg.zeros_like(x), x), x - whole), whole


@ufunc("jv")  # which scipy.special.jn is, too
def _jv(v: Any, x: Any) -> Any:
    if isinstance(v, Tensor) or v != int(v):
        raise TypeError(f"scipy.special.jv: the order must be an integer in wengert, got {v!r}")
    return wg.jn(int(v), x)


@ufunc("eval_legendre")
def _eval_legendre(n: Any, x: Any) -> Any:
    if isinstance(n, Tensor):
        raise TypeError("scipy.special.eval_legendre: the degree must be an integer, got a tensor")
    return wg.legendre(n, x)


@ufunc("kl_div")
def _kl_div(x: Any, y: Any) -> Any:
    return wg.rel_entr(x, y) - x + y


@ufunc("gammasgn")
def _gammasgn(x: Any) -> Any:
    below = wg.where(wg.remainder(wg.floor(x), 2.0) == 0.0, 1.0, -1.0)
    return wg.where(x > 0.0, 1.0, wg.where(wg.floor(x) == x, wg.where(x == 0.0, wg.copysign(1.0, x), math.nan), below))


@ufunc("fmax")
def _fmax(a: Any, b: Any) -> Any:
    return wg.where(wg.isnan(a), b, wg.where(wg.isnan(b), a, wg.maximum(a, b)))


@ufunc("fmin")
def _fmin(a: Any, b: Any) -> Any:
    return wg.where(wg.isnan(a), b, wg.where(wg.isnan(b), a, wg.minimum(a, b)))


@ufunc("float_power")
def _float_power(a: Any, b: Any) -> Any:
    return wg.pow(*(x.astype("float64") if isinstance(x, Tensor) else x for x in (a, b)))


@ufunc("heaviside")
def _heaviside(x: Any, at_zero: Any) -> Any:
    step = wg.astype(wg.greater(x, 0), as_tensor(x, "heaviside").dtype)
    return wg.where(wg.equal(x, 0), at_zero, wg.where(wg.isnan(x), x, step))


@ufunc("logaddexp2")
def _logaddexp2(a: Any, b: Any) -> Any:
    two = math.log(2.0)
    return wg.logaddexp(a * two, b * two) / two


@ufunc("matvec")
def _matvec(a: Any, v: Any) -> Any:
    return wg.squeeze(wg.matmul(a, wg.expand_dims(v, -1)), -1)


@ufunc("vecmat")
def _vecmat(v: Any, a: Any) -> Any:
    v = as_tensor(v, "vecmat")
    row = wg.conj(v) if v.dtype.kind == "c" else v
    return wg.squeeze(wg.matmul(wg.expand_dims(row, -2), a), -2)


@function("clip")
def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (b if given(b) else c if given(c) else None for b, c in ((a_min, min), (a_max, max)))
    return wg.clip(a, low, high)


@function("round", "around")
def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    return round_to(a, decimals)


@function("fix")
def _fix(x: Any, out: Any = None) -> Any:
    return wg.trunc(x)


@function("nan_to_num")
def _nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    y = wg.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)
    if copy:
        return y
    x[...] = y
    return x


@function("angle")
def _angle(z: Any, deg: bool = False) -> Any:
    turn = wg.angle(z)
    return _degrees(turn) if deg else turn


@function("iscomplex")
def _iscomplex(x: Any) -> Any:
    return wg.not_equal(wg.imag(x), 0) if x.dtype.kind == "c" else wg.zeros(x.shape, dtype=bool)


@function("isreal")
def _isreal(x: Any) -> Any:
    return wg.logical_not(_iscomplex(x))


@function("isposinf")
def _isposinf(x: Any, out: Any = None) -> Any:
    return wg.equal(x, math.inf)


@function("isneginf")
def _isneginf(x: Any, out: Any = None) -> Any:
    return wg.equal(x, -math.inf)


@function("sinc")
def _sinc(x: Any) -> Any:
    zero = wg.equal(x, 0)
    angle = math.pi * wg.where(zero, 1.0, x)
    return wg.where(zero, 1.0, wg.sin(angle) / angle)
