"""Autocast: inside, each op runs in the precision that suits it.

Products (matrix products, convolutions, attention, recurrent layers) have operands in half precision; sums, norms,
softmax, losses, exponentials and linear algebra have them in float32; everything else runs in the precision of what it
is given. The op's own record says which (`precision`), and so does that of each composite function.

Casts are recorded like other ops, so that gradients reach float32 weights in float32. A leaf, such as a weight, is cast
once and not once for each use, until it is written to.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from wengert import _core
from wengert.amp.config import AmpConfig
from wengert.dtypes import ALL, DType, bfloat16
from wengert.errors import ArgumentError

F = TypeVar("F", bound=Callable[..., Any])


class _OuterPolicies(threading.local):
    def __init__(self) -> None:
        self.policies: list[Any] = []  # of each context that is open in this thread, what was so before


_outer = _OuterPolicies()


class _Policy:
    """Sets what autocast does in this thread: for the length of a `with` block, or of the calls of a function."""

    _policy: Any = None

    def __enter__(self) -> None:
        _outer.policies.append(_core.set_autocast(self._policy))

    def __exit__(self, *exc: object) -> None:
        _core.set_autocast(_outer.policies.pop())
        if not _outer.policies:
            _core.forget_casts()

    def __call__(self, f: F) -> F:
        if inspect.isgeneratorfunction(f):
            raise ArgumentError(
                f"{type(self).__name__}: {f.__name__} is a generator, which runs after the call; use `with` inside it"
            )

        @functools.wraps(f)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self:
                return f(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class autocast(_Policy):
    """Run matrix products and convolutions in half precision inside, and what needs float32 in float32.

    `dtype` is bfloat16 (the default), float16, or an `AmpConfig`, whose loss scaling is for tapes and `GradScaler`.
    Backward passes run in the precision of the forward pass, wherever they are called. `enabled=False` switches an
    outer `autocast` off. Use it as a context manager or as a decorator.

    >>> import wengert as wg
    >>> x, w = wg.ones((2, 3)), wg.ones((3, 4))
    >>> with autocast(wg.bfloat16):
    ...     y = x @ w
    ...     p = wg.softmax(y)
    >>> y.dtype, p.dtype
    (wengert.bfloat16, wengert.float32)
    """

    def __init__(self, dtype: DType | str | AmpConfig = bfloat16, enabled: bool = True) -> None:
        config = dtype if isinstance(dtype, AmpConfig) else AmpConfig(precision=dtype)
        self._policy = config.policy() if enabled and config.enabled else None


class no_autocast(_Policy):
    """A scope in which ops run in the precision of their operands.

    >>> import wengert as wg
    >>> with autocast(), no_autocast():
    ...     (wg.ones((2, 2)) @ wg.ones((2, 2))).dtype
    wengert.float32
    """


def autocast_dtype() -> DType | None:
    """The precision that products run in here; None outside of autocast.

    >>> with autocast("float16"):
    ...     autocast_dtype()
    wengert.float16
    """
    policy: Any = _core.autocast_policy()
    return None if policy is None else ALL[policy.low]


__all__ = ["autocast", "autocast_dtype", "no_autocast"]
