"""Batching: from a program of one example to the program of many, instruction by instruction.

The examples lie along a new first axis. A value that does not depend on what has this axis stays as it is, and is computed
once for all. The rules stand in the records of the ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wengert.errors import TraceError
from wengert.ops.batching import all_mapped, shifted, spread
from wengert.ops.registry import Op
from wengert.ops.zero import ZERO
from wengert.program.ir import Const, Instruction, Operand, Program, Type, Var
from wengert.program.simplify import simplify
from wengert.program.trace import Trace
from wengert.transforms.evaluate import apply


def batch(program: Program, mapped: Sequence[bool], size: Any, same_draws: bool = False) -> Program:
    """The program of `size` examples, where the inputs in `mapped` have the axis of the examples; all outputs have it.

    `same_draws`: all examples draw the same random numbers; otherwise each has a stream of its own.
    """
    trace = Trace()
    values: dict[Var, Any] = {}
    for v, m in zip(program.inputs, mapped):
        values[v] = trace.input(Type(v.type.dtype, (size, *v.type.shape)) if m else v.type)
    examples = Examples(size, values, {v for v, m in zip(program.inputs, mapped) if m}, same_draws)
    with trace:
        examples.run(program.instructions)
        outputs = [o if not isinstance(o, Var) else examples.with_axis(o)._var for o in program.outputs]
    return simplify(Program(trace.inputs, trace.instructions, outputs))


class Examples:
    """The values of a program that runs for many examples at once: on tensors of any level, through dispatch."""

    def __init__(self, size: Any, values: dict[Var, Any], mapped: set[Var], same_draws: bool = False) -> None:
        self.size = size
        self.values = values
        self.mapped = mapped  # the values that have the axis of the examples
        self.same_draws = same_draws

    def run(self, instructions: Sequence[Instruction]) -> None:
        """Compute what the instructions make."""
        for i in instructions:
            operands = [x.value if isinstance(x, Const) else self.values[x] for x in i.inputs]
            which = [x in self.mapped for x in i.inputs]
            each = any(which) or (draws(i.op, i.attrs) and not self.same_draws)
            outputs = self._apply(i, operands, which) if each else apply(i.op, operands, i.attrs)
            made = (outputs,) if i.op.n_outputs == 1 else outputs
            self.values.update(zip(i.outputs, made))
            if each:
                self.mapped.update(i.outputs)

    def with_axis(self, x: Operand) -> Any:
        """A value with the axis of the examples."""
        value = self.values[x]  # type: ignore[index]
        return value if x in self.mapped else spread(value, self.size)

    def _apply(self, i: Instruction, operands: list[Any], mapped: list[bool]) -> Any:
        if self.same_draws and draws(i.op, i.attrs):
            return _with_same_draws(i, operands, self.size)
        return apply_rule(i.op, self.size, mapped, operands, i.attrs)


def batched_function(
    f: Callable[..., Any],
    size: Any,
    mapped: Sequence[bool],
    operands: Sequence[Any],
    attrs: dict[str, Any],
    linear: Sequence[bool] = (),
) -> Any:
    """f, which is composed of ops, for many examples; its results all have their axis, but for symbolic zeros.

    `linear`: the operands that are tangents.
    """
    trace = Trace()
    types = [Type(x.dtype.code, tuple(x.shape[1:] if m else x.shape)) for x, m in zip(operands, mapped)]
    given = [trace.input(t, bool(linear) and linear[k]) for k, t in enumerate(types)]
    with trace:
        results = f(*given, **attrs)
    made = results if isinstance(results, tuple) else (results,)
    values = dict(zip(trace.inputs, operands)) | {t._var: x for x, t in trace.captured.values()}
    examples = Examples(size, values, {v for v, m in zip(trace.inputs, mapped) if m})
    examples.run(trace.instructions)
    outputs = tuple(y if y is ZERO else examples.with_axis(trace.value(y)) for y in made)
    return outputs if isinstance(results, tuple) else outputs[0]


def draws(op: Op, attrs: tuple[Any, ...]) -> bool:
    """Whether an instruction draws random numbers."""
    named = op.named_attrs(attrs)
    return "key" in named and named.get("dropout", 1.0) != 0.0


def apply_rule(op: Op, size: Any, mapped: Sequence[bool], operands: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """The outputs of an op for many examples at once, all with their axis."""
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


def _with_same_draws(i: Instruction, operands: list[Any], size: Any) -> Any:
    """A linear instruction that draws, on many tangents: what it draws does not depend on them."""
    if i.op.name != "random_dropout":
        raise TraceError(f"{i.op.name}: it has no batch rule for many tangents of one draw")
    (x,) = operands
    from wengert.ops.shape import full
    from wengert.program.trace import create

    kept = i.op(create(full, (x.shape[1:], x.dtype.code, 1.0)), *i.attrs)
    return x * spread(kept, size)
