"""Building blocks of batch rules. Examples are along the first axis of a batched operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from wengert.dtypes import int64
from wengert.program.trace import create
from wengert.registry.record import OPS, Op


class OneForAll(NamedTuple):
    """What a batch rule returns of a result that is the same for all examples: the result, without their axis."""

    value: Any


def spread(x: Any, size: Any) -> Any:
    """x repeated for each example, as a view."""
    return OPS["broadcast_to"](x, (size, *x.shape))


def all_mapped(size: Any, mapped: Sequence[bool], operands: Sequence[Any]) -> list[Any]:
    """The operands, all broadcast along the axis of the examples."""
    return [x if m else spread(x, size) for x, m in zip(operands, mapped)]


def merge(x: Any, axis: int = 0) -> Any:
    """Merge the axis of the examples into another axis, as its slow part."""
    if axis:
        x = OPS["permute"](x, (*range(1, axis + 1), 0, *range(axis + 1, x.ndim)))
    shape = x.shape
    return OPS["reshape"](x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def unmerge(y: Any, size: Any, n: Any, axis: int = 0) -> Any:
    """Split the axis of the examples off an axis that it was merged into; n elements per example."""
    y = OPS["reshape"](y, (*y.shape[:axis], size, n, *y.shape[axis + 1 :]))
    return OPS["permute"](y, (axis, *range(axis), *range(axis + 1, y.ndim))) if axis else y


def shifted(op: Op, size: Any, attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Attributes that count axes, shifted for operands with the axis of the examples."""
    return tuple(_shifted(a.name, size, value) for a, value in zip(op.attrs, attrs))


def _shifted(name: str, size: Any, value: Any) -> Any:
    if name == "axis":
        return value + 1 if value >= 0 else value
    if name == "axes":
        return tuple(a + 1 if a >= 0 else a for a in value)
    return (size, *value) if name == "shape" else value


def indices_of_all(i: Any, n: Any, size: Any) -> Any:
    """Turn indices into the n elements of each example into indices into the concatenation of all examples.

    What is out of range for one example is out of range for all of them.
    """
    rows = create(OPS["iota"], ((size,), int64.code, 0.0, 1.0))
    first = OPS["reshape"](rows, (size, *(1 for _ in i.shape[1:]))) * n
    total, negative = size * n, i < 0
    inside = (i >= -n) & (i < n)
    where = OPS["where"]
    return where(inside, where(negative, i + n, i) + first, where(negative, i - total, i + total))


def count(shape: Any) -> Any:
    """The number of elements."""
    n: Any = 1
    for size in shape:
        n = n * size
    return n
