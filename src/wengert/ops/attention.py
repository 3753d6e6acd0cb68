"""Scaled dot-product attention: one JVP rule, whose two halves are ops of their own because they never hold all scores.

With scores s = scale · q kᵀ (masked), lse = ln Σ eˢ over the keys, weights w = exp(s − lse) and o = w v:

    lse_dot = Σ w ∘ s_dot        o_dot = w v_dot + (w ∘ s_dot) v − lse_dot · o

Scores, lse and masks that are added are float32 where q, k and v have 16 bits; results are rounded once.

`attention_tangent` gives both, block by block; `attention_cotangent` is its transpose, also block by block. They are
given o and lse, which are functions of their other operands: no derivative goes through these two. They are differentiated
as what they mean, composed of matrix products: at second order the matrix of all scores is held. There the weights are a
softmax, and their tangents w ∘ (s_dot − Σ w ∘ s_dot) are centred before they are summed: where one
weight is nearly 1, o_dot is a small difference of the terms above.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wengert.dtypes import float32, int64
from wengert.ops.blocked import filled, jvp_of_linear, transpose_by
from wengert.ops.matmul import matmul
from wengert.ops.random import random_uniform
from wengert.ops.reduce import all, sum
from wengert.ops.shape import broadcast_to, cast, full, iota, reshape, zeros_like
from wengert.ops.softmax import softmax, softmax_push
from wengert.ops.sparsity import through
from wengert.ops.tangents import where
from wengert.ops.work import of_scores
from wengert.passes.batch import by_meaning
from wengert.passes.example_axis import all_mapped, count
from wengert.program.trace import create
from wengert.registry.record import OPS, Op, define
from wengert.registry.samples import Array, Invalid, Sample, exactly, real, truth, wide
from wengert.registry.zero import ZERO

# --------------------------------------------------------------------------------------- what the ops mean, composed


def _wide(x: Any) -> Any:
    """In the dtype of the scores."""
    return cast(x, float32.code) if x.dtype.itemsize == 2 else x


def _rounded(x: Any, code: int) -> Any:
    return x if x.dtype.code == code else cast(x, code)


def _column(rows: Any) -> Any:
    return reshape(rows, (*rows.shape, 1))


def _row_sums(x: Any) -> Any:
    return sum(x, (x.ndim - 1,), 0)


def _earlier(queries: Any, keys: Any) -> Any:
    """Whether query i sees key j: j ≤ i."""
    i, j = (create(iota, ((n,), int64.code, 0.0, 1.0)) for n in (queries, keys))
    return reshape(i, (queries, 1)) >= reshape(j, (1, keys))


def _weights(q: Any, k: Any, mask: Any, scale: float, causal: int) -> Any:
    s = matmul(_wide(q), _wide(k), 0, 1) * scale
    if mask.dtype.kind == "b":
        s = where(broadcast_to(mask, s.shape), s, -np.inf)
    else:
        s = s + broadcast_to(mask, s.shape)
    if causal:
        s = where(broadcast_to(_earlier(*s.shape[-2:]), s.shape), s, -np.inf)
    blind = broadcast_to(all(s == -np.inf, (s.ndim - 1,), 1), s.shape)  # what sees nothing gives nothing
    return where(blind, 0.0, softmax(where(blind, 0.0, s)))


def _kept(w: Any, dropout: float, key: Any, counter: Any) -> Any:
    """The factors by which dropout multiplies the weights, as the kernel draws them."""
    if dropout == 0.0:
        return 1.0
    drawn = create(random_uniform, (w.shape, float32.code, key, counter))
    return cast(drawn >= dropout, w.dtype.code) * (1.0 / (1.0 - dropout))


def _tangent(
    q_dot: Any,
    k_dot: Any,
    v_dot: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    o: Any,
    lse: Any,
    *,
    scale: float,
    causal: int,
    **draw: Any,
) -> tuple[Any, Any]:
    dtype = v.dtype.code
    q_dot, k_dot, v_dot, q, k, v = map(_wide, (q_dot, k_dot, v_dot, q, k, v))
    w = _weights(q, k, mask, scale, causal)
    s_dot = (matmul(q_dot, k, 0, 1) + matmul(q, k_dot, 0, 1)) * scale
    kept = _kept(w, **draw)
    o_dot = matmul(w * kept, v_dot, 0, 0) + matmul(softmax_push(s_dot, w) * kept, v, 0, 0)
    return _rounded(o_dot, dtype), _row_sums(w * s_dot)


def _cotangent(
    o_bar: Any,
    lse_bar: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    o: Any,
    lse: Any,
    *,
    scale: float,
    causal: int,
    **draw: Any,
) -> tuple[Any, Any, Any]:
    dtype = v.dtype.code
    o_bar, q, k, v = map(_wide, (o_bar, q, k, v))
    w = _weights(q, k, mask, scale, causal)
    kept = _kept(w, **draw)
    w_bar = matmul(o_bar, v, 0, 1) * kept
    s_bar = (softmax_push(w_bar, w) + w * broadcast_to(_column(lse_bar), w.shape)) * scale
    made = matmul(s_bar, k, 0, 0), matmul(s_bar, q, 1, 0), matmul(w * kept, o_bar, 1, 0)
    return tuple(_rounded(x, dtype) for x in made)


# ------------------------------------------------------------------------------------------------------------ rules


def _attention_jvp(
    q_dot: Any,
    k_dot: Any,
    v_dot: Any,
    mask_dot: Any,
    ys: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    **attrs: Any,
) -> tuple[Any, Any]:
    o_dot: Any = ZERO
    lse_dot: Any = ZERO
    if not (q_dot is ZERO and k_dot is ZERO and v_dot is ZERO):
        o, lse = ys
        o_dot, lse_dot = attention_tangent(
            *filled((q_dot, k_dot, v_dot), (q, k, v)), q, k, v, mask, o, lse, *attrs.values()
        )
    if mask_dot is not ZERO:  # a mask that is learned is of the scores' size anyway
        w = _weights(q, k, mask, attrs["scale"], attrs["causal"])
        s_dot = broadcast_to(mask_dot, w.shape)
        drawn = _kept(w, attrs["dropout"], attrs["key"], attrs["counter"])
        o_dot = o_dot + _rounded(matmul(softmax_push(s_dot, w) * drawn, _wide(v), 0, 0), v.dtype.code)
        lse_dot = lse_dot + _row_sums(s_dot * w)
    return o_dot, lse_dot


def _zero_outputs(q: Any, k: Any, v: Any, mask: Any, o: Any, lse: Any) -> tuple[Any, Any]:
    return create(full, ((*lse.shape, v.shape[-1]), v.dtype.code, 0.0)), zeros_like(lse)


# --------------------------------------------------------------------------------------------------------- batching


def _attention(q: Any, k: Any, v: Any, mask: Any, *, scale: float, causal: int, **draw: Any) -> tuple[Any, Any]:
    w = _weights(q, k, mask, scale, causal)
    _, lse = attention(q, k, v, mask, scale, causal, 0.0, draw["key"], draw["counter"])
    return _rounded(matmul(w * _kept(w, **draw), _wide(v), 0, 0), v.dtype.code), lse


def _of_examples(name: str, q: int, meaning: Any) -> Any:
    """The batch rule: examples are a batch dimension. Where dropout would not begin with a counter of its own for each of
    them, the op is run as what it means. `q`: which operand the queries are; keys and values follow."""

    def rule(size: Any, mapped: Any, *operands: Any, **attrs: Any) -> Any:
        if attrs["dropout"] != 0.0:
            scores = [operands[i].shape[1:] if mapped[i] else operands[i].shape for i in (q, q + 1)]
            n = count(scores[0][:-1]) * scores[1][-2]
            if n // 4 * 4 != n:
                return by_meaning(meaning, size, mapped, operands, attrs)
        return OPS[name](*all_mapped(size, mapped, operands), *attrs.values())

    rule.meaning = meaning  # type: ignore[attr-defined]  # where all examples draw the same
    return rule


# ------------------------------------------------------------------------------------------- references and samples


def _np_weights(q: Any, k: Any, mask: Any, lse: Any, scale: float, causal: int) -> Any:
    """exp(s − lse); with the lse of the scores themselves if none is given, and 0 where nothing is seen."""
    s = q @ np.swapaxes(k, -1, -2) * scale
    s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    if causal:
        s = np.where(np.tri(*s.shape[-2:]) > 0, s, -np.inf)
    if lse is None:
        with np.errstate(divide="ignore"):
            lse = np.log(np.exp(s).sum(-1))
        lse = np.where(np.isneginf(lse), 0.0, lse)
    return np.exp(s - lse[..., None]), lse


def _np_kept(w: Any, dropout: float, key: Any, counter: Any) -> Any:
    drawn = np.asarray(random_uniform(w.shape, float32.code, key, counter))
    return (drawn >= np.float32(dropout)) / (1.0 - dropout)


def _np_attention(q: Any, k: Any, v: Any, mask: Any, scale: float, causal: int, *draw: Any) -> Any:
    w, lse = _np_weights(q, k, mask, None, scale, causal)
    return (w * _np_kept(w, *draw)) @ v, lse


def _np_tangent(
    q_dot: Any,
    k_dot: Any,
    v_dot: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    o: Any,
    lse: Any,
    scale: float,
    causal: int,
    *draw: Any,
) -> Any:
    w, _ = _np_weights(q, k, mask, lse, scale, causal)
    w_dot = w * (q_dot @ np.swapaxes(k, -1, -2) + q @ np.swapaxes(k_dot, -1, -2)) * scale
    kept = _np_kept(w, *draw)
    lse_dot = w_dot.sum(-1)
    return (w * kept) @ v_dot + (w_dot * kept) @ v - lse_dot[..., None] * o, lse_dot


def _np_cotangent(
    o_bar: Any, lse_bar: Any, q: Any, k: Any, v: Any, mask: Any, o: Any, lse: Any, scale: float, causal: int, *draw: Any
) -> Any:
    w, _ = _np_weights(q, k, mask, lse, scale, causal)
    kept = _np_kept(w, *draw)
    shift = lse_bar - np.sum(o_bar * o, -1)
    s_bar = w * (o_bar @ np.swapaxes(v, -1, -2) * kept + shift[..., None]) * scale
    return s_bar @ k, np.swapaxes(s_bar, -1, -2) @ q, np.swapaxes(w * kept, -1, -2) @ o_bar


_EVERYTHING = exactly(True, shape=(1, 1, 1))
_NO_DROPOUT = (0.0, (1, 2), (0,))


def _small(shape: tuple[int, ...]) -> Array:
    return real(*shape, low=-1.0, high=1.0)


class _Case(NamedTuple):
    """Sizes and options of one sample of all three ops."""

    q: tuple[int, ...] = (2, 3, 4)
    k: tuple[int, ...] = (2, 5, 4)
    v: tuple[int, ...] = (2, 5, 2)
    mask: Array = _EVERYTHING
    options: tuple[Any, ...] = (0.5, 0, *_NO_DROPOUT)

    def sample(self, before: tuple[Array, ...] | None = None) -> Sample:
        """With what comes before q and after the mask: of the derivatives."""
        operands = [*(before or ()), *map(_small, (self.q, self.k, self.v)), self.mask]
        after = (_small((*self.q[:-1], self.v[-1])), self.of_rows(1.0, 2.0)) if before else ()
        return Sample((*operands, *after), self.options, gradients=not before)

    def of_rows(self, low: float, high: float) -> Array:
        return wide(real(*self.q[:-1], low=low, high=high))

    def tangents(self) -> tuple[Array, ...]:
        return tuple(map(_small, (self.q, self.k, self.v)))

    def cotangents(self) -> tuple[Array, ...]:
        return _small((*self.q[:-1], self.v[-1])), self.of_rows(-1.0, 1.0)


_CASES = [
    _Case(),
    _Case(options=(0.5, 1, *_NO_DROPOUT)),
    _Case(mask=truth(2, 3, 5)),
    _Case(mask=wide(real(1, 3, 5, low=-1.0, high=1.0))),
    _Case(mask=exactly(*[True, False] * 2, True, *[False] * 5, *[True] * 5, shape=(1, 3, 5))),  # one query sees nothing
    _Case(options=(0.5, 1, 0.3, (1, 2), (7,))),
    _Case((1, 1), (1, 1), (1, 1), exactly(True, shape=(1, 1))),
    _Case((2, 0, 4)),
    _Case(k=(2, 0, 4), v=(2, 0, 2)),
]

_OPTIONS = _CASES[0].options


attention: Op = define(
    "attention",
    work=lambda i, made: of_scores(i, 0, 1, 1),
    formula="softmax(scale · q kᵀ) v, and the logarithm of each row's sum of exponentials",
    reference=_np_attention,
    jvp=_attention_jvp,
    vmap=_of_examples("attention", 0, _attention),
    samples=[c.sample() for c in _CASES],
    invalid=[
        Invalid((real(2, 3), real(4, 3), real(5, 3), exactly(True, shape=(1, 1))), _OPTIONS, "ShapeError", "keys"),
        Invalid((real(2, 3), real(4, 2), real(4, 3), exactly(True, shape=(1, 1))), _OPTIONS, "ShapeError", "last"),
        Invalid((real(2, 3), real(4, 3), real(4, 3), truth(2, 3)), _OPTIONS, "ShapeError", "mask"),
        Invalid((real(3), real(3), real(3), truth(1)), _OPTIONS, "ShapeError", "two"),
        Invalid((real(2, 3),) * 3 + (truth(2, 2),), (0.5, 0, 1.0, (1, 2), (0,)), "ArgumentError", "[0, 1)"),
    ],
    expensive=True,
    public=False,
)
attention_tangent: Op = define(
    "attention_tangent",
    work=lambda i, made: of_scores(i, 3, 3, 2),  # the scores are recomputed
    formula="lse_dot = Σ w ∘ s_dot and w v_dot + (w ∘ s_dot) v − lse_dot · o, with w = exp(s − lse), s = scale · q kᵀ",
    reference=_np_tangent,
    jvp=jvp_of_linear("attention_tangent", 3, _tangent),
    transpose=transpose_by("attention_cotangent", 3, _zero_outputs),
    sparsity=through(_tangent),
    vmap=_of_examples("attention_tangent", 3, _tangent),
    samples=[c.sample(c.tangents()) for c in _CASES],
    expensive=True,
    public=False,
)
attention_cotangent: Op = define(
    "attention_cotangent",
    work=lambda i, made: of_scores(i, 2, 3, 2),
    formula="the transpose of attention_tangent: cotangents of q, k and v",
    reference=_np_cotangent,
    jvp=jvp_of_linear("attention_cotangent", 2, _cotangent),
    transpose=transpose_by("attention_tangent", 2, lambda q, k, v, *_: (zeros_like(q), zeros_like(k), zeros_like(v))),
    sparsity=through(_cotangent),
    vmap=_of_examples("attention_cotangent", 2, _cotangent),
    samples=[c.sample(c.cotangents()) for c in _CASES],
    expensive=True,
    public=False,
)
