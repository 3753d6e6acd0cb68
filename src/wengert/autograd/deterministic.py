"""Switching determinism on: for a block, a function or a tape."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from wengert import _core
from wengert.errors import ArgumentError
from wengert.tensors.determinism import DeterministicConfig, running
from wengert.tensors.random import default_generator

F = TypeVar("F", bound=Callable[..., Any])


class deterministic:
    """Inside, what cannot be repeated to the bit is refused: as a context manager or a decorator.

    `deterministic(seed=42)` also seeds the default generator, and leaves it afterwards as it was before. The other
    options are those of `DeterministicConfig`, which may be given instead.

    >>> import wengert as wg
    >>> with deterministic(seed=42):
    ...     a = wg.randn(3)
    >>> with deterministic(seed=42):
    ...     b = wg.randn(3)
    >>> wg.fingerprint(a) == wg.fingerprint(b)
    True
    """

    def __init__(
        self,
        config: DeterministicConfig | None = None,
        *,
        seed: int | None = None,
        mode: str = "strict",
        operation_seeds: bool = False,
    ) -> None:
        if config is not None and not isinstance(config, DeterministicConfig):
            raise ArgumentError(
                f"deterministic: config must be a DeterministicConfig, got {type(config).__name__}; the seed is given by "
                "name, deterministic(seed=42)"
            )
        self.config = config or DeterministicConfig(mode, seed, operation_seeds)
        self._before: list[tuple[Any, Any]] = []

    def __enter__(self) -> DeterministicConfig:
        state = None
        if self.config.global_seed is not None:
            state = default_generator.get_state(), default_generator.seeded
            default_generator.manual_seed(self.config.global_seed)
        self._before.append((running.config, state))
        _switch(self.config)
        return self.config

    def __exit__(self, *exc: object) -> None:
        config, state = self._before.pop()
        _switch(config)
        if state is not None:
            default_generator.set_state(state[0])
            default_generator.seeded = state[1]

    def __call__(self, f: F) -> F:
        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with deterministic(self.config):
                return f(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def _switch(config: DeterministicConfig | None) -> None:
    running.config = config
    fixed = config is not None and config.mode != "off" and config.cudnn_deterministic
    _core.cuda_fix_algorithms(fixed)
    _core.settings_changed()  # a compiled function that draws may have another stream now


__all__ = ["deterministic"]
