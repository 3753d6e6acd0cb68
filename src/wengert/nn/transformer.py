"""Encoder and decoder layers of transformers, with PyTorch's names: state dicts map one to one."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.nn.attention import MultiheadAttention
from wengert.nn.containers import ModuleList
from wengert.nn.dropout import Dropout
from wengert.nn.init import xavier_uniform
from wengert.nn.layers import Linear
from wengert.nn.module import Module
from wengert.nn.normalisation import LayerNorm
from wengert.tensors.arguments import native
from wengert.tensors.creation import full

_ACTIVATIONS: dict[str, Callable[..., Any]] = {"relu": native("relu"), "gelu": F.gelu, "silu": F.silu}


def _activation(name: str, activation: str | Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    if not callable(activation) and activation not in _ACTIVATIONS:
        raise ArgumentError(
            f"{name}: activation must be one of {', '.join(_ACTIVATIONS)} or a function, got {activation!r}"
        )
    return activation if callable(activation) else _ACTIVATIONS[activation]


class TransformerEncoderLayer(Module):
    """Self-attention, then two linear layers, each with dropout, a residual connection and a layer norm after it.

    `norm_first`: norms come before instead. Operands and masks are those of `MultiheadAttention` (Vaswani et al., 2017).

    >>> import wengert as wg
    >>> TransformerEncoderLayer(8, 2, 16, batch_first=True)(wg.ones((3, 5, 8))).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        *,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self.activation = _activation("TransformerEncoderLayer", activation)
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)

    def _attended(self, x: Tensor, mask: Any, padding: Any, is_causal: bool) -> Any:
        y, _ = self.self_attn(
            x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=is_causal
        )
        return self.dropout1(y)

    def _fed(self, x: Any) -> Any:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def forward(
        self, src: Tensor, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Tensor:
        """The layer's output, of the shape of `src`."""
        x: Any = src
        if self.norm_first:
            x = x + self._attended(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._fed(self.norm2(x))  # type: ignore[no-any-return]
        x = self.norm1(x + self._attended(x, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(x + self._fed(x))  # type: ignore[no-any-return]


class TransformerEncoder(Module):
    """Copies of an encoder layer, one after the other, and a norm at the end if one is given.

    >>> import wengert as wg
    >>> TransformerEncoder(TransformerEncoderLayer(8, 2, 16), 3)(wg.ones((5, 2, 8))).shape
    (5, 2, 8)
    """

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.norm = norm

    def forward(
        self, src: Tensor, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Tensor:
        """The last layer's output."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoderLayer(Module):
    """Self-attention, attention to a memory, then two linear layers, each with dropout, a residual connection and a norm.

    `norm_first`: norms come before instead. Operands and masks are those of `MultiheadAttention` (Vaswani et al., 2017).

    >>> import wengert as wg
    >>> layer = TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(wg.ones((3, 5, 8)), wg.ones((3, 7, 8)), tgt_is_causal=True).shape
    (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        *,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self.activation = _activation("TransformerDecoderLayer", activation)
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype)
        self.norm_first = norm_first
        self.norm1, self.norm2, self.norm3 = (
            LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype) for _ in range(3)
        )
        self.dropout1, self.dropout2, self.dropout3 = (Dropout(dropout) for _ in range(3))

    def _fed(self, x: Any) -> Any:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The layer's output, of the shape of `tgt`."""

        def among(x: Any) -> Any:
            options = {"attn_mask": tgt_mask, "key_padding_mask": tgt_key_padding_mask, "is_causal": tgt_is_causal}
            return self.dropout1(self.self_attn(x, x, x, need_weights=False, **options)[0])

        def to_memory(x: Any) -> Any:
            options = {
                "attn_mask": memory_mask, "key_padding_mask": memory_key_padding_mask, "is_causal": memory_is_causal
            }  # fmt: skip
            return self.dropout2(self.multihead_attn(x, memory, memory, need_weights=False, **options)[0])

        x: Any = tgt
        if self.norm_first:
            x = x + among(self.norm1(x))
            x = x + to_memory(self.norm2(x))
            return x + self._fed(self.norm3(x))  # type: ignore[no-any-return]
        x = self.norm1(x + among(x))
        x = self.norm2(x + to_memory(x))
        return self.norm3(x + self._fed(x))  # type: ignore[no-any-return]


class TransformerDecoder(Module):
    """Copies of a decoder layer, one after the other, and a norm at the end if one is given.

    >>> import wengert as wg
    >>> TransformerDecoder(TransformerDecoderLayer(8, 2, 16), 3)(wg.ones((5, 2, 8)), wg.ones((4, 2, 8))).shape
    (5, 2, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.norm = norm

    def forward(self, tgt: Tensor, memory: Tensor, *masks: Any, **more: Any) -> Tensor:
        """The last layer's output; masks are those of `TransformerDecoderLayer`."""
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **more)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder that attends to its result, each with a layer norm at the end (Vaswani et al., 2017).

    Operands are (length, batch, d_model), with `batch_first` (batch, length, d_model). Matrices start as
    `nn.init.xavier_uniform`. An encoder or decoder may be given instead of made.

    >>> import wengert as wg
    >>> net = Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> mask = Transformer.generate_square_subsequent_mask(4)
    >>> net(wg.ones((3, 5, 8)), wg.ones((3, 4, 8)), tgt_mask=mask).shape
    (3, 4, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        *,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        sizes = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        options: Any = {"batch_first": batch_first, "norm_first": norm_first, "bias": bias, "dtype": dtype}

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*sizes, **options), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*sizes, **options), num_decoder_layers, norm()
        )
        for p in self.parameters():
            if p.ndim > 1:
                xavier_uniform(p)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool = False,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The decoder's output, of the shape of `tgt`."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(  # type: ignore[no-any-return]
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(size: int, *, dtype: Any = None) -> Tensor:
        """−∞ above the diagonal, else 0: no position attends to later ones."""
        return F.triu(full((size, size), -math.inf, dtype=dtype), k=1)
