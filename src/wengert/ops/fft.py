"""Discrete Fourier transforms along one axis: the complex one, and those between real numbers and half a spectrum.

All are linear. The adjoint of Σⱼ e^(−2πi jk/n) xⱼ is the transform with the other sign. Of a real signal only half the
spectrum is kept; the entries in between stand for two of the whole one each, which is where weights of 2 and ½ come from.
The kernels are NumPy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wengert import _core
from wengert.ops.shape import broadcast_to, iota, reshape
from wengert.ops.tangents import where
from wengert.program.trace import create
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Array, Invalid, Sample, real
from wengert.registry.samples import complex as spectrum
from wengert.tensors.conversion import asarray

# By the op's attribute `scale`: 1, 1/√n, 1/n.
FORWARD: Any = ("backward", "ortho", "forward")
INVERSE: Any = ("forward", "ortho", "backward")


def _complex(x: Any, axis: int, inverse: int, scale: int) -> Any:
    if inverse:
        return np.fft.ifft(x, axis=axis, norm=INVERSE[scale])
    return np.fft.fft(x, axis=axis, norm=FORWARD[scale])


def _to_half(x: Any, axis: int, scale: int) -> Any:
    return np.fft.rfft(x, axis=axis, norm=FORWARD[scale])


def _from_half(x: Any, axis: int, n: Any, scale: int) -> Any:
    return np.fft.irfft(x, n[0], axis=axis, norm=INVERSE[scale])


def _kernel(f: Any, dtypes: dict[str, str]) -> Any:
    """f on tensors. NumPy before 2.0 computes in double always."""

    def call(x: Any, *attrs: Any) -> Any:
        y = f(x.numpy(), *attrs)
        return (asarray(np.ascontiguousarray(y, dtypes[x.dtype.name])),)

    return call


_SAME = {"complex64": "complex64", "complex128": "complex128"}
_core.set_kernel("fft_complex", _kernel(_complex, _SAME))
_core.set_kernel("fft_to_half", _kernel(_to_half, {"float32": "complex64", "float64": "complex128"}))
_core.set_kernel("fft_from_half", _kernel(_from_half, {"complex64": "float32", "complex128": "float64"}))


def _weighted(x: Any, axis: int, n: Any, between: float) -> Any:
    """Half a spectrum of n numbers with the entries between 0 and n/2 times a weight."""
    m = x.shape[axis]
    k = create(iota, ((m,), _INT64, 0.0, 1.0))
    if isinstance(n, _core.Dim):
        n = create(OPS["size_scalar"], ((n,), _INT64))
    weight = where(OPS["logical_or"](k == 0, k + k == n), 1.0, between)
    weight = OPS["cast"](weight, x.dtype.code)
    return x * broadcast_to(reshape(weight, tuple(m if i == axis else 1 for i in range(x.ndim))), x.shape)


_INT64 = next(code for code, row in enumerate(_core.dtype_table) if row[0] == "int64")


fft_complex: Op = define(
    "fft_complex",
    work="sorting",
    precision="full",
    formula="Σⱼ e^(∓2πi jk/n) xⱼ",
    reference=_complex,
    jvp="linear",
    transpose=lambda y_bar, x, axis, inverse, scale: fft_complex(y_bar, axis, 1 - inverse, scale),
    sparsity="axis",
    vmap="axes",
    samples=[
        Sample((spectrum(5),), (0, 0, 0)),
        Sample((spectrum(2, 6),), (1, 1, 2)),
        Sample((spectrum(4, 3),), (0, 0, 1)),
        Sample((spectrum(1),), (0, 1, 0)),
        Sample((spectrum(0, 4),), (1, 0, 0)),
    ],
    invalid=[
        Invalid((real(3),), (0, 0, 0), "DTypeError", "takes complex64 or complex128"),
        Invalid((spectrum(3),), (1, 0, 0), "ShapeError", "axis 1"),
        Invalid((spectrum(0),), (0, 0, 0), "ArgumentError", "empty"),
    ],
    expensive=True,
    public=False,
)


def _signal(*shape: int) -> Array:
    """Real numbers, not in half precision: NumPy transforms none."""
    return real(*shape)._replace(form="wide")


fft_to_half: Op = define(
    "fft_to_half",
    work="sorting",
    precision="full",
    formula="Σⱼ e^(−2πi jk/n) xⱼ of real numbers, for k = 0 … n/2",
    reference=_to_half,
    jvp="linear",
    transpose=lambda y_bar, x, axis, scale: fft_from_half(
        _weighted(y_bar, axis, x.shape[axis], 0.5), axis, (x.shape[axis],), scale
    ),
    sparsity="axis",
    vmap="axes",
    samples=[
        Sample((_signal(6),), (0, 0)),
        Sample((_signal(2, 5),), (1, 1)),
        Sample((_signal(4, 3),), (0, 2)),
        Sample((_signal(1),), (0, 0)),
        Sample((_signal(2),), (0, 0)),
    ],
    invalid=[Invalid((spectrum(3),), (0, 0), "DTypeError", "takes float32 or float64")],
    expensive=True,
    public=False,
)
fft_from_half: Op = define(
    "fft_from_half",
    work="sorting",
    precision="full",
    formula="Σₖ e^(+2πi jk/n) xₖ of half a spectrum, for j = 0 … n − 1",
    reference=_from_half,
    jvp="linear",
    transpose=lambda y_bar, x, axis, n, scale: _weighted(fft_to_half(y_bar, axis, scale), axis, n[0], 2.0),
    sparsity="axis",
    vmap="axes",
    samples=[
        Sample((spectrum(4),), (0, (6,), 0)),
        Sample((spectrum(2, 3),), (1, (5,), 1)),
        Sample((spectrum(3, 2),), (0, (4,), 2)),
        Sample((spectrum(1),), (0, (1,), 0)),
    ],
    invalid=[Invalid((spectrum(3),), (0, (9,), 0), "ShapeError", "has 5 entries")],
    expensive=True,
    public=False,
)
