"""Static arguments of compiled functions: each value gets a separate trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from wengert import _core, tree
from wengert.compiling.retrace import name_of
from wengert.errors import ArgumentError

Static = str | int | Iterable[str | int]


def static_names(f: Callable[..., Any], static: Static) -> frozenset[str]:
    """The names of the static parameters, given by name or position."""
    listed = [static] if isinstance(static, (str, int)) else list(static)
    if not listed:
        return frozenset()
    parameters = list(inspect.signature(f).parameters)
    for x in listed:
        if isinstance(x, int) and not -len(parameters) <= x < len(parameters):
            raise ArgumentError(f"compile: static is position {x}, but the function has {len(parameters)} parameters")
        if isinstance(x, str) and x not in parameters:
            raise ArgumentError(f"compile: static names {x!r}, but the parameters are {', '.join(parameters)}")
    return frozenset(x if isinstance(x, str) else parameters[x] for x in listed)


class _Known:
    """A static argument as one leaf among the others."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known) and type(other.value) is type(self.value) and bool(other.value == self.value)

    def __hash__(self) -> int:
        return hash(self.value)


def _statics(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[int, str]]:
    """The positions and keyword names of the static arguments of a call."""
    names = compiled.__dict__.get("_static")
    if not names:
        return []
    named = ((k, name_of(compiled, args, kwargs, k)) for k in range(len(args) + len(kwargs)))
    return [(k, name) for k, name in named if name in names]


def refuse_static_tensors(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise if a static argument holds a tensor."""
    values = [*args, *kwargs.values()]
    for k, name in _statics(compiled, args, kwargs):
        if any(isinstance(x, _core.Tensor) for x in tree.leaves(values[k])):
            raise ArgumentError(
                f"{compiled.__name__}: the static argument {name!r} holds a tensor; tensors are operands of the program"
            )


def with_statics(
    compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, with each static one as a leaf."""
    values = [*args, *kwargs.values()]
    refuse_static_tensors(compiled, args, kwargs)
    for k, name in _statics(compiled, args, kwargs):
        try:
            hash(values[k])
        except TypeError:
            raise TypeError(
                f"{compiled.__name__}: the static argument {name!r} must be hashable, and a {type(values[k]).__name__} is "
                "not; pass a tuple or a frozen dataclass"
            ) from None
        values[k] = _Known(values[k])
    return tuple(values[: len(args)]), dict(zip(kwargs, values[len(args) :]))


def without_statics(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as the function expects them."""
    return tuple(_plain(x) for x in args), {k: _plain(x) for k, x in kwargs.items()}


def _plain(x: Any) -> Any:
    return x.value if isinstance(x, _Known) else x
