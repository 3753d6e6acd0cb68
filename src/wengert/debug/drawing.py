"""Drawings of programs and of recorded graphs: as text, as SVG, laid out here in layers, and as DOT for Graphviz.

Values flow from top to bottom. Boxes show the op, its literals, the type of its result, what it costs, and with a thick
border that its result is kept for backward. Large programs are folded, and the drawing says so.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from wengert._core import Tensor
from wengert.debug.boxes import MOST_BOXES, Box, folded, graph_boxes, program_boxes
from wengert.errors import ArgumentError
from wengert.program.ir import Program, Var, format_program

_CHARACTER, _LINE = 7.2, 15.0  # of a letter, of a row of text; in pixels
_GAP_X, _GAP_Y, _MARGIN = 24.0, 44.0, 20.0
_SWEEPS = 4  # over the layers, to put boxes near what they are connected with
_LONGEST = 60  # characters of a row


class Drawing(str):
    """The text of a drawing, which notebooks show as the picture that it is."""

    def _repr_html_(self) -> str | None:
        if not self.startswith("<svg"):
            return f"<pre>{escape(self)}</pre>"
        return f'<div style="overflow: auto; max-height: 80vh">{self}</div>'


def draw(
    what: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    format: str | None = None,
    fold: int | None = MOST_BOXES,
) -> Drawing:
    """Draw a program, what a tape recorded, or the graph behind a tensor.

    - `what`: a tensor, a `GradientTape`, a program or a compiled function's program.
    - `path`: a file to write the drawing to.
    - `format`: "svg", "dot" (for Graphviz) or "txt"; by default the suffix of the path, or "svg".
    - `fold`: the largest number of boxes; more than that are folded together. None draws them all.

    Returns the drawing, which notebooks show as a picture.

    >>> import wengert as wg
    >>> x = wg.tensor([1.0, 2.0], requires_grad=True)
    >>> print(draw((x * x).sum(), format="dot").splitlines()[0])
    digraph program {
    """
    kind = format or (Path(path).suffix.lstrip(".").lower() if path is not None else "svg")
    writers: dict[str, Callable[[list[Box], str], str]] = {"svg": _svg, "dot": _dot, "txt": _text}
    if kind not in writers:
        raise ArgumentError(f"draw: the format must be svg, dot or txt, got {kind!r}")
    with _without_collections():
        boxes = _boxes_of(what)
        shown = boxes if fold is None else folded(boxes, fold)
    drawing = Drawing(writers[kind](shown, _summary(boxes, shown)))
    if path is not None:
        Path(path).write_text(drawing, encoding="utf-8")
    return drawing


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Boxes refer to each other and all live until the end: searching them for garbage takes most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _boxes_of(what: Any) -> list[Box]:
    if isinstance(what, Program):
        return program_boxes(what, {})
    if isinstance(what, Tensor):
        return graph_boxes(what)
    program = getattr(what, "program", None)  # a tape, a graph
    if callable(program):
        return program_boxes(program(), {})
    remedy = "; call it, and draw the result" if callable(what) else ""
    raise ArgumentError(f"draw: takes a program, a tape or a recorded tensor, got {type(what).__name__}{remedy}")


def to_svg(program: Program, names: Mapping[Var, str] | None = None) -> str:
    """The program as an SVG drawing."""
    boxes = program_boxes(program, names or {})
    shown = folded(boxes)
    return _svg(shown, _summary(boxes, shown))


def to_dot(program: Program, names: Mapping[Var, str] | None = None) -> str:
    """The program in the language of Graphviz."""
    boxes = program_boxes(program, names or {})
    shown = folded(boxes)
    return _dot(shown, _summary(boxes, shown))


def to_text(program: Program, names: Mapping[Var, str] | None = None) -> str:
    """The program as text: every instruction, or what it is folded to."""
    if len(program.instructions) <= MOST_BOXES:
        return format_program(program, names)
    boxes = program_boxes(program, names or {})
    shown = folded(boxes)
    return _text(shown, _summary(boxes, shown))


def _summary(boxes: Sequence[Box], shown: Sequence[Box]) -> str:
    """What was folded; empty if nothing was."""
    if len(boxes) == len(shown):
        return ""
    n = sum(b.kind == "instruction" for b in boxes)
    return f"{n} instructions, folded to {len(shown)} boxes; draw(…, fold=None) draws them all"


def _rows(b: Box) -> list[str]:
    """The text in a box, its title first."""
    line = "" if b.kind == "fold" else b.line.rpartition("/")[2]
    return [t if len(t) <= _LONGEST else t[: _LONGEST - 1] + "…" for t in (b.title, b.detail, b.cost, line) if t]


# ---------------------------------------------------------------------------------------------------------------- text


def _text(boxes: list[Box], summary: str) -> str:
    number = {b: k for k, b in enumerate(boxes)}
    lines = [summary] if summary else []
    for b, k in number.items():
        read = ", ".join(str(number[s]) for s in b.sources)
        kept = "  kept for backward" if b.saved else ""
        where = f"  at {b.line}" if b.line and b.kind != "fold" else ""
        cost = f"  ({b.cost})" if b.cost else ""
        detail = f": {b.detail}" if b.detail else ""
        lines.append(f"{k:>4}  {b.title}{f' of {read}' if read else ''}{detail}{cost}{kept}{where}")
    return "\n".join([*lines, ""])


# ----------------------------------------------------------------------------------------------------------------- SVG


def _width(b: Box) -> float:
    return max(6, *(len(t) for t in _rows(b))) * _CHARACTER + 16.0


def _height(b: Box) -> float:
    return len(_rows(b)) * _LINE + 12.0


def _place(boxes: list[Box]) -> tuple[dict[int, float], float, float]:
    """Give every box its place: the tops of layers, and the width and height of the drawing."""
    layers: dict[int, list[Box]] = {}
    readers: dict[Box, list[Box]] = {}
    for box in boxes:
        box.layer = 1 + max((s.layer for s in box.sources), default=-1)
        layers.setdefault(box.layer, []).append(box)
        for s in box.sources:
            readers.setdefault(s, []).append(box)
    widths = {b: _width(b) for b in boxes}
    _space(layers, {}, widths)
    for sweep in range(_SWEEPS):
        near = {b: b.sources if sweep % 2 == 0 else readers.get(b, []) for b in boxes}
        wanted = {b: sum(n.x for n in found) / len(found) for b, found in near.items() if found}
        _space(layers, wanted, widths)
    left = min((b.x - widths[b] / 2 for b in boxes), default=0.0)
    for b in boxes:
        b.x += _MARGIN - left
    tops, y = {}, _MARGIN * 2
    for layer in sorted(layers):
        tops[layer] = y
        y += max(map(_height, layers[layer])) + _GAP_Y
    right = max((b.x + widths[b] / 2 for b in boxes), default=0.0)
    return tops, right + _MARGIN, y - _GAP_Y + _MARGIN


def _space(layers: Mapping[int, list[Box]], wanted: Mapping[Box, float], widths: Mapping[Box, float]) -> None:
    """Order each layer by where its boxes want to be, side by side, around the middle of that."""
    for row in layers.values():
        row.sort(key=lambda b: wanted.get(b, b.x))
        total = sum(widths[b] for b in row) + _GAP_X * (len(row) - 1)
        centre = sum(wanted.get(b, b.x) for b in row) / len(row)
        x = centre - total / 2
        for b in row:
            b.x = x + widths[b] / 2
            x += widths[b] + _GAP_X


# Selectors name the drawing: in a notebook it is a part of the page.
_STYLE = """
.wengert-drawing .box { stroke-width: 1.2 }
.wengert-drawing .edge { fill: none; stroke: #8a94a6; stroke-width: 1.2 }
.wengert-drawing .input { fill: #e6f0fb; stroke: #3a78c3 }
.wengert-drawing .instruction { fill: #ffffff; stroke: #5b6577 }
.wengert-drawing .output { fill: #e9f6ea; stroke: #3c8d4a }
.wengert-drawing .fold { fill: #f5f0e6; stroke: #8a6d3b }
.wengert-drawing .saved { stroke: #b8651b; stroke-width: 3 }
.wengert-drawing text { font: 12px ui-monospace, Menlo, Consolas, monospace; text-anchor: middle; fill: #1d2433 }
.wengert-drawing .detail { font-size: 11px; fill: #5b6577 }
.wengert-drawing .summary { text-anchor: start }
"""


def _svg(boxes: list[Box], summary: str) -> str:
    tops, width, height = _place(boxes)
    width = max(width, (len(summary) + 4) * _CHARACTER)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="wengert-drawing" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<style>{_STYLE}</style>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#8a94a6"/></marker></defs>',
    ]
    if summary:
        parts.append(f'<text class="summary" x="{_MARGIN}" y="{_MARGIN + 4}">{escape(summary)}</text>')
    for b in boxes:
        for s in b.sources:
            top, bottom = tops[s.layer] + _height(s), tops[b.layer]
            bend = (top + bottom) / 2
            parts.append(
                f'<path class="edge" marker-end="url(#arrow)" d="M{s.x:.1f} {top:.1f} C{s.x:.1f} {bend:.1f} '
                f'{b.x:.1f} {bend:.1f} {b.x:.1f} {bottom:.1f}"/>'
            )
    return "\n".join([*parts, *(_svg_box(b, tops[b.layer]) for b in boxes), "</svg>", ""])


def _svg_box(b: Box, top: float) -> str:
    width, rows = _width(b), _rows(b)
    kind = f"{b.kind} saved" if b.saved else b.kind
    where = f"<title>{escape(b.line)}</title>" if b.line else ""
    texts = "".join(
        f'<text{" class=" + chr(34) + "detail" + chr(34) if k else ""} x="{b.x:.1f}" y="{top + 17 + k * _LINE:.1f}">'
        f"{escape(t)}</text>"
        for k, t in enumerate(rows)
    )
    return (
        f'<g>{where}<rect class="box {kind}" x="{b.x - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" '
        f'height="{_height(b):.0f}" rx="{4 if b.kind in ("instruction", "fold") else 18}"/>{texts}</g>'
    )


# ----------------------------------------------------------------------------------------------------------------- DOT


def _dot(boxes: list[Box], summary: str) -> str:
    number = {b: k for k, b in enumerate(boxes)}
    shapes = {"input": "ellipse", "instruction": "box", "fold": "box3d", "output": "ellipse"}
    lines = ["digraph program {", "  node [fontname=monospace, fontsize=10];"]
    if summary:
        lines.append(f'  label="{_quoted(summary)}";')
    for b, k in number.items():
        label = "\\n".join(map(_quoted, _rows(b)))
        kept = ", penwidth=3" if b.saved else ""
        lines.append(f'  b{k} [shape={shapes[b.kind]}, label="{label}"{kept}];')
    lines += [f"  b{number[s]} -> b{k};" for b, k in number.items() for s in b.sources]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


__all__ = ["draw", "to_dot", "to_svg", "to_text"]
