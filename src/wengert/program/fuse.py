"""Fusion: elementwise instructions, the row reductions among them and the broadcasts of their results become groups
that pass memory once."""

from __future__ import annotations

from dataclasses import dataclass

from wengert import _core
from wengert.program.ir import Instruction, Program, Shape, Var

# A row must fit L1 or L2, and eager reductions of rows up to this length use the same kernel.
LONGEST_ROW = 16384


@dataclass(slots=True, eq=False)
class Group:
    """Instructions that run together over one iteration space."""

    shape: Shape
    members: list[Instruction]
    row_axes: int  # how many trailing axes make a row; 0: no rows
    rows: set[Var]  # values with one element per row


Unit = Instruction | Group


def fuse(program: Program) -> list[Unit]:
    """The program's instructions in an order in which groups are contiguous, in time linear in the program."""
    return fuse_counting(program)[0]


def fuse_counting(program: Program) -> tuple[list[Unit], int]:
    """As `fuse`, also returning how many units were visited."""
    roles = [i.op.fusion for i in program.instructions]
    units, visits = _core.fuse(program.instructions, roles, Var, LONGEST_ROW)
    return [Group(*u) if isinstance(u, tuple) else u for u in units], visits
