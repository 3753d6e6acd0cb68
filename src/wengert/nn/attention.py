"""Multi-head attention, with PyTorch's weights and meaning of masks."""

from __future__ import annotations

import math
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.autograd.creation import ones_like
from wengert.dtypes import bool_
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.arguments import as_tensor, describe
from wengert.functional.dropout import check_probability
from wengert.nn import init
from wengert.nn.layers import Linear
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter


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
        dtype: Any = None,
    ) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError(f"MultiheadAttention: {embed_dim} features cannot be shared by {num_heads} heads")
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.dropout = check_probability(dropout, "MultiheadAttention")
        self.in_proj_weight = Parameter.zeros((3 * embed_dim, embed_dim), dtype=dtype)
        init.xavier_uniform(self.in_proj_weight)
        self.in_proj_bias = Parameter.zeros((3 * embed_dim,), dtype=dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype)
        if self.out_proj.bias is not None:
            init.zeros(self.out_proj.bias)

    def _projected(self, query: Any, key: Any, value: Any) -> list[Any]:
        n, bias = self.embed_dim, self.in_proj_bias
        if query is key and key is value:
            return list(F.split(F.linear(query, self.in_proj_weight, bias), 3, axis=-1))
        return [
            F.linear(x, self.in_proj_weight[k * n : k * n + n], None if bias is None else bias[k * n : k * n + n])
            for k, x in enumerate((query, key, value))
        ]

    def _heads(self, x: Any) -> Any:
        """(batch, positions, features) as (batch, heads, positions, features of a head)."""
        batch, positions, features = x.shape
        return F.permute_dims(
            F.reshape(x, (batch, positions, self.num_heads, features // self.num_heads)), (0, 2, 1, 3)
        )

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
                    f"MultiheadAttention: operands have {self.embed_dim} features and 2 or 3 axes, got {shapes}"
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
            y = F.matmul(F.dropout(weights, p), v)
            if average_attn_weights:
                weights = F.mean(weights, axis=1)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, dropout_p=p)
        batch, _, positions, _ = y.shape
        y = F.reshape(F.permute_dims(y, (0, 2, 1, 3)), (batch, positions, self.embed_dim))
        if single:
            y, weights = F.squeeze(y, axis=0), None if weights is None else F.squeeze(weights, axis=0)
        elif not self.batch_first:
            y = F.swapaxes(y, 0, 1)
        return self.out_proj(y), weights

    def _weights(self, q: Any, k: Any, mask: Any, is_causal: bool) -> Any:
        scores = F.matmul(q, F.matrix_transpose(k)) * (1.0 / math.sqrt(q.shape[-1]))
        if mask is not None:
            scores = scores + mask
        if is_causal:
            scores = F.where(F.tril(ones_like(scores)) > 0.0, scores, -math.inf)
        return F.softmax(scores, -1)

    def extra_repr(self) -> str:
        """Sizes."""
        return f"{self.embed_dim}, {self.num_heads}" + (f", dropout={self.dropout}" if self.dropout else "")
