"""Multi-head attention, with PyTorch's weights and meaning of masks."""

from __future__ import annotations

import itertools
import math
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.dtypes import bool_
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.attention import within_window
from wengert.functional.dropout import check_probability
from wengert.nn import init
from wengert.nn.layers import Linear
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.tensors.arguments import as_tensor, describe
from wengert.tensors.creation import ones_like


def additive_mask(mask: Any, dtype: Any) -> Tensor:
    """A mask of modules, where True hides, as numbers that are added to the scores."""
    m = as_tensor(mask, "attention mask")
    return F.where(m, -math.inf, 0.0).astype(dtype) if m.dtype.code == bool_.code else m


class MultiheadAttention(Module):
    """Attention in `num_heads` subspaces (Vaswani et al., 2017): `y, weights = attention(query, key, value)`.

    Operands are (positions, batch, features), (batch, positions, features) with `batch_first`, or (positions, features).
    As in PyTorch, a boolean mask of this module is True where a position is hidden, the opposite of
    `scaled_dot_product_attention`. Weights are returned, averaged over the heads, only with `need_weights`; without, they
    are never held as a whole.

    `num_kv_heads` heads of keys and values are shared by groups of query heads (Ainslie et al., "GQA", 2023); with 1 this is
    multi-query attention. With `window`, a position sees only those as near as that, or (before, after).

    >>> import wengert as wg
    >>> y, weights = MultiheadAttention(8, 2, batch_first=True)(*[wg.ones((3, 5, 8))] * 3)
    >>> y.shape, weights.shape
    ((3, 5, 8), (3, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        batch_first: bool = False,
        num_kv_heads: int | None = None,
        window: int | tuple[int, int] | None = None,
        dtype: Any = None,
    ) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError(f"MultiheadAttention: embed_dim={embed_dim} must be divisible by num_heads={num_heads}")
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if self.num_kv_heads < 1 or num_heads % self.num_kv_heads:
            raise ArgumentError(
                f"MultiheadAttention: num_heads={num_heads} must be divisible by num_kv_heads={num_kv_heads}"
            )
        self.window = window
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.dropout = check_probability(dropout, "MultiheadAttention")
        self._shares = [embed_dim, *[embed_dim // num_heads * self.num_kv_heads] * 2]  # features of q, k and v
        self.in_proj_weight = Parameter.zeros((sum(self._shares), embed_dim), dtype=dtype)
        init.xavier_uniform(self.in_proj_weight)
        self.in_proj_bias = Parameter.zeros((sum(self._shares),), dtype=dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype)
        if self.out_proj.bias is not None:
            init.zeros(self.out_proj.bias)

    def _projected(self, query: Any, key: Any, value: Any) -> list[Any]:
        bias, ends = self.in_proj_bias, list(itertools.accumulate(self._shares))
        if query is key and key is value:
            return list(F.split(F.linear(query, self.in_proj_weight, bias), ends[:2], axis=-1))
        return [
            F.linear(x, self.in_proj_weight[start:end], None if bias is None else bias[start:end])
            for x, start, end in zip((query, key, value), (0, *ends), ends)
        ]

    def _heads(self, x: Any) -> Any:
        """(batch, positions, features) as (batch, heads, positions, features of a head)."""
        batch, positions, features = x.shape
        size = self.embed_dim // self.num_heads
        return F.permute_dims(F.reshape(x, (batch, positions, features // size, size)), (0, 2, 1, 3))

    def _mask(self, attn_mask: Any, key_padding_mask: Any, dtype: Any) -> Any:
        """Both masks as one that is added to (batch, heads, queries, keys)."""
        masks = []
        if attn_mask is not None:
            m = additive_mask(attn_mask, dtype)
            masks.append(F.reshape(m, (-1, self.num_heads, *m.shape[1:])) if m.ndim == 3 else m)
        if key_padding_mask is not None:
            m = additive_mask(key_padding_mask, dtype)
            masks.append(F.reshape(m, (-1, 1, 1, m.shape[-1])))
        return None if not masks else masks[0] if len(masks) == 1 else masks[0] + masks[1]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(the attended values, the weights or None).

        `key_padding_mask` (batch, keys) and `attn_mask` (queries, keys) or (batch · heads, queries, keys) hide where they
        are True, or are added. `is_causal` hides later positions; no mask is needed for it.
        """
        single = query.ndim == 2
        for x in (query, key, value):
            if x.ndim not in (2, 3) or x.ndim != query.ndim or x.shape[-1] != self.embed_dim:
                shapes = ", ".join(describe(t) for t in (query, key, value))
                raise ShapeError(
                    f"MultiheadAttention: operands must have {self.embed_dim} features and 2 or 3 axes, got {shapes}"
                )
        parts = self._projected(query, key, value)
        if single:
            parts = [F.expand_dims(x, axis=0) for x in parts]
        elif not self.batch_first:
            parts = [F.swapaxes(x, 0, 1) for x in parts]
        q, k, v = map(self._heads, parts)
        mask = self._mask(attn_mask, key_padding_mask, q.dtype)
        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            weights = self._weights(q, k, mask, is_causal)
            y = F.matmul(F.dropout(weights, p), self._shared(v))
            if average_attn_weights:
                weights = F.mean(weights, axis=1)
        else:
            grouped = self.num_kv_heads != self.num_heads
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=is_causal, dropout_p=p, enable_gqa=grouped, window=self.window
            )
        batch, _, positions, _ = y.shape
        y = F.reshape(F.permute_dims(y, (0, 2, 1, 3)), (batch, positions, self.embed_dim))
        if single:
            y, weights = F.squeeze(y, axis=0), None if weights is None else F.squeeze(weights, axis=0)
        elif not self.batch_first:
            y = F.swapaxes(y, 0, 1)
        return self.out_proj(y), weights

    def _shared(self, x: Any) -> Any:
        """Heads of keys or values, each repeated for the queries that share it."""
        return x if self.num_kv_heads == self.num_heads else F.repeat(x, self.num_heads // self.num_kv_heads, axis=1)

    def _weights(self, q: Any, k: Any, mask: Any, is_causal: bool) -> Any:
        scores = F.matmul(q, F.matrix_transpose(self._shared(k))) * (1.0 / math.sqrt(q.shape[-1]))
        if self.window is not None:
            scores = F.where(within_window(q.shape[-2], k.shape[-2], self.window), scores, -math.inf)
        if mask is not None:
            scores = scores + mask
        if is_causal:
            scores = F.where(F.tril(ones_like(scores)) > 0.0, scores, -math.inf)
        return F.softmax(scores, -1)

    def extra_repr(self) -> str:
        """Sizes."""
        options = [f"dropout={self.dropout}"] if self.dropout else []
        options += [f"num_kv_heads={self.num_kv_heads}"] if self.num_kv_heads != self.num_heads else []
        options += [f"window={self.window}"] if self.window is not None else []
        return ", ".join([str(self.embed_dim), str(self.num_heads), *options])
