"""What is known of a call that gave an infinity or a NaN: the op, the line, the element, and what it was computed from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wengert import _core
from wengert._core import Tensor
from wengert.debug.elements import at, described, first_bad, has_nan, numbers, summary, written
from wengert.debug.instructions import values_of
from wengert.passes.callbacks import plain_name
from wengert.program.ir import Const, Instruction, Program, Var
from wengert.registry.record import find_op
from wengert.user_line import user_line

_LITERAL = 2**32 - 1  # as core/value.h: Value::kLiteral
_FIRST_SPECIAL = 0xF0000000  # as core/value.h: Value::kFirstSpecial

_RESIDUAL = "a saved value"

Pair = tuple[Tensor, int]  # a value, and the number of the call's result that it is (0: of none that is known)


@dataclass(slots=True)
class Record:
    """One result of a call that is not finite."""

    op: str
    line: str
    backward: bool
    index: tuple[int, ...]
    value: Any
    shape: str
    tangent: bool = False  # of forward mode
    within: str = ""  # the function of the library, or the module, that the op is part of
    operands: list[str] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)  # numbers of results that it has its infinity or NaN from
    outside: list[str] = field(default_factory=list)  # operands that are not finite and that no call made
    unsure: bool = False  # it may have been an earlier one
    excused: bool = False  # such operands are numbers in the source, or infinite where this result is NaN

    @property
    def is_nan(self) -> bool:
        """Whether it is a NaN, and not an infinity."""
        return bool(np.isnan(self.value))

    @property
    def is_origin(self) -> bool:
        """Whether no operand is to blame."""
        return not self.sources and not self.outside

    def name(self) -> str:
        """The op, and whose part it is."""
        op = self.op.lstrip("_")  # functions of the library that are not ops of their own
        text = op
        if (self.backward or self.tangent) and not op.startswith("the "):
            text = f"the {'derivative' if self.backward else 'tangent'} of {op}"
        within = plain_name(self.within)
        return f"{text} (in {within})" if within not in ("", op) else text

    def step(self) -> str:
        """As one step of a chain."""
        return f"{self.name()} at {self.line}"


def records_of(name: str, node: Any, ins: Sequence[Pair | None], outs: Sequence[Pair | None]) -> dict[int, Record]:
    """Of a call: a record for each result that is not finite, by its number."""
    arrays = [None if x is None else (numbers(x[0]), *x) for x in ins]
    made = {}
    handed_on = {x[1] for x in ins if x is not None}  # an operand that is a result as well
    for y in outs:
        index = None if y is None or y[1] in handed_on else first_bad(array := numbers(y[0]))
        if y is None or index is None:
            continue
        record = Record(name, "", node is not None, index, array[index].item(), described(y[0]))
        if node is None:
            record.op, record.tangent = _without_push(name)
            record.line = _core.standing_line() or user_line()
            record.within = "" if _core.standing_line() else _caller(record.op)
        else:
            record.op, record.line = plain_name(node.name if name == "" else name), node.line
        _read_operands(record, array.shape, arrays, node)
        if node is not None and node.custom is not None:
            _name_custom(record, node)
        if node is not None and not record.sources:
            _look_inside(record, node, ins, y[0])
        made[y[1]] = record
    return made


def _without_push(name: str) -> tuple[str, bool]:
    """The op whose results and tangents a program computes, and whether it is such a program."""
    op = name
    while op.startswith("push("):
        op = op[len("push(") : -1]
    return plain_name(op), op != name


def _name_custom(record: Record, node: Any) -> None:
    """An op in the rule of a custom op, or what that rule returned."""
    rule = getattr(getattr(node.custom, "func", node.custom), "__self__", None)
    if record.op != "custom":
        record.operands.append(f"in its rule: {record.op} at {user_line()}")
    record.op = getattr(rule, "name", "a custom op")


def _is_module(x: Any) -> bool:
    """Whether x is a module of networks, which need not be loaded to know that."""
    return any((c.__module__, c.__name__) == ("wengert.nn.module", "Module") for c in type(x).__mro__)


def _caller(op: str) -> str:
    """The function of the library that the user has called, or the innermost module, that the op is part of."""
    frame: Any = sys._getframe(2)
    names: list[str] = []
    while frame is not None and (
        frame.f_globals.get("__name__", "").startswith("wengert.") or frame.f_code.co_filename == "<frozen>"
    ):
        module = frame.f_locals.get("self")
        if frame.f_code.co_name == "forward" and _is_module(module):
            return type(module).__name__
        if not frame.f_globals["__name__"].startswith(("wengert.debug", "wengert.methods.attach")):
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    outermost = names[-1] if names else ""
    known = (op, "wrapped", "__call__", "<lambda>", "<module>")
    return "" if outermost in known or outermost.strip("_") in (op, f"r{op}") else outermost


def _read_operands(record: Record, shape: tuple[int, ...], arrays: Sequence[Any], node: Any) -> None:
    """What stands in the operands at the element, and which of them are to blame."""
    op = find_op(record.op)
    elementwise = op is not None and op.elementwise
    for k, entry in enumerate(arrays):
        if entry is None:
            continue
        array, x, number = entry
        here = at(array, record.index, shape) if elementwise or (node is not None and array.shape == shape) else None
        name = f"operand {k}" if node is None else _name_of_operand(node, k)
        shown = summary(array) if here is None else f"{written(here)} there"
        record.operands.append(f"{name} {described(x)}: {shown}")
        bad = first_bad(array) is not None if here is None or node is not None else not np.isfinite(here)
        if not bad or name == _RESIDUAL:  # which was computed for this derivative
            continue
        if number and number < _FIRST_SPECIAL:
            record.sources.insert(0 if has_nan(array) else len(record.sources), number)
        else:
            record.outside.append(f"{name} {described(x)}")
            nan_here = has_nan(array) if here is None else bool(np.isnan(here))
            record.excused |= number == _LITERAL or (record.is_nan and not nan_here)


def _name_of_operand(node: Any, k: int) -> str:
    if k < node.n_outputs:
        return "the gradient that arrives" if node.n_outputs == 1 else f"the gradient of result {k}"
    derivation = node.derivation if node.custom is None else None
    if derivation is None or k - node.n_outputs >= len(derivation.saves):
        return f"operand {k}"
    where, index = derivation.saves[k - node.n_outputs]
    return (f"operand {index}", "the result", _RESIDUAL)[where]


# ------------------------------------------------------------------------------------ inside of programs


def _look_inside(record: Record, node: Any, ins: Sequence[Pair | None], y: Tensor) -> None:
    """The derivative of a compiled function is a program: which of its instructions it was."""
    derivation = node.derivation if node.custom is None else None
    if derivation is None or find_op(node.name) is not None or any(x is None for x in ins):
        return
    inputs = [x[0] for x in ins if x is not None]
    found = culprit(derivation.vjp, inputs, list(derivation.leaves), list(node.sizes))
    if found is not None:
        tell_instruction(record, found, node.name)


def tell_instruction(record: Record, found: tuple[Instruction, list[Any], Any], within: str) -> None:
    """Put an instruction of a compiled function, with its operands and its result, into the record of a call of it."""
    i, operands, result = found
    index = first_bad(result)
    if index is None:
        return
    record.within = within
    record.op = (i.origin.op if i.origin is not None else "") or plain_name(i.op.name)
    if i.origin is not None and i.origin.line is not None:
        record.line = str(i.origin.line)
    record.index, record.value = index, result[index].item()
    record.operands = [
        f"operand {k}: {summary(a) if (here := at(a, index, result.shape)) is None else f'{written(here)} there'}"
        for k, a in enumerate(operands)
    ]


def culprit(
    program: Program, inputs: Sequence[Any], leaves: list[Any], sizes: list[Any]
) -> tuple[Instruction, list[Any], Any] | None:
    """The instruction that made the first infinity or NaN that an output has, with its operands and its result."""
    env = values_of(program, inputs, leaves, sizes)
    made_by = {o: i for i in program.instructions for o in i.outputs}
    bad = [o for o in program.outputs if isinstance(o, Var) and not _core.all_finite(env[o])]
    chain: list[Var] = []
    while bad:
        chain.append(next((x for x in bad if has_nan(numbers(env[x]))), bad[0]))
        made = made_by.get(chain[-1])
        bad = [] if made is None else [x for x in made.vars() if x in made_by and not _core.all_finite(env[x])]
    if not chain or chain[-1] not in made_by:
        return None
    first = chain[-1]
    if any(isinstance(x, Const) and not np.isfinite(x.value) for x in made_by[first].inputs):
        # It begins with infinities that were asked for, such as those of a mask: what counts is where they became NaN.
        first = next((v for v in reversed(chain) if has_nan(numbers(env[v]))), first)
    i = made_by[first]
    return i, [np.asarray(x.value) if isinstance(x, Const) else numbers(env[x]) for x in i.inputs], numbers(env[first])


__all__ = ["Pair", "Record", "culprit", "plain_name", "records_of", "tell_instruction"]
