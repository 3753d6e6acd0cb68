"""What a tape recorded, as a program that can be run again, and entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import ALL as DTYPES
from wengert.errors import ArgumentError, DTypeError, ShapeError
from wengert.passes.callbacks import define_callback
from wengert.passes.evaluate import apply
from wengert.program.ir import (
    Const,
    Instruction,
    Operand,
    Origin,
    Program,
    Type,
    Var,
    infer,
    remove_dead,
    resized_attrs,
)
from wengert.registry.record import OPS
from wengert.tensors.conversion import asarray

_LITERAL = 2**32 - 1  # as core/value.h: Value::kLiteral
_OF_INPUT, _OF_ATTRIBUTE, _GIVEN = 0, 1, 3  # as core/dim.h: SizeLeaf::Kind

_Receiver = tuple[int, int]  # a node, by its address (0: none), and which of its outputs


class Entry:
    """One recorded instruction."""

    def __init__(self, call: Any) -> None:
        self._node = call.node
        self.op: str = call.name
        self.inputs = tuple(Type(*t) for t, *_ in call.operands)
        self.outputs = tuple(Type(*t) for t in call.results[: call.n_outputs])
        self.line: str = call.line

    @property
    def saved(self) -> tuple[Tensor, ...]:
        """What it keeps for backward; empty once backward has run."""
        return () if self._node.freed or self._node.custom is not None else tuple(self._node.saved)

    def __repr__(self) -> str:
        operands = ", ".join(map(str, self.inputs))
        return f"<{self.op}({operands}) -> {', '.join(map(str, self.outputs))} at {self.line}>"


@dataclass(slots=True, eq=False)
class _Step:
    """A call on values of the program, with the instructions that it consists of."""

    call: Any
    operands: list[Operand]
    results: list[Operand]
    instructions: list[Instruction]

    def run(self, env: dict[Var, Any], exactly: bool) -> None:
        """Compute its results. `exactly`: with the program that ran when it was recorded, which takes plain tensors."""
        if exactly and not self.call.is_custom:
            kept = (value for _, _, value, _ in self.call.operands)
            made = self.call.run([env[x] if isinstance(x, Var) else k for x, k in zip(self.operands, kept)])
            env.update((r, y) for r, y in zip(self.results, made) if isinstance(r, Var))
            return
        *body, last = self.instructions
        _evaluate(body, env)
        if self.call.is_custom:
            env.update(zip(last.outputs, self.call.python(*(env[x] for x in last.vars()))))
        else:
            _evaluate([last], env)


class RecordedProgram(Program):
    """What a tape recorded. Called on values for its inputs, it runs again; called on nothing, on those that were recorded.

    Its inputs are the tensors that were read and that no recorded instruction made, in the order in which they were first
    read (`arguments` has them); its outputs are the results that nothing has used. Python numbers, and what random ops
    drew, are constants of the program. On plain tensors every instruction runs as it did when it was recorded, so that
    the same inputs give the same bits. On tensors that are tracked, dual or traced, the program is differentiated or
    traced as any function is.
    """

    __slots__ = ("_steps", "arguments")

    def __init__(self, reader: Reader, outputs: list[Operand | None]) -> None:
        instructions = [i for s in reader.steps for i in s.instructions]
        super().__init__(list(reader.inputs.values()), remove_dead(instructions, outputs), outputs)
        self.arguments: tuple[Tensor, ...] = tuple(reader.arguments)
        self._steps = _needed(reader.steps, outputs)

    def __call__(self, *values: Any) -> Any:
        if values or not self.inputs:
            given = self._checked(values)
        else:
            given = list(self.arguments)
            for s in self._steps:
                s.call.check_operands()
        exactly = all(x._plain and not (x.requires_grad and _core.is_grad_enabled()) for x in given)
        env: dict[Var, Any] = dict(zip(self.inputs, given))
        for s in self._steps:
            s.run(env, exactly and not _core.recording_tapes())
        results = tuple(env[o] for o in self.outputs if isinstance(o, Var))
        return results[0] if len(results) == 1 else results

    def _checked(self, values: Sequence[Any]) -> list[Any]:
        if len(values) != len(self.inputs):
            raise ArgumentError(f"program: takes {len(self.inputs)} inputs, got {len(values)}")
        given = [x if isinstance(x, Tensor) else asarray(x) for x in values]
        for k, (x, v) in enumerate(zip(given, self.inputs)):
            got = Type(x.dtype.code, tuple(x.shape))
            if got.shape != v.type.shape:
                raise ShapeError(
                    f"program: input {k} was recorded as {v.type}, got {got}; record it anew for other shapes"
                )
            if got.dtype != v.type.dtype:
                raise DTypeError(f"program: input {k} was recorded as {v.type}, got {got}; convert it with astype")
        return given


class Reader:
    """Reads calls into instructions on values with known sizes."""

    def __init__(self) -> None:
        self.inputs: dict[Any, Var] = {}  # by memory location
        self.arguments: list[Tensor] = []
        self.steps: list[_Step] = []
        self._made: dict[int, Operand] = {}  # by number
        self._receivers: dict[Var, _Receiver] = {}  # the receiver of the cotangent of each value
        self._received: dict[_Receiver, Var] = {}

    def read(self, call: Any) -> None:
        """Append a call."""
        before: list[Instruction] = []
        operands = [self._operand(call, k, before) for k in range(len(call.operands))]
        shown = [self._differentiated(x, receiver, call, before) for x, (*_, receiver) in zip(operands, call.operands)]
        if call.is_op or call.is_custom:
            op = OPS[call.name] if call.is_op else _callback(call)
            results: list[Operand] = [Var(Type(*t)) for t in call.results]
            body = [Instruction(op, tuple(shown), call.attrs, tuple(results), Origin(call.line))]  # type: ignore[arg-type]
        else:
            body, results = _inlined(call, [_materialized(x, t, before) for x, (t, *_) in zip(shown, call.operands)])
        for k, r in enumerate(results):
            self._made[call.first + k] = r
            if isinstance(r, Var):
                self._receive(r, (0 if call.node is None else call.node.key, k))
        self.steps.append(_Step(call, operands, results, before + body))

    def _operand(self, call: Any, k: int, before: list[Instruction]) -> Operand:
        type_, number, value, _ = call.operands[k]
        if number in self._made:
            return self._made[number]
        if number == _LITERAL:
            return _literal(value, Type(*type_), before)
        place = call.place_of(k)
        if place not in self.inputs:
            self.inputs[place] = Var(Type(*type_))
            self.arguments.append(value.detach())
        return self.inputs[place]

    def _receive(self, x: Var, receiver: _Receiver) -> _Receiver:
        """Note the receiver of a value's cotangent; the first one counts."""
        if x not in self._receivers and receiver[0]:
            self._received.setdefault(receiver, x)
        return self._receivers.setdefault(x, receiver)

    def _differentiated(self, x: Operand, receiver: _Receiver, call: Any, before: list[Instruction]) -> Operand:
        """An operand of a differentiated call. Its derivative ends here if it was detached or made under no_grad; if it was
        written under no_grad, it has the derivative of the value it replaced."""
        if isinstance(x, Const) or call.node is None or not DTYPES[x.type.dtype].is_inexact:
            return x
        if receiver[0] and receiver == self._receive(x, receiver):
            return x
        replaced = self._received.get(receiver)
        op = OPS["stop_gradient" if replaced is None else "replace_value"]
        before.append(Instruction(op, (x,) if replaced is None else (replaced, x), (), (Var(x.type),)))
        return before[-1].outputs[0]

    def result(self, y: Tensor) -> Operand:
        """The program value of this tensor."""
        made = self._made.get(_core.number_of_result(y)) if y._plain else None
        if made is None:
            raise ArgumentError(
                "program: one of the results was not computed while this tape recorded; pass tensors that were"
            )
        return made

    def received(self, receiver: tuple[Any, int] | None) -> Var | None:
        """The value whose cotangent this output of a node gets."""
        return None if receiver is None else self._received.get((receiver[0].key, receiver[1]))

    def unused(self) -> list[Operand | None]:
        """Differentiable results that no call reads."""
        used = {x for s in self.steps for x in s.operands}
        made = (r for s in self.steps if s.call.node is not None for r in s.results[: s.call.n_outputs])
        return [r for r in dict.fromkeys(made) if isinstance(r, Var) and r not in used]


def recorded_program(calls: Sequence[Any], results: Sequence[Tensor]) -> RecordedProgram:
    """Recorded calls as a program that computes these results; without any, those that nothing has used."""
    reader = Reader()
    for call in calls:
        reader.read(call)
    return RecordedProgram(reader, [reader.result(y) for y in results] or reader.unused())


def _needed(steps: Sequence[_Step], outputs: Sequence[Operand | None]) -> list[_Step]:
    """The steps that the outputs need, in order."""
    live, kept = set(outputs), []
    for s in reversed(steps):
        if not live.isdisjoint(s.results):
            kept.append(s)
            live.update(s.operands, *(i.vars() for i in s.instructions))
    return kept[::-1]


def _evaluate(instructions: Sequence[Instruction], env: dict[Var, Any]) -> None:
    for i in instructions:
        outputs = apply(i.op, [x.value if isinstance(x, Const) else env[x] for x in i.inputs], i.attrs)
        env.update(zip(i.outputs, (outputs,) if i.op.n_outputs == 1 else outputs))


def _literal(value: Tensor, type_: Type, before: list[Instruction]) -> Operand:
    """A literal in the source, or numbers drawn for a call."""
    numbers = np.asarray(value.detach())
    if numbers.size and (numbers == numbers.flat[0]).all():
        return Const(numbers.flat[0].item(), type_.dtype)
    made, kept = Var(type_), value.detach()
    read = define_callback("constant", 0, [(type_.dtype, type_.shape)], lambda: [kept], jvp="zero")
    before.append(Instruction(read, (), (), (made,)))
    return made


def _materialized(x: Operand, type_: tuple[int, Any], before: list[Instruction]) -> Var:
    """An operand of a program, which is not a literal."""
    if isinstance(x, Var):
        return x
    made = Var(Type(*type_))
    before.append(Instruction(OPS["full"], (), (type_[1], x.dtype, x.value), (made,)))
    return made


def _callback(call: Any) -> Any:
    """A custom op as an instruction that can be printed."""
    return define_callback(call.name, len(call.operands), call.results, call.python, jvp="undefined")


def _inlined(call: Any, operands: Sequence[Var]) -> tuple[list[Instruction], list[Operand]]:
    """The instructions of a call of a program, with known sizes filled in, and its results."""
    source = getattr(call.python, "forward", None) or call.python.program
    replace = _core.SizeSubstitution(*_known_sizes(call))
    env: dict[Any, Operand] = dict(zip(source.inputs, operands))
    body = [_concrete(i, env, replace) for i in source.instructions]
    results: list[Operand] = [o if isinstance(o, Const) else env[o] for o in source.outputs if o is not None]
    return body, results


def _known_sizes(call: Any) -> tuple[list[Any], list[Any]]:
    if call.sizes_given:
        return list(call.python.leaves), list(call.given)
    leaves = [(_OF_INPUT, k, axis) for k, (t, *_) in enumerate(call.operands) for axis in range(len(t[1]))]
    sizes = [n for t, *_ in call.operands for n in t[1]]
    for k, value in enumerate(call.attrs):
        if isinstance(value, tuple):
            leaves += [(_OF_ATTRIBUTE, k, j) for j in range(len(value))]
            sizes += value
    leaves += [(_GIVEN, 0, k) for k in range(len(call.given))]
    return leaves, [*sizes, *call.given]


def _concrete(i: Instruction, env: dict[Any, Operand], replace: Any) -> Instruction:
    """The instruction with known sizes filled in."""
    inputs = tuple(env[x] if isinstance(x, Var) else x for x in i.inputs)
    attrs = resized_attrs(i, lambda shape: tuple(replace(shape)))
    outputs = tuple(Var(t) for t in infer(i.op, inputs, attrs))
    env.update(zip(i.outputs, outputs))
    return Instruction(i.op, inputs, attrs, outputs, i.origin)


__all__ = ["Entry", "Reader", "RecordedProgram", "recorded_program"]
