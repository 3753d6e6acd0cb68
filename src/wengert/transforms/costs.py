"""Estimated costs of derivatives, instruction by instruction, before anything runs.

The tangents of a program are linear instructions, made by the rules of its ops; their transposes pull cotangents back. Both
are traced once, for one tangent and one cotangent, and counted. Many of them in one pass cost as many times as much, but
for what is paid once for each instruction, and for the coefficients, which do not depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wengert.dtypes import ALL as DTYPES
from wengert.passes.linearize import is_linear, jvp_rule, transpose
from wengert.program.ir import Const, Instruction, Program, Var
from wengert.program.trace import Trace
from wengert.registry.zero import ZERO

# Measured on a processor with two cores and AVX-512, with one thread: see `python -m benchmarks.schedule`. Only
# ratios of these numbers matter, and they differ less between machines than absolute speeds do.
SECONDS_PER_INSTRUCTION = 1.2e-7
SECONDS_PER_PRODUCT_FLOP = 6.5e-12  # in matrix products and convolutions
SECONDS_PER_FLOP = 4e-11  # in everything else
SECONDS_PER_BYTE = 1.5e-11  # read or written, except by elementwise instructions, which run in groups and in cache

_TRANSCENDENTAL = 8  # flops of an elementwise function other than arithmetic
_ARITHMETIC = frozenset({
    "add", "sub", "neg", "mul", "div", "scale", "unscale", "strong_product", "square", "where", "maximum", "minimum", "abs",
    "relu", "clip", "copy", "conj", "real", "imag", "make_complex", "sign",
})  # fmt: skip
_MOVING = frozenset({
    "as_strided", "as_strided_add", "as_strided_update", "cast", "concat", "contiguous", "index_put", "slice",
    "slice_update", "take", "take_along_axis", "tril", "triu", "unslice",
})  # fmt: skip
_CUBIC = frozenset({
    "lu_factor", "lu_solve", "inv", "solve_triangular", "det", "slogdet", "cofactor", "lu", "cholesky", "qr", "svd",
    "svdvals", "eigh", "eigvalsh", "eig", "eigvals", "pinv", "matrix_exp", "matrix_exp_push",
})  # fmt: skip


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
    if i.op.view or not i.inputs:
        return Work()
    if regions := i.regions():
        return total(work_of(inner) for region in regions for inner in region.instructions)
    moved = sum(v.type.example_bytes() for v in (*i.outputs, *dict.fromkeys(i.vars())))
    made = sum(o.type.example_size() for o in i.outputs)
    products = _PRODUCTS.get(i.op.name)
    if products is not None:
        return Work(2.0 * products(i, made), 0.0, moved, 1)
    return Work(0.0, _flops(i, made), 0.0 if i.op.elementwise else moved, 1)


def _flops(i: Instruction, made: int) -> float:
    name = i.op.name
    if i.op.elementwise:
        return made * (1 if name in _ARITHMETIC else _TRANSCENDENTAL)
    if name in _MOVING:
        return 0.0
    read = max((v.type.example_size() for v in i.vars()), default=0)
    if name in _CUBIC:
        return 2.0 * max(made, read) * max((_last(v) for v in i.vars()), default=1)
    if name.startswith(("sort", "argsort", "topk", "fft")):
        return 4.0 * max(made, read) * math.log2(max(2, max(_last(v) for v in i.vars())))
    return float(max(made, read))


def _last(v: Var) -> int:
    return v.type.example_shape()[-1] if v.type.shape else 1


def _shape_of(i: Instruction, k: int) -> tuple[int, ...]:
    x = i.inputs[k]
    return x.type.example_shape() if isinstance(x, Var) else ()


def _of_matrices(i: Instruction, made: int) -> float:
    return made * _shape_of(i, 0)[-2 if i.attrs[0] else -1]


def _of_kernel(i: Instruction, images: int) -> float:
    """Convolution: each element of the images meets each element of one kernel of its channel."""
    kernel = _shape_of(i, 1)
    return images * math.prod(kernel) / max(1, kernel[0])


def _of_all_kernels(i: Instruction, made: int) -> float:
    return made * math.prod(_shape_of(i, 1)) / max(1, i.outputs[0].type.example_shape()[0])


def _of_scores(i: Instruction, first: int, by_keys: int, by_values: int) -> float:
    """Attention: products of queries and keys, and of scores and values, this many of each. Causal attention needs half."""
    q, k, v = (_shape_of(i, first + n) for n in range(3))
    scores = math.prod(q[:-1]) * k[-2]
    return scores * (by_keys * q[-1] + by_values * v[-1]) * (0.5 if i.attrs[1] else 1.0)


def _of_steps(i: Instruction, *weights: int) -> float:
    """A recurrent layer: each row of each step meets these weights."""
    steps, batch = i.outputs[0].type.example_shape()[:2]
    return float(steps * batch * sum(math.prod(_shape_of(i, k)) for k in weights))


_PRODUCTS: dict[str, Callable[[Instruction, int], float]] = {
    "matmul": _of_matrices,
    "conv": _of_kernel,
    "conv_transpose": lambda i, made: _of_kernel(i, math.prod(_shape_of(i, 0))),
    "conv_kernel": _of_all_kernels,
    "attention": lambda i, made: _of_scores(i, 0, 1, 1),
    "attention_tangent": lambda i, made: _of_scores(i, 3, 3, 2),  # the scores are recomputed
    "attention_cotangent": lambda i, made: _of_scores(i, 2, 3, 2),
    "lstm": lambda i, made: _of_steps(i, 3, 4),
    "lstm_tangent": lambda i, made: _of_steps(i, 3),
    "lstm_cotangent": lambda i, made: _of_steps(i, 2),
    "gru": lambda i, made: _of_steps(i, 2, 3),
    "gru_tangent": lambda i, made: _of_steps(i, 2),
    "gru_cotangent": lambda i, made: _of_steps(i, 1),
}


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
