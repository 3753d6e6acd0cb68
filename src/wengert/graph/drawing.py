"""Drawings of programs: as SVG, laid out here in layers, and as DOT for Graphviz."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

from wengert.program.ir import Const, Instruction, Program, Var

_CHARACTER, _HEIGHT = 7.2, 40.0  # of a letter, of a box; in pixels
_GAP_X, _GAP_Y, _MARGIN = 24.0, 44.0, 20.0
_SWEEPS = 4  # over the layers, to put boxes near what they are connected with


@dataclass(slots=True, eq=False)
class _Box:
    title: str
    detail: str
    kind: str  # input, instruction, output
    sources: list[_Box] = field(default_factory=list)
    layer: int = 0
    x: float = 0.0  # of its middle

    @property
    def width(self) -> float:
        return max(len(self.title), len(self.detail), 6) * _CHARACTER + 16.0

    @property
    def y(self) -> float:
        return _MARGIN + self.layer * (_HEIGHT + _GAP_Y)


def _boxes(program: Program, names: Mapping[Var, str]) -> list[_Box]:
    """What is drawn: inputs that are read, instructions, outputs; each after those that it reads."""
    read = {v for i in program.instructions for v in i.vars()} | {o for o in program.outputs if isinstance(o, Var)}
    made: dict[Var, _Box] = {}
    boxes = []
    for k, v in enumerate(program.inputs):
        if v in read:
            made[v] = _Box(names.get(v, f"input {k}"), str(v.type), "input")
            boxes.append(made[v])
    for i in program.instructions:
        box = _Box(_title(i), ", ".join(str(o.type) for o in i.outputs), "instruction")
        box.sources = list(dict.fromkeys(made[v] for v in i.vars()))
        box.layer = 1 + max((s.layer for s in box.sources), default=-1)
        made.update((o, box) for o in i.outputs)
        boxes.append(box)
    for k, o in enumerate(program.outputs):
        if isinstance(o, Var):
            source = made[o]
            boxes.append(_Box(f"output {k}", "", "output", [source], source.layer + 1))
    return boxes


def _title(i: Instruction) -> str:
    literals = [repr(x.value) for x in i.inputs if isinstance(x, Const)]
    shown = [f"{a.name}={v}" for a, v in zip(i.op.attrs, i.attrs) if a.kind in ("integer", "real", "integers")]
    text = ", ".join([*literals, *shown])
    return f"{i.op.name} {text}"[:48].rstrip()


# ----------------------------------------------------------------------------------------------------------------- SVG


def _place(boxes: list[_Box]) -> tuple[float, float]:
    """Give every box its place; the width and height of the drawing."""
    layers: dict[int, list[_Box]] = {}
    readers: dict[_Box, list[_Box]] = {}
    for box in boxes:
        layers.setdefault(box.layer, []).append(box)
        for s in box.sources:
            readers.setdefault(s, []).append(box)
    _space(layers, {})
    for sweep in range(_SWEEPS):
        near = {b: b.sources if sweep % 2 == 0 else readers.get(b, []) for b in boxes}
        wanted = {b: sum(n.x for n in found) / len(found) for b, found in near.items() if found}
        _space(layers, wanted)
    left = min((b.x - b.width / 2 for b in boxes), default=0.0)
    for b in boxes:
        b.x += _MARGIN - left
    right = max((b.x + b.width / 2 for b in boxes), default=0.0)
    bottom = max((b.y + _HEIGHT for b in boxes), default=0.0)
    return right + _MARGIN, bottom + _MARGIN


def _space(layers: Mapping[int, list[_Box]], wanted: Mapping[_Box, float]) -> None:
    """Order each layer by where its boxes want to be, side by side, around the middle of that."""
    for row in layers.values():
        row.sort(key=lambda b: wanted.get(b, b.x))
        total = sum(b.width for b in row) + _GAP_X * (len(row) - 1)
        centre = sum(wanted.get(b, b.x) for b in row) / len(row)
        x = centre - total / 2
        for b in row:
            b.x = x + b.width / 2
            x += b.width + _GAP_X


_STYLE = """
.box { stroke-width: 1.2 } .edge { fill: none; stroke: #8a94a6; stroke-width: 1.2 }
.input { fill: #e6f0fb; stroke: #3a78c3 } .instruction { fill: #ffffff; stroke: #5b6577 }
.output { fill: #e9f6ea; stroke: #3c8d4a }
text { font: 12px ui-monospace, Menlo, Consolas, monospace; text-anchor: middle; fill: #1d2433 }
.detail { font-size: 11px; fill: #5b6577 }
"""


def to_svg(program: Program, names: Mapping[Var, str] | None = None) -> str:
    """The program as an SVG drawing: values flow from top to bottom; boxes show the op, literals, and the result's type."""
    boxes = _boxes(program, names or {})
    width, height = _place(boxes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<style>{_STYLE}</style>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#8a94a6"/></marker></defs>',
    ]
    for b in boxes:
        for s in b.sources:
            top, bottom = s.y + _HEIGHT, b.y
            bend = (top + bottom) / 2
            parts.append(
                f'<path class="edge" marker-end="url(#arrow)" d="M{s.x:.1f} {top:.1f} C{s.x:.1f} {bend:.1f} '
                f'{b.x:.1f} {bend:.1f} {b.x:.1f} {bottom:.1f}"/>'
            )
    for b in boxes:
        parts.append(
            f'<rect class="box {b.kind}" x="{b.x - b.width / 2:.1f}" y="{b.y:.1f}" width="{b.width:.1f}" '
            f'height="{_HEIGHT}" rx="{4 if b.kind == "instruction" else 18}"/>'
        )
        middle = b.y + (17 if b.detail else 25)
        parts.append(f'<text x="{b.x:.1f}" y="{middle:.1f}">{escape(b.title)}</text>')
        if b.detail:
            parts.append(f'<text class="detail" x="{b.x:.1f}" y="{b.y + 33:.1f}">{escape(b.detail)}</text>')
    return "\n".join([*parts, "</svg>", ""])


# ----------------------------------------------------------------------------------------------------------------- DOT


def to_dot(program: Program, names: Mapping[Var, str] | None = None) -> str:
    """The program in the language of Graphviz."""
    boxes = _boxes(program, names or {})
    number = {b: k for k, b in enumerate(boxes)}
    shapes = {"input": "ellipse", "instruction": "box", "output": "ellipse"}
    lines = ["digraph program {", "  node [fontname=monospace, fontsize=10];"]
    for b, k in number.items():
        label = "\\n".join(_quoted(t) for t in (b.title, b.detail) if t)
        lines.append(f'  b{k} [shape={shapes[b.kind]}, label="{label}"];')
    lines += [f"  b{number[s]} -> b{k};" for b, k in number.items() for s in b.sources]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
