"""Products, linear algebra, Fourier transforms."""

from __future__ import annotations

from typing import Any

import wengert as wg
from wengert.interop.numpy_functions.registry import cast, function
from wengert.tensors.arguments import as_tensor


@function("einsum")
def _einsum(*operands: Any, out: Any = None, dtype: Any = None, order: str = "K", casting: str = "safe",
            optimize: Any = False) -> Any:  # fmt: skip
    return cast(wg.einsum(*operands), dtype)


@function("dot")
def _dot(a: Any, b: Any, out: Any = None) -> Any:
    x, y = as_tensor(a, "dot"), as_tensor(b, "dot")
    if x.ndim == 0 or y.ndim == 0:
        return x * y
    return wg.tensordot(x, y, axes=((-1,), (-2 if y.ndim > 1 else -1,)))


@function("inner")
def _inner(a: Any, b: Any) -> Any:
    x, y = as_tensor(a, "inner"), as_tensor(b, "inner")
    return x * y if x.ndim == 0 or y.ndim == 0 else wg.tensordot(x, y, axes=((-1,), (-1,)))


@function("vdot")
def _vdot(a: Any, b: Any) -> Any:
    return wg.vecdot(wg.flatten(a), wg.flatten(b))


@function("outer")
def _outer(a: Any, b: Any, out: Any = None) -> Any:
    return wg.outer(wg.flatten(a), wg.flatten(b))


@function("cross")
def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    return wg.moveaxis(wg.linalg.cross(wg.moveaxis(a, axisa, -1), wg.moveaxis(b, axisb, -1)), -1, axisc)


@function("linalg.svd")
def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    return wg.linalg.svd(a, full_matrices=full_matrices) if compute_uv else wg.linalg.svdvals(a)


@function("linalg.lstsq")
def _lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    return wg.linalg.lstsq(a, b, rtol=rcond)


@function("fft.fft2")
def _fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
    return wg.fft.fftn(a, s=s, axes=axes, norm=norm or "backward")


@function("fft.ifft2")
def _ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
    return wg.fft.ifftn(a, s=s, axes=axes, norm=norm or "backward")


@function("fft.rfft2")
def _rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
    return wg.fft.rfftn(a, s=s, axes=axes, norm=norm or "backward")


@function("fft.irfft2")
def _irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None) -> Any:
    return wg.fft.irfftn(a, s=s, axes=axes, norm=norm or "backward")
