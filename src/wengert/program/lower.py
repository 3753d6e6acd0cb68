"""Lowering: handing a program to the core, fused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wengert import _core
from wengert._core import same_sizes
from wengert.program.fuse import Group, fuse
from wengert.program.ir import Const, Instruction, Operand, Program, Shape, Type, Var, verified
from wengert.program.nested import innermost_first
from wengert.program.simplify import without_stops
from wengert.program.trace import real_parts


class _Slots:
    """Numbers for values: inputs first, then results in order."""

    def __init__(self, inputs: list[Var]) -> None:
        self.of: dict[Var, int] = {v: k for k, v in enumerate(inputs)}
        self.count = len(inputs)

    def new(self, v: Var | None = None) -> int:
        slot = self.count
        self.count += 1
        if v is not None:
            self.of[v] = slot
        return slot


def lower(program: Program, *, leaves: Sequence[Any] = (), keep: Sequence[Any] = ()) -> Any:
    """The executable form. Its size leaves start with `leaves`; `keep` are sizes whose leaves are included although no step
    reads them."""
    inside: dict[Program, Any] = {}
    for p in innermost_first(program.instructions):
        inside[p] = _lowered(p, inside, (), ())
    return _lowered(program, inside, leaves, keep)


def _lowered(program: Program, inside: dict[Program, Any], leaves: Sequence[Any], keep: Sequence[Any]) -> Any:
    builder = _core.ProgramBuilder()
    builder.set_leaves(list(leaves))
    program = verified(without_stops(program))
    slots = _Slots(program.inputs)
    units = fuse(program)
    stored = _read_outside(program, units)
    scalars = _spread_scalars(program)
    needed = _read_by_calls(program, units)
    for unit in units:
        if isinstance(unit, Group) and _worth_fusing(unit):
            _lower_group(builder, slots, unit, stored, scalars)
        elif isinstance(unit, Group):
            for i in unit.members:
                _lower_call(builder, slots, i, inside)
        elif unit.outputs[0] not in scalars or unit.outputs[0] in needed:
            _lower_call(builder, slots, unit, inside)
    outputs = [_output_slot(builder, slots, o) for o in program.outputs]
    if keep:
        builder.keep_sizes(keep)
    return builder.finish(len(program.inputs), slots.count, [], outputs)


def _worth_fusing(g: Group) -> bool:
    if len(g.members) > 1:
        return True
    # A literal has no buffer, so only a group can hold it.
    return any(isinstance(x, Const) for x in g.members[0].inputs)


def _spread_scalars(program: Program) -> dict[Var, Var]:
    """Broadcast 0-d values, by result: a group fills a register with a single element."""
    return {
        i.outputs[0]: x
        for i in program.instructions
        if i.op.fuses == "expand" and isinstance(x := i.inputs[0], Var) and not x.type.shape
    }


def _read_by_calls(program: Program, units: list[Any]) -> set[Any]:
    """Values that must be materialised because something other than a fused group reads them."""
    calls = [u for u in units if not (isinstance(u, Group) and _worth_fusing(u))]
    instructions = [i for u in calls for i in (u.members if isinstance(u, Group) else [u])]
    return {v for i in instructions for v in i.vars()} | set(program.outputs)


def _read_outside(program: Program, units: list[Any]) -> set[Any]:
    """Values read outside the unit that makes them."""
    maker: dict[Var, Any] = {}
    found: set[Any] = set(program.outputs)
    for unit in units:
        for i in unit.members if isinstance(unit, Group) else [unit]:
            for v in i.vars():
                if maker.get(v) is not unit:
                    found.add(v)
            for o in i.outputs:
                maker[o] = unit
    return found


def _lower_call(builder: Any, slots: _Slots, i: Instruction, inside: dict[Program, Any]) -> None:
    inputs = [slots.of[x] if isinstance(x, Var) else _literal(builder, slots, x, i) for x in i.inputs]
    if i.op.lower is not None:
        i.op.lower(builder, i.attrs, [inside[p] for p in i.regions()], inputs, [slots.new(v) for v in i.outputs])
        return
    builder.call(i.op.name, i.attrs, inputs, [slots.new(v) for v in i.outputs])


def _literal(builder: Any, slots: _Slots, c: Const, i: Instruction) -> int:
    return _filled(builder, slots, next((v.type.shape for v in i.vars()), ()), c)


def _filled(builder: Any, slots: _Slots, shape: Shape, c: Const) -> int:
    if not isinstance(c.value, complex):
        slot = slots.new()
        builder.call("full", (shape, c.dtype, float(c.value)), [], [slot])
        return slot
    parts = [_filled(builder, slots, shape, Const(x, real_parts(c.dtype))) for x in (c.value.real, c.value.imag)]
    slot = slots.new()
    builder.call("make_complex", (), parts, [slot])
    return slot


def _output_slot(builder: Any, slots: _Slots, o: Operand | None) -> int:
    if o is None:
        return -1
    return _filled(builder, slots, (), o) if isinstance(o, Const) else slots.of[o]


def _lower_group(builder: Any, slots: _Slots, g: Group, stored: set[Any], scalars: dict[Var, Var]) -> None:
    registers: list[tuple[Any, ...]] = []
    number: dict[Any, int] = {}

    def register(key: Any, type_: Type, row: bool, input_slot: int, output_slot: int, constant: Any) -> int:
        number[key] = len(registers)
        registers.append((type_.dtype, row, input_slot, output_slot, type_.shape, constant))
        return number[key]

    def operand(x: Operand, row: bool) -> int:
        if isinstance(x, Const):
            key = (repr(x.value), x.dtype, row)
            if key in number:
                return number[key]
            return register(key, Type(x.dtype, ()), row, -1, -1, _plain_number(x.value))
        x = scalars.get(x, x)
        if x in number:
            return number[x]  # made by the group
        if (x, row) in number:
            return number[x, row]
        # A single element may be read both per row and per element; these need blocks of different lengths.
        return register((x, row), x.type, row, slots.of[x], -1, None)

    code = []
    for i in g.members:
        place, out = _kind(g, i), i.outputs[0]
        row_operands = place in ("row", "expand")
        inputs = [operand(x, row_operands) for x in i.inputs]
        if place == "alias":
            number[out] = inputs[0]
            if out in stored:
                number[out] = _store(registers, slots, out, True)
                code.append(("map", "copy", True, inputs, number[out]))
            continue
        target = register(out, out.type, out in g.rows, -1, slots.new(out) if out in stored else -1, None)
        kind = place if place not in ("full", "row") else "map" if i.op.elementwise else "cast"
        code.append((kind, i.op.name, place == "row", inputs, target))
    builder.fused(g.shape, _shaped_input(g, slots, scalars), g.row_axes, registers, code)


def _shaped_input(g: Group, slots: _Slots, scalars: dict[Var, Var]) -> int:
    """A slot whose value has the group's shape, so that the group runs for any rank; -1 without one, or with rows."""
    if g.row_axes:
        return -1
    made = {o for i in g.members for o in i.outputs}
    operands = (v for i in g.members for v in i.vars() if v not in made and v not in scalars)
    return next((slots.of[v] for v in operands if same_sizes(v.type.shape, g.shape)), -1)


def _store(registers: list[tuple[Any, ...]], slots: _Slots, v: Var, row: bool) -> int:
    registers.append((v.type.dtype, row, -1, slots.new(v), v.type.shape, None))
    return len(registers) - 1


def _plain_number(x: Any) -> Any:
    return int(x) if isinstance(x, bool) else x


def _kind(g: Group, i: Instruction) -> str:
    if i.op.fuses == "map":
        return "row" if i.outputs[0] in g.rows else "full"
    return i.op.fuses
