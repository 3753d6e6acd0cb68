"""Reading parameters and values: one dtype, shapes that fit, numbers in their domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import ALL, DType, float32
from wengert.errors import DTypeError, ShapeError
from wengert.program.trace import broadcast_shapes
from wengert.stats.domains import Domain
from wengert.tensors.arguments import as_dtype_of, as_floating, as_tensor, describe, native, product
from wengert.tensors.conversion import asarray
from wengert.tensors.creation import as_shape
from wengert.tensors.numpy import data
from wengert.tensors.random import Generator, default_generator

_broadcast_to = native("broadcast_to")
Shape = tuple[Any, ...]


def read(owner: str, given: Mapping[str, Any], domains: Mapping[str, Domain]) -> list[Tensor]:
    """Parameters as tensors of one floating dtype, each checked against its domain.

    Python numbers take the dtype of the tensors beside them; float32 if there are none.
    """
    tensors = {k: as_floating(as_tensor(x, owner)) for k, x in given.items() if not isinstance(x, (int, float))}
    dtype = float32
    for k, t in enumerate(tensors.values()):
        if t.dtype.kind == "c":
            raise DTypeError(f"{owner}: parameters must be real numbers, got {describe(t)}")
        dtype = t.dtype if k == 0 else _promoted(dtype, t.dtype)
    found = []
    for name, x in given.items():
        t = as_dtype_of(tensors[name], dtype) if name in tensors else asarray(x, dtype=dtype)
        domain = domains.get(name)
        if domain is not None:
            if t.ndim < domain.event_ndim:
                raise ShapeError(f"{owner}: {name} needs {domain.event_ndim} axes or more, got {describe(t)}")
            domain.require(t, owner, name)
        found.append(t)
    return found


def _promoted(a: DType, b: DType) -> DType:
    return a if a.code == b.code else ALL[_core.promote(a.code, b.code)]


def common_shape(owner: str, *shapes: Shape) -> Shape:
    """The shape that the shapes broadcast to."""
    first = shapes[0]
    return first if all(s == first for s in shapes[1:]) else broadcast_shapes(owner, *shapes)


def value(owner: str, x: Any, batch_shape: Shape, event_shape: Shape, dtype: DType) -> Tensor:
    """Values as a tensor in the parameters' dtype, or a wider one; their last axes are the event's, the others broadcast."""
    t = as_tensor(x, owner) if not isinstance(x, (int, float)) else asarray(x, dtype=dtype)
    if not t.dtype.is_floating:
        if t.dtype.kind == "c":
            raise DTypeError(f"{owner}: values must be real numbers, got {describe(t)}")
        t = as_dtype_of(t, dtype)
    shape, k = tuple(t.shape), len(event_shape)
    if len(shape) < k or shape[len(shape) - k :] != event_shape:
        raise ShapeError(f"{owner}: values must end with the event shape {event_shape}, got {describe(t)}")
    if shape[: len(shape) - k] != batch_shape:
        _check_batch(owner, t, batch_shape, shape[: len(shape) - k])
    return t


def _check_batch(owner: str, t: Tensor, batch_shape: Shape, given: Shape) -> None:
    try:
        broadcast_shapes(owner, given, batch_shape)
    except ShapeError:
        raise ShapeError(f"{owner}: values {describe(t)} do not broadcast with the batch shape {batch_shape}") from None


def spread(x: Tensor, shape: Shape) -> Tensor:
    """x broadcast to a shape; x itself if it has that one."""
    return x if tuple(x.shape) == shape else _broadcast_to(x, shape)


def sample_shape(shape: Any) -> Shape:
    """The shape of a sample, from a number or a sequence."""
    return () if shape == () else as_shape(shape)


def generator_of(generator: Generator | None, owner: str) -> Generator:
    """The generator that was given, or the default one."""
    if generator is not None and not isinstance(generator, Generator):
        raise TypeError(f"{owner}: generator must be a wengert.Generator, got {type(generator).__name__}")
    return generator or default_generator


def place(generator: Generator | None, owner: str, shape: Shape) -> tuple[Any, Any]:
    """Key and counter of a draw in which every element has a counter of its own."""
    return generator_of(generator, owner).place(2 * product(shape), True)


def as_python(x: Tensor) -> str:
    """The numbers of a parameter in a `repr`, where they are few and known."""
    if not x._plain or x.size > 6:
        return describe(x)
    return np.array2string(data(x), separator=", ", precision=4, threshold=6).replace("\n", "")
