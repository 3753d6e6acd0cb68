"""The softmax of many classes, rare ones in clusters of fewer features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wengert import functional as F
from wengert._core import Tensor
from wengert.dtypes import int64
from wengert.errors import ArgumentError, ShapeError
from wengert.functional.margin_losses import check_labels
from wengert.nn.containers import ModuleList, Sequential
from wengert.nn.layers import Linear
from wengert.nn.module import Module
from wengert.tensors.arguments import as_index, describe, on_host
from wengert.tensors.conversion import asarray
from wengert.tensors.random import Generator


class OutputAndLoss(NamedTuple):
    """The log-probability of each target, and minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """ln softmax over many classes, sorted by falling frequency (Grave et al., 2017).

    Classes below `cutoffs[0]` are in the head, those from `cutoffs[i]` to `cutoffs[i + 1]` in cluster i, whose features
    are `div_value` times fewer with each cluster. Called on (batch, in_features) and targets, the module returns the
    targets' log-probabilities and minus their mean; only clusters with a target are computed.

    >>> import wengert as wg
    >>> net = AdaptiveLogSoftmaxWithLoss(8, 100, [10, 50], div_value=2.0)
    >>> x = wg.randn(5, 8)
    >>> output, loss = net(x, wg.tensor([0, 9, 10, 60, 99]))
    >>> output.shape, net.log_prob(x).shape
    ((5,), (5, 100))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        *,
        dtype: Any = None,
        generator: Generator | None = None,
    ) -> None:
        bounds = [int(c) for c in cutoffs]
        if not bounds or bounds != sorted(set(bounds)) or bounds[0] < 1 or bounds[-1] >= n_classes:
            raise ArgumentError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs must increase between 0 and n_classes={n_classes}, without both, got "
                f"{list(cutoffs)}"
            )
        self.in_features, self.n_classes, self.div_value = in_features, n_classes, div_value
        self.cutoffs = [*bounds, n_classes]
        options: Any = {"dtype": dtype, "generator": generator}
        self.head = Linear(in_features, bounds[0] + len(bounds), bias=head_bias, **options)
        self.tail = ModuleList(
            [
                Sequential(
                    Linear(in_features, width := int(in_features // div_value ** (i + 1)), bias=False, **options),
                    Linear(width, high - low, bias=False, **options),
                )
                for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:]))
            ]
        )

    def forward(self, x: Tensor, target: Any) -> OutputAndLoss:
        """The log-probabilities of the targets, and minus their mean."""
        name = "AdaptiveLogSoftmaxWithLoss"
        t = as_index(target, name)
        if x.ndim not in (1, 2) or tuple(t.shape) != tuple(x.shape[:-1]):
            raise ShapeError(
                f"{name}: takes x of shape (batch, in_features) and a target (batch,), or without batch, got {describe(x)} "
                f"and {describe(t)}"
            )
        check_labels(t, self.n_classes, name)
        if x.ndim == 1:
            output = self._of_targets(F.expand_dims(x, axis=0), F.expand_dims(t, axis=0))[0]
        else:
            output = self._of_targets(x, t)
        return OutputAndLoss(output, -F.mean(output))

    def _of_targets(self, x: Tensor, t: Tensor) -> Any:
        shortlist, place = self.cutoffs[0], t
        for i, low in enumerate(self.cutoffs[:-1]):
            place = F.where(t >= low, shortlist + i, place)
        output: Any = self._picked(F.log_softmax(self.head(x), axis=-1), place)
        for cluster, low, high in zip(self.tail, self.cutoffs, self.cutoffs[1:]):
            within: Any = (t >= low) & (t < high)
            local = F.clip(t - low, 0, high - low - 1)
            if on_host(within):
                (rows,) = np.nonzero(within.numpy())
                if rows.size:
                    at = asarray(rows.astype(np.int64))
                    found = self._picked(
                        F.log_softmax(cluster(F.take(x, at, axis=0)), axis=-1), F.take(local, at, axis=0)
                    )
                    output = output.at[at].add(found)
            else:
                found = self._picked(F.log_softmax(cluster(x), axis=-1), local)
                output = output + F.where(within, found, 0.0)
        return output

    @staticmethod
    def _picked(log_p: Any, classes: Any) -> Any:
        return F.squeeze(F.take_along_axis(log_p, F.expand_dims(classes, axis=1), axis=1), axis=1)

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-probabilities of all classes: (batch, n_classes)."""
        head, shortlist = F.log_softmax(self.head(x), axis=-1), self.cutoffs[0]
        parts = [head[..., :shortlist]]
        for i, cluster in enumerate(self.tail):
            parts.append(F.log_softmax(cluster(x), axis=-1) + head[..., shortlist + i : shortlist + i + 1])
        return F.concat(parts, axis=-1)

    def predict(self, x: Tensor) -> Tensor:
        """The most probable class of each row."""
        return F.astype(F.argmax(self.log_prob(x), axis=-1), int64)

    def extra_repr(self) -> str:
        """Sizes."""
        return f"{self.in_features}, {self.n_classes}, cutoffs={self.cutoffs[:-1]}, div_value={self.div_value}"
