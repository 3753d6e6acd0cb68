"""Estimated costs of derivatives, instruction by instruction, before anything runs.

The tangents of a program are linear instructions, made by the rules of its ops; their transposes pull cotangents back. Both
are traced once, for one tangent and one cotangent, and counted. Many of them in one pass cost as many times as much, but
for what is paid once for each instruction, and for the coefficients, which do not depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wengert.dtypes import ALL as DTYPES
from wengert.passes.linearize import is_linear, jvp_rule, transpose
from wengert.program.ir import Const, Instruction, Program, Var
from wengert.program.nested import innermost_first
from wengert.program.trace import Trace
from wengert.registry.zero import ZERO

# Measured on a processor with two cores and AVX-512, with one thread: see `python -m benchmarks.schedule`. Only
# ratios of these numbers matter, and they differ less between machines than absolute speeds do.
SECONDS_PER_INSTRUCTION = 1.2e-7
SECONDS_PER_PRODUCT_FLOP = 6.5e-12  # in matrix products and convolutions
SECONDS_PER_FLOP = 4e-11  # in everything else
SECONDS_PER_BYTE = 1.5e-11  # read or written, except by elementwise instructions, which run in groups and in cache

_TRANSCENDENTAL = 8  # flops of an elementwise function other than arithmetic


@dataclass(slots=True)
class Work:
    """The amount of work: arithmetic, and bytes read and written."""

    product_flops: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    instructions: int = 0
    shared_bytes: float = 0.0  # bytes of operands shared by all, when done for many at once

    def __add__(self, other: Work) -> Work:
        return Work(
            self.product_flops + other.product_flops,
            self.flops + other.flops,
            self.bytes + other.bytes,
            self.instructions + other.instructions,
            self.shared_bytes + other.shared_bytes,
        )

    def seconds(self, times: float = 1.0) -> float:
        """The time for this many at once, which share the dispatch."""
        each = self.product_flops * SECONDS_PER_PRODUCT_FLOP + self.flops * SECONDS_PER_FLOP
        once = self.instructions * SECONDS_PER_INSTRUCTION + self.shared_bytes * SECONDS_PER_BYTE
        return once + times * (each + self.bytes * SECONDS_PER_BYTE)


def total(parts: Iterable[Work]) -> Work:
    """Their sum."""
    return sum(parts, Work())


def work_of(i: Instruction) -> Work:
    """The work of one instruction."""
    inside: dict[Program, Work] = {}
    for p in innermost_first([i]):
        inside[p] = total(_work(j, inside) for j in p.instructions)
    return _work(i, inside)


def _work(i: Instruction, inside: Mapping[Program, Work]) -> Work:
    if i.op.view or not i.inputs:
        return Work()
    if regions := i.regions():
        return total(inside[p] for p in regions)
    moved = sum(v.type.example_bytes() for v in (*i.outputs, *dict.fromkeys(i.vars())))
    made = sum(o.type.example_size() for o in i.outputs)
    if callable(i.op.work):
        return Work(2.0 * i.op.work(i, made), 0.0, moved, 1)
    return Work(0.0, _flops(i, made), 0.0 if i.op.elementwise else moved, 1)


def _flops(i: Instruction, made: int) -> float:
    word = i.op.work
    if i.op.elementwise:
        return made * (1 if word == "arithmetic" else _TRANSCENDENTAL)
    if word == "moving":
        return 0.0
    read = max((v.type.example_size() for v in i.vars()), default=0)
    if word == "cubic":
        return 2.0 * max(made, read) * max((_last(v) for v in i.vars()), default=1)
    if word == "sorting":
        return 4.0 * max(made, read) * math.log2(max(2, max(_last(v) for v in i.vars())))
    return float(max(made, read))


def _last(v: Var) -> int:
    return v.type.example_shape()[-1] if v.type.shape else 1


@dataclass(slots=True)
class Derivative:
    """The cost of the derivative of one instruction: once, per tangent, and per cotangent."""

    instruction: Instruction
    once: Work
    push: Work
    pull: Work


def derivatives(program: Program, sources: Sequence[Var]) -> list[Derivative]:
    """The costs of each instruction that depends on the sources and has a derivative, in order."""
    trace = Trace()
    tangents: dict[Var, Any] = {v: trace.tracer(Var(v.type, linear=True)) for v in sources}
    found: list[tuple[Derivative, list[Instruction]]] = []
    with trace:
        for i in program.instructions:
            dots = [tangents.get(x, ZERO) if isinstance(x, Var) else ZERO for x in i.inputs]
            if not i.op.differentiable or all(d is ZERO for d in dots):
                continue
            if i.op.linearize is not None:
                found.append((_of_region(i), []))
                tangents.update((o, trace.tracer(Var(o.type, linear=True))) for o in i.outputs if _is_inexact(o))
                continue
            before = len(trace.instructions)
            inputs = [x.value if isinstance(x, Const) else trace.tracer(x) for x in i.inputs]
            ys = tuple(map(trace.tracer, i.outputs))
            y_dots = jvp_rule(i.op, dots, ys[0] if len(ys) == 1 else ys, inputs, i.attrs)
            made = {o: d for o, d in zip(i.outputs, (y_dots,) if len(ys) == 1 else y_dots) if is_linear(d)}
            if made:
                found.append(_counted(i, trace.instructions[before:]))
                tangents.update(made)
        _count_pulls(trace, program, tangents, found)
    return [d for d, _ in found]


def _counted(i: Instruction, added: Sequence[Instruction]) -> tuple[Derivative, list[Instruction]]:
    linear = [j for j in added if any(v.linear for v in j.outputs)]
    once = total(work_of(j) for j in added if not any(v.linear for v in j.outputs))
    return Derivative(i, once, total(map(_of_linear, linear)), Work()), linear


def _of_linear(i: Instruction) -> Work:
    """The work of an instruction per tangent, or per cotangent."""
    work = work_of(i)
    if work.bytes:
        work.shared_bytes = sum(v.type.example_bytes() for v in {v for v in i.vars() if not v.linear})
        work.bytes -= work.shared_bytes
    return work


def _count_pulls(
    trace: Trace, program: Program, tangents: dict[Var, Any], found: list[tuple[Derivative, list[Instruction]]]
) -> None:
    bars: dict[Var, Any] = {}
    for o in program.outputs:
        if isinstance(o, Var) and o in tangents:
            bars[tangents[o]._var] = trace.tracer(Var(o.type, linear=True))
    for d, linear in reversed(found):
        if not linear:  # a loop or a branch: its cotangents are like its operands
            for o in d.instruction.outputs:
                if o in tangents:
                    bars.pop(tangents[o]._var, None)
            for v in d.instruction.vars():
                if v in tangents:
                    bars[tangents[v]._var] = trace.tracer(Var(v.type, linear=True))
            continue
        before = len(trace.instructions)
        transpose(trace, linear, bars)
        d.pull = total(map(_of_linear, trace.instructions[before:]))


def _of_region(i: Instruction) -> Derivative:
    """The cost for a loop or a branch, whose programs are differentiated inside it: about twice its own work."""
    work = work_of(i)
    return Derivative(i, work, work + work, work + work)


def _is_inexact(v: Var) -> bool:
    return DTYPES[v.type.dtype].is_inexact
