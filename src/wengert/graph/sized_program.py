"""A program whose sizes are read from its operands when it runs: what static graphs and loaded programs call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wengert import _core
from wengert.compiling.compile import compile
from wengert.errors import ShapeError, WengertError
from wengert.passes.evaluate import evaluate
from wengert.program.ir import Instruction, Program, infer, resized
from wengert.program.nested import innermost_first

Leaf = tuple[int, int, int]  # as core/dim.h: SizeLeaf
_INPUT, _CONTENT = 0, 2  # as core/dim.h: SizeLeaf::Kind


@dataclass(slots=True, eq=False)
class Draw:
    """Random numbers that every run draws anew."""

    generator: Any
    size: Any
    wide: bool
    leaves: list[Leaf]  # for the two halves of the key, and the counter


class SizedProgram:
    """A program, compiled for each pattern of sizes. Called on its operands, it is one instruction with derivatives."""

    def __init__(self, name: str, program: Program, draws: Iterable[Draw] = ()) -> None:
        self.program = program
        used = leaves_of_attrs(program.instructions)
        self.draws = [d for d in draws if any(leaf in used for leaf in d.leaves)]
        self.leaves, self.places = _unknown_sizes(program)
        self._checked: set[tuple[tuple[int, ...], ...]] = set()
        compiled: Any = compile(self._evaluated)
        compiled.__name__ = name
        self._compiled, self.report = compiled, compiled.report

    def _evaluated(self, *operands: Any) -> list[Any]:
        sizes = [operands[k].shape[axis] for k, axis in self.places]
        leaves = list(self.leaves)
        for d in self.draws:
            key, counter = d.generator.place(_core.substitute_sizes((d.size,), leaves, sizes)[0], d.wide)
            leaves += d.leaves
            sizes += [*key, *counter]
        return evaluate(self.program, operands, leaves, sizes)

    def __call__(self, operands: Sequence[Any]) -> list[Any]:
        """The results, for operands whose sizes were checked."""
        made: list[Any] = self._compiled(*operands)
        return made

    def renamed(self) -> tuple[Program, list[Draw]]:
        """The program with the symbols that a traced function has for sizes: each named after an input and an axis."""
        n = len(self.program.inputs)
        leaves, symbols = list(self.leaves), []
        for k, axis in self.places:
            hint = self.program.inputs[k].type.shape[axis].hint
            symbols.append(_core.new_symbol(_INPUT, k, axis, hint))
        names = [[(_CONTENT, n + k, j) for j in range(3)] for k in range(len(self.draws))]
        for d, own in zip(self.draws, names):
            leaves += d.leaves
            symbols += [_core.new_symbol(*leaf, 0) for leaf in own]

        def sizes(shape: Any) -> Any:
            return tuple(_core.substitute_sizes(shape, leaves, symbols))

        draws = []
        for d, own in zip(self.draws, names):
            # In counters, of which a draw of four small elements takes one.
            draws.append(Draw(d.generator, 4 * d.generator.counters(sizes((d.size,))[0], d.wide), False, own))
        return resized(self.program, sizes), draws

    def check(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Raise ShapeError unless these shapes of the operands fit each other, by the shape rules of all instructions. Each
        combination is looked at once."""
        key = tuple(map(tuple, shapes))
        if key in self._checked:
            return
        sizes = [shapes[k][axis] for k, axis in self.places]
        drawn = [leaf for d in self.draws for leaf in d.leaves]
        leaves, numbers = [*self.leaves, *drawn], [*sizes, *(0 for _ in drawn)]
        concrete = resized(self.program, lambda shape: tuple(_core.substitute_sizes(shape, leaves, numbers)))
        for v, shape in zip(concrete.inputs, shapes):
            if tuple(v.type.shape) != tuple(shape):
                raise ShapeError(f"a size that must be equal to another is not: expected {v.type}, got {tuple(shape)}")
        try:
            for i in concrete.instructions:
                if [o.type for o in i.outputs] != infer(i.op, i.inputs, i.attrs):
                    raise ShapeError(f"{i.op.name}: sizes that must be equal are not")
        except WengertError as e:
            raise ShapeError(str(e)) from None
        self._checked.add(key)


def leaf_of(size: Any) -> Leaf:
    """The leaf that a size is made of, if it is nothing else."""
    leaf: Leaf = _core.leaves_of_sizes((size,))[0]
    return leaf


def leaves_of_attrs(instructions: Sequence[Instruction]) -> set[Leaf]:
    """The leaves of the sizes among the attributes of instructions, also of those in the programs that they hold."""
    inside = [i for p in innermost_first(instructions) for i in p.instructions]
    sizes = [
        n
        for i in (*instructions, *inside)
        for spec, value in zip(i.op.attrs, i.attrs)
        if spec.kind == "sizes"
        for n in value
    ]
    return set(_core.leaves_of_sizes(tuple(n for n in sizes if isinstance(n, _core.Dim))))


def _unknown_sizes(program: Program) -> tuple[list[Leaf], list[tuple[int, int]]]:
    """The leaves of the sizes of inputs, and where each one is read: input and axis."""
    found: dict[Leaf, tuple[int, int]] = {}
    for k, v in enumerate(program.inputs):
        for axis, n in enumerate(v.type.shape):
            if isinstance(n, _core.Dim) and n.is_leaf:
                found.setdefault(leaf_of(n), (k, axis))
    return list(found), list(found.values())
