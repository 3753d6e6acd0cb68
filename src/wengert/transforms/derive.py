"""Deriving: from a program to its forward program with residuals and its VJP program, once per signature."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from wengert import _core
from wengert.dtypes import ALL as DTYPES
from wengert.ops.registry import OPS
from wengert.ops.zero import ZERO
from wengert.program.ir import Instruction, Operand, Program, Type, Var, infer, remove_dead
from wengert.program.lower import lower
from wengert.program.mincut import minimum_vertex_cut
from wengert.program.simplify import simplify
from wengert.program.sizes import EqualSizes
from wengert.program.trace import Trace, Tracer
from wengert.transforms.linearize import is_linear, linearize, transpose

_LAST_BIT = 63  # as core/tape.h: kLastBit
_INPUT, _OUTPUT, _RESIDUAL = 0, 1, 2  # as core/tape.h: SavedRef::Kind

# A value that exists anyway (an input, an output) is likely to be alive anyway; a residual is memory that only the
# backward pass needs.
_EXISTING = 0.5


@dataclass(slots=True)
class Derivation:
    """The derivative of a program for one signature, before it is lowered."""

    name: str
    forward: Program  # outputs, then residuals
    vjp: Program  # inputs: cotangents of the outputs, then saved values; outputs: one per edge
    saves: list[tuple[int, int]]
    edges: list[int]
    n_outputs: int
    replay: Program | None  # residuals again, from saved inputs and outputs: where the VJP itself is differentiated
    native: Any = None
    executable: Any = None  # of `vjp`
    narrowed: dict[int, Program] = field(default_factory=dict)

    @property
    def n_residuals(self) -> int:
        """How many values the forward program makes for backward alone."""
        return len(self.forward.outputs) - self.n_outputs

    def narrow(self, mask: int) -> Program:
        """The VJP program that computes only the edges in the mask."""
        if mask not in self.narrowed:
            outputs = [o if mask >> k & 1 else None for k, o in enumerate(self.vjp.outputs)]
            body = remove_dead(self.vjp.instructions, outputs)
            self.narrowed[mask] = Program(self.vjp.inputs, body, outputs)
        return self.narrowed[mask]


def symbolic_types(types: Sequence[tuple[int, tuple[int, ...]]]) -> list[Type]:
    """Types whose sizes are symbols, but for sizes of 1, which decide about broadcasting."""
    return [
        Type(d, tuple(n if n == 1 else _core.new_symbol(0, k, axis, n) for axis, n in enumerate(shape)))
        for k, (d, shape) in enumerate(types)
    ]


def _symbolic_attrs(name: str, attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        tuple(n if n == 1 else _core.new_symbol(1, k, j, n) for j, n in enumerate(value))
        if spec.kind == "sizes"
        else value
        for k, (spec, value) in enumerate(zip(OPS[name].attrs, attrs))
    )


def _unified_types(name: str, types: Sequence[tuple[int, tuple[int, ...]]], attrs: tuple[Any, ...]) -> Any:
    """Symbolic types and attributes in which sizes that the op requires to be equal are one symbol.

    The op's own shape rule says which: it compares them. Those guards hold for every valid call.
    """
    inputs, sizes = symbolic_types(types), _symbolic_attrs(name, attrs)
    op = OPS[name]
    _core.open_guards()
    try:
        infer(op, [Var(t) for t in inputs], sizes)
    finally:
        guards = _core.close_guards()
    equal = EqualSizes(guards)
    inputs = [Type(t.dtype, tuple(map(equal.one, t.shape))) for t in inputs]
    sizes = tuple(tuple(map(equal.one, v)) if spec.kind == "sizes" else v for spec, v in zip(op.attrs, sizes))
    return inputs, sizes


def derive_op(name: str, types: list[tuple[int, tuple[int, ...]]], attrs: tuple[Any, ...], mask: int) -> Any:
    """The derivative of one op, for the core: (native derivative, guards)."""
    op = OPS[name]
    _core.infer(name, types, attrs)  # what is refused is refused with its numbers, not with the symbols below
    inputs, sizes = _unified_types(name, types, attrs)
    _core.open_guards()
    try:
        variables = [Var(t) for t in inputs]
        outputs = tuple(Var(t) for t in infer(op, variables, sizes))
        program = Program(variables, [Instruction(op, tuple(variables), sizes, outputs)], list(outputs))
        derivation = derive(program, mask, name)
        native = _hand_over(derivation, name if derivation.n_residuals == 0 else None)
    finally:
        guards = _core.close_guards()
    return native, guards


def derive_program(program: Program, mask: int, name: str) -> Derivation:
    """The derivative of a traced program."""
    derivation = derive(program, mask, name)
    _hand_over(derivation, None)
    return derivation


def _hand_over(d: Derivation, op_name: str | None) -> Any:
    d.executable = lower(d.vjp, sizes_of=None if d.replay is None else lower(d.replay), all_sizes=True)
    d.native = _core.make_derivative(
        op_name,
        d.name,
        None if op_name else lower(d.forward),
        d.executable,
        d.saves,
        d.edges,
        d.n_outputs,
        d,
    )
    return d.native


def derive(program: Program, mask: int, name: str) -> Derivation:
    """Linearise, transpose, and cut: the forward program with residuals and the VJP program."""
    trace = Trace()
    primals: dict[Var, Any] = {}
    tangents: dict[Var, Any] = {}
    # The mask's last bit stands for all inputs from there on.
    floating = [DTYPES[v.type.dtype].is_inexact for v in program.inputs]
    wanted = [k for k, f in enumerate(floating) if f and mask >> min(k, _LAST_BIT) & 1]
    for v in program.inputs:
        primals[v] = trace.input(v.type)
    dots = {}
    for k in wanted:
        v = program.inputs[k]
        dots[k] = tangents[v] = trace.tracer(Var(v.type, linear=True))
    with trace:
        linearize(trace, program.instructions, primals, tangents)
    outputs = [_output(primals, o) for o in program.outputs]
    bars_in = [Var(o.type) for o in program.outputs if isinstance(o, Var)]

    primal_part = [i for i in trace.instructions if not any(v.linear for v in i.outputs)]
    linear_part = [i for i in trace.instructions if any(v.linear for v in i.outputs)]
    trace.instructions = list(primal_part)
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
    return _split(joint, bars_in, xs, outputs, cotangents, wanted, name)


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
) -> Derivation:
    late = set(bars_in)  # what depends on a cotangent
    for i in joint.instructions:
        if any(v in late for v in i.vars()):
            late.update(i.outputs)
    early_part = [i for i in joint.instructions if i.outputs[0] not in late]
    late_part = [i for i in joint.instructions if i.outputs[0] in late]
    late_part = remove_dead(late_part, cotangents)
    needed = {v for i in late_part for v in i.vars() if v not in late}
    needed |= {c for c in cotangents if isinstance(c, Var) and c not in late}

    saved = _choose_saved(early_part, xs, outputs, needed)
    replay = _replay(early_part, xs, outputs, saved, wanted)
    if replay is not None:
        known = set(saved)
        saved += [v for v in replay.inputs if v not in known]
    recomputed = _made_from(saved, early_part, needed)
    refs, residuals = _references(saved, xs, outputs)
    forward_outputs = [*outputs, *residuals]
    forward = Program(xs, remove_dead(early_part, forward_outputs), forward_outputs)
    vjp = simplify(Program([*bars_in, *saved], [*recomputed, *late_part], list(cotangents)))
    return Derivation(name, forward, vjp, refs, wanted, len(outputs), replay)


def _replay(
    early: list[Instruction],
    xs: list[Var],
    outputs: Sequence[Operand | None],
    saved: list[Var],
    wanted: list[int],
) -> Program | None:
    """Residuals that depend on a differentiated input, computed from values that have edges; None if there are none.

    A saved residual is a number without a past. Differentiating the VJP program needs its past, so the inputs that it
    was made of are saved beside it: references, not copies.
    """
    active = {xs[k] for k in wanted}
    for i in early:
        sloped = i.op.differentiable and i.op.rule(any(DTYPES[v.type.dtype].kind == "c" for v in i.vars())) != "zero"
        if sloped and any(v in active for v in i.vars()):
            active.update(o for o in i.outputs if DTYPES[o.type.dtype].is_inexact)
    existing = {*xs, *(o for o in outputs if isinstance(o, Var))}
    residuals = {v: None for v in saved if v in active and v not in existing}
    if not residuals:
        return None
    kept = {v: None for v in saved if v not in residuals}
    body = _made_from(kept, early, residuals)
    read = {v for i in body for v in i.vars()}
    return Program([*kept, *(x for x in xs if x in read and x not in kept)], body, list(residuals))


def _made_from(saved: Iterable[Var], instructions: list[Instruction], wanted: Iterable[Var]) -> list[Instruction]:
    """The instructions that make what is wanted from what is saved."""
    have = set(saved)
    live = {v for v in wanted if v not in have}
    body = []
    for i in reversed(instructions):
        if any(o in live for o in i.outputs):
            # One of several outputs may be saved already: it is not made twice.
            outputs = tuple(Var(o.type) if o in have else o for o in i.outputs)
            body.append(Instruction(i.op, i.inputs, i.attrs, outputs))
            live.update(v for v in i.vars() if v not in have)
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
        if i.op.dear:
            sources.extend(i.outputs)
        else:
            edges.extend((v, o) for v in i.vars() for o in i.outputs)
    weights = {v: 1.0 + _bytes(v) * (_EXISTING if v in existing else 1.0) for v in order}
    cut = minimum_vertex_cut(edges, weights, sources, [v for v in needed if v in weights])
    return [v for v in order if v in cut]


def _bytes(v: Var) -> int:
    """Bytes at the example sizes. An empty example counts as one element: what is derived serves other sizes as well."""
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


def narrow(derivation: Derivation, mask: int) -> Any:
    """For the core: the lowered VJP program of some edges. Its sizes are those of the whole one."""
    return lower(derivation.narrow(mask), sizes_of=derivation.executable)
