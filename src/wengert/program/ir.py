"""The intermediate representation: a program is a list of pure instructions over typed values.

There is one IR. Rules are traced into it, derivatives are rewritten in it, and the core executes what it lowers to.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wengert import _core
from wengert.dtypes import ALL as DTYPES
from wengert.program.nested import innermost_first

if TYPE_CHECKING:
    from wengert.registry.record import Op

Size = Any  # int, or _core.Dim while tracing
Shape = tuple[Size, ...]


def is_one(n: Size) -> bool:
    """Whether a size is 1, which decides about broadcasting. For a symbol whose example is 1, a guard fixes it to 1."""
    return (n if isinstance(n, int) else n.hint) == 1 and n == 1


@dataclass(frozen=True, slots=True)
class Type:
    """Dtype code and shape of a value; sizes may be expressions."""

    dtype: int
    shape: Shape

    def __str__(self) -> str:
        return f"{DTYPES[self.dtype].name}[{', '.join(map(str, self.shape))}]"

    def example_shape(self) -> tuple[int, ...]:
        """The shape at the example sizes of the trace."""
        return tuple(s if isinstance(s, int) else s.hint for s in self.shape)

    def example_size(self) -> int:
        """The number of elements at the example sizes of the trace."""
        return math.prod(self.example_shape())

    def example_bytes(self) -> int:
        """Bytes at the example sizes of the trace."""
        return self.example_size() * DTYPES[self.dtype].itemsize


class Var:
    """A value of a program. Identity is what counts; names are given when printed."""

    __slots__ = ("linear", "type")

    def __init__(self, type_: Type, linear: bool = False) -> None:
        self.type = type_
        self.linear = linear  # depends on a tangent


@dataclass(frozen=True, slots=True)
class Const:
    """A scalar literal; as an operand of an elementwise instruction it has whatever shape is needed."""

    value: float | int | bool | complex
    dtype: int

    def __post_init__(self) -> None:
        # Rules compare numbers, such as `b == 0` in the rule of pow, and comparisons of np.float64 do not return bools.
        if isinstance(self.value, np.generic):
            object.__setattr__(self, "value", self.value.item())


Operand = Var | Const


class Origin(NamedTuple):
    """Where an instruction comes from: the user's line, which str() gives, and for derivatives the original op."""

    line: Any
    op: str = ""


@dataclass(slots=True, eq=False)
class Instruction:
    """outputs = op(inputs; attrs)."""

    op: Op
    inputs: tuple[Operand, ...]
    attrs: tuple[Any, ...]
    outputs: tuple[Var, ...]
    origin: Origin | None = None

    def vars(self) -> list[Var]:
        """The operands that are values."""
        return [x for x in self.inputs if isinstance(x, Var)]

    def rule(self) -> Any:
        """The JVP of its op, for operands of their kind; or a word for it."""
        op = self.op
        return op.jvp if op.complex_jvp is None else op.rule(any(DTYPES[v.type.dtype].kind == "c" for v in self.vars()))

    def passes_derivatives(self) -> bool:
        """Whether its results may have tangents where its operands have."""
        return self.op.differentiable and self.rule() != "zero"

    def regions(self) -> tuple[Program, ...]:
        """The programs that the instruction holds."""
        if self.op.infer is None:
            return ()
        return tuple(p for a, value in zip(self.op.attrs, self.attrs) if a.kind == "programs" for p in value)


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Program:
    """inputs → instructions → outputs. An output may be None: a symbolic zero."""

    inputs: list[Var]
    instructions: list[Instruction]
    outputs: list[Operand | None]

    def __str__(self) -> str:
        return format_program(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from wengert.debug.drawing import to_svg  # only needed in notebooks

        return to_svg(self)

    def verify(self) -> None:
        """Raise if a value is read before it is made, is made twice, or has a type other than its op infers; also in the
        programs inside."""
        for program in innermost_first(self.instructions, _VERIFIED):
            program._verify()
            _VERIFIED.add(program)
        self._verify()

    def _verify(self) -> None:
        known = set(self.inputs)
        for i in self.instructions:
            for v in i.vars():
                if v not in known:
                    raise AssertionError(f"{i.op.name} reads a value that no earlier instruction makes")
            expected = infer(i.op, i.inputs, i.attrs)
            if len(expected) != len(i.outputs):
                raise AssertionError(f"{i.op.name} has {len(i.outputs)} outputs, expected {len(expected)}")
            for v, t in zip(i.outputs, expected):
                if v in known:
                    raise AssertionError(f"{i.op.name} makes a value that exists already")
                if v.type.dtype != t.dtype or v.type.example_shape() != t.example_shape():
                    raise AssertionError(f"{i.op.name}: {v.type} is recorded, {t} expected")
                known.add(v)
        for o in self.outputs:
            if isinstance(o, Var) and o not in known:
                raise AssertionError("an output is never made")


# Programs inside of others, which nobody changes any more.
_VERIFIED: weakref.WeakSet[Program] = weakref.WeakSet()

# Whether to verify the result of every pass over programs; slow, for tests.
VERIFY = os.environ.get("WENGERT_VERIFY", "0") != "0"


def verified(program: Program) -> Program:
    """The result of a pass, verified if WENGERT_VERIFY asks for it."""
    if VERIFY:
        _core.open_guards()  # inference compares sizes; discard the guards that this records
        try:
            program.verify()
        finally:
            _core.close_guards()
    return program


# Result dtypes of elementwise ops by (op, operand dtypes); when shapes are equal, nothing else matters.
_ELEMENTWISE: dict[tuple[Any, ...], int] = {}


def infer(op: Op, inputs: Sequence[Operand], attrs: tuple[Any, ...]) -> list[Type]:
    """The output types of an instruction, by the op's own shape rule."""
    if op.infer is not None:
        return list(op.infer(attrs))
    of: Type | None = None
    for x in inputs:
        if isinstance(x, Var):
            of = x.type
            break
    if op.elementwise and of is not None:
        return [_infer_elementwise(op, inputs, of)]
    return _infer(op, inputs, attrs, () if of is None else of.shape)


def _infer(op: Op, inputs: Sequence[Operand], attrs: tuple[Any, ...], shape: Shape) -> list[Type]:
    types = [(x.type.dtype, x.type.shape) if isinstance(x, Var) else (x.dtype, shape) for x in inputs]
    return [Type(d, s) for d, s in _core.infer(op.name, types, attrs)]


def _infer_elementwise(op: Op, inputs: Sequence[Operand], of: Type) -> Type:
    """Infer the type of an elementwise op, usually without calling the core and without a new type."""
    dtypes = []
    for x in inputs:
        if isinstance(x, Const):
            dtypes.append(x.dtype)
        elif x.type is of or _core.same_sizes(x.type.shape, of.shape):
            dtypes.append(x.type.dtype)
        else:
            return _infer(op, inputs, (), of.shape)[0]
    key = (op, *dtypes)
    dtype = _ELEMENTWISE.get(key)
    if dtype is None:
        dtype = _ELEMENTWISE[key] = _infer(op, inputs, (), of.shape)[0].dtype
    return of if dtype == of.dtype else Type(dtype, of.shape)


def resized_attrs(i: Instruction, sizes: Callable[[Shape], Shape]) -> tuple[Any, ...]:
    """The attributes with other sizes, also of the programs among them."""
    return _resized_attrs(i, sizes, _resized_inside([i], sizes)) if i.attrs else i.attrs


def _resized_attrs(
    i: Instruction, sizes: Callable[[Shape], Shape], inside: Mapping[Program, Program]
) -> tuple[Any, ...]:
    return tuple(
        [
            sizes(v) if a.kind == "sizes" else tuple([inside[p] for p in v]) if a.kind == "programs" else v
            for a, v in zip(i.op.attrs, i.attrs)
        ]
    )


def _resized_inside(instructions: Sequence[Instruction], sizes: Callable[[Shape], Shape]) -> Mapping[Program, Program]:
    """The programs inside of instructions with other sizes."""
    inside: dict[Program, Program] = {}
    for program in innermost_first(instructions):
        inside[program] = _resized(program, program.instructions, sizes, inside)
    return inside


def resized(program: Program, sizes: Callable[[Shape], Shape], before: Sequence[Instruction] = ()) -> Program:
    """The program with other sizes, preceded by instructions that may compute some of its inputs."""
    instructions = [*before, *program.instructions]
    return _resized(program, instructions, sizes, _resized_inside(instructions, sizes))


def _resized(
    program: Program,
    instructions: Sequence[Instruction],
    sizes: Callable[[Shape], Shape],
    inside: Mapping[Program, Program],
) -> Program:
    made: dict[Var, Var] = {}

    def var(v: Var) -> Var:
        if v not in made:
            made[v] = Var(Type(v.type.dtype, sizes(v.type.shape)), v.linear)
        return made[v]

    inputs = list(map(var, program.inputs))
    body = []
    for i in instructions:
        operands = tuple([var(x) if isinstance(x, Var) else x for x in i.inputs])
        outputs = tuple(map(var, i.outputs))
        attrs = _resized_attrs(i, sizes, inside) if i.attrs else i.attrs
        body.append(Instruction(i.op, operands, attrs, outputs, i.origin))
    return Program(inputs, body, [var(o) if isinstance(o, Var) else o for o in program.outputs])


def remove_dead(instructions: Sequence[Instruction], outputs: Iterable[Operand | None]) -> list[Instruction]:
    """The instructions that the outputs depend on, in order."""
    live: set[Operand | None] = {*outputs}  # literals among them are nobody's results
    kept = []
    for i in reversed(instructions):
        if not live.isdisjoint(i.outputs):
            kept.append(i)
            live.update(i.inputs)
    return kept[::-1]


def format_program(program: Program, names: Mapping[Var, str] | None = None) -> str:
    """The program as text, one instruction per line, with nested programs below their instruction. `names` are names of
    values; the others are numbered."""
    lines = []
    listings = [_listing(program, names or {})]  # from the outermost program to the one that is being listed
    while listings:
        for line in listings[-1]:
            if isinstance(line, Program):
                listings.append(_listing(line, {}))
                break
            lines.append("    " * (len(listings) - 1) + line)
        else:
            listings.pop()
    return "\n".join(lines)


def _listing(program: Program, given: Mapping[Var, str]) -> Iterator[str | Program]:
    """Lines, and the programs that stand between them."""
    names: dict[Var, str] = dict(given)

    def name(x: Operand | None) -> str:
        if x is None:
            return "0"
        if isinstance(x, Const):
            return repr(x.value)
        return names.setdefault(x, f"v{len(names) - len(given)}")

    def attrs(i: Instruction) -> str:
        pairs = (f"{a.name}={v}" for a, v in zip(i.op.attrs, i.attrs) if a.kind != "programs")
        return "".join(f" {p}" for p in pairs)

    yield f"({', '.join(f'{name(v)}: {v.type}' for v in program.inputs)}) ->"
    for i in program.instructions:
        operands = ", ".join(map(name, i.inputs))
        results = ", ".join(f"{name(v)}: {v.type}" for v in i.outputs)
        yield f"  {results} = {i.op.name} {operands}{attrs(i)}"
        yield from i.regions()
    yield f"  return {', '.join(map(name, program.outputs))}"
