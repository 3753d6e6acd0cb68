"""What a tape recorded: as a program, and entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.errors import GradientError
from wengert.program.ir import Instruction, Program, Type, Var, infer, remove_dead


class Entry:
    """One recorded instruction."""

    def __init__(self, node: Any) -> None:
        self._node = node
        described = node.description
        self.op: str = node.name
        self.inputs = tuple(Type(d, s) for d, s in described[0]) if described else ()  # types; () of a custom op
        self.outputs = tuple(Type(d, s) for d, s in node.results)
        self.line: str = node.line

    @property
    def saved(self) -> tuple[Tensor, ...]:
        """What it keeps for backward; nothing any more once that has run."""
        return () if self._node.freed or self._node.custom is not None else tuple(self._node.saved)

    def __repr__(self) -> str:
        operands = ", ".join(map(str, self.inputs))
        return f"<{self.op}({operands}) -> {', '.join(map(str, self.outputs))} at {self.line}>"


class _Reader:
    """Reads nodes into instructions on values with known sizes."""

    def __init__(self) -> None:
        self.values: dict[tuple[int, int], Var] = {}  # by node and output
        self.inputs: list[Var] = []
        self.instructions: list[Instruction] = []
        self.made: list[Var] = []
        self.used: set[Var] = set()

    def read(self, node: Any) -> None:
        if node.custom is not None:
            raise GradientError("program: a custom op is opaque; it has no program to show")
        env, sizes = self._operands(node), _known_sizes(node)
        for i in node.derivation.forward.instructions:
            self.instructions.append(_concrete(i, env, *sizes))
        for k, o in enumerate(node.derivation.forward.outputs[: node.derivation.n_outputs]):
            if isinstance(o, Var):
                self.values[node.key, k] = env[o]
                self.made.append(env[o])

    def _operands(self, node: Any) -> dict[Var, Var]:
        """The operands of a node's program as values of the recorded one."""
        types = [Type(d, s) for d, s in node.description[0]]
        formal = node.derivation.forward.inputs
        env: dict[Var, Var] = {}
        for index, edge in zip(node.derivation.edges, node.edges):
            if edge is None:
                continue
            key = (edge[0].key, edge[1])
            if key not in self.values:
                self.values[key] = self._input(types[index])
            env[formal[index]] = self.values[key]
        for v, t in zip(formal, types):
            if v not in env:  # not differentiated
                env[v] = self._input(t)
        self.used.update(env.values())
        return env

    def _input(self, t: Type) -> Var:
        self.inputs.append(Var(t))
        return self.inputs[-1]


def recorded_program(nodes: Sequence[Any]) -> Program:
    """Recorded nodes as a program whose inputs are the leaves and the operands that are not differentiated."""
    reader = _Reader()
    for node in nodes:
        reader.read(node)
    results = [v for v in dict.fromkeys(reader.made) if v not in reader.used]
    instructions = remove_dead(reader.instructions, results)  # without what was computed for backward alone
    return Program(reader.inputs, instructions, list(results))


def _known_sizes(node: Any) -> tuple[list[Any], list[Any]]:
    operands, attrs, given = node.description
    leaves = [(0, k, axis) for k, (_, shape) in enumerate(operands) for axis in range(len(shape))]
    sizes = [n for _, shape in operands for n in shape]
    for k, value in enumerate(attrs):
        if isinstance(value, tuple):
            leaves += [(1, k, j) for j in range(len(value))]
            sizes += value
    leaves += [(3, 0, k) for k in range(len(given))]
    return leaves, [*sizes, *given]


def _concrete(i: Instruction, env: dict[Var, Var], leaves: list[Any], sizes: list[Any]) -> Instruction:
    """The instruction with sizes that are known put in."""

    def known(shape: Any) -> Any:
        return tuple(_core.substitute_sizes(shape, leaves, sizes))

    inputs = tuple(env[x] if isinstance(x, Var) else x for x in i.inputs)
    attrs = tuple(known(v) if a.kind == "sizes" else v for a, v in zip(i.op.attrs, i.attrs))
    outputs = tuple(Var(t) for t in infer(i.op, inputs, attrs))
    made = Instruction(i.op, inputs, attrs, outputs)
    env.update(zip(i.outputs, outputs))
    return made


__all__ = ["Entry", "recorded_program"]
