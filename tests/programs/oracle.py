"""The judge of random programs: the same text run on NumPy arrays, differentiated by a complex step.

`wg` in a program's text is `Model` here, and its tensors are arrays of complex128. A derivative along v is the imaginary
part of f(x + i·h·v) / h at h = 1e-20: no difference is taken, so first derivatives are exact to rounding. The second is a
difference quotient of the first. Nothing here shares an algorithm with wengert.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import special

Arrays = Sequence[np.ndarray[Any, Any]]

COMPLEX_STEP = 1e-20


class Array(np.ndarray[Any, Any]):
    """An array with a tensor's methods. It never becomes a scalar: what is written through x[0, 0] must reach x."""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return np.asarray(array).view(Array)

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        return super().__getitem__(keys if any(k is ... for k in keys) else (*keys, ...))

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:  # type: ignore[override]
        return array(np.sum(np.asarray(self), axis=axis, keepdims=keepdims))

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:  # type: ignore[override]
        return array(np.mean(np.asarray(self), axis=axis, keepdims=keepdims))

    def __abs__(self) -> Any:
        return array(np.where(self.real < 0, -self, self))

    def clone(self) -> Any:
        return self.copy()

    def detach(self) -> Any:
        return array(np.array(self.real))

    def copy_(self, other: Any) -> Any:
        self[...] = other
        return self

    fill_ = copy_

    def zero_(self) -> Any:
        return self.copy_(0.0)

    def add_(self, other: Any) -> Any:
        return self.copy_(self + other)

    def sub_(self, other: Any) -> Any:
        return self.copy_(self - other)

    def mul_(self, other: Any) -> Any:
        return self.copy_(self * other)

    def div_(self, other: Any) -> Any:
        return self.copy_(self / other)

    def sin_(self) -> Any:
        return self.copy_(np.sin(self))

    def tanh_(self) -> Any:
        return self.copy_(np.tanh(self))


def array(a: Any) -> Array:
    """An array of the model."""
    return np.asarray(a, np.complex128).view(Array)


def _softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - np.max(x.real, axis=axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=axis, keepdims=True)


def _logsumexp(x: Any, axis: int, keepdims: bool = False) -> Any:
    shift = np.max(x.real, axis=axis, keepdims=True)
    y = np.log(np.exp(x - shift).sum(axis=axis, keepdims=True)) + shift
    return y if keepdims else array(np.squeeze(y, axis))


def _layer_norm(x: Any, normalized_shape: Any, eps: float) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + eps)


def _huber_loss(a: Any, b: Any, delta: float, reduction: str) -> Any:
    assert reduction == "sum"
    d = a - b
    size = np.where(d.real < 0, -d, d)
    return array(np.where(size.real < delta, 0.5 * d * d, delta * (size - 0.5 * delta))).sum()


def _by_real_part(pick: Callable[..., Any], x: Any, axis: int, **options: Any) -> Any:
    """The elements that a function of real numbers picks by their indices."""
    return array(np.take_along_axis(np.asarray(x), pick(np.asarray(x).real, axis=axis, **options), axis))


def _segments(x: Any, ids: Any, num_segments: int) -> Any:
    made = np.zeros((num_segments, *x.shape[1:]), np.complex128)
    np.add.at(made, np.asarray(ids), np.asarray(x))
    return made


def _counts(ids: Any, num_segments: int) -> Any:
    return np.maximum(np.bincount(np.asarray(ids), minlength=num_segments), 1)[:, None]


def _largest_of_rows(rows: Any, hit: Any) -> Any:
    """The largest of each column of rows that count, with the mean of those that tie; 0 where none counts."""
    x, hit = np.asarray(rows), np.broadcast_to(hit, np.shape(rows))
    best = np.max(x.real, axis=0, where=hit, initial=-np.inf)
    tied = hit & (x.real == best)
    return np.sum(np.where(tied, x, 0.0), axis=0) / np.maximum(tied.sum(axis=0), 1)


def _indices_of_running_maximum(x: Any, axis: int) -> Any:
    running = np.maximum.accumulate(x, axis=axis)
    places = np.expand_dims(np.arange(x.shape[axis]), tuple(k for k in range(x.ndim) if k != axis % x.ndim))
    new = np.concatenate([np.ones_like(np.take(x, [0][: x.shape[axis]], axis), bool),
                          np.diff(running, axis=axis) > 0], axis)  # fmt: skip
    return np.maximum.accumulate(np.where(new, places, 0), axis=axis)


def _grid_sample(x: Any, grid: Any, padding_mode: str = "zeros", align_corners: bool = False) -> Any:
    """Bilinear interpolation of one image with one channel, element by element."""
    image, points = np.asarray(x)[0, 0], np.asarray(grid)[0]
    if image.size == 0:
        raise IndexError("there is nothing to interpolate")
    sizes = image.shape[::-1]  # a point is (x, y)

    def place(coordinate: Any, n: int) -> Any:
        at = (coordinate + 1) / 2 * (n - 1) if align_corners else ((coordinate + 1) * n - 1) / 2
        if padding_mode == "border":
            at = 0.0 if at.real < 0 else n - 1.0 if at.real > n - 1 else at
        return np.complex128(at)

    made = np.zeros(points.shape[:-1], np.complex128)
    for k in np.ndindex(*made.shape):
        u, v = (place(points[k][axis], sizes[axis]) for axis in (0, 1))
        left, top = int(np.floor(u.real)), int(np.floor(v.real))
        for i, wi in ((left, 1 - (u - left)), (left + 1, u - left)):
            for h, wh in ((top, 1 - (v - top)), (top + 1, v - top)):
                if 0 <= i < sizes[0] and 0 <= h < sizes[1]:
                    made[k] += image[h, i] * wi * wh
    return array(made[None, None])


def of_numpy(f: Callable[..., Any]) -> Any:
    """NumPy's function of arrays, as one of the model's."""
    return staticmethod(lambda *args, **options: array(f(*args, **options)))


class Model:
    """What programs call of wengert, for complex numbers; branches look at the real part."""

    sin, cos, tanh, exp, sqrt, log1p = np.sin, np.cos, np.tanh, np.exp, np.sqrt, np.log1p
    atan, asinh, square, reciprocal = np.arctan, np.arcsinh, np.square, np.reciprocal
    grid_sample = staticmethod(_grid_sample)
    softmax, logsumexp, layer_norm, huber_loss = _softmax, _logsumexp, _layer_norm, _huber_loss
    roll, concat, cumsum, cumprod, prod, flip, tile, repeat, stack, pad, einsum = map(
        of_numpy,
        (
            np.roll,
            np.concatenate,
            np.cumsum,
            np.cumprod,
            np.prod,
            np.flip,
            np.tile,
            np.repeat,
            np.stack,
            np.pad,
            np.einsum,
        ),
    )

    arange = staticmethod(np.arange)
    tril, triu, diff = map(of_numpy, (np.tril, np.triu, np.diff))

    @staticmethod
    def segment_sum(x: Any, ids: Any, num_segments: int) -> Any:
        return array(_segments(x, ids, num_segments))

    @staticmethod
    def segment_mean(x: Any, ids: Any, num_segments: int) -> Any:
        return array(_segments(x, ids, num_segments) / _counts(ids, num_segments))

    @staticmethod
    def segment_max(x: Any, ids: Any, num_segments: int) -> Any:
        return array([_largest_of_rows(x, np.asarray(ids)[:, None] == k) for k in range(num_segments)])

    @staticmethod
    def scatter_reduce(x: Any, index: Any, src: Any, axis: int, reduce: str, include_self: bool = True) -> Any:
        assert axis == 0
        made: list[Any] = []
        for k in range(len(x)):
            falls = np.asarray(index)[:, :1].real == k  # all columns have the same places
            hit = np.concatenate([[[include_self or not falls.any()]], falls])
            rows = np.concatenate([np.asarray(x)[k : k + 1], np.asarray(src)])
            if reduce in ("amax", "amin"):
                sign = 1 if reduce == "amax" else -1
                made.append(sign * _largest_of_rows(sign * rows, hit))
            else:
                whole = {"prod": np.prod, "sum": np.sum, "mean": np.sum}[reduce](rows, axis=0, where=hit)
                made.append(whole / hit.sum() if reduce == "mean" else whole)
        return array(np.stack(made)) if made else array(np.zeros(x.shape))

    @staticmethod
    def cdist(a: Any, b: Any) -> Any:
        d = np.asarray(a)[:, None] - np.asarray(b)[None]
        return array(np.sqrt((d * d).sum(axis=-1)))

    @staticmethod
    def embedding_bag(index: Any, weight: Any, mode: str) -> Any:
        rows = np.asarray(weight)[np.asarray(index).real.astype(int)]
        return array(rows.sum(axis=1) if mode == "sum" else _largest_of_rows(np.moveaxis(rows, 1, 0), True))

    @staticmethod
    def cummax(x: Any, axis: int) -> Any:
        return SimpleNamespace(values=_by_real_part(_indices_of_running_maximum, x, axis))

    @staticmethod
    def cummin(x: Any, axis: int) -> Any:
        return SimpleNamespace(values=-Model.cummax(-x, axis).values)

    @staticmethod
    def sort(x: Any, axis: int) -> Any:
        return _by_real_part(np.argsort, x, axis, kind="stable")

    @staticmethod
    def median(x: Any, axis: int, keepdims: bool = False) -> Any:
        return Model.quantile(x, 0.5, axis, keepdims)

    @staticmethod
    def quantile(x: Any, q: float, axis: int, keepdims: bool = False) -> Any:
        ordered = np.moveaxis(np.asarray(Model.sort(x, axis)), axis, 0)
        place = q * (len(ordered) - 1)
        low = int(np.floor(place))
        y = ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])
        return array(np.expand_dims(y, axis) if keepdims else y)

    @staticmethod
    def checkpoint(f: Any, *args: Any) -> Any:
        return f(*args)

    @staticmethod
    def no_grad() -> Any:
        return lambda f: f

    @staticmethod
    def erf(x: Any) -> Any:
        return array(special.erf(np.asarray(x)))

    @staticmethod
    def sigmoid(x: Any) -> Any:
        return 1.0 / (1.0 + np.exp(-x))

    @staticmethod
    def where(c: Any, a: Any, b: Any) -> Any:
        return array(np.where(c, a, b))

    @staticmethod
    def leaky_relu(x: Any, slope: float) -> Any:
        return array(np.where(x.real > 0, x, slope * x))

    @staticmethod
    def elu(x: Any, alpha: float) -> Any:
        return array(np.where(x.real > 0, x, alpha * np.expm1(x)))

    @staticmethod
    def celu(x: Any, alpha: float) -> Any:
        return array(np.where(x.real > 0, x, alpha * np.expm1(x / alpha)))

    @staticmethod
    def softplus(x: Any) -> Any:
        return np.log1p(np.exp(x))

    @staticmethod
    def silu(x: Any) -> Any:
        return x / (1.0 + np.exp(-x))

    @staticmethod
    def gelu(x: Any) -> Any:
        return 0.5 * x * (1.0 + Model.erf(x * np.sqrt(0.5)))

    @staticmethod
    def rsqrt(x: Any) -> Any:
        return 1.0 / np.sqrt(x)

    @staticmethod
    def hypot(a: Any, b: Any) -> Any:
        return np.sqrt(a * a + b * b)

    @staticmethod
    def atan2(a: Any, b: Any) -> Any:
        return np.arctan(a / b)  # b is positive

    @staticmethod
    def logaddexp(a: Any, b: Any) -> Any:
        shift = np.maximum(a.real, b.real)
        return np.log(np.exp(a - shift) + np.exp(b - shift)) + shift

    @staticmethod
    def maximum(a: Any, b: Any) -> Any:
        larger = Model.where(a.real > b.real, a, b)
        return Model.where((a.real == b.real) | np.isnan(a + b), (a + b) / 2, larger)

    @staticmethod
    def minimum(a: Any, b: Any) -> Any:
        return -Model.maximum(-a, -b)

    @staticmethod
    def clip(x: Any, low: float, high: float) -> Any:
        return Model.where(x.real < low, low, Model.where(x.real > high, high, x))

    @staticmethod
    def max(x: Any, axis: int) -> Any:
        tied = np.asarray(x.real == np.max(x.real, axis=axis, keepdims=True))
        return array(np.sum(np.where(tied, x, 0.0), axis=axis) / np.sum(tied, axis=axis))

    @staticmethod
    def min(x: Any, axis: int) -> Any:
        return -Model.max(-x, axis)

    @staticmethod
    def var(x: Any, axis: int) -> Any:
        centred = x - x.mean(axis=axis, keepdims=True)
        return (centred * centred).mean(axis=axis)

    @staticmethod
    def log_softmax(x: Any, axis: int) -> Any:
        return x - _logsumexp(x, axis, keepdims=True)

    @staticmethod
    def rms_norm(x: Any, normalized_shape: Any, eps: float) -> Any:
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)

    @staticmethod
    def cross_entropy(x: Any, target: Any, label_smoothing: float) -> Any:
        share = float(label_smoothing)  # not in the precision of a np.float32
        smooth = (1.0 - share) * target + share / x.shape[1]
        return -(smooth * Model.log_softmax(x, 1)).sum(axis=1).mean()

    @staticmethod
    def cond(pred: Any, true_fn: Any, false_fn: Any, *operands: Any) -> Any:
        return (true_fn if pred else false_fn)(*operands)

    @staticmethod
    def switch(index: Any, fns: Any, *operands: Any) -> Any:
        return fns[min(max(int(index), 0), len(fns) - 1)](*operands)

    @staticmethod
    def fori_loop(lower: int, upper: int, body_fn: Any, init: Any) -> Any:
        for i in range(lower, upper):
            init = body_fn(i, init)
        return init

    @staticmethod
    def while_loop(cond_fn: Any, body_fn: Any, init: Any, checkpoints: Any = None) -> Any:
        carry = init
        while cond_fn(carry):
            carry = body_fn(carry)
        return tuple(x.copy() if isinstance(x, Array) else x for x in carry)  # never what was given

    @staticmethod
    def scan(body_fn: Any, init: Any, xs: Any, reverse: bool = False) -> Any:
        made: list[Any] = []
        for t in reversed(range(len(xs))) if reverse else range(len(xs)):
            init, y = body_fn(init, xs[t])
            made.append(y)
        last = tuple(c.copy() for c in init) if isinstance(init, tuple) else init.copy()  # never what was given
        return last, array(np.stack(made[::-1] if reverse else made) if made else np.zeros(xs.shape))

    @staticmethod
    def associative_scan(fn: Any, xs: Any, reverse: bool = False, axis: int = 0) -> Any:
        assert axis == 0
        parts = xs if isinstance(xs, tuple) else (xs,)
        made: list[Any] = []
        for t in reversed(range(len(parts[0]))) if reverse else range(len(parts[0])):
            element = tuple(p[t] for p in parts)
            given = [x if isinstance(xs, tuple) else x[0] for x in (made[-1] if made else element, element)]
            y = fn(*given) if made else given[1]
            made.append(y if isinstance(xs, tuple) else (y,))
        rows = zip(*(made[::-1] if reverse else made)) if made else ([] for _ in parts)
        stacked = tuple(array(np.stack(row) if row else np.zeros(p.shape)) for row, p in zip(rows, parts))
        return stacked if isinstance(xs, tuple) else stacked[0]

    @staticmethod
    def broadcast_to(x: Any, shape: Any) -> Any:
        return np.broadcast_to(x, shape, subok=True)


def evaluate(f: Callable[..., Any], xs: Arrays) -> list[np.ndarray[Any, Any]]:
    """The results of a program of the model, on copies of the arrays."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        return [np.array(y) for y in f(*(array(np.array(x, np.complex128)) for x in xs))]


def inner(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """Σ a·b over two lists of arrays, without conjugation."""
    return sum((np.sum(np.asarray(x) * np.asarray(y)) for x, y in zip(a, b)), np.float64(0.0))


def value(f: Callable[..., Any], xs: Arrays, cs: Arrays) -> float:
    """⟨c, f(x)⟩."""
    return float(inner(cs, evaluate(f, xs)).real)


def first(f: Callable[..., Any], xs: Arrays, cs: Arrays, vs: Arrays) -> float:
    """⟨c, J v⟩, which is ⟨Jᵀ c, v⟩."""
    moved = [x + 1j * COMPLEX_STEP * v for x, v in zip(xs, vs)]
    return float(inner(cs, evaluate(f, moved)).imag / COMPLEX_STEP)


# Of fourth order: what the values at -2h … 2h are multiplied with, and the power of h that it is divided by.
_FIRST_DIFFERENCE = ((1 / 12, -8 / 12, 0.0, 8 / 12, -1 / 12), 1)
_SECOND_DIFFERENCE = ((-1 / 12, 16 / 12, -30 / 12, 16 / 12, -1 / 12), 2)


def second(f: Callable[..., Any], xs: Arrays, cs: Arrays, vs: Arrays, ws: Arrays) -> tuple[float, float]:
    """⟨w, H v⟩ with H the Hessian of ⟨c, f⟩, and how far it can be trusted."""
    return _along(lambda moved: first(f, moved, cs, vs), xs, ws, _FIRST_DIFFERENCE, 1e-5)


def third(f: Callable[..., Any], xs: Arrays, cs: Arrays, vs: Arrays, ws: Arrays) -> tuple[float, float]:
    """The derivative of ⟨w, H v⟩ along w, and how far it can be trusted."""
    return _along(lambda moved: first(f, moved, cs, vs), xs, ws, _SECOND_DIFFERENCE, 1e-4)


def _along(g: Callable[[Arrays], float], xs: Arrays, ws: Arrays, difference: Any, step: float) -> tuple[float, float]:
    weights, power = difference

    def quotient(h: float) -> float:
        values = (g([x + t * h * w for x, w in zip(xs, ws)]) for t in range(-2, 3))
        return float(sum(weight * value for weight, value in zip(weights, values)) / h**power)

    # So short that hardly an element of a large array lies beside a kink: many that do add up to a smooth sum.
    coarse, fine = quotient(4 * step), quotient(step)
    return fine, abs(fine - coarse)
