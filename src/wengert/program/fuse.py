"""Fusion: elementwise instructions, the row reductions among them and the broadcasts of their results become groups
that pass memory once."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from wengert._core import attr_key, same_sizes
from wengert.program.ir import Instruction, Program, Shape, Var

# A row has to fit the nearest caches, and the eager reduction of rows up to this length uses the same kernel.
LONGEST_ROW = 16384
_REDUCTIONS = frozenset({"sum", "prod", "max", "min", "any", "all"})
_MOST_MEMBERS = 64
_RECENT = 4  # groups of one shape that an instruction may join although they make none of its operands
_MOST_VISITS = 128  # dependencies followed to find out whether one instruction may join


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
    schedule = Schedule()
    for i in program.instructions:
        schedule.add(i)
    return schedule.units()


@dataclass(slots=True, eq=False)
class _Node:
    """A unit of the schedule and what it depends on directly. A unit's position is above those of all that it needs."""

    unit: Unit
    position: int
    created: int
    needs: set[_Node] = field(default_factory=set)
    users: set[_Node] = field(default_factory=set)


class Schedule:
    """Units in an order that respects their dependencies, which instructions join one by one.

    An instruction may join the groups that make its operands and the last few groups of its shape, the latest first, unless
    that closes a cycle: something that it reads needs the group. Mostly the positions tell; otherwise a search of bounded
    length does, and what is not known by then stays apart. So fusing takes time linear in the program. The order is kept
    as by Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs" (2006).
    """

    def __init__(self) -> None:
        self.visits = 0  # candidates and dependencies that were looked at: a test holds them to be few
        self._nodes: list[_Node] = []
        self._maker: dict[Var, _Node] = {}
        self._recent: dict[Any, list[_Node]] = {}  # groups that may have room, by shape

    def units(self) -> list[Unit]:
        """All units, each behind those that it needs."""
        return [n.unit for n in sorted(self._nodes, key=attrgetter("position"))]

    def add(self, i: Instruction) -> None:
        """Let the instruction join a group, or be a unit of its own."""
        makers = {self._maker[v] for v in i.vars() if v in self._maker}
        node = self._join(i, makers)
        if node is None:
            node = self._start(i)
        makers.discard(node)
        node.needs |= makers
        for m in makers:
            m.users.add(node)
        for o in i.outputs:
            self._maker[o] = node

    def _start(self, i: Instruction) -> _Node:
        node = _Node(_new_unit(i), len(self._nodes), len(self._nodes))
        self._nodes.append(node)
        if isinstance(node.unit, Group):
            recent = self._recent.setdefault(attr_key(node.unit.shape), [])
            recent.append(node)
            if len(recent) > _RECENT:
                del recent[0]
        return node

    def _join(self, i: Instruction, makers: set[_Node]) -> _Node | None:
        ancestors: _Ancestors | None = None
        node: _Node | None
        for node, group in self._candidates(i, makers):
            self.visits += 1
            place = group.place_of(i)
            if place is None:
                continue
            last = max((m.position for m in makers if m is not node), default=-1)
            if last > node.position:
                ancestors = ancestors or _Ancestors(makers)
                if ancestors.may_include(node) or not self._move_behind(node, last, ancestors):
                    continue
            group.add(i, place)
            break
        else:
            node = None
        if ancestors is not None:
            self.visits += ancestors.visits
        return node

    def _candidates(self, i: Instruction, makers: set[_Node]) -> list[tuple[_Node, Group]]:
        name = i.op.name
        if i.op.elementwise or name == "cast":
            shape = i.outputs[0].type.shape
        elif name in _REDUCTIONS:
            shape = next(iter(i.vars())).type.shape
        elif name == "broadcast_to" or name == "reshape":
            shape = None  # only with what makes its operand
        else:
            return []
        found = set(makers)
        if shape is not None:
            found.update(self._recent.get(attr_key(shape), ()))
        latest_first = sorted(found, key=attrgetter("created"), reverse=True)
        groups = [(n, n.unit) for n in latest_first if isinstance(n.unit, Group)]
        return [(n, g) for n, g in groups if len(g.members) < _MOST_MEMBERS]

    def _move_behind(self, node: _Node, last: int, ancestors: _Ancestors) -> bool:
        """Move a node and its descendants up to position `last` behind the ancestors. False if there are too many."""
        moved, todo, visits = {node}, [node], 0
        while todo:
            users = todo.pop().users
            visits += len(users)
            if visits > _MOST_VISITS:
                return False
            for u in users:
                if u.position < last and u not in moved:
                    moved.add(u)
                    todo.append(u)
        self.visits += visits
        before = sorted((a for a in ancestors.explored if a.position > node.position), key=attrgetter("position"))
        reordered = before + sorted(moved, key=attrgetter("position"))
        for n, position in zip(reordered, sorted(n.position for n in reordered)):
            n.position = position
        return True


class _Ancestors:
    """What some nodes need, directly or not, explored from the last position downwards."""

    def __init__(self, nodes: set[_Node]) -> None:
        self.explored: list[_Node] = []
        self.visits = 0
        self._given = nodes
        self._needed: set[_Node] = set()
        self._waiting = [(-n.position, n) for n in nodes]
        heapq.heapify(self._waiting)

    def may_include(self, node: _Node) -> bool:
        """Whether one of the nodes needs this one; also True when that takes too long to find out."""
        while self._waiting and -self._waiting[0][0] > node.position:
            next_one = self._waiting[0][1]
            self.visits += len(next_one.needs)
            if self.visits > _MOST_VISITS:
                return True
            heapq.heappop(self._waiting)
            self.explored.append(next_one)
            for n in next_one.needs - self._needed:
                self._needed.add(n)
                if n not in self._given:
                    heapq.heappush(self._waiting, (-n.position, n))
        return node in self._needed


def _new_unit(i: Instruction) -> Unit:
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
