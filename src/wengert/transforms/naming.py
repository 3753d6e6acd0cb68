"""Names, signatures and documentation of functions made by transformations."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar

from wengert.errors import ArgumentError

F = TypeVar("F", bound=Callable[..., Any])


def named(made: F, transformation: str, f: Any, doc: str, same_arguments: bool = True) -> F:
    """Give `made` the name `transformation(f)`, f's signature, and this documentation, in which {f} is the name of f.

    >>> def loss(x, *, scale=1.0): ...
    >>> named(lambda x, **options: None, "grad", loss, "The gradient of {f}.")
    <function grad(loss) at ...>
    """
    name = (getattr(f, "__qualname__", None) or type(f).__name__).rpartition("<locals>.")[2]
    made.__name__ = made.__qualname__ = f"{transformation}({name})"
    made.__doc__ = doc.replace("{f}", name)
    if same_arguments:
        made.__wrapped__ = f  # type: ignore[attr-defined]  # `inspect` looks there when it is asked for the signature
    return made


def require_function(f: Any, what: str) -> None:
    """Raise where something else was handed to a transformation."""
    if not callable(f):
        raise ArgumentError(f"{what}: takes a function, got {type(f).__name__}")


class Transformed(functools.partial):  # type: ignore[type-arg]
    """A function made by a transformation. It is copied and pickled as `transform(f, **options)`."""

    __name__: str
    _recipe: tuple[Callable[..., Any], Any, dict[str, Any]]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _transform, self._recipe

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)  # binds like a function in a class

    def __repr__(self) -> str:
        return f"<function {self.__name__} at {id(self):#x}>"


def _transform(transform: Callable[..., Any], f: Any, options: dict[str, Any]) -> Any:
    return transform(f, **options)


def transformed(
    made: Callable[..., Any], doc: str, transform: Callable[..., Any], f: Any, **options: Any
) -> Transformed:
    """`made` under the name `transform(f)`, as returned to users by `transform(f, **options)`.

    >>> def loss(x): ...
    >>> def grad(f): return transformed(lambda x: None, "The gradient of {f}.", grad, f)
    >>> grad(loss)
    <function grad(loss) at ...>
    """
    require_function(f, transform.__name__)
    result = named(Transformed(made), transform.__name__, f, doc)
    result._recipe = (transform, f, options)
    return result
