"""Low-rank adapters: a trained model goes on learning in a few numbers beside its frozen weights."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from wengert import _core
from wengert import functional as F
from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.modes import no_grad
from wengert.nn import init
from wengert.nn.dropout import Dropout
from wengert.nn.layers import Linear
from wengert.nn.module import Module, exchange_modules, load_into
from wengert.nn.parameter import Parameter
from wengert.tensors import conversion
from wengert.tensors.random import Generator

__all__ = [
    "LoRALinear",
    "apply",
    "load_state_dict",
    "merge",
    "parameters",
    "state_dict",
    "unmerge",
]

_ADAPTERS = ("lora_a", "lora_b", "magnitude")


class LoRALinear(Module):
    """x (W + α/r · B A)ᵀ + b with W and b frozen, and A (r × in) and B (out × r) trained (Hu et al., 2022).

    B starts at 0, so that nothing changes at first. α is `alpha`, r by default. `dropout` thins out the input of A. With
    `dora`, the rows of W + α/r · B A are scaled to trained lengths m, which start as those of W (Liu et al., 2024); the
    lengths they are divided by are constants for the derivative, as in the paper.

    >>> import wengert as wg
    >>> layer = LoRALinear(64, 64, rank=4)
    >>> layer
    LoRALinear(64, 64, rank=4, alpha=4)  # 4,672 parameters, 512 of them trained
    >>> layer(wg.ones((2, 64))).shape
    (2, 64)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        rank: int = 8,
        *,
        alpha: float | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        dora: bool = False,
        dtype: Any = None,
        generator: Generator | None = None,
    ) -> None:
        base = Linear(in_features, out_features, bias, dtype=dtype, generator=generator)
        self._adapt(base, rank, alpha, dropout, dora, generator)

    @classmethod
    def of(
        cls,
        linear: Linear,
        rank: int = 8,
        *,
        alpha: float | None = None,
        dropout: float = 0.0,
        dora: bool = False,
        generator: Generator | None = None,
    ) -> Self:
        """A linear layer with adapters beside it; it shares the layer's weight and bias, and freezes them."""
        made = cls.__new__(cls)
        made._adapt(linear, rank, alpha, dropout, dora, generator)
        return made

    def _adapt(
        self, base: Linear, rank: int, alpha: float | None, dropout: float, dora: bool, generator: Generator | None
    ) -> None:
        out_features, in_features = base.weight.shape
        if rank < 1:
            raise ArgumentError(f"LoRALinear: rank must be at least 1, got {rank}")
        self.rank, self.alpha, self.dora = rank, float(rank if alpha is None else alpha), dora
        self.weight, self.bias = base.weight, base.bias
        for p in (self.weight, self.bias):
            if p is not None:
                p.requires_grad = False
        dtype = base.weight.dtype
        self.lora_a = Parameter.zeros((rank, in_features), dtype=dtype)
        init.kaiming_uniform(self.lora_a, a=math.sqrt(5.0), generator=generator)
        self.lora_b = Parameter.zeros((out_features, rank), dtype=dtype)
        self.magnitude = Parameter(_row_lengths(base.weight.detach())) if dora else None
        self.dropout = Dropout(dropout, generator=generator) if dropout else None
        self.training = base.training
        self._base: Tensor | None = None  # the weight before it was merged

    @property
    def merged(self) -> bool:
        """Whether the adapters are in the weight."""
        return self._base is not None

    def forward(self, x: Tensor) -> Tensor:
        """The layer with its adapters; once merged, with the weight alone."""
        if self._base is not None:
            return F.linear(x, self.weight, self.bias)
        thinned = x if self.dropout is None else self.dropout(x)
        change = F.linear(F.linear(thinned, self.lora_a), self.lora_b) * (self.alpha / self.rank)
        if self.magnitude is None:
            return F.linear(x, self.weight, self.bias) + change
        lengths = _row_lengths((self.weight + self._change()).detach())
        y = (F.linear(x, self.weight) + change) * (self.magnitude / lengths)
        return y if self.bias is None else y + self.bias

    def _change(self) -> Tensor:
        return F.matmul(self.lora_b, self.lora_a) * (self.alpha / self.rank)

    def merge(self) -> None:
        """Put the adapters into the weight: from now on the layer costs what it did without them."""
        if self._base is not None:
            return
        with no_grad():
            self._base = _core.copy(self.weight.detach())
            whole = self.weight + self._change()
            if self.magnitude is not None:
                whole = whole * F.reshape(self.magnitude / _row_lengths(whole), (-1, 1))
            self.weight._assign(whole.detach(), "merge")

    def unmerge(self) -> None:
        """Take the adapters out again: the weight is what it was, to the bit."""
        if self._base is None:
            return
        with no_grad():
            self.weight._assign(self._base, "unmerge")
        self._base = None

    def extra_repr(self) -> str:
        """Sizes and options."""
        out_features, in_features = self.weight.shape
        notes = [f"{in_features}, {out_features}, rank={self.rank}, alpha={self.alpha:g}"]
        notes += ["bias=False"] if self.bias is None else []
        notes += ["dora=True"] if self.dora else []
        return ", ".join([*notes, *(["merged"] if self.merged else [])])


def _row_lengths(weight: Tensor) -> Tensor:
    return F.sqrt(F.sum(F.square(weight), axis=1))


def apply(
    model: Module,
    rank: int = 8,
    alpha: float | None = None,
    targets: str | Sequence[str] | None = None,
    dropout: float = 0.0,
    *,
    dora: bool = False,
    generator: Generator | None = None,
) -> Module:
    """Put adapters beside linear layers, in place, and freeze everything else; returns the model.

    `targets` are names of modules, their last parts (`"query"`), or patterns (`"blocks.*.mlp.*"`); by default all linear
    layers. Train with `optim.AdamW(nn.lora.parameters(model))`.

    >>> import wengert as wg
    >>> net = wg.nn.Sequential(wg.nn.Linear(8, 8), wg.nn.ReLU(), wg.nn.Linear(8, 8))
    >>> _ = apply(net, rank=2, targets="0")
    >>> [name for name, p in net.named_parameters() if p.requires_grad]
    ['0.lora_a', '0.lora_b']
    """
    linear = {name: m for name, m in model.named_modules() if type(m) is Linear}
    patterns = ["*"] if targets is None else [targets] if isinstance(targets, str) else list(targets)
    chosen: dict[str, Linear] = {}
    for pattern in patterns:
        found = {name: m for name, m in linear.items() if _matches(name, pattern)}
        if not found:
            raise ArgumentError(
                f"lora.apply: no linear layer matches {pattern!r}; {type(model).__name__} has "
                f"{', '.join(name or 'itself' for name in linear) or 'none'}"
            )
        chosen.update(found)
    options: dict[str, Any] = dict(alpha=alpha, dropout=dropout, dora=dora, generator=generator)
    layers = {id(m): LoRALinear.of(m, rank, **options) for m in chosen.values()}
    adapted: Module = exchange_modules(model, layers)
    adapted.requires_grad_(False)
    for p in parameters(adapted):
        p.requires_grad = True
    return adapted


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or name.endswith(f".{pattern}") or fnmatch.fnmatchcase(name, pattern)


def _layers(model: Module, who: str) -> dict[str, LoRALinear]:
    found = {name: m for name, m in model.named_modules() if isinstance(m, LoRALinear)}
    if not found:
        raise ArgumentError(f"{who}: {type(model).__name__} has no adapters; lora.apply adds them")
    return found


def _adapters(model: Module, who: str) -> dict[str, Tensor]:
    return {
        f"{name}.{part}" if name else part: getattr(layer, part)
        for name, layer in _layers(model, who).items()
        for part in _ADAPTERS
        if getattr(layer, part) is not None
    }


def parameters(model: Module) -> list[Tensor]:
    """The parameters of all adapters: what is trained.

    >>> len(parameters(LoRALinear(4, 4, rank=2)))
    2
    """
    return list(_adapters(model, "lora.parameters").values())


def state_dict(model: Module) -> dict[str, Tensor]:
    """Copies of the adapters alone, by name: `wg.save("adapters.safetensors", nn.lora.state_dict(model))`.

    >>> list(state_dict(LoRALinear(4, 4, rank=2)))
    ['lora_a', 'lora_b']
    """
    named = _adapters(model, "lora.state_dict")
    return {name: conversion.tensor(p, requires_grad=False) for name, p in named.items()}


def load_state_dict(model: Module, state: Mapping[str, Any]) -> None:
    """Copy adapters into those of the model. All that does not fit is named at once, and then nothing is loaded.

    Adapters that are merged must be unmerged first: they are in the weights.

    >>> a, b = LoRALinear(4, 4, rank=2), LoRALinear(4, 4, rank=2)
    >>> load_state_dict(a, state_dict(b))
    """
    merged = [name for name, layer in _layers(model, "lora.load_state_dict").items() if layer.merged]
    if merged:
        raise ArgumentError(f"lora.load_state_dict: {', '.join(merged)} are merged; call lora.unmerge(model) first")
    load_into(_adapters(model, "lora.load_state_dict"), state, True, "the adapters")


def merge(model: Module, *, remove: bool = False) -> Module:
    """Put all adapters into their weights; with `remove`, for good: the layers are plain linear layers again.

    >>> import wengert as wg
    >>> merge(LoRALinear(4, 4, rank=2), remove=True)
    Linear(4, 4)  # 20 parameters, 0 of them trained
    """
    layers = _layers(model, "lora.merge")
    for layer in layers.values():
        layer.merge()
    whole: Module = exchange_modules(model, {id(m): _plain(m) for m in layers.values()}) if remove else model
    return whole


def _plain(layer: LoRALinear) -> Linear:
    made = Linear.__new__(Linear)
    made.weight, made.bias, made.training = layer.weight, layer.bias, layer.training
    return made


def unmerge(model: Module) -> Module:
    """Take all adapters out of their weights again, which are what they were, to the bit.

    >>> layer = LoRALinear(4, 4, rank=2)
    >>> unmerge(merge(layer)).merged
    False
    """
    for layer in _layers(model, "lora.unmerge").values():
        layer.unmerge()
    return model


def __dir__() -> list[str]:
    return __all__
