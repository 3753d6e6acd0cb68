"""Reproducible runs: refusing operations that cannot promise their bits, and seeding each draw.

The ops of wengert give the same bits for any number of threads, eager, compiled or recomputed, whether this is switched
on or not. What it adds is a guard against what nobody promised: draws from a generator that was never seeded, and
custom ops that were not declared `pure`.
"""

from __future__ import annotations

import linecache
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wengert.errors import ArgumentError, DeterminismError
from wengert.user_line import user_frame, warn_user

if TYPE_CHECKING:
    from wengert.tensors.random import Generator

_MODES = ("strict", "warn", "off")


@dataclass(frozen=True)
class DeterministicConfig:
    """For `deterministic` and `GradientTape(deterministic=…)`.

    `mode`: "strict" raises `DeterminismError` for what cannot be repeated, "warn" warns, "off" does neither.
    `global_seed` seeds the default generator. `operation_seeds`: each random op draws from a stream of its own, made of
    the seed and its place in the source, so that another one beside it leaves its numbers alone. `cudnn_deterministic`:
    large products on a GPU are computed by the algorithm that NVIDIA's library proposes, instead of the one that was
    fastest on this machine; all are determined, but another machine, or a lost cache, may have found another one fastest.

    >>> DeterministicConfig(global_seed=42, operation_seeds=True).mode
    'strict'
    """

    mode: str = "strict"
    global_seed: int | None = None
    operation_seeds: bool = False
    cudnn_deterministic: bool = True

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            words = ", ".join(repr(m) for m in _MODES)
            raise ArgumentError(f"DeterministicConfig: mode must be one of {words}, got {self.mode!r}")
        if self.global_seed is not None and not hasattr(self.global_seed, "__index__"):
            raise ArgumentError(f"DeterministicConfig: global_seed must be an integer, got {self.global_seed!r}")


class _Running(threading.local):
    """The settings of this thread."""

    config: DeterministicConfig | None = None

    @property
    def operation_seeds(self) -> bool:
        """Whether each place in the source draws from a stream of its own."""
        return self.config is not None and self.config.operation_seeds


running = _Running()


def refuse(what: str, remedy: str) -> None:
    """Raise or warn, as configured, about something that cannot be repeated to the bit."""
    config = running.config
    if config is None or config.mode == "off":
        return
    message = f"{what}, so that another run may give other bits; {remedy}"
    if config.mode == "strict":
        raise DeterminismError(message)
    warn_user(message)


def require_seed(generator: Generator) -> None:
    """Refuse a draw from a generator whose seed is the system's entropy."""
    if running.config is not None and not generator.seeded:
        refuse(
            "random numbers are drawn from a generator that was never seeded",
            "call manual_seed(…), pass generator=Generator(seed), or use deterministic(seed=…)",
        )


def require_pure(name: str, pure: bool | None) -> None:
    """Refuse a custom op that was not declared to give the same results for the same inputs."""
    if running.config is not None and not pure:
        said = "was declared with pure=False" if pure is False else "was not declared pure"
        refuse(
            f"{name} is a custom op that {said}",
            "if it computes the same from the same inputs, declare it: `pure = True` in its class, or custom_op(pure=True)",
        )


def place_in_source() -> str:
    """The running function and line of the user, in a form that does not change when surrounding lines do."""
    frame = user_frame()
    code = frame.f_code
    text = linecache.getline(code.co_filename, frame.f_lineno).strip()
    line = text or str(frame.f_lineno - code.co_firstlineno)
    return f"{frame.f_globals.get('__name__', '')}.{code.co_qualname}: {line}"


__all__ = ["DeterministicConfig"]
