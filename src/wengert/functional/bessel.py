"""Bessel functions under SciPy's names, zeta, Legendre polynomials and spherical harmonics."""

from __future__ import annotations

import math
import operator
from typing import Any

from wengert._core import Tensor
from wengert.compiling.compile import composite
from wengert.errors import ArgumentError, DTypeError
from wengert.functional.shapes import broadcast_arrays
from wengert.tensors.arguments import as_floating, as_tensor, describe, native, promoted
from wengert.tensors.conversion import asarray

_bessel_j, _bessel_y = native("bessel_j"), native("bessel_y")
_bessel_iv, _bessel_ive = native("bessel_iv"), native("bessel_ive")
_bessel_kv, _bessel_kve = native("bessel_kv"), native("bessel_kve")
_zeta, _gamma, _where, _sin, _round = (native(n) for n in ("zeta_by_s", "gamma", "where", "sin", "round"))
_cos, _make_complex, _remainder, _exp, _log = (native(n) for n in ("cos", "make_complex", "remainder", "exp", "log"))


def _order(n: Any, name: str) -> int:
    try:
        order = operator.index(n)
    except TypeError:
        raise TypeError(f"{name}: the order n must be an integer, got {n!r}") from None
    return order


def _of_integer_order(op: Any, n: Any, x: Any, name: str) -> Tensor:
    order = _order(n, name)
    y: Tensor = op(as_floating(as_tensor(x, name)), abs(order))
    return -y if order < 0 and order % 2 else y


def jn(n: int, x: Any) -> Tensor:
    """The Bessel function of the first kind Jₙ(x) of an integer order (NIST DLMF 10.2).

    >>> jn(2, 1.0).item()
    0.114903...
    """
    return _of_integer_order(_bessel_j, n, x, "jn")


def j0(x: Any) -> Tensor:
    """The Bessel function J₀(x).

    >>> j0(1.0).item()
    0.765197...
    """
    return _of_integer_order(_bessel_j, 0, x, "j0")


def j1(x: Any) -> Tensor:
    """The Bessel function J₁(x).

    >>> j1(1.0).item()
    0.440050...
    """
    return _of_integer_order(_bessel_j, 1, x, "j1")


def yn(n: int, x: Any) -> Tensor:
    """The Bessel function of the second kind Yₙ(x) of an integer order, for x > 0 (NIST DLMF 10.2).

    >>> yn(2, 1.0).item()
    -1.650682...
    """
    return _of_integer_order(_bessel_y, n, x, "yn")


def y0(x: Any) -> Tensor:
    """The Bessel function Y₀(x).

    >>> y0(1.0).item()
    0.088256...
    """
    return _of_integer_order(_bessel_y, 0, x, "y0")


def y1(x: Any) -> Tensor:
    """The Bessel function Y₁(x).

    >>> y1(1.0).item()
    -0.781212...
    """
    return _of_integer_order(_bessel_y, 1, x, "y1")


def _pair(a: Any, x: Any, name: str) -> tuple[Tensor, ...]:
    """Two operands of one floating dtype and one shape; a Python number takes the dtype of the other."""

    def beside(value: Any, other: Any) -> Tensor:
        if isinstance(value, (int, float)) and isinstance(other, Tensor) and other.dtype.is_floating:
            return asarray(float(value), dtype=other.dtype)
        return as_floating(as_tensor(value, name))

    first, second = beside(a, x), beside(x, a)
    for t in (first, second):
        if t.dtype.kind == "c":
            raise DTypeError(f"{name}: operands must be real numbers, got {describe(t)}")
    return broadcast_arrays(*promoted([first, second]))


def iv(v: Any, x: Any) -> Tensor:
    """The modified Bessel function of the first kind I_v(x) of real order (NIST DLMF 10.25).

    It is also differentiable with respect to v.

    >>> iv(0.5, 1.0).item()
    0.937674...
    """
    return _bessel_iv(*_pair(v, x, "iv"), 0)


def ive(v: Any, x: Any) -> Tensor:
    """e^−|x| I_v(x), which does not overflow.

    >>> ive(0.5, 1000.0).item()
    0.012615...
    """
    return _bessel_ive(*_pair(v, x, "ive"), 0)


def kv(v: Any, x: Any) -> Tensor:
    """The modified Bessel function of the second kind K_v(x) of real order, for x > 0 (NIST DLMF 10.25); also
    differentiable with respect to v.

    >>> kv(0.5, 1.0).item()
    0.461068...
    """
    return _bessel_kv(*_pair(v, x, "kv"), 0)


def kve(v: Any, x: Any) -> Tensor:
    """eˣ K_v(x), which does not underflow.

    >>> kve(0.5, 1000.0).item()
    0.039633...
    """
    return _bessel_kve(*_pair(v, x, "kve"), 0)


def kn(n: int, x: Any) -> Tensor:
    """The modified Bessel function Kₙ(x) of an integer order.

    >>> kn(2, 1.0).item()
    1.624838...
    """
    return kv(float(_order(n, "kn")), x)


def k0(x: Any) -> Tensor:
    """The modified Bessel function K₀(x).

    >>> k0(1.0).item()
    0.421024...
    """
    return kv(0.0, x)


def k0e(x: Any) -> Tensor:
    """eˣ K₀(x), which does not underflow.

    >>> k0e(1000.0).item()
    0.039628...
    """
    return kve(0.0, x)


def k1(x: Any) -> Tensor:
    """The modified Bessel function K₁(x).

    >>> k1(1.0).item()
    0.601907...
    """
    return kv(1.0, x)


def k1e(x: Any) -> Tensor:
    """eˣ K₁(x), which does not underflow.

    >>> k1e(1000.0).item()
    0.039648...
    """
    return kve(1.0, x)


@composite(precision="full")
def _riemann_left(s: Tensor) -> Any:
    """ζ(s) for s < 1 by its functional equation (NIST DLMF 25.4.2); at 0 and above by the alternating series' value."""
    t = 1.0 - s
    quarter = _round(0.5 * s)
    sine = _sin((0.5 * s - quarter) * math.pi) * (1.0 - 2.0 * _remainder(quarter, 2.0))  # sin(πs/2)
    scale = _exp(s * math.log(2.0) + (s - 1.0) * math.log(math.pi))
    return scale * sine * _gamma(t) * _zeta(t, t * 0.0 + 1.0, 0)


def zeta(x: Any, q: Any = None) -> Tensor:
    """Hurwitz' zeta function ζ(x, q) = Σ (q + k)⁻ˣ over k = 0, 1, … for x > 1, and Riemann's ζ(x) without q, which is also
    defined for x < 0 (NIST DLMF 25.11). Differentiable by both.

    >>> zeta(2.0).item(), zeta(3.0, 0.5).item()
    (1.644934..., 8.414398...)
    """
    if q is not None:
        return _zeta(*_pair(x, q, "zeta"), 0)
    s, one = _pair(x, 1.0, "zeta")
    left = s < 0.0
    y: Tensor = _where(left, _riemann_left(_where(left, s, -1.0)), _zeta(_where(left, 2.0, s), one, 0))
    return y


# ---------------------------------------------------------------------------------------------------- polynomials


@composite(precision="full")
def _legendre(x: Tensor, degree: int, order: int) -> Any:
    """Pₗᵐ(x)/(1 − x²)^(m/2) without Condon and Shortley's sign, times (−1)ᵐ: polynomials, by recurrence in the degree."""
    before: Any = None
    at: Any = x * 0.0 + float(math.prod(range(1, 2 * order, 2)) * (-1) ** order)
    for n in range(order + 1, degree + 1):
        rise = (2 * n - 1) * x * at
        before, at = at, (rise if before is None else rise - (n + order - 1) * before) * (1.0 / (n - order))
    return at


def legendre(n: int, x: Any) -> Tensor:
    """The Legendre polynomial Pₙ(x), by Bonnet's recurrence (NIST DLMF 18.9).

    >>> legendre(2, 0.5).item()
    -0.125
    """
    degree = _order(n, "legendre")
    if degree < 0:
        raise ArgumentError(f"legendre: the degree n must not be negative, got {degree}")
    y: Tensor = _legendre(as_floating(as_tensor(x, "legendre")), degree, 0)
    return y


def sph_harm_y(n: int, m: int, theta: Any, phi: Any) -> Tensor:
    """The spherical harmonic Yₙᵐ(θ, φ) of degree n and order m, θ being the polar and φ the azimuthal angle, complex, with
    Condon and Shortley's sign, as scipy.special.sph_harm_y (NIST DLMF 14.30).

    >>> sph_harm_y(1, 0, 0.0, 0.0).tolist()
    (0.488602...+0j)
    """
    degree, order = _order(n, "sph_harm_y"), _order(m, "sph_harm_y")
    if degree < 0 or abs(order) > degree:
        raise ArgumentError(f"sph_harm_y: needs |m| <= n, got n = {degree} and m = {order}")
    polar, azimuth = _pair(theta, phi, "sph_harm_y")
    y: Tensor = _spherical(polar, azimuth, degree, order)
    return y


@composite(precision="full")
def _spherical(theta: Tensor, phi: Tensor, degree: int, order: int) -> Any:
    m = abs(order)
    ratio = math.exp(math.lgamma(degree - m + 1) - math.lgamma(degree + m + 1))
    size = math.sqrt((2 * degree + 1) / (4 * math.pi) * ratio) * (-1.0 if order < 0 and m % 2 else 1.0)
    sine, radius = _sin(theta), size * _legendre(_cos(theta), degree, m)
    for _ in range(m):
        radius = radius * sine
    return _make_complex(radius * _cos(order * phi), radius * _sin(order * phi))
