"""Many derivatives of one function along vectors, and tensors flattened into vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from wengert.dtypes import result_type
from wengert.program.trace import tracing
from wengert.registry.record import OPS
from wengert.tensors.random import draws_logged, draws_repeated
from wengert.transforms.vmap import run_on_units

T = TypeVar("T")


def split(vector: Any, like: Sequence[Any]) -> list[Any]:
    """Parts of a vector in the shapes and dtypes of these tensors."""
    if len(like) == 1:
        parts = [vector]
    else:
        parts, first = [], 0
        for x in like:
            parts.append(OPS["slice"](vector, (first,), (int(x.size),), (1,)))
            first += int(x.size)
    shaped = [OPS["reshape"](p, x.shape) for p, x in zip(parts, like)]
    return [p if p.dtype == x.dtype else OPS["cast"](p, x.dtype.code) for p, x in zip(shaped, like)]


def concatenated(tensors: Sequence[Any]) -> Any:
    """All elements in one vector."""
    flat = [flattened(y) for y in tensors]
    if len(flat) == 1:
        return flat[0]
    code = result_type(*flat).code
    return OPS["concat"]([y if y.dtype.code == code else OPS["cast"](y, code) for y in flat], 0)


def over(f: Callable[[Any], list[Any]], seeds: Any, chunk: int | None) -> list[Any]:
    """f of each seed, stacked along a first axis: in one batch while a function is traced, otherwise one by one."""
    count, n = (int(s) for s in seeds.shape)

    def some(first: int, size: Any) -> Any:
        return seeds if size == count else OPS["slice"](seeds, (first, 0), (int(size), n), (1, 1))

    if tracing() is not None:
        return run_on_units(f, some, count, chunk, [])
    drawn: list[Any] = []
    rows = [drawing_the_same(drawn, lambda k=k: f(OPS["reshape"](some(k, 1), (n,)))) for k in range(count)]  # type: ignore[misc]
    return [OPS["concat"]([OPS["reshape"](r, (1, *r.shape)) for r in column], 0) for column in zip(*rows)]


def drawing_the_same(drawn: list[Any], call: Callable[[], T]) -> T:
    """Call a function with the random draws of the first call that was given this list, so that several derivatives belong
    to the same function."""
    if drawn:
        with draws_repeated(drawn):
            return call()
    with draws_logged() as log:
        result = call()
    drawn += log
    return result


def flattened(x: Any) -> Any:
    """x as a vector."""
    return OPS["reshape"](x, (x.size,))
