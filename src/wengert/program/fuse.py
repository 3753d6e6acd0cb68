"""Fusion: elementwise instructions, the row reductions among them and the broadcasts of their results become groups
that pass memory once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from wengert.program.ir import Instruction, Program, Shape, Var
from wengert.program.simplify import same_sizes

# A row has to fit the nearest caches, and the eager reduction of rows up to this length uses the same kernel.
LONGEST_ROW = 16384
_REDUCTIONS = frozenset({"sum", "prod", "max", "min", "any", "all"})
_MOST_MEMBERS = 64


@dataclass(slots=True, eq=False)
class Group:
    """Instructions that run together over one iteration space."""

    shape: Shape
    members: list[Instruction] = field(default_factory=list)
    row_axes: int = 0
    full: set[Var] = field(default_factory=set)
    rows: set[Var] = field(default_factory=set)

    def produces(self, v: Any) -> bool:
        """Whether a member makes this value."""
        return v in self.full or v in self.rows

    def place_of(self, i: Instruction) -> str | None:
        """How the instruction would run here: full, row, reduce, expand, alias; None if it cannot."""
        out = i.outputs[0].type.shape
        if i.op.elementwise or i.op.name == "cast":
            if same_sizes(out, self.shape) and not any(v in self.rows for v in i.vars()):
                return "full"
            if any(v in self.rows for v in i.vars()) and not any(v in self.full for v in i.vars()):
                return "row" if self._row_shaped(out) and self._all_row_shaped(i) else None
            return None
        if i.op.name in _REDUCTIONS:
            (x,) = i.vars()
            full = x in self.full or (x not in self.rows and same_sizes(x.type.shape, self.shape))
            return "reduce" if full and self._reduces_rows(i) else None
        if i.op.name == "broadcast_to":
            (x,) = i.vars()
            keeps = len(x.type.shape) == len(self.shape)
            return "expand" if x in self.rows and keeps and same_sizes(out, self.shape) else None
        if i.op.name == "reshape":
            (x,) = i.vars()
            return "alias" if x in self.rows and self._row_shaped(out) else None
        return None

    def _reduces_rows(self, i: Instruction) -> bool:
        axes, n = tuple(i.attrs[0]), len(self.shape)
        if not axes or axes != tuple(range(n - len(axes), n)):
            return False
        if self.row_axes not in (0, len(axes)):
            return False
        length: Any = 1
        for size in self.shape[n - len(axes) :]:
            length = length * size
        return bool(length <= LONGEST_ROW)

    def _row_shaped(self, shape: Shape) -> bool:
        outer = self.shape[: len(self.shape) - self.row_axes]
        return same_sizes(shape, outer) or same_sizes(shape, outer + (1,) * self.row_axes)

    def _all_row_shaped(self, i: Instruction) -> bool:
        return all(self._row_shaped(v.type.shape) for v in i.vars())

    def add(self, i: Instruction, place: str) -> None:
        """Make the instruction a member."""
        if place == "reduce":
            self.row_axes = len(i.attrs[0])
        (self.full if place in ("full", "expand") else self.rows).add(i.outputs[0])
        self.members.append(i)


Unit = Instruction | Group


def fuse(program: Program) -> list[Unit]:
    """The program's instructions in an order in which groups are contiguous."""
    owner: dict[Var, Unit] = {}
    needs: dict[int, set[int]] = {}  # unit → units it depends on, transitively
    units: list[Unit] = []

    def upstream(i: Instruction, without: Unit | None) -> set[int]:
        found: set[int] = set()
        for v in i.vars():
            u = owner.get(v)
            if u is not None and u is not without:
                found.add(id(u))
                found |= needs[id(u)]
        return found

    for i in program.instructions:
        unit: Unit | None = _join(i, units, upstream)
        if unit is None:
            unit = _start(i)
            units.append(unit)
        needs[id(unit)] = needs.get(id(unit), set()) | upstream(i, unit)
        # Whatever depends on this unit now depends on what it has gained, too.
        for u in units:
            if u is not unit and id(unit) in needs.get(id(u), ()):
                needs[id(u)] |= needs[id(unit)]
        owner.update((o, unit) for o in i.outputs)
    return _order(units, needs)


def _start(i: Instruction) -> Unit:
    """A group with this first member, or the instruction alone."""
    if i.op.elementwise or i.op.name == "cast":
        group = Group(i.outputs[0].type.shape)
        group.add(i, "full")
        return group
    if i.op.name in _REDUCTIONS:
        (x,) = i.vars()
        group = Group(x.type.shape)
        if group.place_of(i) == "reduce":
            group.add(i, "reduce")
            return group
    return i


def _join(i: Instruction, units: list[Unit], upstream: Any) -> Group | None:
    for unit in reversed(units):
        if not isinstance(unit, Group) or len(unit.members) >= _MOST_MEMBERS:
            continue
        place = unit.place_of(i)
        if place is None:
            continue
        if id(unit) in upstream(i, unit):  # something between them has to run in between
            continue
        unit.add(i, place)
        return unit
    return None


def _order(units: list[Unit], needs: dict[int, set[int]]) -> list[Unit]:
    ordered: list[Unit] = []
    done: set[int] = set()
    waiting = list(units)
    while waiting:
        ready = [u for u in waiting if needs[id(u)] <= done]
        if not ready:
            raise AssertionError("fusion made a cycle")
        for u in ready:
            ordered.append(u)
            done.add(id(u))
        waiting = [u for u in waiting if id(u) not in done]
    return ordered
