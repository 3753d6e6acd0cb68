"""Reports of compiled functions: what each program does in a run, and what it assumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wengert import _core
from wengert.program.effects import Before
from wengert.program.fuse import Group, fuse
from wengert.program.ir import Instruction, Program, Type, Var
from wengert.program.simplify import without_stops

_COMPARISONS = {
    _core.NumberGuard.Comparison.LESS: "<",
    _core.NumberGuard.Comparison.LESS_EQUAL: "<=",
    _core.NumberGuard.Comparison.EQUAL: "==",
    _core.NumberGuard.Comparison.GREATER_EQUAL: ">=",
    _core.NumberGuard.Comparison.GREATER: ">",
}


@dataclass(slots=True)
class Report:
    """What one traced program does in a run."""

    instructions: int
    groups: int
    gemms: int
    passes: int  # steps that move data: fused groups, and calls other than views
    bytes: int  # read and written by those steps, at the sizes of the first call
    program: str
    tier: str = "executor"  # what runs it; in parentheses, why it is not generated code
    loops: tuple[str, ...] = ()  # custom ops that vmap calls example by example

    def __str__(self) -> str:
        return (
            f"{self.instructions} instructions in {self.groups} fused groups, {self.passes} passes over memory "
            f"({self.bytes:,} bytes), {self.gemms} matrix products, run by {self._runner()}{self._loops()}\n{self.program}"
        )

    def _runner(self) -> str:
        return self.tier if self.tier.startswith("generated") else f"the {self.tier}"

    def _loops(self) -> str:
        return f"; {', '.join(self.loops)}: one example after the other, add a batch rule with defvmap" * bool(
            self.loops
        )


def summarize(program: Program) -> Report:
    """Count what a program does when it runs."""
    program = without_stops(program)
    units = fuse(program)
    reads = Counter(v for i in program.instructions for v in i.vars())
    reads.update(o for o in program.outputs if isinstance(o, Var))
    passes = groups = gemms = moved = 0
    for unit in units:
        members = unit.members if isinstance(unit, Group) else [unit]
        if len(members) == 1 and members[0].op.view:
            continue
        passes += 1
        groups += isinstance(unit, Group)
        gemms += sum(i.op.matrix_product for i in members)
        moved += _traffic(members, reads)
    names = tuple(dict.fromkeys(i.op.loops_over for i in program.instructions if i.op.loops_over))
    return Report(len(program.instructions), groups, gemms, passes, moved, str(program), loops=names)


def _traffic(members: list[Instruction], reads: Counter[Var]) -> int:
    """Bytes that the instructions of one pass move from and to memory; `reads` counts the readers of each value."""
    made = {o for i in members for o in i.outputs}
    inside = Counter(v for i in members for v in i.vars())
    moved = {v for v in inside if v not in made} | {o for o in made if reads[o] > inside[o]}
    return sum(v.type.example_bytes() for v in moved)


@dataclass(slots=True, frozen=True)
class Signature:
    """What one program of a compiled function assumes; a call that violates it traces another program."""

    name: str
    arguments: tuple[str, ...]  # types of tensors and of numbers that are operands; the values of others
    captured: tuple[str, ...]  # the tensors from outside
    assumed: tuple[str, ...]  # of sizes, numbers, `.grad`s and Python objects

    def __str__(self) -> str:
        lines = [f"{self.name}({', '.join(self.arguments)})"]
        lines += [f"  captures {text}" for text in self.captured]
        lines += [f"  assumes {text}" for text in self.assumed]
        return "\n".join(lines)


class Assumptions:
    """The assumptions of a trace, from which its signature is made on request."""

    __slots__ = ("_arguments", "_captured", "_grads", "_more", "_numbers", "_settings")

    def __init__(self, trace: Any, arguments: Sequence[tuple[str, Any]], numbers: Sequence[_core.NumberGuard]) -> None:
        """`arguments`: of each its name, and its type or its value."""
        self._arguments = list(arguments)
        self._captured = [(n._var.type, _role(x) if trace.asks_roles else "") for x, n in trace.captured.values()]
        self._grads = [(grad.leaf.dtype.name, tuple(grad.leaf.shape), grad.before) for grad in trace.grads.values()]
        self._settings = [(type(owner).__name__, name, value) for owner, name, value in trace.read_settings()]
        self._numbers = list(numbers)
        self._more = list(trace.assumed)

    def signature(self, name: str, guards: Sequence[Any]) -> Signature:
        """In words."""
        operands = [n for n, x in self._arguments if isinstance(x, Type)]
        assumed = [f"{a} {c} {b}" if holds else f"not {a} {c} {b}" for a, c, b, holds in _core.describe_guards(guards)]
        for g in self._numbers:
            text = f"{operands[g.input]} {_COMPARISONS[g.comparison]} {g.constant:g}"
            assumed.append(text if g.outcome else f"not {text}")
        for dtype, shape, before in self._grads:
            if before != Before.NOT_READ:
                there = "None" if before == Before.ABSENT else "not None"
                assumed.append(f".grad of {dtype}{list(shape)} is {there}")
        assumed += [f"{owner}.{setting} is {value!r}" for owner, setting, value in self._settings]
        arguments = [f"{n}: {x}" if isinstance(x, Type) else f"{n} = {x!r}" for n, x in self._arguments]
        captured = [f"{t}{role}" for t, role in self._captured]
        return Signature(name, tuple(arguments), tuple(captured), tuple(dict.fromkeys([*assumed, *self._more])))


def _role(x: Any) -> str:
    return ("", ", computed", ", a leaf")[x.requires_grad + (x.requires_grad and x.is_leaf)]
