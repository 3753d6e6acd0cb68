"""A short text for the bits of tensors: equal for equal bits, in every process and on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from wengert import tree
from wengert._core import Tensor
from wengert.autograd.gradient_map import GradientMap
from wengert.errors import ArgumentError
from wengert.tensors.numpy import data
from wengert.tensors.random import Generator

_BYTES = 8  # of the digest


def fingerprint(x: Any) -> str:
    """A short text for the exact bits of x, such as "8f1c-03aa-52d1-0b7e": equal texts mean equal bits.

    x is a tensor, an array, a number, a string, None, a Generator, a GradientMap, a module or an optimizer (its
    `state_dict`), or a container of these. The text is a BLAKE2b digest of 8 bytes (RFC 7693) over, for each leaf in
    order, its path ("[0]['w']"), its dtype, its shape and its elements (little-endian, row-major). −0 and 0 differ,
    and so do NaNs with different payloads. The gradients of a map are taken in the order of their tensors' ids; the
    ids themselves do not count.

    >>> import wengert as wg
    >>> a = {"w": wg.tensor([1.0, 2.0]), "b": wg.zeros(())}
    >>> fingerprint(a)
    'b31b-bb28-ff52-e56d'
    >>> fingerprint(a) == fingerprint({"w": wg.tensor([1.0, 2.0]), "b": wg.zeros(())})
    True
    >>> fingerprint(wg.tensor(0.0)) == fingerprint(wg.tensor(-0.0))
    False
    """
    digest = hashlib.blake2b(digest_size=_BYTES)
    for place, leaf in places(x):
        kind, content = _described(leaf, place)
        for part in (place.encode(), kind.encode(), content):
            digest.update(len(part).to_bytes(8, "little"))  # so that parts cannot run into each other
            digest.update(part)
    text = digest.hexdigest()
    return "-".join(text[k : k + 4] for k in range(0, len(text), 4))


def places(x: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree, each with the way to it; containers that are empty are leaves."""
    if isinstance(x, GradientMap):
        for k, (_, g) in enumerate(sorted(x.items())):
            yield f"{place}[gradient {k}]", g
    elif hasattr(x, "state_dict"):
        yield from places(x.state_dict(), place)
    elif tree.is_container(x):
        children = tree.labelled(x)
        if not children:
            yield place, x
        for label, child in children:
            yield from places(child, place + label)
    else:
        yield place, x


def _described(x: Any, place: str) -> tuple[str, Any]:
    """What kind of leaf it is, and its bytes."""
    if isinstance(x, Tensor):
        if not x._plain:
            raise ArgumentError(
                f"fingerprint: {place or 'this'} is of type {type(x).__name__}, which holds no data of its own"
            )
        return f"{x.dtype.name}{tuple(x.shape)}", _elements(data(x))
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype != object:
        return f"{x.dtype.name}{x.shape}", _elements(np.asarray(x))
    if isinstance(x, Generator):
        return "generator", repr(x.get_state()).encode()
    if x is None or isinstance(x, (bool, int, float, complex, str, bytes)) or tree.is_container(x):
        return type(x).__name__, repr(x).encode()
    raise ArgumentError(
        f"fingerprint: {place or 'this'} is of type {type(x).__name__}; tensors, arrays, numbers, texts, None, generators, "
        "gradient maps, what has a state_dict(), and containers of them have a fingerprint"
    )


def _elements(a: Any) -> Any:
    ordered = np.ascontiguousarray(a)
    if ordered.dtype.byteorder == ">":
        ordered = ordered.astype(ordered.dtype.newbyteorder("<"))
    return ordered.reshape(-1).view(np.uint8).data if ordered.size else b""


__all__ = ["fingerprint"]
