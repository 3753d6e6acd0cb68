"""Arithmetic of what ran, and how near it came to what the machine can do."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import wengert as wg
from wengert import _core
from wengert.dtypes import ALL as DTYPES
from wengert.profiling.events import Part, Signature
from wengert.program.ir import Instruction, Type, Var
from wengert.registry.record import find_op
from wengert.transforms.costs import work_of


def flops_of(signatures: Sequence[Signature]) -> list[float]:
    """Floating-point operations of one run of each signature, by the costs that scheduling derivatives uses."""
    known: dict[int, float] = {}

    def count(number: int) -> float:
        if number not in known:
            s = signatures[number]
            known[number] = 0.0  # of what is being counted
            inner = sum(times * count(k) for k, times in s.inner.items())
            known[number] = inner + sum(_flops(Part._make(p)) for p in s.parts)
        return known[number]

    return [count(number) for number in range(len(signatures))]


def _flops(part: Part) -> float:
    op = find_op(part.op)
    if op is None:
        return 0.0  # made at run time: what a Python function does is not known
    variables = [tuple(Var(Type(dtype, tuple(shape))) for dtype, shape in ts) for ts in (part.operands, part.results)]
    work = work_of(Instruction(op, variables[0], tuple(part.attributes), variables[1]))
    return work.product_flops + work.flops


def computes_in_double(s: Signature) -> bool:
    """Whether its results have elements of eight bytes: the processor makes half as many of them at a time."""
    results = [r for p in s.parts for r in Part._make(p).results]
    return bool(results) and all(DTYPES[dtype].itemsize == 8 for dtype, _ in results)


class Machine(NamedTuple):
    """What this machine does at best with the threads that it has now: measured, not looked up."""

    flops: float  # per second, in products of float32 matrices
    double_flops: float  # the same in float64
    bytes_per_second: float  # copying what is much larger than the caches
    threads: int

    def bound(self, flops: float, moved: float, double: bool = False) -> float:
        """The seconds below which this much work cannot be done: the roofline."""
        return max(flops / (self.double_flops if double else self.flops), moved / self.bytes_per_second)


_PRODUCT = 768  # rows of the matrices
_COPIED = 1 << 23  # numbers
_ROUNDS = 5


def machine() -> Machine:
    """Measures the machine, once for each number of threads: it takes about a fifth of a second.

    >>> machine().flops > machine().double_flops / 2
    True
    """
    return _measured(_core.num_threads())


@functools.cache
def _measured(threads: int) -> Machine:
    with wg.no_grad():
        rates = []
        for dtype in (wg.float32, wg.float64):
            a = wg.full((_PRODUCT, _PRODUCT), 0.5, dtype=dtype)
            rates.append(2.0 * _PRODUCT**3 / _best(lambda a=a: a @ a))  # type: ignore[misc]
        x = wg.zeros((_COPIED,))
        copied = 2.0 * x.size * 4 / _best(lambda: _core.copy(x))
    return Machine(rates[0], rates[1], copied, threads)


def _best(run: Callable[[], Any]) -> float:
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
