"""Linear algebra and Fourier transforms on GPUs, by CuPy where it is installed: in place on our memory and our stream.

A kernel takes the operands as CuPy arrays and then the op's attributes, and returns its results, which are copied to
where the op wants them. What CuPy does for one matrix at a time is done matrix by matrix.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert import _core
from wengert.cuda.streams import Stream, current_stream
from wengert.errors import DeviceError, LinAlgError
from wengert.ops.fft import FORWARD, INVERSE
from wengert.tensors.device import device_of

Kernel = Callable[..., Sequence[Any]]
KERNELS: dict[str, Kernel] = {}


def install() -> None:
    """Tell the core which ops are computed here."""
    _core.cuda_set_library_kernels(KERNELS, run)


def _in_order(cp: Any, stream: Stream) -> Any:
    """A scope in which CuPy works on the stream. Only version 14 has `from_external`; it warns of `ExternalStream`."""
    external = getattr(cp.cuda.Stream, "from_external", None)
    return cp.cuda.ExternalStream(stream.cuda_stream) if external is None else external(stream)


def run(name: str, inputs: Sequence[Any], outputs: Sequence[Any], attributes: Sequence[Any]) -> None:
    """Compute an op on tensors of a GPU into others, by CuPy, on the GPU's current stream."""
    cp = _cupy(name)
    gpu, ordinal = _core.device_of(outputs[0]), device_of(outputs[0]).ordinal
    with cp.cuda.Device(ordinal), _in_order(cp, current_stream(ordinal)):
        try:
            _run_into(cp, name, inputs, outputs, attributes)
        except cp.cuda.memory.OutOfMemoryError:  # it has a pool of its own
            cp.get_default_memory_pool().free_all_blocks()
            _core.cuda_empty_pool(gpu)
            try:
                _run_into(cp, name, inputs, outputs, attributes)
            except cp.cuda.memory.OutOfMemoryError as error:
                raise MemoryError(f"{name}: {error}") from None


def _run_into(cp: Any, name: str, inputs: Sequence[Any], outputs: Sequence[Any], attributes: Sequence[Any]) -> None:
    results = KERNELS[name](*(_seen(cp, x) for x in inputs), *attributes)
    for y, made in zip(outputs, results, strict=True):
        _seen(cp, y)[...] = made


def _seen(cp: Any, x: Any) -> Any:
    """A CuPy array on the memory of a tensor. It does not outlive the call, so nothing has to be told of it."""
    size = x.dtype.itemsize
    dtype = np.dtype(x.dtype.to_numpy())
    if x.size == 0:
        return cp.empty(tuple(x.shape), dtype)
    low = sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True) if s > 0)
    memory = cp.cuda.UnownedMemory(x.data_ptr + low * size, (high - low + 1) * size, x)
    at = cp.cuda.MemoryPointer(memory, -low * size)
    return cp.ndarray(tuple(x.shape), dtype, at, strides=tuple(s * size for s in x.strides))


@functools.cache
def _module(name: str) -> Any:
    return importlib.import_module(name)


def _cupy(op: str) -> Any:
    try:
        return _module("cupy")
    except ImportError as error:
        raise DeviceError(
            f"{op}: has no CUDA kernel of its own; CuPy computes it, which cannot be imported ({error}): "
            'pip install "wengert[cupy]" (CUDA 13) or "wengert[cupy12]", or move the operands with cpu() and the result back'
        ) from None


def _scipy_linalg() -> Any:
    return _module("cupyx.scipy.linalg")


def kernel(f: Kernel) -> Kernel:
    """Register a function as the kernel of the op that it is named after."""
    KERNELS[f.__name__.removesuffix("_")] = f
    return f


# -------------------------------------------------------------------------------------------------------------- errors


def _refuse(op: str, a: Any, bad: Any, what: str) -> None:
    """Raise if any matrix is bad, as on the CPU. Waits for the GPU."""
    flags = np.atleast_1d(_module("cupy").asnumpy(bad))
    if not flags.any():
        return
    which = "the matrix"
    if a.ndim > 2:
        at = tuple(int(i[0]) for i in np.nonzero(flags))
        which = f"matrix ({at[0]},)" if len(at) == 1 else f"matrix {at}"
    raise LinAlgError(f"{op}: {which} of {a.dtype}{tuple(a.shape)} {what}")


def _finite(op: str, a: Any) -> None:
    cp = _module("cupy")
    _refuse(op, a, ~cp.isfinite(a).all(axis=(-2, -1)), "contains NaN or infinity")


def _each(a: Any, f: Callable[..., Any], *others: Any) -> list[Any]:
    """The results of f for every matrix of a stack, stacked: one list entry per result."""
    cp = _module("cupy")
    lead = a.shape[:-2]
    rows = [f(a[i], *(x[i] for x in others)) for i in itertools.product(*map(range, lead))]
    return [cp.stack(column).reshape(*lead, *column[0].shape) for column in zip(*rows, strict=True)]


def _is_empty(*arrays: Any) -> bool:
    return any(a.size == 0 for a in arrays)


def _zeros(*likes: tuple[Sequence[int], Any]) -> Sequence[Any]:
    cp = _module("cupy")
    return [cp.zeros(tuple(shape), dtype) for shape, dtype in likes]


# ----------------------------------------------------------------------------------------------------------- transforms


@kernel
def fft_complex(x: Any, axis: int, inverse: int, scale: int) -> Sequence[Any]:
    """Σⱼ e^(∓2πi jk/n) xⱼ."""
    fft = _module("cupy").fft
    if _is_empty(x):
        return [x]
    return [fft.ifft(x, axis=axis, norm=INVERSE[scale]) if inverse else fft.fft(x, axis=axis, norm=FORWARD[scale])]


@kernel
def fft_to_half(x: Any, axis: int, scale: int) -> Sequence[Any]:
    """The transform of real numbers."""
    return [_module("cupy").fft.rfft(x, axis=axis, norm=FORWARD[scale])]


@kernel
def fft_from_half(x: Any, axis: int, n: Any, scale: int) -> Sequence[Any]:
    """Real numbers from half a spectrum."""
    return [_module("cupy").fft.irfft(x, int(n[0]), axis=axis, norm=INVERSE[scale])]


# ------------------------------------------------------------------------------------------------ solving, determinants


def _adjoint(a: Any) -> Any:
    return a.swapaxes(-1, -2).conj()


@kernel
def lu_factor(a: Any) -> Sequence[Any]:
    """LAPACK's factors of the transpose, with pivots that count from 1, as on the CPU."""
    cp = _module("cupy")
    if _is_empty(a):
        return _zeros((a.shape, a.dtype), (a.shape[:-1], np.int32))

    def one(m: Any) -> tuple[Any, Any]:
        factors, pivots = _scipy_linalg().lu_factor(m.T, check_finite=False)
        return factors.T, (pivots + 1).astype(np.int32)

    factors, pivots = _each(a, one)
    diagonal = cp.diagonal(factors, axis1=-2, axis2=-1)
    _refuse("solve", a, (diagonal == 0).any(axis=-1), "is singular")
    return [factors, pivots]


@kernel
def lu_solve(factors: Any, pivots: Any, a: Any, b: Any, adjoint: int) -> Sequence[Any]:
    """A⁻¹ b or A⁻ᴴ b, from the factors of Aᵀ."""
    if _is_empty(b):
        return [b]

    def one(f: Any, p: Any, rhs: Any) -> tuple[Any]:
        solve = _scipy_linalg().lu_solve
        if adjoint:
            return (solve((f.T, p - 1), rhs.conj(), trans=0, check_finite=False).conj(),)
        return (solve((f.T, p - 1), rhs, trans=1, check_finite=False),)

    return _each(factors, one, pivots, b)


@kernel
def inv(a: Any, check: int) -> Sequence[Any]:
    """A⁻¹; NaN for singular matrices that are not refused."""
    cp = _module("cupy")
    if _is_empty(a):
        return [a]
    singular = cp.linalg.slogdet(a)[0] == 0
    if check:
        _refuse("inv", a, singular, "is singular")
    return [cp.where(singular[..., None, None], a.dtype.type(np.nan), cp.linalg.inv(a))]


@kernel
def det(a: Any) -> Sequence[Any]:
    """The determinant."""
    cp = _module("cupy")
    return [cp.linalg.det(a) if a.shape[-1] else cp.ones(a.shape[:-2], a.dtype)]


@kernel
def slogdet(a: Any) -> Sequence[Any]:
    """Sign and ln |·| of the determinant."""
    cp = _module("cupy")
    if a.shape[-1] == 0:
        return [cp.ones(a.shape[:-2], a.dtype), cp.zeros(a.shape[:-2], a.real.dtype)]
    sign, logarithm = cp.linalg.slogdet(a)
    return [sign, logarithm]


@kernel
def cofactor(a: Any) -> Sequence[Any]:
    """∂ det(A) / ∂Aᵢⱼ = det(U) det(Vᴴ) conj(U) diag(∏ₖ≠ᵢ sₖ) conj(Vᴴ): of singular matrices as well."""
    cp = _module("cupy")
    if _is_empty(a):
        return [a]
    u, s, vh = cp.linalg.svd(a, full_matrices=False)
    others = cp.where(cp.eye(s.shape[-1], dtype=bool), s.dtype.type(1), s[..., None, :]).prod(axis=-1)
    sign = (cp.linalg.det(u) * cp.linalg.det(vh))[..., None, None]
    return [sign * ((u.conj() * others[..., None, :]) @ vh.conj())]


@kernel
def solve_triangular(a: Any, b: Any, upper: int, adjoint: int, unit: int, right: int, check: int) -> Sequence[Any]:
    """op(A)⁻¹ b or b op(A)⁻¹, from one triangle of A."""
    cp = _module("cupy")
    if _is_empty(a, b):
        return [b]
    if check and not unit:
        zero = (cp.diagonal(a, axis1=-2, axis2=-1) == 0).any(axis=-1)
        _refuse("solve_triangular", a, zero, "is singular: it has a zero on its diagonal")

    def one(m: Any, rhs: Any) -> tuple[Any]:
        def solve(target: Any, conjugated: bool) -> Any:
            return _scipy_linalg().solve_triangular(
                m, target, trans=2 if conjugated else 0, lower=not upper, unit_diagonal=bool(unit), check_finite=False
            )

        if right:
            return (_adjoint(solve(_adjoint(rhs), not adjoint)),)
        return (solve(rhs, bool(adjoint)),)

    return _each(a, one, b)


# ------------------------------------------------------------------------------------------------------- factorisations


@kernel
def lu(a: Any) -> Sequence[Any]:
    """The permutation, L and U with A[permutation] = L U."""
    cp = _module("cupy")
    *lead, m, n = a.shape
    k = min(m, n)
    if _is_empty(a):
        order = cp.broadcast_to(cp.arange(m), (*lead, m))
        return [order, *_zeros(((*lead, m, k), a.dtype), ((*lead, k, n), a.dtype))]

    def one(matrix: Any) -> tuple[Any, Any, Any]:
        factors, pivots = _scipy_linalg().lu_factor(matrix, check_finite=False)
        order = np.arange(m)
        for i, p in enumerate(cp.asnumpy(pivots)):
            order[[i, p]] = order[[p, i]]
        low = cp.tril(factors[:, :k], -1) + cp.eye(m, k, dtype=a.dtype)
        return cp.asarray(order), low, cp.triu(factors[:k])

    return _each(a, one)


def _symmetric(a: Any) -> Any:
    return (a + _adjoint(a)) / 2


@kernel
def cholesky(a: Any) -> Sequence[Any]:
    """Lower triangular L with L Lᴴ = (A + Aᴴ)/2."""
    if _is_empty(a):
        return [a]
    cp = _module("cupy")
    with _module("cupyx").errstate(linalg="raise"):
        try:
            return [cp.tril(cp.linalg.cholesky(_symmetric(a)))]
        except np.linalg.LinAlgError:
            which = "the matrix" if a.ndim == 2 else "a matrix"
            raise LinAlgError(f"cholesky: {which} of {a.dtype}{tuple(a.shape)} is not positive definite") from None


@kernel
def qr(a: Any, complete: int) -> Sequence[Any]:
    """Q and R."""
    cp = _module("cupy")
    *lead, m, n = a.shape
    k = m if complete else min(m, n)
    if _is_empty(a):
        return [cp.broadcast_to(cp.eye(m, k, dtype=a.dtype), (*lead, m, k)), *_zeros(((*lead, k, n), a.dtype))]
    return _each(a, lambda x: cp.linalg.qr(x, mode="complete" if complete else "reduced"))


@kernel
def svd(a: Any, full: int) -> Sequence[Any]:
    """U, the singular values, and Vᴴ."""
    cp = _module("cupy")
    *lead, m, n = a.shape
    k = min(m, n)
    if _is_empty(a):
        p, q = (m, n) if full else (k, k)
        u, vh = (cp.broadcast_to(cp.eye(i, j, dtype=a.dtype), (*lead, i, j)) for i, j in ((m, p), (q, n)))
        return [u, cp.zeros((*lead, k), a.real.dtype), vh]
    _finite("svd", a)
    u, s, vh = cp.linalg.svd(a, full_matrices=bool(full))
    return [u, s, vh]


@kernel
def svdvals(a: Any) -> Sequence[Any]:
    """The singular values."""
    cp = _module("cupy")
    if _is_empty(a):
        return _zeros(((*a.shape[:-2], min(a.shape[-2:])), a.real.dtype))
    _finite("svdvals", a)
    return [cp.linalg.svd(a, compute_uv=False)]


@kernel
def pinv(a: Any, cutoff: Any) -> Sequence[Any]:
    """V diag(1/s) Uᴴ, without the s that are at most cutoff times the largest; and s."""
    cp = _module("cupy")
    *lead, m, n = a.shape
    if _is_empty(a):
        return _zeros(((*lead, n, m), a.dtype), ((*lead, min(m, n)), a.real.dtype))
    _finite("pinv", a)
    u, s, vh = cp.linalg.svd(a, full_matrices=False)
    kept = s > cutoff[..., None] * s[..., :1]
    inverse = cp.where(kept, 1 / cp.where(kept, s, 1), 0).astype(s.dtype)
    return [(_adjoint(vh) * inverse[..., None, :]) @ _adjoint(u), s]


@kernel
def eigh(a: Any) -> Sequence[Any]:
    """Eigenvalues and vectors of (A + Aᴴ)/2."""
    if _is_empty(a):
        return [*_zeros((a.shape[:-1], a.real.dtype)), a]
    _finite("eigh", a)
    values, vectors = _module("cupy").linalg.eigh(_symmetric(a))
    return [values, vectors]


@kernel
def eigvalsh(a: Any) -> Sequence[Any]:
    """Eigenvalues of (A + Aᴴ)/2."""
    if _is_empty(a):
        return _zeros((a.shape[:-1], a.real.dtype))
    _finite("eigvalsh", a)
    return [_module("cupy").linalg.eigvalsh(_symmetric(a))]


def _general(name: str) -> Any:
    f = getattr(_module("cupy").linalg, name, None)
    if f is None:
        raise DeviceError(f"{name}: has no CUDA kernel of its own, and this CuPy has none either; install a newer one")
    return f


@kernel
def eig(a: Any) -> Sequence[Any]:
    """Eigenvalues and vectors, which are complex."""
    kind = np.result_type(a.dtype, np.complex64)
    if _is_empty(a):
        return _zeros((a.shape[:-1], kind), (a.shape, kind))
    _finite("eig", a)
    return _each(a, lambda x: [y.astype(kind) for y in _general("eig")(x)])


@kernel
def eigvals(a: Any) -> Sequence[Any]:
    """Eigenvalues, which are complex."""
    kind = np.result_type(a.dtype, np.complex64)
    if _is_empty(a):
        return _zeros((a.shape[:-1], kind))
    _finite("eigvals", a)
    return _each(a, lambda x: [_general("eigvals")(x).astype(kind)])


# ---------------------------------------------------------------------------------------------------------- exponential


def _exponential(a: Any) -> Any:
    """By scaling and squaring of the Taylor polynomial of degree 18, to full precision after scaling to norm ½."""
    cp = _module("cupy")
    norm = float(cp.abs(a).sum(axis=-2).max())
    if not math.isfinite(norm):
        return cp.full_like(a, np.nan)
    squarings = max(0, math.ceil(math.log2(norm)) + 1) if norm > 0 else 0
    scaled = a / 2.0**squarings
    y = one = cp.broadcast_to(cp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    for k in range(18, 0, -1):
        y = one + scaled @ y / k
    for _ in range(squarings):
        y = y @ y
    return y


@kernel
def matrix_exp(a: Any) -> Sequence[Any]:
    """Σₖ Aᵏ/k!."""
    return [a] if _is_empty(a) else _each(a, lambda x: [_exponential(x)])


@kernel
def matrix_exp_push(a: Any, a_dot: Any) -> Sequence[Any]:
    """The derivative along a direction: a block of the exponential of [[A, Ȧ], [0, A]]."""
    cp = _module("cupy")
    n = a.shape[-1]
    if n == 0 or _is_empty(a):
        return [a]

    def one(x: Any, direction: Any) -> list[Any]:
        above, below = cp.concatenate([x, direction], axis=1), cp.concatenate([cp.zeros_like(x), x], axis=1)
        return [_exponential(cp.concatenate([above, below]))[:n, n:]]

    return _each(a, one, a_dot)
