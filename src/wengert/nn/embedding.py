"""Embeddings: rows of a matrix, by index."""

from __future__ import annotations

from typing import Any

from wengert import functional as F
from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.tensors.random import Generator


class _Rows(Module):
    """A trainable matrix whose rows are looked up, of which row `padding_idx` is zero."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, dtype: Any, generator: Generator | None
    ) -> None:
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ArgumentError(
                    f"{type(self).__name__}: padding_idx {padding_idx} is out of range for {num_embeddings} rows"
                )
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.weight = Parameter.randn((num_embeddings, embedding_dim), dtype=dtype, generator=generator)
        if padding_idx is not None:
            row = F.one_hot(padding_idx, num_embeddings, dtype=self.weight.dtype)
            self.weight.apply_update(-self.weight.tensor * F.expand_dims(row, axis=1))

    def extra_repr(self) -> str:
        """Sizes."""
        rows, features = self.weight.shape
        return f"{rows}, {features}" + (f", padding_idx={self.padding_idx}" if self.padding_idx is not None else "")


class Embedding(_Rows):
    """Look up rows of a trainable weight of shape (num_embeddings, embedding_dim), which starts normally distributed.

    Takes integers of any shape, and returns their rows along a new last axis. Row `padding_idx` is zero and not
    trained.

    >>> import wengert as wg
    >>> Embedding(10, 3, padding_idx=0)(wg.tensor([[1, 0]])).shape
    (1, 2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        dtype: Any = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, dtype, generator)

    def forward(self, index: Any) -> Tensor:
        """The rows at the indices."""
        return F.embedding(index, self.weight, padding_idx=self.padding_idx)


class EmbeddingBag(_Rows):
    """The mean, sum or maximum of the rows of a trainable weight, for each bag of indices; see `embedding_bag`.

    >>> import wengert as wg
    >>> EmbeddingBag(10, 3, mode="sum")(wg.tensor([1, 2, 4, 5]), offsets=[0, 3]).shape
    (2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        dtype: Any = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, dtype, generator)
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, index: Any, offsets: Any = None, per_sample_weights: Any = None) -> Tensor:
        """One row for each bag."""
        return F.embedding_bag(
            index,
            self.weight,
            offsets=offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )

    def extra_repr(self) -> str:
        """Sizes and mode."""
        return f"{super().extra_repr()}, mode={self.mode!r}"
