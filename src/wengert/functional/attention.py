"""Attention and rotary positions."""

from __future__ import annotations

import math
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.compiling.compile import checked_composite, composite
from wengert.dtypes import bool_, float32
from wengert.errors import ArgumentError, DTypeError, ShapeError
from wengert.functional.dropout import check_probability, reserve
from wengert.program.numbers import as_real
from wengert.program.trace import broadcast_shapes
from wengert.registry.precision import uncast
from wengert.tensors.arguments import as_dtype_of, as_floating, as_tensor, describe, full, iota, native, promoted

_attention, _broadcast_to, _reshape, _where = (native(n) for n in ("attention", "broadcast_to", "reshape", "where"))
_exp, _sin, _cos, _slice, _concat = (native(n) for n in ("exp", "sin", "cos", "slice", "concat"))

_NAME = "scaled_dot_product_attention"


def _operands(q: Any, k: Any, v: Any) -> list[Tensor]:
    xs = promoted([as_floating(as_tensor(x, _NAME)) for x in (q, k, v)])
    if not xs[0].dtype.is_floating:
        raise DTypeError(f"{_NAME}: operands must be real numbers, got {describe(xs[0])}")
    if any(x.ndim < 2 for x in xs):
        shapes = ", ".join(describe(x) for x in xs)
        raise ShapeError(f"{_NAME}: q, k and v must have shape (…, positions, features), got {shapes}")
    return xs


def _mask(mask: Any, like: Tensor, ndim: int) -> Tensor:
    """The mask with `ndim` axes, bool or in the dtype of the scores; one that hides nothing if there is none."""
    if mask is None:
        return full((1,) * ndim, 1.0, bool_, like=like)
    m = as_tensor(mask, _NAME)
    if m.dtype.code != bool_.code:
        if not m.dtype.is_floating:
            raise DTypeError(
                f"{_NAME}: attn_mask must be boolean (True: takes part) or floating (added to the scores), got {describe(m)}"
            )
        m = as_dtype_of(m, float32 if like.dtype.itemsize == 2 else like.dtype)
    return _reshape(m, (*(1,) * (ndim - m.ndim), *m.shape)) if m.ndim < ndim else m


def _spread(x: Tensor, batch: tuple[Any, ...]) -> Tensor:
    shape = (*batch, *x.shape[-2:])
    return x if tuple(x.shape) == shape else _broadcast_to(x, shape)


def _attended(q: Any, k: Any, v: Any, attn_mask: Any, is_causal: bool, scale: float | None, p: float) -> Tensor:
    a, b, c = _operands(q, k, v)
    m = _mask(attn_mask, a, max(a.ndim, b.ndim, c.ndim))
    batch = broadcast_shapes(_NAME, a.shape[:-2], b.shape[:-2], c.shape[:-2], m.shape[:-2])
    if m.ndim < len(batch) + 2:
        m = _reshape(m, (*(1,) * (len(batch) + 2 - m.ndim), *m.shape))
    factor = 1.0 / math.sqrt(max(1, int(a.shape[-1]))) if scale is None else scale
    key, counter = ((0, 0), (0,))
    if p > 0.0:
        key, counter = reserve((*batch, a.shape[-2], b.shape[-2]), None, a)
    if p == 1.0:
        c, p = c * 0.0, 0.0
    o: Any = _attention(
        _spread(a, batch), _spread(b, batch), _spread(c, batch), m, factor, int(is_causal), p, key, counter
    )
    y: Tensor = o[0]
    return y


def _tensors(q: Any, k: Any, v: Any, attn_mask: Any, is_causal: bool, scale: float | None) -> tuple[Any, ...]:
    q, k, v = (as_tensor(x, _NAME) for x in (q, k, v))
    return q, k, v, None if attn_mask is None else as_tensor(attn_mask, _NAME), is_causal, scale


# Small attention costs less than the checks of its arguments.
@checked_composite(_tensors, precision="low", functions=("scaled_dot_product_attention",))
def _attended_without_dropout(q: Any, k: Any, v: Any, attn_mask: Any, is_causal: bool, scale: float | None) -> Any:
    return _attended(q, k, v, attn_mask, is_causal, scale, 0.0)


def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    attn_mask: Any = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    enable_gqa: bool = False,
    window: int | tuple[int, int] | None = None,
) -> Tensor:
    """softmax(scale · q kᵀ + mask) v, with q (…, T, d), k (…, S, d) and v (…, S, e) (Vaswani et al., 2017).

    Leading axes broadcast. `attn_mask` broadcasts to (…, T, S): booleans (True: takes part) or numbers that are
    added. `is_causal`: position i sees positions 0 … i, also where T ≠ S. `scale` is 1/√d by default. `dropout_p` of the
    weights are dropped. A query that sees nothing gives zeros.

    `enable_gqa`: q (…, heads, T, d) has a multiple of the heads of k and v, which groups of query heads share (Ainslie et
    al., "GQA", 2023). `window`: position i sees only positions i − window … i + window, or (before, after); together
    with `is_causal` it is the sliding window of Mistral and others. The mask for it has T · S elements.

    Computed block by block: memory grows with T, not with T · S, in the forward pass, the backward pass and forward mode
    (Dao et al., 2022). A second derivative, or the gradient of a mask, holds all T · S weights.

    >>> import wengert as wg
    >>> q = wg.tensor([[1.0, 0.0]])
    >>> scaled_dot_product_attention(q, q, wg.tensor([[2.0, 3.0]])).tolist()
    [[2.0, 3.0]]
    """
    p = check_probability(dropout_p, _NAME)
    if window is not None:
        attn_mask = _windowed(q, k, attn_mask, window)
    if enable_gqa:
        return _grouped(q, k, v, attn_mask, is_causal, p, scale)
    is_causal, scale = bool(is_causal), None if scale is None else as_real(scale)
    if p == 0.0:
        y: Tensor = _attended_without_dropout(q, k, v, attn_mask, is_causal, scale)
        return y
    q, k, v = _core.cast_operands(_attended_without_dropout, [as_tensor(x, _NAME) for x in (q, k, v)])
    with uncast():
        return _attended(q, k, v, attn_mask, is_causal, scale, p)


def within_window(queries: Any, keys: Any, window: int | tuple[int, int]) -> Any:
    """Which keys lie in the windows of which queries, (queries, keys)."""
    before, after = (window, window) if isinstance(window, int) else window
    if before < 0 or after < 0:
        raise ArgumentError(f"{_NAME}: window must not be negative, got {window}")
    ahead: Any = iota(keys) - _reshape(iota(queries), (queries, 1))
    return (ahead >= -before) & (ahead <= after)


def _windowed(q: Any, k: Any, mask: Any, window: int | tuple[int, int]) -> Any:
    """The mask that also hides what lies outside of the window."""
    near = within_window(as_tensor(q, _NAME).shape[-2], as_tensor(k, _NAME).shape[-2], window)
    if mask is None:
        return near
    m = as_tensor(mask, _NAME)
    return near & m if m.dtype.code == bool_.code else _where(near, m, -math.inf)


def _grouped(q: Any, k: Any, v: Any, mask: Any, is_causal: bool, p: float, scale: float | None) -> Tensor:
    """Heads of queries in groups along an axis of its own, over which keys and values broadcast."""
    a, b, c = _operands(q, k, v)
    if min(a.ndim, b.ndim, c.ndim) < 3 or b.shape[-3] != c.shape[-3] or a.shape[-3] % b.shape[-3]:
        shapes = ", ".join(describe(x) for x in (a, b, c))
        raise ShapeError(
            f"{_NAME}: with enable_gqa operands are (…, heads, positions, features), and the heads of q a multiple of those "
            f"of k and v, got {shapes}"
        )
    heads, shared = a.shape[-3], b.shape[-3]

    def split(x: Tensor, groups: Any) -> Any:
        return _reshape(x, (*x.shape[:-3], shared, groups, *x.shape[-2:]))

    m = None if mask is None else as_tensor(mask, _NAME)
    if m is not None and m.ndim >= 3:
        m = split(m, heads // shared) if m.shape[-3] == heads else _reshape(m, (*m.shape[:-2], 1, *m.shape[-2:]))
    y = scaled_dot_product_attention(
        split(a, heads // shared), split(b, 1), split(c, 1), attn_mask=m, is_causal=is_causal, dropout_p=p, scale=scale
    )
    whole: Tensor = _reshape(y, (*y.shape[:-4], heads, *y.shape[-2:]))
    return whole


def _halves(x: Tensor, interleaved: bool) -> tuple[Any, Any]:
    """The two coordinates of each pair of features."""
    step = 2 if interleaved else 1
    pairs = int(x.shape[-1]) // 2
    sizes, steps = (*x.shape[:-1], pairs), (*(1,) * (x.ndim - 1), step)
    lead = (0,) * (x.ndim - 1)
    return _slice(x, (*lead, 0), sizes, steps), _slice(x, (*lead, 1 if interleaved else pairs), sizes, steps)


@composite
def _rotary(x: Tensor, positions: Tensor | None, base: float, interleaved: bool) -> Any:
    wide = as_dtype_of(x, float32) if x.dtype.itemsize == 2 else x
    pairs = int(x.shape[-1]) // 2
    turns = _exp(as_dtype_of(iota(pairs, like=x), wide.dtype) * (-math.log(base) / pairs))
    at = iota(x.shape[-2], like=x) if positions is None else positions
    angle = as_dtype_of(_reshape(at, (*at.shape, 1)), wide.dtype) * turns
    sine, cosine = _sin(angle), _cos(angle)
    a, b = _halves(wide, interleaved)
    a, b = a * cosine - b * sine, b * cosine + a * sine
    if interleaved:
        a, b = (_reshape(z, (*z.shape, 1)) for z in (a, b))
        y: Any = _reshape(_concat([a, b], x.ndim), x.shape)
    else:
        y = _concat([a, b], x.ndim - 1)
    return as_dtype_of(y, x.dtype)


def rotary_embedding(x: Any, *, base: float = 10000.0, positions: Any = None, interleaved: bool = False) -> Tensor:
    """Pairs of features rotated by position · base^(−2i/d): x is (…, T, d), d even (Su et al., "RoFormer", 2021).

    Feature i is paired with feature i + d/2; `interleaved`: 2i with 2i + 1. `positions` broadcasts to (…, T) and is
    0 … T − 1 by default.

    >>> rotary_embedding([[1.0, 0.0], [1.0, 0.0]]).tolist()
    [[1.0, 0.0], [0.5403..., 0.8414...]]
    """
    t = as_floating(as_tensor(x, "rotary_embedding"))
    if t.ndim < 2 or not t.dtype.is_floating or int(t.shape[-1]) % 2 or not int(t.shape[-1]):
        raise ShapeError(
            "rotary_embedding: x must have shape (…, positions, features) with an even number of features, got "
            f"{describe(t)}"
        )
    if base <= 0:
        raise ArgumentError(f"rotary_embedding: base must be positive, got {base}")
    at = None if positions is None else as_tensor(positions, "rotary_embedding")
    if at is not None and broadcast_shapes("rotary_embedding", at.shape, t.shape[:-1]) != tuple(t.shape[:-1]):
        raise ShapeError(f"rotary_embedding: positions {describe(at)} do not broadcast to those of {describe(t)}")
    y: Tensor = _rotary(t, at, as_real(base), bool(interleaved))
    return y
