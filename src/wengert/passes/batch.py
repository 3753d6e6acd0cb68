"""Batching: turns the program for one example into the program for many, instruction by instruction.

The examples lie along a new first axis. A value that does not depend on what has this axis stays as it is, and is computed
once for all. The rules stand in the records of the ops.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import GeneratorType
from typing import Any

from wengert import _core
from wengert.errors import TraceError
from wengert.passes.evaluate import apply
from wengert.passes.example_axis import OneForAll, all_mapped, shifted, spread
from wengert.program.ir import Const, Instruction, Operand, Program, Type, Var
from wengert.program.nested import Once, Task, finished, innermost_first
from wengert.program.simplify import simplify
from wengert.program.trace import Trace, origins
from wengert.registry.precision import uncast
from wengert.registry.record import Op
from wengert.registry.zero import ZERO

DrawsEach = Callable[[Any], bool]
_ANY_LINE: Any = contextlib.nullcontext()
_draws_each: ContextVar[DrawsEach] = ContextVar("draws_each", default=lambda _: True)


def batching(program: Program, mapped: Sequence[bool], size: Any, made: Sequence[bool] | None = None) -> Once:
    """The task of making the program of `size` examples, where the inputs in `mapped` have the axis of the examples. All
    outputs have it; or those in `made`, where the others do not depend on what has it."""
    number = size if isinstance(size, int) else ("symbol", size.raw)
    key = (batching, program, tuple(mapped), number, None if made is None else tuple(made))
    return Once(key, _batching(program, mapped, size, made))


def _batching(program: Program, mapped: Sequence[bool], size: Any, made: Sequence[bool] | None) -> Task[Program]:
    trace = Trace()
    values: dict[Var, Any] = {}
    for v, m in zip(program.inputs, mapped):
        values[v] = trace.input(Type(v.type.dtype, (size, *v.type.shape)) if m else v.type)
    examples = Examples(size, values, {v for v, m in zip(program.inputs, mapped) if m})
    with trace:
        yield from examples.running(program.instructions)
        outputs = [
            o if not isinstance(o, Var) else (examples.with_axis(o) if each else values[o])._var
            for o, each in zip(program.outputs, made or [True] * len(program.outputs))
        ]
    return simplify(Program(trace.inputs, trace.instructions, outputs))


class Examples:
    """The values of a program that runs for many examples at once, on tensors of any level, through dispatch.

    `mapped` are the values that have the axis of the examples. `draws_each(counter)`: whether each example draws random
    numbers of its own there; otherwise the program draws again what was drawn once, for all of them. A program inside of
    an instruction is told by the one around it.
    """

    def __init__(
        self, size: Any, values: dict[Var, Any], mapped: set[Var], draws_each: DrawsEach | None = None
    ) -> None:
        self.size, self.values, self.mapped = size, values, mapped
        self.draws_each: DrawsEach = draws_each or _draws_each.get()

    def run(self, instructions: Sequence[Instruction]) -> None:
        """Run the instructions."""
        finished(self.running(instructions))

    def running(self, instructions: Sequence[Instruction]) -> Task[None]:
        """The task of `run`."""
        token = _draws_each.set(self.draws_each)
        try:
            with origins() as origin, uncast():  # instructions keep their precision
                yield from self._running(instructions, origin)
        finally:
            _draws_each.reset(token)

    def _running(self, instructions: Sequence[Instruction], origin: origins) -> Task[None]:
        checked = _core.checks() == 2  # then instructions that run are of the lines that they were traced from
        for i in instructions:
            origin.set(i)
            with _core.at_line(i.origin.line) if checked and i.origin is not None else _ANY_LINE:
                yield from self._running_one(i)

    def _running_one(self, i: Instruction) -> Task[None]:
        operands = [x.value if isinstance(x, Const) else self.values[x] for x in i.inputs]
        which = [x in self.mapped for x in i.inputs]
        own_draw = self._draws_itself(i)
        each = any(which) or own_draw
        if not each:
            outputs = apply(i.op, operands, i.attrs)
        elif draws(i.op, i.attrs) and not own_draw:
            outputs = _drawing_the_same(i, self.size, which, operands)
        else:
            outputs = apply_rule(i.op, self.size, which, operands, i.attrs)
            if isinstance(outputs, GeneratorType):
                outputs = yield outputs
        if isinstance(outputs, OneForAll):
            outputs, each = outputs.value, False
        made = (outputs,) if i.op.n_outputs == 1 else outputs
        self.values.update(zip(i.outputs, made))
        if each:
            self.mapped.update(i.outputs)

    def with_axis(self, x: Operand) -> Any:
        """A value, broadcast along the axis of the examples if it lacks that axis."""
        value = self.values[x]  # type: ignore[index]
        return value if x in self.mapped else spread(value, self.size)

    def _draws_itself(self, i: Instruction) -> bool:
        """Whether each example draws separate random numbers in this instruction, or in a nested one."""
        return any(map(self.draws_each, _counters(i)))


def batched_function(
    f: Callable[..., Any],
    size: Any,
    mapped: Sequence[bool],
    operands: Sequence[Any],
    attrs: dict[str, Any],
    linear: Sequence[bool] = (),
    draws_each: DrawsEach | None = None,
) -> Any:
    """f, a composition of ops, for many examples. All results have the axis of the examples, except symbolic zeros.

    `linear`: the operands that are tangents. `draws_each` as in `Examples`.
    """
    trace = Trace()
    types = [Type(x.dtype.code, tuple(x.shape[1:] if m else x.shape)) for x, m in zip(operands, mapped)]
    given = [trace.input(t, bool(linear) and linear[k]) for k, t in enumerate(types)]
    with trace:
        results = f(*given, **attrs)
    made = results if isinstance(results, tuple) else (results,)
    values = dict(zip(trace.inputs, operands)) | {t._var: x for x, t in trace.captured.values()}
    examples = Examples(size, values, {v for v, m in zip(trace.inputs, mapped) if m}, draws_each)
    examples.run(trace.instructions)
    outputs = tuple(y if y is ZERO else examples.with_axis(trace.value(y)) for y in made)
    return outputs if isinstance(results, tuple) else outputs[0]


def by_meaning(meaning: Callable[..., Any], size: Any, mapped: Sequence[bool], operands: Any, attrs: Any) -> Any:
    """The results for many examples of an op defined by other ops."""
    return batched_function(meaning, size, mapped, operands, attrs)


def _counters(i: Instruction) -> Sequence[Any]:
    """Where an instruction, and those in the programs that it holds, begin to draw random numbers."""
    if not (regions := i.regions()):
        return _own_counter(i)
    for p in innermost_first([i], _COUNTERS):
        _COUNTERS[p] = _united(
            [*map(_own_counter, p.instructions), *(_COUNTERS[q] for j in p.instructions for q in j.regions())]
        )
    return _united([_COUNTERS[p] for p in regions])


def _united(parts: Sequence[Sequence[Any]]) -> list[Any]:
    return list({id(c): c for part in parts for c in part}.values())


_COUNTERS: weakref.WeakKeyDictionary[Program, list[Any]] = weakref.WeakKeyDictionary()


def _own_counter(i: Instruction) -> list[Any]:
    return [i.op.named_attrs(i.attrs)["counter"][0]] if draws(i.op, i.attrs) else []


def draws(op: Op, attrs: tuple[Any, ...]) -> bool:
    """Whether an instruction draws random numbers."""
    named = op.named_attrs(attrs)
    return "key" in named and named.get("dropout", 1.0) != 0.0


def apply_rule(op: Op, size: Any, mapped: Sequence[bool], operands: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """The outputs of an op for many examples at once, all with the axis of the examples or, as `OneForAll`, without it; or
    the task that makes them."""
    rule = op.vmap
    if callable(rule):
        return rule(size, tuple(mapped), *operands, **op.named_attrs(attrs))
    word = _WORDS.get(rule)
    if word is None:
        raise TraceError(f"vmap: {op.name} has no batch rule")
    return word(op, size, mapped, operands, attrs)


def _elementwise(op: Op, size: Any, mapped: Sequence[bool], operands: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    literal = (bool, int, float, complex)
    return apply(op, [x if m or isinstance(x, literal) else spread(x, size) for x, m in zip(operands, mapped)], attrs)


def _leading(op: Op, size: Any, mapped: Sequence[bool], operands: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    return apply(op, all_mapped(size, mapped, operands), attrs)


def _axes(op: Op, size: Any, mapped: Sequence[bool], operands: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    return apply(op, all_mapped(size, mapped, operands), shifted(op, size, attrs))


_WORDS: dict[str, Callable[..., Any]] = {"elementwise": _elementwise, "leading": _leading, "axes": _axes}


def _drawing_the_same(i: Instruction, size: Any, mapped: list[bool], operands: list[Any]) -> Any:
    """An op on many examples that share their random numbers, such as the cotangents of one draw, by its definition."""
    meaning = getattr(i.op.vmap, "meaning", None)
    if meaning is None:
        raise TraceError(f"vmap: {i.op.name} has no batch rule for examples of which all draw the same numbers")
    attrs = i.op.named_attrs(i.attrs)
    return batched_function(meaning, size, mapped, operands, attrs, draws_each=lambda _: False)
