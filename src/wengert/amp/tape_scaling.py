"""Loss scaling inside a tape: its gradients come out unscaled."""

from __future__ import annotations

from typing import Any

from wengert._core import Tensor
from wengert.amp.config import AmpConfig
from wengert.dtypes import float16
from wengert.optim.scaler import DynamicLossScaler, StaticLossScaler
from wengert.tensors.arguments import as_dtype_of, native, wide

_isfinite = native("isfinite")


class TapeScaling:
    """Multiplies what a backward pass starts from by the scale, and divides what it gives by it, in float32."""

    def __init__(self, config: AmpConfig) -> None:
        self.scaler: StaticLossScaler = config.loss_scaler or (
            DynamicLossScaler() if config.dtype == float16 else StaticLossScaler(1.0)
        )
        self._used = self.scaler.scale  # by the backward pass that is under way
        self.overflowed = False  # the last one

    def scaled(self, seed: Tensor) -> Tensor:
        """The value that backward starts from."""
        self._used = self.scaler.scale
        return seed if self._used == 1.0 else as_dtype_of(wide(seed) * self._used, seed.dtype)

    def unscaled(self, gradients: list[Any], dtypes: list[Any]) -> list[Any]:
        """Gradients in these dtypes; None stays None. The scale is adapted to whether they are finite."""
        made = [None if g is None else self._divided(g, t) for g, t in zip(gradients, dtypes)]
        self.overflowed = any(g is not None and g._plain and not bool(_isfinite(g.detach()).all()) for g in made)
        self.scaler.update(self.overflowed)
        return made

    def _divided(self, g: Tensor, dtype: Any) -> Tensor:
        return as_dtype_of(g if self._used == 1.0 else wide(g) * (1.0 / self._used), dtype)


__all__ = ["TapeScaling"]
