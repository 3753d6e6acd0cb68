"""The configuration of mixed precision: a dtype, exceptions by name, and loss scaling."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wengert import _core
from wengert.dtypes import DType, as_dtype, bfloat16, float16
from wengert.errors import ArgumentError
from wengert.optim.scaler import StaticLossScaler
from wengert.registry.precision import UNITS, WORDS

# Policies by what they say: equal ones share the traces of compiled functions.
_POLICIES: dict[tuple[Any, ...], Any] = {}


@dataclass(frozen=True)
class AmpConfig:
    """Mixed-precision settings for `autocast` and `GradientTape(amp=…)`.

    - `enabled`: False runs everything in the precision of its operands.
    - `precision`: float16 or bfloat16.
    - `loss_scaler`: scales the losses of tapes. By default float16 is scaled dynamically, and bfloat16, which has the
      range of float32, not at all.
    - `autocast_ops`, `keep_fp32_ops`: names of operations and functions, such as "matmul", "conv2d" or "layer_norm",
      that run in half precision or in float32 whatever their default.

    >>> import wengert as wg
    >>> with wg.autocast(AmpConfig(precision="bfloat16", keep_fp32_ops=["matmul"])):
    ...     (wg.ones((2, 2)) @ wg.ones((2, 2))).dtype
    wengert.float32
    """

    enabled: bool = True
    precision: DType | str = "float16"
    loss_scaler: StaticLossScaler | None = None
    autocast_ops: Sequence[str] = ()
    keep_fp32_ops: Sequence[str] = ()
    dtype: DType = field(init=False, repr=False)

    def __post_init__(self) -> None:
        dtype = as_dtype(self.precision)
        if dtype not in (float16, bfloat16):
            raise ArgumentError(f"AmpConfig: precision must be float16 or bfloat16, got {dtype.name}")
        if self.loss_scaler is not None and not isinstance(self.loss_scaler, StaticLossScaler):
            raise ArgumentError(
                "AmpConfig: loss_scaler must be a StaticLossScaler or a DynamicLossScaler, got "
                f"{type(self.loss_scaler).__name__}"
            )
        for name in ("autocast_ops", "keep_fp32_ops"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        both = sorted(set(self.autocast_ops) & set(self.keep_fp32_ops))
        if both:
            raise ArgumentError(f"AmpConfig: {', '.join(both)} cannot be in both autocast_ops and keep_fp32_ops")
        object.__setattr__(self, "dtype", dtype)

    def policy(self) -> Any:
        """The policy that the core casts by."""
        key = (self.dtype.code, frozenset(self.autocast_ops), frozenset(self.keep_fp32_ops))
        if key not in _POLICIES:
            chosen = [(name, "low") for name in self.autocast_ops] + [(name, "full") for name in self.keep_fp32_ops]
            overrides = [(unit, WORDS.index(word)) for name, word in chosen for unit in UNITS[name]]
            _POLICIES[key] = _core.cast_policy(self.dtype.code, overrides)
        return _POLICIES[key]


def _names(what: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise ArgumentError(f"AmpConfig: {what} must be a list of names, got {given!r}")
    for name in given:
        if name not in UNITS:
            near = difflib.get_close_matches(name, UNITS, 1)
            raise ArgumentError(
                f"AmpConfig: {what} names {name!r}, which is not an op or function with a precision of its own"
                + (f"; did you mean {near[0]!r}?" if near else "")
            )
    return tuple(dict.fromkeys(given))


__all__ = ["AmpConfig"]
