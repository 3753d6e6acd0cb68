"""Files of programs. Nothing in one is executed: it names ops, which this library has.

A file consists of

    8 bytes    "WENGERTP"
    4 bytes    the version of the format, 1
    4 bytes    zeros
    32 bytes   the SHA-256 digest of all that follows
    the rest   a safetensors file: the constants by name, and among its texts the program, as JSON under "wengert.program"

Numbers are little-endian. docs/graphs.md describes the JSON.
"""

from __future__ import annotations

import ast
import hashlib
import io
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from wengert import _core
from wengert._core import Tensor
from wengert.compiling.compile import own_outputs
from wengert.dtypes import ALL as DTYPES
from wengert.dtypes import DType
from wengert.errors import ArgumentError, LoadError, WengertError
from wengert.interop import safetensors
from wengert.interop.files import written_atomically
from wengert.program.ir import Const, Instruction, Operand, Program, Shape, Type, Var, infer
from wengert.program.nested import Once, Task, finished
from wengert.program.simplify import simplify
from wengert.registry.record import OPS, Op
from wengert.transforms.regions import op_of_family
from wengert.transforms.sized import new_size

VERSION = 1
_MAGIC = b"WENGERTP"
_HEAD = len(_MAGIC) + 4 + 4 + 32
_TEXT = "wengert.program"
_BY_NAME: dict[str, DType] = {d.name: d for d in DTYPES}
_LONGEST_SIZE = 10_000  # characters
_LARGEST = 2**62
_MOST_AXES = 64
_DEEPEST = 100  # containers inside containers
_Scope = frozenset[str]  # names of the sizes that the instructions around a program have for their programs


def write(path: str | os.PathLike[str], description: dict[str, Any], constants: dict[str, Tensor]) -> None:
    """Write what a program is, as JSON, and its constants."""
    import json

    body = io.BytesIO()
    safetensors.write(body, constants, {_TEXT: json.dumps(description, separators=(",", ":"), allow_nan=False)})
    content = body.getvalue()
    head = _MAGIC + VERSION.to_bytes(4, "little") + bytes(4) + hashlib.sha256(content).digest()
    with written_atomically(Path(path)) as f:
        f.write(head)
        f.write(content)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The program's description in the file, not yet checked, and its constants."""
    name = str(path)
    with open(path, "rb") as f:
        head, content = f.read(_HEAD), f.read()
    if head[: len(_MAGIC)] != _MAGIC:
        raise LoadError(f"{name}: no program file: it does not begin with {_MAGIC.decode()}")
    if len(head) < _HEAD:
        raise LoadError(f"{name}: the file is cut off: {len(head)} bytes")
    version = int.from_bytes(head[8:12], "little")
    if version > VERSION:
        raise LoadError(
            f"{name}: version {version} of the format; this wengert reads up to version {VERSION}: install a newer one"
        )
    if version != VERSION or any(head[12:16]):
        raise LoadError(f"{name}: the file is damaged: there is no version {version} of the format")
    if hashlib.sha256(content).digest() != head[16:]:
        raise LoadError(f"{name}: the file is cut off or was altered: its checksum does not fit its contents")
    tensors, notes = safetensors.read(io.BytesIO(content), len(content), name)
    description = safetensors.parse(notes.get(_TEXT, ""), "the program", name)
    if not isinstance(description, dict):
        raise LoadError(f"{name}: the program is not a JSON object")
    return description, tensors


# ------------------------------------------------------------------------------------------------------------- writing


def _number(x: Any) -> Any:
    """A number of JSON, which has no infinities and no complex numbers."""
    if isinstance(x, complex):
        return [_number(x.real), _number(x.imag)]
    return x if isinstance(x, (bool, int)) or math.isfinite(x) else repr(float(x))


def encode_sizes(shape: Shape) -> list[Any]:
    """Sizes: numbers, and texts of expressions."""
    return [n if isinstance(n, int) else str(n) for n in shape]


def encode_type(t: Type) -> list[Any]:
    """A dtype and a shape."""
    return [DTYPES[t.dtype].name, encode_sizes(t.shape)]


def encode_program(program: Program) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A program as JSON, and the programs inside of it, innermost first, which instructions refer to by their places. Values
    have numbers: those of inputs come first, then those of results in order."""
    inside: list[dict[str, Any]] = []
    return finished(_encoding(program, _Scope(), inside)), inside


def _encoding_inside(program: Program, scope: _Scope, inside: list[dict[str, Any]]) -> Task[int]:
    """The place of a program among those inside of another."""
    inside.append((yield from _encoding(program, scope, inside)))
    return len(inside) - 1


def _encoding(program: Program, scope: _Scope, inside: list[dict[str, Any]]) -> Task[dict[str, Any]]:
    numbers: dict[Var, int] = {v: k for k, v in enumerate(program.inputs)}

    def operand(x: Operand | None) -> Any:
        if isinstance(x, Const):
            return {"value": _number(x.value), "dtype": DTYPES[x.dtype].name}
        return None if x is None else numbers[x]

    body = []
    for i in program.instructions:
        if i.op.callback:
            raise ArgumentError(
                f"export: the program calls {i.op.label!r}, a custom operation, whose Python code a file "
                "cannot hold; write it in wengert ops"
            )
        entry: dict[str, Any] = {"op": i.op.name, "inputs": [operand(x) for x in i.inputs]}
        if i.attrs:
            entry["attrs"] = yield from _encoding_attrs(i, scope, inside)
        for o in i.outputs:
            numbers[o] = len(numbers)
        entry["outputs"] = [encode_type(o.type) for o in i.outputs]
        body.append(entry)
    return {
        "inputs": [encode_type(v.type) for v in program.inputs],
        "body": body,
        "outputs": [operand(o) for o in program.outputs],
    }


def _encoding_attrs(i: Instruction, scope: _Scope, inside: list[dict[str, Any]]) -> Task[dict[str, Any]]:
    entry: dict[str, Any] = {}
    for a, value in zip(i.op.attrs, i.attrs):
        if a.kind == "bound":
            scope |= set(encode_sizes(value))
        if a.kind == "programs":
            places = []
            for p in value:
                places.append((yield Once((p, scope), _encoding_inside(p, scope, inside))))
            entry[a.name] = places
        else:
            entry[a.name] = _encode_attr(a.name, a.kind, value)
    return entry


def _encode_attr(name: str, kind: str, value: Any) -> Any:
    if kind in ("sizes", "bound"):
        return encode_sizes(value)
    if name == "dtype":
        return DTYPES[value].name
    return list(value) if kind == "integers" else _number(value)


def encode_tree(tree: Any, place: str) -> Any:
    """Containers as JSON; a leaf is what stands for it: a number, or what else JSON has, in a list of one."""
    kinds: dict[Any, str] = {list: "list", tuple: "tuple"}
    if tree is None:
        return {"none": None}
    if type(tree) in kinds:
        return {kinds[type(tree)]: [encode_tree(x, f"{place}[{k}]") for k, x in enumerate(tree)]}
    if type(tree) is dict:
        for key in tree:
            if not isinstance(key, str):
                raise ArgumentError(
                    f"export: {place} is a dict with the key {key!r}; a file has dicts with texts as keys"
                )
        return {"dict": {key: encode_tree(x, f"{place}[{key!r}]") for key, x in tree.items()}}
    if not isinstance(tree, SignatureLeaf):
        raise ArgumentError(
            f"export: {place} has type {type(tree).__name__}; a program file has tuples, lists, dicts and None, as it is "
            "loaded without the source of other classes"
        )
    return {"tensor": tree.number} if tree.number is not None else {"static": tree.value}


class SignatureLeaf:
    """A leaf in a signature: the number of a tensor, or a static value."""

    def __init__(self, number: int | None, value: Any = None) -> None:
        self.number, self.value = number, value


# ------------------------------------------------------------------------------------------------------------- reading


class Reader:
    """Reads the JSON of one file; whatever is not as it should be raises LoadError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.symbols: dict[str, Any] = {}  # sizes that may occur, by name
        self._inside: list[Any] = []  # the programs inside of the program
        self._bound: dict[str, Any] = {}  # sizes that instructions have for their programs
        self._scope = _Scope()
        self._scopes: dict[int, _Scope] = {}  # of the programs inside

    def fail(self, problem: str) -> NoReturn:
        """The file is not a proper program."""
        raise LoadError(f"{self.path}: not a proper program: {problem}")

    def field(self, entry: Any, name: str, kind: Any) -> Any:
        """A field of a JSON object, of this class."""
        if not isinstance(entry, dict) or name not in entry:
            self.fail(f"{_short(entry)} has no field {name!r}")
        value = entry[name]
        if type(value) is not kind:
            self.fail(f"the field {name!r} is {_short(value)}")
        return value

    def integer(self, x: Any) -> int:
        """An integer that fits."""
        if type(x) is not int or not -_LARGEST < x < _LARGEST:
            self.fail(f"{_short(x)} is not an integer")
        return x

    def number(self, x: Any) -> Any:
        """A real number, perhaps written as a text."""
        if type(x) is str and x in ("inf", "-inf", "nan"):
            return float(x)
        if type(x) not in (int, float, bool) or not abs(x) < 2.0**1023 * 2:
            self.fail(f"{_short(x)} is not a number")
        return x

    def dtype(self, x: Any) -> int:
        """The code of a dtype, by name."""
        if type(x) is not str or x not in _BY_NAME:
            self.fail(f"{_short(x)} is not a dtype")
        return _BY_NAME[x].code

    def sizes(self, x: Any) -> Shape:
        """Sizes."""
        if type(x) is not list or len(x) > _MOST_AXES:
            self.fail(f"{_short(x)} is not a list of sizes")
        return tuple(self.size(n) for n in x)

    def size(self, x: Any) -> Any:
        """A number, or a text such as "2*n0_1+1"."""
        if type(x) is not str:
            return self.integer(x)
        if x in self.symbols:
            return self.symbols[x]
        if len(x) > _LONGEST_SIZE or not re.fullmatch(r"[0-9a-z_+\-*/()]+", x):
            self.fail(f"{_short(x)} is not a size")
        try:
            return self._computed(ast.parse(x, mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError, WengertError):
            self.fail(f"{_short(x)} is not a size")

    def _computed(self, node: ast.expr) -> Any:
        """The value of an expression of sizes: nothing but sums, products and quotients of known names and integers."""
        if isinstance(node, ast.Name) and node.id in self.symbols:
            return self.symbols[node.id]
        if isinstance(node, ast.Constant):
            return self.integer(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -1 * self._computed(node.operand)
        if isinstance(node, ast.BinOp):
            a, b = self._computed(node.left), self._computed(node.right)
            if isinstance(node.op, ast.Add):
                return a + b
            if isinstance(node.op, ast.Sub):
                return a - b
            if isinstance(node.op, ast.Mult):
                return a * b
            if isinstance(node.op, ast.FloorDiv):
                return a // b
        self.fail("a size is not a sum, product or quotient")

    def type(self, x: Any) -> Type:
        """A dtype and a shape."""
        if type(x) is not list or len(x) != 2:
            self.fail(f"{_short(x)} is not a type")
        return Type(self.dtype(x[0]), self.sizes(x[1]))

    # ------------------------------------------------------------------------------------------------ programs

    def program(self, entry: Any, inside: list[Any], inputs: Sequence[Type]) -> Program:
        """A program, of which the shape rules of all instructions have been asked; `inside` are those that it holds."""
        self._inside = inside
        return finished(self._program(entry, inputs, len(inside)))

    def _inside_at(self, k: Any, place: int) -> Once:
        """Program k of those inside, which is held by the one in this place."""
        if type(k) is not int or not 0 <= k < place:
            self.fail(f"{_short(k)} is not a program that comes before")
        if self._scopes.setdefault(k, self._scope) != self._scope:
            self.fail("a program stands among different sizes")
        return Once((k,), self._inner_program(self._inside[k], k))

    def _inner_program(self, entry: Any, place: int) -> Task[Program]:
        types = [self.type(t) for t in self.field(entry, "inputs", list)]
        # What the executor relies on: every value is read, and the memory of results is theirs alone.
        return own_outputs(simplify((yield from self._program(entry, types, place))))

    def _program(self, entry: Any, inputs: Sequence[Type], place: int) -> Task[Program]:
        made = [Var(t) for t in inputs]
        values = list(made)
        body = []
        for i in self.field(entry, "body", list):
            body.append((yield from self._instruction(i, values, place)))
        outputs = [None if o is None else self._operand(o, values) for o in self.field(entry, "outputs", list)]
        return Program(made, body, outputs)

    def _operand(self, x: Any, values: Sequence[Var]) -> Operand:
        if type(x) is dict:
            value = x.get("value")
            dtype = self.dtype(x.get("dtype"))
            if type(value) is list and len(value) == 2:
                return Const(complex(self.number(value[0]), self.number(value[1])), dtype)
            return Const(self.number(value), dtype)
        if type(x) is not int or not 0 <= x < len(values):
            self.fail(f"{_short(x)} is not a value that exists")
        return values[x]

    def _instruction(self, entry: Any, values: list[Var], place: int) -> Task[Instruction]:
        op = self._op(self.field(entry, "op", str))
        inputs = tuple(self._operand(x, values) for x in self.field(entry, "inputs", list))
        recorded = [self.type(t) for t in self.field(entry, "outputs", list)]
        attrs = yield from self._attrs(op, entry, place)
        self._check_operands(op, inputs, attrs)
        try:
            inferred = infer(op, inputs, attrs)
        except (WengertError, TypeError, ValueError, OverflowError, AttributeError, IndexError) as e:
            self.fail(f"{op.name}: {e}")
        if len(inferred) != len(recorded) or any(
            a.dtype != b.dtype or not _core.same_sizes(a.shape, b.shape) for a, b in zip(inferred, recorded)
        ):
            self.fail(f"{op.name} gives {', '.join(map(str, inferred))}, not {', '.join(map(str, recorded))}")
        made = tuple(Var(t) for t in inferred)
        values += made
        return Instruction(op, inputs, attrs, made)

    def _op(self, name: str) -> Op:
        found = None if "#" in name else OPS[name] if name in OPS else op_of_family(name)
        if found is None:
            raise LoadError(
                f"{self.path}: the program has the op {name[:40]!r}, which this wengert does not know; a newer one may"
            )
        return found

    def _attrs(self, op: Op, entry: dict[str, Any], place: int) -> Task[tuple[Any, ...]]:
        given = entry.get("attrs", {})
        if type(given) is not dict or list(given) != [a.name for a in op.attrs]:
            self.fail(f"{op.name} has the attributes {_short(given)}")
        scope, attrs = self._scope, []
        for a in op.attrs:
            value = given[a.name]
            if a.kind == "programs":
                if type(value) is not list:
                    self.fail(f"the attribute {a.name} is {_short(value)}")
                programs = []
                for k in value:
                    programs.append((yield self._inside_at(k, place)))
                attrs.append(tuple(programs))
            else:
                attrs.append(self._attr(a.name, a.kind, value))
        for name in self._scope - scope:  # what an instruction has for its programs is not known outside
            del self.symbols[name]
        self._scope = scope
        return tuple(attrs)

    def _attr(self, name: str, kind: str, x: Any) -> Any:
        if name == "dtype":
            return self.dtype(x)
        if kind == "integer":
            return self.integer(x)
        if kind == "real":
            return float(self.number(x))
        if kind == "sizes":
            return self.sizes(x)
        if type(x) is not list:
            self.fail(f"the attribute {name} is {_short(x)}")
        if kind == "bound":
            return tuple(self._new_size(n) for n in x)
        return tuple(self.integer(n) for n in x)

    def _new_size(self, x: Any) -> Any:
        """A size that the programs of an instruction have for themselves."""
        if type(x) is not str or not re.fullmatch(r"s[0-9]{1,12}_0", x) or x in self.symbols:
            self.fail(f"{_short(x)} is not a new size")
        self.symbols[x] = self._bound.setdefault(x, new_size())
        self._scope |= {x}
        return self.symbols[x]

    def _check_operands(self, op: Op, inputs: Sequence[Operand], attrs: tuple[Any, ...]) -> None:
        if op.n_inputs >= 0 and len(inputs) != op.n_inputs:
            self.fail(f"{op.name} takes {op.n_inputs} operands, not {len(inputs)}")
        values = [x for x in inputs if isinstance(x, Var)]
        if (inputs and not values) or (op.check is not None and len(values) < len(inputs)):
            self.fail(f"{op.name} takes no numbers for operands")
        if op.check is not None:
            problem = op.check([x.type for x in values], attrs)
            if problem:
                self.fail(f"{op.name}: {problem}")
        if op.elementwise:  # what makes operands alike is an instruction of its own
            shapes = all(_core.same_sizes(x.type.shape, values[0].type.shape) for x in values)
            dtypes = {x.type.dtype if isinstance(x, Var) else x.dtype for x in inputs[op.n_conditions :]}
            if not shapes or len(dtypes) > 1:
                self.fail(f"the operands of {op.name} are not of one type")

    # --------------------------------------------------------------------------------------------------- trees

    def tree(self, entry: Any, depth: int = 0) -> Any:
        """Containers, with places for leaves."""
        if type(entry) is not dict or len(entry) != 1 or depth > _DEEPEST:
            self.fail(f"{_short(entry)} is not a container")
        ((kind, x),) = entry.items()
        if kind == "none":
            return None
        if kind == "tensor":
            return SignatureLeaf(self.integer(x))
        if kind == "static":
            if not (x is None or type(x) in (bool, int, float, str)):
                self.fail(f"{_short(x)} is not a static value")
            return SignatureLeaf(None, x)
        if kind == "dict" and type(x) is dict:
            return {key: self.tree(child, depth + 1) for key, child in x.items()}
        if kind in ("list", "tuple") and type(x) is list:
            children = [self.tree(child, depth + 1) for child in x]
            return children if kind == "list" else tuple(children)
        self.fail(f"{_short(entry)} is not a container")


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 60 else text[:60] + "…"
