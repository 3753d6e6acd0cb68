"""Discrete Fourier transforms as in the array API standard and NumPy, differentiable in every mode.

    Xₖ = Σⱼ e^(−2πi jk/n) xⱼ        xⱼ = 1/n Σₖ e^(+2πi jk/n) Xₖ

`n` (or `s`) cuts the axis or fills it with zeros first. `norm` says where the factor 1/n stands: "backward" in the
inverse, "forward" in the forward transform, "ortho" 1/√n in both. float32 stays single precision. NumPy computes them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import as_dtype, complex64, complex128, float32, float64
from wengert.errors import ArgumentError, DTypeError, ShapeError
from wengert.functional.joining import roll
from wengert.tensors.arguments import as_dtype_of, as_tensor, describe, full, native, one_axis
from wengert.tensors.conversion import asarray

_complex, _to_half, _from_half = native("fft_complex"), native("fft_to_half"), native("fft_from_half")
_conj, _concat, _slice = native("conj"), native("concat"), native("slice")

_SCALES = {"backward": (0, 2), "ortho": (1, 1), "forward": (2, 0)}  # of the forward and of the inverse transform


def _scale(norm: str | None, inverse: bool, name: str) -> int:
    norm = "backward" if norm is None else norm  # NumPy's default
    if norm not in _SCALES:
        raise ArgumentError(f"{name}: norm must be 'backward', 'ortho' or 'forward', got {norm!r}")
    return _SCALES[norm][inverse]


def _as_real(x: Any, name: str) -> Tensor:
    t = as_tensor(x, name)
    if t.dtype.kind == "c":
        raise DTypeError(f"{name}: takes real numbers, got {describe(t)}; use {name.replace('rfft', 'fft')} or real(x)")
    return t if t.dtype in (float32, float64) else as_dtype_of(t, float32)


def _as_complex(x: Any, name: str) -> Tensor:
    t = as_tensor(x, name)
    if t.dtype.kind == "c":
        return t
    return as_dtype_of(t, complex128 if t.dtype == float64 else complex64)


def _length(n: Any, name: str) -> Any:
    if isinstance(n, _core.Dim):
        return n
    try:
        length = operator.index(n)
    except TypeError:
        raise TypeError(f"{name}: the length of a transformed axis must be an integer, got {n!r}") from None
    if length < 1:
        raise ArgumentError(f"{name}: the length of a transformed axis must be at least 1, got {length}")
    return length


def _resized(x: Tensor, axis: int, n: Any) -> Tensor:
    """x cut to n elements along the axis, or filled with zeros behind."""
    size = x.shape[axis]
    if size == n:
        return x

    def shape(length: Any) -> tuple[Any, ...]:
        return tuple(length if i == axis else s for i, s in enumerate(x.shape))

    if n < size:
        return _slice(x, (0,) * x.ndim, shape(n), (1,) * x.ndim)
    return _concat([x, full(shape(n - size), 0.0, x.dtype, like=x)], axis)


def _at_length(x: Tensor, n: Any, axis: int, name: str) -> tuple[Tensor, int]:
    k = one_axis(axis, x.ndim, name)
    return (x if n is None else _resized(x, k, _length(n, name))), k


# ------------------------------------------------------------------------------------------------------- one axis


def _fft(x: Any, n: Any, axis: int, norm: str | None, inverse: bool, name: str) -> Tensor:
    t, k = _at_length(_as_complex(x, name), n, axis, name)
    return _complex(t, k, int(inverse), _scale(norm, inverse, name))


def fft(x: Any, *, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """The discrete Fourier transform along an axis.

    >>> fft([1.0, 0.0, 0.0]).tolist()
    [(1+0j), (1+0j), (1+0j)]
    """
    return _fft(x, n, axis, norm, False, "fft")


def ifft(x: Any, *, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """The inverse transform along an axis.

    >>> ifft([3.0, 0.0, 0.0]).tolist()
    [(1+0j), (1+0j), (1+0j)]
    """
    return _fft(x, n, axis, norm, True, "ifft")


def rfft(x: Any, *, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """The transform of real numbers: the entries 0 … n/2, of which the others are the conjugates.

    >>> rfft([1.0, 0.0, 0.0, 0.0]).tolist()
    [(1+0j), (1+0j), (1+0j)]
    """
    t, k = _at_length(_as_real(x, "rfft"), n, axis, "rfft")
    return _to_half(t, k, _scale(norm, False, "rfft"))


def _half_to_real(x: Tensor, n: Any, axis: int, scale: int, name: str) -> Tensor:
    k = one_axis(axis, x.ndim, name)
    length = _length((x.shape[k] - 1) * 2 if n is None else n, name)
    return _from_half(_resized(x, k, length // 2 + 1), k, (length,), scale)


def irfft(x: Any, *, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """The inverse of `rfft`: n real numbers (an even number by default) of half their spectrum.

    >>> irfft([1.0, 1.0, 1.0]).tolist()
    [1.0, 0.0, 0.0, 0.0]
    """
    return _half_to_real(_as_complex(x, "irfft"), n, axis, _scale(norm, True, "irfft"), "irfft")


def hfft(x: Any, *, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """The transform of a signal with Hermitian symmetry, of which half is given: n real numbers.

    >>> hfft([1.0, 1.0, 1.0]).tolist()
    [4.0, 0.0, 0.0, 0.0]
    """
    t = _conj(_as_complex(x, "hfft"))
    return _half_to_real(t, n, axis, _scale(norm, False, "hfft"), "hfft")


def ihfft(x: Any, *, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """The inverse of `hfft`: half of the signal of a real spectrum.

    >>> ihfft([4.0, 0.0, 0.0, 0.0]).tolist()
    [(1-0j), (1-0j), (1-0j)]
    """
    t, k = _at_length(_as_real(x, "ihfft"), n, axis, "ihfft")
    return _conj(_to_half(t, k, _scale(norm, True, "ihfft")))


# --------------------------------------------------------------------------------------------------- several axes

Sizes = Sequence[int] | None


def _axes(x: Tensor, s: Sizes, axes: Sizes, name: str) -> tuple[list[int], list[Any]]:
    """The axes, and the length of each or None."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    found = [one_axis(a, x.ndim, name) for a in axes]
    lengths: list[Any] = [None] * len(found) if s is None else list(s)
    if len(lengths) != len(found):
        raise ShapeError(f"{name}: s has {len(lengths)} lengths for {len(found)} axes")
    if len(set(found)) != len(found):
        raise ShapeError(f"{name}: axes {tuple(axes)} repeat an axis")
    return found, lengths


def _fftn(x: Any, s: Sizes, axes: Sizes, norm: str | None, inverse: bool, name: str) -> Tensor:
    t = _as_complex(x, name)
    scale = _scale(norm, inverse, name)
    for axis, n in reversed(list(zip(*_axes(t, s, axes, name)))):
        t = t if n is None else _resized(t, axis, _length(n, name))
        t = _complex(t, axis, int(inverse), scale)
    return t


def fftn(x: Any, *, s: Sizes = None, axes: Sizes = None, norm: str | None = "backward") -> Tensor:
    """The discrete Fourier transform over several axes, all by default.

    >>> fftn([[1.0, 0.0], [0.0, 0.0]]).tolist()
    [[(1+0j), (1+0j)], [(1+0j), (1+0j)]]
    """
    return _fftn(x, s, axes, norm, False, "fftn")


def ifftn(x: Any, *, s: Sizes = None, axes: Sizes = None, norm: str | None = "backward") -> Tensor:
    """The inverse transform over several axes, all by default.

    >>> ifftn([[4.0, 0.0], [0.0, 0.0]]).tolist()
    [[(1+0j), (1+0j)], [(1+0j), (1+0j)]]
    """
    return _fftn(x, s, axes, norm, True, "ifftn")


def _rfftn(x: Any, s: Sizes, axes: Sizes, norm: str | None, name: str) -> Tensor:
    t = _as_real(x, name)
    scale = _scale(norm, False, name)
    found, lengths = _axes(t, s, axes, name)
    if not found:
        raise ShapeError(f"{name}: needs at least one axis, got {describe(t)}")
    t, last = _at_length(t, lengths[-1], found[-1], name)
    return _fftn(_to_half(t, last, scale), None if s is None else s[:-1], found[:-1], norm, False, name)


def rfftn(x: Any, *, s: Sizes = None, axes: Sizes = None, norm: str | None = "backward") -> Tensor:
    """The transform of real numbers over several axes; the last one is halved, as by `rfft`.

    >>> rfftn([[1.0, 0.0], [0.0, 0.0]]).shape
    (2, 2)
    """
    return _rfftn(x, s, axes, norm, "rfftn")


def _irfftn(x: Any, s: Sizes, axes: Sizes, norm: str | None, name: str) -> Tensor:
    t = _as_complex(x, name)
    scale = _scale(norm, True, name)
    found, lengths = _axes(t, s, axes, name)
    if not found:
        raise ShapeError(f"{name}: needs at least one axis, got {describe(t)}")
    t = _fftn(t, None if s is None else s[:-1], found[:-1], norm, True, name)
    return _half_to_real(t, lengths[-1], found[-1], scale, name)


def irfftn(x: Any, *, s: Sizes = None, axes: Sizes = None, norm: str | None = "backward") -> Tensor:
    """The inverse of `rfftn`; give `s` where the last length is odd.

    >>> irfftn(rfftn([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return _irfftn(x, s, axes, norm, "irfftn")


def fft2(x: Any, *, s: Sizes = None, axes: Sizes = (-2, -1), norm: str | None = "backward") -> Tensor:
    """`fftn` over the last two axes.

    >>> fft2([[1.0, 0.0], [0.0, 0.0]]).tolist()
    [[(1+0j), (1+0j)], [(1+0j), (1+0j)]]
    """
    return _fftn(x, s, axes, norm, False, "fft2")


def ifft2(x: Any, *, s: Sizes = None, axes: Sizes = (-2, -1), norm: str | None = "backward") -> Tensor:
    """`ifftn` over the last two axes.

    >>> ifft2([[4.0, 0.0], [0.0, 0.0]]).tolist()
    [[(1+0j), (1+0j)], [(1+0j), (1+0j)]]
    """
    return _fftn(x, s, axes, norm, True, "ifft2")


def rfft2(x: Any, *, s: Sizes = None, axes: Sizes = (-2, -1), norm: str | None = "backward") -> Tensor:
    """`rfftn` over the last two axes.

    >>> rfft2([[1.0, 0.0], [0.0, 0.0]]).shape
    (2, 2)
    """
    return _rfftn(x, s, axes, norm, "rfft2")


def irfft2(x: Any, *, s: Sizes = None, axes: Sizes = (-2, -1), norm: str | None = "backward") -> Tensor:
    """`irfftn` over the last two axes.

    >>> irfft2(rfft2([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return _irfftn(x, s, axes, norm, "irfft2")


# --------------------------------------------------------------------------------------------- frequencies, shifts


def _frequencies(values: Any, n: int, d: float, dtype: Any, device: Any, name: str) -> Tensor:
    wanted = float32 if dtype is None else as_dtype(dtype)
    if not wanted.is_floating:
        raise DTypeError(f"{name}: dtype must be a real floating dtype, got {wanted}")
    return asarray(values(_length(n, name), d=d), dtype=wanted, device=device)


def fftfreq(n: int, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of the entries of `fft`, for samples a distance d apart.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    return _frequencies(np.fft.fftfreq, n, d, dtype, device, "fftfreq")


def rfftfreq(n: int, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of the entries of `rfft`, for samples a distance d apart.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    return _frequencies(np.fft.rfftfreq, n, d, dtype, device, "rfftfreq")


def _rolled(x: Any, axes: Any, back: bool, name: str) -> Tensor:
    t = as_tensor(x, name)
    given = range(t.ndim) if axes is None else (axes if isinstance(axes, (tuple, list)) else (axes,))
    found = tuple(one_axis(a, t.ndim, name) for a in given)
    shifts = tuple((-1 if back else 1) * (t.shape[a] // 2) for a in found)
    return roll(t, shifts, axis=found) if found else t


def fftshift(x: Any, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The entry of frequency 0 moved to the middle of the axes, all by default.

    >>> fftshift([0, 1, 2, -2, -1]).tolist()
    [-2, -1, 0, 1, 2]
    """
    return _rolled(x, axes, False, "fftshift")


def ifftshift(x: Any, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`.

    >>> ifftshift([-2, -1, 0, 1, 2]).tolist()
    [0, 1, 2, -2, -1]
    """
    return _rolled(x, axes, True, "ifftshift")
