"""The backward walk through a trace: instructions for what the core's walk computes, so that the bits are the same.

Eager code records a node for each call: of an op, a composite, a compiled function, or the derivative program of another
node. The walk visits nodes latest first, and adds up what arrives at a value in that order. The bits of a gradient depend on
it, and those of a second derivative also on what each derivative program reads: a result that was kept leads back through
the call that made it, a value that is computed again to the operands. So instructions are pulled back here by calls, too,
and the derivative of a derivative follows the program that eager code would have run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wengert.dtypes import ALL as DTYPES
from wengert.passes.derive import Derivation, derive, linearize_past, with_cotangents
from wengert.passes.linearize import is_linear, linearize, transpose, zeros_like
from wengert.program.ir import Const, Instruction, Operand, Program, Var, remove_dead
from wengert.program.nested import settled
from wengert.program.simplify import simplify
from wengert.program.trace import Trace, Tracer, one_call, open_calls
from wengert.registry.record import Op
from wengert.registry.zero import ZERO
from wengert.transforms.known_pullbacks import KnownPullbacks

Hooks = Mapping[Var, Sequence[Callable[[Any], Any]]]
_INPUT, _OUTPUT = 0, 1  # as core/derived.h: SavedRef::Kind
_MOST_OPERANDS = 63  # that a mask can tell apart


@dataclass(slots=True)
class _Recorded:
    """What a node would be of: a program, and the values of the trace that it was applied to and that it made."""

    program: Program
    operands: list[Var]
    results: list[Var | None]
    past: list[Instruction] = field(default_factory=list)
    residuals: set[int] = field(default_factory=set)  # operands that are numbers without a past of their own
    alone: Instruction | None = None  # the instruction of the trace, if it is one of these operands and results

    @classmethod
    def of(cls, instructions: Sequence[Instruction], results: Sequence[Var]) -> _Recorded:
        """These instructions, of which there are several."""
        made = {o for i in instructions for o in i.outputs}
        operands = list(dict.fromkeys(v for i in instructions for v in i.vars() if v not in made))
        program = simplify(Program(operands, list(instructions), list(results)))
        return cls(program, operands, list(results))

    @classmethod
    def of_one(cls, i: Instruction) -> _Recorded:
        """This instruction. Each operand counts by itself, also if it is the same twice."""
        operands = i.vars()
        inputs = [Var(v.type) for v in operands]
        rest = iter(inputs)
        alone = Instruction(
            i.op, tuple(next(rest) if isinstance(x, Var) else x for x in i.inputs), i.attrs, i.outputs, i.origin
        )
        return cls(Program(inputs, [alone], list(i.outputs)), operands, list(i.outputs), alone=i)


@dataclass(slots=True, eq=False)
class _Pulled:
    """The call of a derivative program: the pullback of what was recorded, from these cotangents."""

    recorded: _Recorded
    wanted: list[int]  # operands with a cotangent
    bars: list[Var | None]  # cotangents of the results; None: zero
    cotangents: list[Var | None] = field(default_factory=list)

    def program(self, trace: Trace, made: set[Var]) -> _Recorded:
        """The program that eager code would have run, on the values that it would have kept. `made`: what the instructions
        of the call make; a cotangent may be one of its operands instead."""
        of = self.recorded
        derivation = derive(of.program, sum(1 << k for k in self.wanted), "", of.past)
        vjp, past = derivation.vjp, derivation.past
        bars: list[Any] = list(self.bars)
        if missing := {k for k, bar in enumerate(bars) if bar is None}:
            fewer, past_of_fewer = with_cotangents(vjp, past, len(bars), missing)
            if fewer is not None:
                vjp, past = fewer, past_of_fewer
                bars = [bar for bar in bars if bar is not None]
            else:
                bars = [self._zeros(trace, k) if bar is None else bar for k, bar in enumerate(bars)]
        saved, residuals = _saved(trace, of, derivation)
        distinct = {r: o for o, r in zip(vjp.outputs, self.cotangents) if o is not None and r in made}
        program = Program(vjp.inputs, vjp.instructions, list(distinct.values()))
        return _Recorded(program, [*bars, *saved], list(distinct), past, {len(bars) + k for k in residuals})

    def _zeros(self, trace: Trace, k: int) -> Var:
        result: Any = self.recorded.results[k]
        return trace.value(zeros_like(trace.tracer(result)))


def _saved(trace: Trace, of: _Recorded, derivation: Derivation) -> tuple[list[Any], set[int]]:
    """What a derivative program reads besides cotangents, and which of it only the forward program with residuals makes."""
    forward = derivation.forward
    residuals = forward.outputs[derivation.n_outputs :]
    made: dict[Any, Any] = {v: trace.tracer(x) for v, x in zip(forward.inputs, of.operands)}
    linearize(trace.process, remove_dead(forward.instructions, residuals), made, {})
    saved: list[Any] = []
    numbers = set()
    for kind, k in derivation.saves:
        if kind == _INPUT:
            if k in of.residuals:
                numbers.add(len(saved))
            saved.append(of.operands[k])
        elif kind == _OUTPUT:
            saved.append(of.results[k])
        else:
            numbers.add(len(saved))
            saved.append(trace.value(made[residuals[k]]))
    return saved, numbers


@dataclass(slots=True)
class _Unit:
    """Instructions that eager code records as one node."""

    call: Any
    first: int  # where it begins among the instructions
    instructions: list[Instruction]


def pull_through(
    trace: Trace, outputs: Sequence[Operand], bars: Sequence[Any], sources: Iterable[Var], hooks: Hooks
) -> dict[Var, Any]:
    """The cotangents of values of the trace from those of the outputs; those of sources among them, unless zero.

    `hooks` are functions that may change the cotangents of values which are not sources.
    """
    walk = _Walk(trace, set(sources), hooks)
    for y, bar in zip(outputs, bars):
        if isinstance(y, Var) and y in walk.active:
            walk.add(y, bar)
    walk.run()
    return walk.bars


class _Walk:
    def __init__(self, trace: Trace, sources: set[Var], hooks: Hooks) -> None:
        self.trace = trace
        self.hooks = {v: calls for v, calls in hooks.items() if v not in sources}
        self.bars: dict[Var, Any] = {}
        self.units = _units(trace)
        self.known = KnownPullbacks(trace)
        self.active = set(sources)  # what leads from a source
        for i in trace.instructions:
            if i.passes_derivatives() and not self.active.isdisjoint(i.inputs):
                self.active.update(o for o in i.outputs if DTYPES[o.type.dtype].is_inexact)

    def add(self, v: Var, bar: Any) -> None:
        """A contribution to a cotangent."""
        self.bars[v] = self.bars.get(v, ZERO) + bar

    def run(self) -> None:
        """Visit the units, latest first."""
        read_later: set[Var] = set()
        for unit in reversed(self.units):
            made = [o for i in unit.instructions for o in i.outputs]
            reached = [o for o in made if o in self.bars]
            read = {v for i in unit.instructions for v in i.vars()}
            if reached and not self.active.isdisjoint(read):
                for o in reached:
                    for hook in self.hooks.get(o, ()):
                        changed = hook(self.bars[o])
                        self.bars[o] = self.bars[o] if changed is None else changed
                self._pull(unit, made, read_later)
            if not isinstance(
                unit.call, _Pulled
            ):  # which reads what eager code keeps, not what is computed inside a call
                read_later |= read

    def _pull(self, unit: _Unit, made: list[Var], read_later: set[Var]) -> None:
        i = unit.instructions[0]
        if isinstance(unit.call, _Pulled):
            self._pull_recorded(unit.call.program(self.trace, set(made)))
        elif len(unit.instructions) > 1:
            results = dict.fromkeys(v for v in unit.call.results if v in made)
            results |= dict.fromkeys(v for v in made if v in read_later or v in self.bars)
            self._pull_recorded(_Recorded.of(unit.instructions, list(results)), made)
        elif i.op.linearize is not None:
            self._pull_replaced(unit.first, i)
        else:
            self._pull_recorded(_Recorded.of_one(i), made)

    def _pull_recorded(self, of: _Recorded, made: Sequence[Var] = ()) -> None:
        """Pull back a program of which the trace has these values already."""
        wanted = [
            k
            for k, x in enumerate(of.operands)
            if x in self.active and k not in of.residuals and DTYPES[x.type.dtype].is_inexact
        ]
        bars = [None if r is None else self.bars.get(r) for r in of.results]
        own = len(of.operands) <= _MOST_OPERANDS and all(b is None or self._is_own(b) for b in bars)
        if not own:
            found = self._cotangents(of, wanted, bars, made)
        else:
            call = _Pulled(of, wanted, [None if b is None else self.trace.value(b) for b in bars])
            with one_call(call):
                found = self._known_or_derived(call, bars, made)
            call.cotangents = [self.trace.value(x) if self._is_own(x) else None for x in found]
        for k, x_bar in zip(wanted, found):
            if x_bar is not ZERO:
                self.add(of.operands[k], x_bar)

    def _known_or_derived(self, call: _Pulled, bars: list[Any], made: Sequence[Var]) -> list[Any]:
        """The cotangents of what was recorded; of a single instruction, as they were made for one like it."""
        of, start = call.recorded, len(self.trace.instructions)
        values = [*of.operands, *of.results, *call.bars]
        form = None if of.alone is None else self.known.form(of.alone, call.wanted, values)
        if of.alone is None or form is None:
            return self._cotangents(of, call.wanted, bars, made)
        tensors = {v: bar for v, bar in zip(call.bars, bars) if v is not None}
        found = self.known.copied(form, values, tensors, of.alone)
        if found is None:
            found = self._cotangents(of, call.wanted, bars, made)
            if all(x is ZERO or self._is_own(x) for x in found):
                self.known.keep(form, values, self.trace.instructions[start:], found)
        return found

    def _cotangents(self, of: _Recorded, wanted: list[int], bars: list[Any], made: Sequence[Var]) -> list[Any]:
        trace, program = self.trace, of.program
        start = len(trace.instructions)
        primals: dict[Var, Any] = {v: trace.tracer(x) for v, x in zip(program.inputs, of.operands)}
        dots = [trace.tracer(Var(program.inputs[k].type, linear=True)) for k in wanted]
        tangents: dict[Var, Any] = {program.inputs[k]: dot for k, dot in zip(wanted, dots)}
        linearize_past(trace, of.past, dict(primals), primals, tangents)
        linearize(_reading(trace, program, made), program.instructions, primals, tangents)
        cotangents: dict[Var, Any] = {}
        for o, bar in zip(program.outputs, bars):
            y_dot: Any = tangents.get(o, ZERO) if isinstance(o, Var) else ZERO
            if bar is not None and is_linear(y_dot):
                cotangents[y_dot._var] = cotangents.get(y_dot._var, ZERO) + bar
        self._transpose(start, cotangents)
        found = [cotangents.get(dot._var, ZERO) for dot in dots]
        if all(x is ZERO or self._is_own(x) for x in found):
            needed = [trace.value(x) for x in found if x is not ZERO]
            trace.instructions[start:] = remove_dead(trace.instructions[start:], needed)
        return found

    def _transpose(self, start: int, cotangents: dict[Var, Any]) -> None:
        """Replace the linear instructions from `start` on by their transposes."""
        trace = self.trace
        added = trace.instructions[start:]
        trace.instructions[start:] = [i for i in added if not i.outputs[0].linear]
        transpose(trace, [i for i in added if i.outputs[0].linear], cotangents)

    def _pull_replaced(self, position: int, i: Instruction) -> None:
        """By a rule that replaces its primal: a loop that keeps its carried values takes the place of the original loop."""
        trace = self.trace
        start = len(trace.instructions)
        dots: list[Any] = [
            trace.tracer(Var(x.type, linear=True)) if isinstance(x, Var) and x in self.active else ZERO
            for x in i.inputs
        ]
        operands = [x.value if isinstance(x, Const) else trace.tracer(x) for x in i.inputs]
        y_dots = _linearized(trace, position, operands, dots)
        cotangents: dict[Var, Any] = {}
        for o, y_dot in zip(i.outputs, y_dots):
            if o in self.bars and is_linear(y_dot):
                cotangents[y_dot._var] = cotangents.get(y_dot._var, ZERO) + self.bars[o]
        self._transpose(start, cotangents)
        for x, dot in zip(i.inputs, dots):
            if dot is not ZERO and (bar := cotangents.get(dot._var, ZERO)) is not ZERO:
                self.add(x, bar)  # type: ignore[arg-type]

    def _is_own(self, x: Any) -> bool:
        """Whether a cotangent is a value of the trace; it may be one of a nested trace, of many examples."""
        return isinstance(x, Tracer) and x._trace is self.trace


def _units(trace: Trace) -> list[_Unit]:
    here, units = open_calls(), list[_Unit]()
    for position, i in enumerate(trace.instructions):
        call = _call_of(trace.calls.get(i, ()), here)
        if call is not None and units and units[-1].call is call:
            units[-1].instructions.append(i)
        else:
            units.append(_Unit(call, position, [i]))
    return [part for unit in units for part in _without_loops(unit)]


def _call_of(calls: tuple[Any, ...], here: tuple[Any, ...]) -> Any:
    """The outermost call of an instruction that is not open now."""
    for k, call in enumerate(calls):
        if k >= len(here) or here[k] is not call:
            return call
    return None


def _without_loops(unit: _Unit) -> list[_Unit]:
    """The unit; or its instructions, if the rule of one replaces its primal, which has to be done where it is."""
    if len(unit.instructions) == 1 or all(i.op.linearize is None for i in unit.instructions):
        return [unit]
    return [_Unit(None, unit.first + k, [i]) for k, i in enumerate(unit.instructions)]


def _reading(trace: Trace, program: Program, made: Sequence[Var]) -> Callable[..., Any]:
    """Runs the instructions of a program one after the other: reads what the trace has made, and makes the rest."""
    if not made:
        return trace.process
    known, instructions = set(made), iter(program.instructions)

    def run(op: Op, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        outputs = next(instructions).outputs
        if outputs[0] not in known:
            return trace.process(op, inputs, attrs)
        ys = tuple(trace.tracer(v) for v in outputs)
        return ys[0] if op.n_outputs == 1 else ys

    return run


def _linearized(trace: Trace, position: int, operands: Sequence[Any], dots: Sequence[Any]) -> Sequence[Any]:
    """Tangents by a rule that replaces its primal: a loop that keeps its carried values takes the place of the original
    loop."""
    i, start = trace.instructions[position], len(trace.instructions)
    ys, y_dots = settled(i.op.linearize(operands, dots, i.attrs, False))  # type: ignore[misc]
    names = {y._var: o for y, o in zip(ys, i.outputs)}
    added = trace.instructions[start:]
    primal = next((k for k in added if k.outputs[: len(ys)] == tuple(names)), None)
    if primal is None or not set(primal.vars()) <= set(i.vars()):
        return y_dots  # type: ignore[no-any-return]
    renamed = [
        Instruction(
            k.op,
            tuple(names.get(x, x) if isinstance(x, Var) else x for x in k.inputs),
            k.attrs,
            tuple(names.get(o, o) for o in k.outputs),
            k.origin,
        )
        for k in (primal, *(k for k in added if k is not primal))
    ]
    trace.instructions[position] = renamed[0]
    trace.instructions[start:] = renamed[1:]
    return y_dots  # type: ignore[no-any-return]
