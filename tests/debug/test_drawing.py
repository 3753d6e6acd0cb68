"""Drawings: readable for few instructions, navigable and quick for very many."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import wengert as wg
from wengert.debug.boxes import MOST_BOXES


def _texts(svg: str) -> list[str]:
    return ["".join(e.itertext()) for e in ET.fromstring(svg).iter() if e.tag.endswith("}text")]


def _small() -> Any:
    x, w = wg.ones((4, 3)), wg.ones((3, 2))
    with wg.GradientTape() as tape:
        h = wg.tanh(x @ w)
        (h * 2.0).sum()
    return tape


def test_a_small_program_shows_ops_types_costs_lines_and_what_is_kept() -> None:
    texts = _texts(wg.draw(_small()))
    assert any(t.startswith("matmul") for t in texts) and "mul 2.0" in texts
    assert "float32[4, 2]" in texts and any("flop" in t for t in texts)
    assert any(t.startswith("test_drawing.py:") for t in texts)
    svg = ET.fromstring(wg.draw(_small()))
    kept = [e for e in svg.iter() if "saved" in e.get("class", "").split()]
    assert kept, "tanh keeps its result, matmul its operands"


def test_boxes_do_not_overlap() -> None:
    boxes = [
        (float(e.get("x", 0)), float(e.get("y", 0)), float(e.get("width", 0)), float(e.get("height", 0)))
        for e in ET.fromstring(wg.draw(_small())).iter()
        if "box" in e.get("class", "").split()
    ]
    assert len(boxes) > 6
    for k, (x, y, w, h) in enumerate(boxes):
        for X, Y, W, H in boxes[k + 1 :]:
            assert x + w <= X or x >= X + W or y + h <= Y or y >= Y + H


def test_dot_and_text() -> None:
    dot = wg.draw(_small(), format="dot")
    assert dot.startswith("digraph program {") and "penwidth=3" in dot and dot.count(" -> ") >= 5
    text = wg.draw(_small(), format="txt")
    assert "kept for backward" in text and "test_drawing.py" in text and "matmul" in text


def test_the_graph_behind_a_tensor() -> None:
    x = wg.ones((3,), requires_grad=True)
    y = (wg.exp(x) * x).sum()
    assert any(t.startswith("exp") for t in _texts(wg.draw(y)))
    y.backward()
    assert any(t.startswith("exp") for t in _texts(wg.draw(y)))
    with pytest.raises(wg.ArgumentError, match="nothing was recorded"):
        wg.draw(wg.ones(3))


def test_ten_thousand_instructions_are_folded() -> None:
    x = wg.ones((4,))
    with wg.GradientTape() as tape:
        y = x
        for _ in range(2500):
            y = wg.sin(y) * 0.5
            y = wg.cos(y) + x
    program = tape.program()
    assert len(program.instructions) == 10_000
    for format in ("svg", "dot", "txt"):
        assert "10000 instructions, folded to" in wg.draw(program, format=format)
    shown = [t for t in _texts(wg.draw(program)) if "instructions" in t]
    assert 8 < len(shown) <= MOST_BOXES
    assert wg.draw(program, format="txt", fold=None).count("sin") == 2500


def test_recorded_graphs_show_the_types_of_results() -> None:
    net = wg.nn.Sequential(wg.nn.Linear(3, 8), wg.nn.BatchNorm1d(8), wg.nn.ReLU(), wg.nn.Linear(8, 2))
    text = wg.draw(net(wg.randn(5, 3))[1:].sum(), format="txt")
    for shown in ("float32[8, 3]", "linear of 0, 1: float32[5, 8]", "relu of ", "slice of ", "float32[4, 2]"):
        assert shown in text, text
    x, w = wg.ones((4, 3), requires_grad=True), wg.ones((3, 2))
    assert "matmul of 0: float32[4, 2]" in wg.draw(x @ w, format="txt")


def test_very_many_instructions_are_drawn_without_their_costs() -> None:
    y = wg.ones((4,), requires_grad=True)
    for _ in range(30_000):
        y = y * 0.5
    text = wg.draw(y, format="txt")
    assert "30000 instructions, folded to" in text and "mul ×" in text


def test_drawings_show_themselves_in_notebooks() -> None:
    assert _small().program()._repr_html_().startswith("<svg")
    assert "<svg" in wg.draw(_small())._repr_html_()
    assert wg.draw(_small(), format="dot")._repr_html_().startswith("<pre>digraph")


def test_files_and_formats(tmp_path: Path) -> None:
    for suffix in ("svg", "dot", "txt"):
        drawing = wg.draw(_small(), tmp_path / f"program.{suffix}")
        assert (tmp_path / f"program.{suffix}").read_text(encoding="utf-8") == drawing
    with pytest.raises(wg.ArgumentError, match="must be svg, dot or txt, got 'png'"):
        wg.draw(_small(), "program.png")
    with pytest.raises(wg.ArgumentError, match="takes a program"):
        wg.draw(3)
    with pytest.raises(wg.ArgumentError, match="got Linear; call it, and draw the result"):
        wg.draw(wg.nn.Linear(2, 3))
