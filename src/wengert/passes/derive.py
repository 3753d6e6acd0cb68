"""Deriving: from a program to its forward program with residuals and its VJP program."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from wengert.dtypes import ALL as DTYPES
from wengert.passes.linearize import is_linear, linearize, linearizing, transpose, transposing, zeros_like
from wengert.program.ir import Instruction, Operand, Program, Var, remove_dead, verified
from wengert.program.mincut import minimum_vertex_cut
from wengert.program.nested import Once, Task, finished
from wengert.program.simplify import simplify
from wengert.program.trace import Trace, Tracer
from wengert.registry.zero import ZERO

_LAST_BIT = 63  # as core/derived.h: kLastBit
_INPUT, _OUTPUT, _RESIDUAL = 0, 1, 2  # as core/derived.h: SavedRef::Kind
Leaf = tuple[int, int, int]  # kind, source, index: a size that a program reads

# Inputs and outputs are usually alive anyway; a residual takes memory that only the backward pass needs.
_EXISTING = 0.5


@dataclass(slots=True)
class Derivable:
    """The Python side of a native derived program, from which its variants are derived."""

    name: str
    program: Program
    past: list[Instruction]  # computes those inputs that are residuals from the other inputs
    leaves: list[Leaf]  # the sizes given by the caller


@dataclass(slots=True)
class Derivation:
    """The derivative of a program for one signature."""

    name: str
    forward: Program  # outputs, then residuals
    vjp: Program  # inputs: cotangents of the outputs, then saved values; outputs: one per edge
    saves: list[tuple[int, int]]
    edges: list[int]
    n_outputs: int
    past: list[Instruction]  # recomputes residuals from saved inputs and outputs, for differentiating the VJP itself
    leaves: list[Leaf] = field(default_factory=list)  # the sizes that the VJP reads

    @property
    def n_residuals(self) -> int:
        """How many values the forward program computes only for backward."""
        return len(self.forward.outputs) - self.n_outputs


def derive(program: Program, mask: int, name: str, past: Sequence[Instruction] = ()) -> Derivation:
    """Linearise, transpose, and cut: the forward program with residuals and the VJP program.

    `past`: instructions that made some of the program's inputs, residuals, from others. A residual is a number that is
    there; its tangent is that of its past.
    """
    trace = Trace()
    primals: dict[Var, Any] = {}
    tangents: dict[Var, Any] = {}
    # The mask's last bit covers all remaining inputs.
    floating = [DTYPES[v.type.dtype].is_inexact for v in program.inputs]
    wanted = [k for k, f in enumerate(floating) if f and mask >> min(k, _LAST_BIT) & 1]
    for v in program.inputs:
        primals[v] = trace.input(v.type)
    dots = {}
    for k in wanted:
        v = program.inputs[k]
        dots[k] = tangents[v] = trace.tracer(Var(v.type, linear=True))
    given = {v: primals[v] for v in program.inputs}
    with trace:
        linearize_past(trace, past, given, primals, tangents)
        linearize(trace.process, program.instructions, primals, tangents)
    outputs = [_output(primals, o) for o in program.outputs]
    bars_in = [Var(o.type) for o in program.outputs if isinstance(o, Var)]

    linear_part = [i for i in trace.instructions if i.outputs[0].linear]
    trace.instructions = [i for i in trace.instructions if not i.outputs[0].linear]
    bars: dict[Var, Any] = {}
    for o, bar in zip([o for o in program.outputs if isinstance(o, Var)], bars_in):
        y_dot = tangents.get(o, ZERO)
        if is_linear(y_dot):
            bars[y_dot._var] = bars.get(y_dot._var, ZERO) + trace.tracer(bar)
    with trace:
        transpose(trace, linear_part, bars)
    cotangents = [_cotangent(bars.get(dots[k]._var, ZERO)) for k in wanted]

    joint = Program([*bars_in, *trace.inputs], trace.instructions, [*outputs, *cotangents])
    joint = simplify(joint)
    outputs, cotangents = joint.outputs[: len(outputs)], joint.outputs[len(outputs) :]
    xs = joint.inputs[len(bars_in) :]
    known_past = _renamed(past, dict(zip(program.inputs, xs)))
    return _split(joint, bars_in, xs, outputs, cotangents, wanted, name, known_past)


def push(program: Program, mask: int) -> Program:
    """The program together with its tangents: inputs, then tangents of those in the mask → outputs, then their tangents."""
    wanted = [k for k in range(len(program.inputs)) if mask >> min(k, _LAST_BIT) & 1]
    return finished(_pushing(program, wanted, forward=True))


def pushing(program: Program, wanted: Sequence[int], forward: bool = False) -> Once:
    """The task of `push` with respect to these inputs. `forward`: the tangents will not be transposed."""
    return Once((pushing, program, tuple(wanted), forward), _pushing(program, wanted, forward))


def _pushing(program: Program, wanted: Sequence[int], forward: bool) -> Task[Program]:
    trace = Trace()
    primals: dict[Var, Any] = {v: trace.input(v.type) for v in program.inputs}
    varied = (program.inputs[k] for k in wanted)
    tangents: dict[Var, Any] = {v: trace.tracer(Var(v.type, linear=True)) for v in varied}
    dots = [t._var for t in tangents.values()]
    with trace:
        yield from linearizing(trace.process, program.instructions, primals, tangents, forward)
    ys = [_output(primals, o) for o in program.outputs]
    y_dots = [_cotangent(tangents.get(o, ZERO)) if isinstance(o, Var) else None for o in program.outputs]
    return simplify(Program([*trace.inputs, *dots], trace.instructions, [*ys, *y_dots]))


def pulling(program: Program, linear: Sequence[int]) -> Once:
    """The task of transposing a program that is linear in these inputs: the other inputs, then cotangents of the outputs →
    cotangents of the linear inputs."""
    return Once((pulling, program, tuple(linear)), _pulling(program, linear))


def _pulling(program: Program, linear: Sequence[int]) -> Task[Program]:
    trace = Trace()
    made: dict[Var, Var] = {}
    varying = {program.inputs[k] for k in linear}
    for v in program.inputs:
        made[v] = Var(v.type, linear=True) if v in varying else trace.input(v.type)._var
    linear_part: list[Instruction] = []
    for i in program.instructions:
        if any(v in varying for v in i.vars()):
            varying.update(i.outputs)
        made.update((o, Var(o.type, o in varying)) for o in i.outputs)
        (same,) = _renamed([i], made)
        (linear_part if i.outputs[0] in varying else trace.instructions).append(same)
    bars: dict[Var, Any] = {}
    for o in program.outputs:
        bar = trace.input(o.type)  # type: ignore[union-attr]
        if o in varying:
            bars[made[o]] = bars.get(made[o], ZERO) + bar
    with trace:
        yield from transposing(trace, linear_part, bars)
        cotangents = [bars.get(made[program.inputs[k]], ZERO) for k in linear]
        filled = [
            zeros_like(trace.tracer(made[program.inputs[k]])) if b is ZERO else b for k, b in zip(linear, cotangents)
        ]
    return simplify(Program(trace.inputs, trace.instructions, [x._var for x in filled]))


def with_cotangents(
    vjp: Program, past: Sequence[Instruction], n_bars: int, missing: Collection[int]
) -> tuple[Program | None, list[Instruction]]:
    """A vjp without the cotangents (its first operands) that are missing because they are zero, and the past of its
    residuals. None if the program needs them.

    It is linear in its cotangents: its tangents along them are its outputs, and a tangent that is zero costs nothing. Only
    a user's rule is not linear (clip, sign): then tangents are lost on the way, or read the cotangents themselves.
    """
    trace = Trace()
    primals: dict[Var, Any] = {v: trace.input(v.type) for v in vjp.inputs}
    varied = [v for k, v in enumerate(vjp.inputs[:n_bars]) if k not in missing]
    tangents: dict[Var, Any] = {v: trace.tracer(Var(v.type, linear=True)) for v in varied}
    bars, saved = [t._var for t in tangents.values()], trace.inputs[n_bars:]
    with trace:
        linearize(trace.process, vjp.instructions, primals, tangents)
    if any(v in tangents for i in vjp.instructions if not tangents.keys() >= {*i.outputs} for v in i.vars()):
        return None, []
    outputs = [_cotangent(tangents.get(o, ZERO)) if isinstance(o, Var) else None for o in vjp.outputs]
    body = remove_dead(trace.instructions, outputs)
    unknown = {*trace.inputs[:n_bars]}
    if any(v in unknown for i in body for v in i.vars()):
        return None, []
    made = simplify(Program([*bars, *saved], body, outputs))
    return made, _renamed(past, dict(zip(vjp.inputs[n_bars:], made.inputs[len(bars) :])))


def linearize_past(
    trace: Trace, past: Sequence[Instruction], given: dict[Var, Any], primals: dict[Var, Any], tangents: dict[Var, Any]
) -> None:
    """Tangents of residuals. Their values are given, so the code that recomputes them is dead and gets removed."""
    again: dict[Var, Var] = {}
    start = len(trace.instructions)
    for i in past:
        linearize(trace.process, [i], primals, tangents)
        for o in i.outputs:
            if o in given:
                again[primals[o]._var] = given[o]._var
                primals[o] = given[o]
    for i in trace.instructions[start:]:
        i.inputs = tuple(again.get(x, x) if isinstance(x, Var) else x for x in i.inputs)


def _renamed(instructions: Sequence[Instruction], names: dict[Var, Var]) -> list[Instruction]:
    return [
        Instruction(
            i.op,
            tuple(names.get(x, x) if isinstance(x, Var) else x for x in i.inputs),
            i.attrs,
            tuple(names.get(o, o) for o in i.outputs),
            i.origin,
        )
        for i in instructions
    ]


def _output(primals: dict[Var, Any], o: Operand | None) -> Operand | None:
    if isinstance(o, Var):
        value = primals[o]
        return value._var if isinstance(value, Tracer) else o
    return o


def _cotangent(x: Any) -> Operand | None:
    if x is ZERO:
        return None
    return x._var if isinstance(x, Tracer) else None


def _split(
    joint: Program,
    bars_in: list[Var],
    xs: list[Var],
    outputs: Sequence[Operand | None],
    cotangents: Sequence[Operand | None],
    wanted: list[int],
    name: str,
    past: list[Instruction],
) -> Derivation:
    late = set(bars_in)  # values that depend on a cotangent
    for i in joint.instructions:
        if not late.isdisjoint(i.inputs):
            late.update(i.outputs)
    early_part = [i for i in joint.instructions if i.outputs[0] not in late]
    late_part = [i for i in joint.instructions if i.outputs[0] in late]
    late_part = remove_dead(late_part, cotangents)
    needed = {v for i in late_part for v in i.vars() if v not in late}
    needed |= {c for c in cotangents if isinstance(c, Var) and c not in late}

    saved = _choose_saved(early_part, xs, outputs, needed)
    past = _past_of(saved, [*past, *early_part], xs, outputs, wanted, {o for i in past for o in i.outputs})
    read = {v for i in past for v in i.vars()} - {o for i in past for o in i.outputs}
    known = set(saved)
    saved += [x for x in xs if x in read and x not in known]
    recomputed = _made_from(saved, early_part, needed)
    refs, residuals = _references(saved, xs, outputs)
    forward_outputs = [*outputs, *residuals]
    forward = verified(Program(xs, remove_dead(early_part, forward_outputs), forward_outputs))
    vjp = simplify(Program([*bars_in, *saved], [*recomputed, *late_part], list(cotangents)))
    return Derivation(name, forward, vjp, refs, wanted, len(outputs), past)


def _past_of(
    saved: list[Var],
    instructions: list[Instruction],
    xs: list[Var],
    outputs: Sequence[Operand | None],
    wanted: list[int],
    pasts: set[Var],
) -> list[Instruction]:
    """The instructions that compute saved residuals, if they depend on a differentiated input, from values with edges.

    A saved residual is a number without a past. Differentiating the VJP program needs its past, so the inputs that it
    was made of are saved beside it: references, not copies. `pasts`: inputs that are such residuals themselves.
    """
    active = {xs[k] for k in wanted}
    for i in instructions:
        if not active.isdisjoint(i.inputs) and i.passes_derivatives():
            active.update(o for o in i.outputs if DTYPES[o.type.dtype].is_inexact)
    existing = {*xs, *(o for o in outputs if isinstance(o, Var))} - pasts
    residuals = {v: None for v in saved if v in active and v not in existing}
    return _made_from([v for v in saved if v not in residuals], instructions, residuals)


def _made_from(saved: Iterable[Var], instructions: list[Instruction], wanted: Iterable[Var]) -> list[Instruction]:
    """The instructions that compute the wanted values from the saved ones."""
    have = set(saved)
    live: set[Operand] = {v for v in wanted if v not in have}  # literals among them are nobody's results
    body = []
    for i in reversed(instructions):
        if not live.isdisjoint(i.outputs):
            # One of several outputs may be saved already and must not be made twice.
            outputs = tuple(Var(o.type) if o in have else o for o in i.outputs)
            body.append(Instruction(i.op, i.inputs, i.attrs, outputs, i.origin))
            live.update([x for x in i.inputs if x not in have])
    return body[::-1]


def _choose_saved(
    early: list[Instruction], xs: list[Var], outputs: Sequence[Operand | None], needed: set[Var]
) -> list[Var]:
    """The values to keep: fewest bytes from which all that backward needs can be recomputed cheaply."""
    existing = {*xs, *(o for o in outputs if isinstance(o, Var))}
    order: list[Var] = [*xs]
    edges: list[tuple[Var, Var]] = []
    sources = list(xs)
    for i in early:
        order.extend(i.outputs)
        if i.op.expensive:
            sources.extend(i.outputs)
        else:
            edges.extend((v, o) for v in i.vars() for o in i.outputs)
    weights = {v: 1.0 + _bytes(v) * (_EXISTING if v in existing else 1.0) for v in order}
    cut = minimum_vertex_cut(edges, weights, sources, [v for v in needed if v in weights])
    return [v for v in order if v in cut]


def _bytes(v: Var) -> int:
    """Bytes at the example sizes. An empty example counts as one element, because the program will serve other sizes too."""
    return v.type.example_bytes() or DTYPES[v.type.dtype].itemsize


def _references(
    saved: Sequence[Var], xs: list[Var], outputs: Sequence[Operand | None]
) -> tuple[list[tuple[int, int]], list[Var]]:
    refs: list[tuple[int, int]] = []
    residuals: list[Var] = []
    existing: dict[Operand | None, tuple[int, int]] = {}
    for k, x in enumerate(xs):
        existing.setdefault(x, (_INPUT, k))
    for k, o in enumerate(outputs):
        existing.setdefault(o, (_OUTPUT, k))
    for v in saved:
        if v in existing:
            refs.append(existing[v])
        else:
            refs.append((_RESIDUAL, len(residuals)))
            residuals.append(v)
    return refs, residuals
