"""What a drawing shows: boxes for inputs, instructions and outputs, and for runs of instructions that are folded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wengert import _core
from wengert._core import Tensor
from wengert.errors import ArgumentError
from wengert.program.ir import Const, Instruction, Program, Var
from wengert.transforms.costs import work_of
from wengert.transforms.pullback import reachable

MOST_BOXES = 150  # that can be read in one drawing
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
    made: dict[Var, Box] = {}
    boxes = []
    for k, v in enumerate(program.inputs):
        if v in read:
            made[v] = Box(names.get(v, f"input {k}"), str(v.type), "input", saved=v in saved)
            boxes.append(made[v])
    for i in program.instructions:
        work = work_of(i)
        box = Box(
            _title(i),
            ", ".join(str(o.type) for o in i.outputs),
            "instruction",
            list(dict.fromkeys(made[v] for v in i.vars())),
            lines.get(i, "" if i.origin is None else str(i.origin.line)),
            any(o in saved for o in i.outputs),
            work.flops + work.product_flops,
            0.0 if i.op.view else float(sum(v.type.example_bytes() for v in (*i.outputs, *dict.fromkeys(i.vars())))),
            i.op.name.partition("#")[0],
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
    return f"{i.op.name.partition('#')[0]} {text}"[:48].rstrip()


def graph_boxes(x: Tensor) -> list[Box]:
    """What was recorded for a tensor."""
    edge = _core.node_of(x)
    if edge is None:
        raise ArgumentError(
            f"draw: nothing was recorded for this tensor {x.dtype.name}{tuple(x.shape)}; it requires no gradient"
        )
    made: dict[int, Box] = {}
    for n in sorted(reachable([edge]).values(), key=lambda n: n.seq):
        kept = [] if n.is_leaf or n.freed or n.custom is not None else n.saved
        size = sum(s.size * s.dtype.itemsize for s in kept)
        detail = "" if n.is_leaf else f"keeps {short(size)}B" if size else "keeps nothing"
        made[n.key] = Box(
            f"leaf {n.id}" if n.is_leaf else n.name,
            detail,
            "input" if n.is_leaf else "instruction",
            list(dict.fromkeys(made[e[0].key] for e in n.edges if e is not None)),
            "" if n.is_leaf else n.line,
            bool(size),
            op=n.name,
        )
    boxes = list(made.values())
    return [*boxes, Box("this tensor", f"{x.dtype.name}{list(x.shape)}", "output", [made[edge[0].key]])]


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
