"""What a drawing shows: boxes for inputs, instructions and outputs, and for runs of instructions that are folded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.dtypes import ALL as DTYPES
from wengert.errors import ArgumentError
from wengert.program.ir import Const, Instruction, Program, Var
from wengert.transforms.costs import work_of
from wengert.transforms.pullback import reachable

MOST_BOXES = 150  # that can be read in one drawing
_MOST_DESCRIBED = 20_000  # instructions: of more, costs and types take longer than anyone waits for a drawing
_UNITS = ("", "k", "M", "G", "T", "P")


@dataclass(slots=True, eq=False)
class Box:
    """One thing that is drawn. `saved`: backward keeps something of it."""

    title: str
    detail: str
    kind: str  # input, instruction, output, fold
    sources: list[Box] = field(default_factory=list)
    line: str = ""
    saved: bool = False
    flops: float = 0.0
    bytes: float = 0.0
    op: str = ""  # of an instruction
    members: int = 1  # instructions
    layer: int = 0
    x: float = 0.0  # of its middle

    @property
    def cost(self) -> str:
        """Arithmetic and memory, to be read by people."""
        return f"{short(self.flops)}flop, {short(self.bytes)}B" if self.flops or self.bytes else ""


def short(number: float) -> str:
    """A number with a unit.

    >>> short(1536.0), short(2.5e6), short(7)
    ('1.54 k', '2.5 M', '7 ')
    """
    size = 0 if abs(number) < 1000 else min(int(math.log10(abs(number)) // 3), len(_UNITS) - 1)
    return f"{number / 1000**size:.3g} {_UNITS[size]}"


def program_boxes(program: Program, names: Mapping[Var, str]) -> list[Box]:
    """Inputs that are read, instructions, outputs; each after those that it reads."""
    read = {v for i in program.instructions for v in i.vars()} | {o for o in program.outputs if isinstance(o, Var)}
    lines, saved = _recorded(program)
    described = len(program.instructions) <= _MOST_DESCRIBED
    made: dict[Var, Box] = {}
    boxes = []
    for k, v in enumerate(program.inputs):
        if v in read:
            made[v] = Box(names.get(v, f"input {k}"), str(v.type), "input", saved=v in saved)
            boxes.append(made[v])
    for i in program.instructions:
        box = Box(
            i.op.label,
            "",
            "instruction",
            list(dict.fromkeys(made[v] for v in i.vars())),
            lines.get(i, "" if i.origin is None else str(i.origin.line)),
            any(o in saved for o in i.outputs),
            op=i.op.label,
        )
        if described:
            work = work_of(i)
            box.title, box.detail = _title(i), ", ".join(str(o.type) for o in i.outputs)
            box.flops = work.flops + work.product_flops
            box.bytes = (
                0.0 if i.op.view else float(sum(v.type.example_bytes() for v in (*i.outputs, *dict.fromkeys(i.vars()))))
            )
        made.update((o, box) for o in i.outputs)
        boxes.append(box)
    for k, o in enumerate(program.outputs):
        if isinstance(o, Var):
            boxes.append(Box(f"output {k}", "", "output", [made[o]]))
    return boxes


def _recorded(program: Program) -> tuple[dict[Instruction, str], set[Var]]:
    """Of a program that a tape recorded: the user's lines, and the values that are kept for backward."""
    lines: dict[Instruction, str] = {}
    saved: set[Var] = set()
    for step in getattr(program, "_steps", ()):
        lines.update((i, step.call.line) for i in step.instructions)
        node = step.call.node
        derivation = None if node is None or node.custom is not None else node.derivation
        for where, k in () if derivation is None else derivation.saves:
            values = (step.operands, step.results, step.results[step.call.n_outputs :])[where]
            if k < len(values) and isinstance(values[k], Var):
                saved.add(values[k])
    return lines, saved


def _title(i: Instruction) -> str:
    literals = [repr(x.value) for x in i.inputs if isinstance(x, Const)]
    shown = [f"{a.name}={v}" for a, v in zip(i.op.attrs, i.attrs) if a.kind in ("integer", "real", "integers")]
    text = ", ".join([*literals, *shown])
    return f"{i.op.label} {text}"[:48].rstrip()


def graph_boxes(x: Tensor) -> list[Box]:
    """What was recorded for a tensor."""
    edge = _core.node_of(x)
    if edge is None:
        raise ArgumentError(
            f"draw: nothing was recorded for this tensor {x.dtype.name}{tuple(x.shape)}; it requires no gradient"
        )
    nodes = sorted(reachable([edge]).values(), key=lambda n: n.seq)
    described = len(nodes) <= _MOST_DESCRIBED
    read = _sizes_read(nodes) if described else {}
    types: dict[int, list[str]] = {}
    shapes: dict[int, list[tuple[int, ...]]] = {}
    made: dict[int, Box] = {}
    for n in nodes:
        kept = [] if n.is_leaf or n.freed or n.custom is not None else n.saved
        size = sum(s.size * s.dtype.itemsize for s in kept)
        if described:
            types[n.key], shapes[n.key] = _types(n, kept, shapes, read)
        keeps = "" if n.is_leaf else f"keeps {short(size)}B" if size else "keeps nothing"
        made[n.key] = Box(
            f"leaf {n.id}" if n.is_leaf else n.name.lstrip("_"),
            ", ".join([*types.get(n.key, []), *([keeps] if keeps else [])]),
            "input" if n.is_leaf else "instruction",
            list(dict.fromkeys(made[e[0].key] for e in n.edges if e is not None)),
            "" if n.is_leaf else n.line,
            bool(size),
            op=n.name,
        )
    boxes = list(made.values())
    return [*boxes, Box("this tensor", f"{x.dtype.name}{list(x.shape)}", "output", [made[edge[0].key]])]


def _types(
    n: Any, kept: Sequence[Any], shapes: Mapping[int, list[tuple[int, ...]]], read: Mapping[Any, dict[int, int]]
) -> tuple[list[str], list[tuple[int, ...]]]:
    """The types of the results of a recorded instruction as text, and their shapes; none where they are not known."""
    found = [(code, tuple(shape)) for code, shape in n.types]
    derivation = _derivation_of(n)
    if not found and derivation is not None:
        results = [o.type for o in derivation.forward.outputs[: derivation.n_outputs]]
        made = _computed_shapes(n, derivation, results, kept, shapes) or [
            tuple(sizes[axis] for axis in range(len(t.shape)))
            if len(sizes := read.get((n.key, k), {})) == len(t.shape)
            else None
            for k, t in enumerate(results)
        ]
        if None not in made:
            found = [(t.dtype, shape) for t, shape in zip(results, made)]
    return [f"{DTYPES[code].name}{list(shape)}" for code, shape in found], [shape for _, shape in found]


def _computed_shapes(n: Any, derivation: Any, results: Sequence[Any], kept: Sequence[Any], shapes: Any) -> list[Any]:
    """By the sizes that an instruction keeps for its derivative, and those of its operands; empty if that is not enough."""
    known = dict(zip(derivation.leaves, n.sizes))
    operands = {k: shapes[e[0].key][e[1]] for k, e in zip(derivation.edges, n.edges) if e and shapes.get(e[0].key)}
    operands.update({k: tuple(s.shape) for (where, k), s in zip(derivation.saves, kept) if where == _OPERAND})
    known.update({(_OPERAND, k, axis): size for k, shape in operands.items() for axis, size in enumerate(shape)})
    if not all(leaf in known for t in results for leaf in _core.leaves_of_sizes(t.shape)):
        return []
    return [tuple(_core.substitute_sizes(t.shape, list(known), list(known.values()))) for t in results]


def _sizes_read(nodes: Sequence[Any]) -> dict[Any, dict[int, int]]:
    """By instruction and result: sizes that those who have read it keep, by axis."""
    read: dict[Any, dict[int, int]] = {}
    for n in nodes:
        if (derivation := _derivation_of(n)) is None:
            continue
        edges = dict(zip(derivation.edges, n.edges))
        for (where, k, axis), size in zip(derivation.leaves, n.sizes):
            if where == _OPERAND and (edge := edges.get(k)) is not None:
                read.setdefault((edge[0].key, edge[1]), {})[axis] = size
    return read


def _derivation_of(n: Any) -> Any:
    return None if n.is_leaf or n.custom is not None else n.derivation


_OPERAND = 0  # what a derivation saves, and what sizes are of: as core/dim.h and core/derived.h


def folded(boxes: Sequence[Box], most: int = MOST_BOXES) -> list[Box]:
    """The boxes, with runs of instructions folded to one if there are too many: first those of one line, then neighbours.

    Instructions stand in the order in which they run, so that folding neighbours makes no cycle.
    """
    if len(boxes) <= most:
        return list(boxes)
    inputs = [b for b in boxes if b.kind == "input"]
    rest = [b for b in boxes if b.kind == "instruction"]
    outputs = [b for b in boxes if b.kind == "output"]
    runs: list[list[Box]] = []
    for b in rest:
        if runs and b.line and runs[-1][-1].line == b.line:
            runs[-1].append(b)
        else:
            runs.append([b])
    room = max(most - 2 * _MOST_ENDS, 8)
    size = math.ceil(len(runs) / room)
    groups = [[b for run in runs[k : k + size] for b in run] for k in range(0, len(runs), size)]
    replaced: dict[Box, Box] = {}
    shown = _ends(inputs, "inputs", replaced)
    shown += [_fold(group, replaced) for group in groups]
    return [*shown, *_ends([_rewired(b, replaced) for b in outputs], "outputs", replaced)]


_MOST_ENDS = 24  # inputs, or outputs, that are drawn each by itself


def _ends(boxes: list[Box], what: str, replaced: dict[Box, Box]) -> list[Box]:
    if len(boxes) <= _MOST_ENDS:
        return boxes
    sources = list(dict.fromkeys(s for b in boxes for s in b.sources))
    one = Box(f"{len(boxes)} {what}", "", boxes[0].kind, sources, saved=any(b.saved for b in boxes), members=len(boxes))
    replaced.update((b, one) for b in boxes)
    return [one]


def _rewired(b: Box, replaced: Mapping[Box, Box]) -> Box:
    b.sources = list(dict.fromkeys(replaced.get(s, s) for s in b.sources))
    return b


def _fold(group: list[Box], replaced: dict[Box, Box]) -> Box:
    if len(group) == 1:
        return _rewired(group[0], replaced)
    inside = set(group)
    sources = [replaced.get(s, s) for b in group for s in b.sources if s not in inside]
    lines = list(dict.fromkeys(b.line for b in group if b.line))
    where = f"{lines[0].rpartition('/')[2]}: " if len(lines) == 1 else ""
    one = Box(
        f"{where}{len(group)} instructions",
        counted(b.op for b in group),
        "fold",
        list(dict.fromkeys(sources)),
        lines[0] if len(lines) == 1 else "",
        any(b.saved for b in group),
        sum(b.flops for b in group),
        sum(b.bytes for b in group),
        members=len(group),
    )
    replaced.update((b, one) for b in group)
    return one


def counted(names: Iterable[Any], most: int = 4) -> str:
    """Names with how often they occur, the most frequent first.

    >>> counted(["add", "mul", "add"])
    'add ×2, mul'
    """
    found = Counter(names).most_common()
    more = f", and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(name if n == 1 else f"{name} ×{n}" for name, n in found[:most]) + more


__all__ = ["MOST_BOXES", "Box", "counted", "folded", "graph_boxes", "program_boxes", "short"]
