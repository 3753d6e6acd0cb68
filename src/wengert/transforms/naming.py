"""What functions that transformations make are called, take and say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def named(made: F, transformation: str, f: Any, doc: str, same_arguments: bool = True) -> F:
    """`made` as `transformation(f)`, with this documentation, in which {f} is the name of f, and the signature of f.

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
