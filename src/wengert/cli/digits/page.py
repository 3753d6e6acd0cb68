"""The demonstration's report as one page that needs no other file."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape
from pathlib import Path

from wengert.cli.digits.training import NEXT, Result

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
.picture { overflow-x: auto; }
img { max-width: 100%; height: auto; border-radius: 6px; }
.tables { align-items: flex-start; display: flex; flex-wrap: wrap; gap: 1rem 3rem; }
table { border-collapse: collapse; }
caption { font-weight: bold; text-align: left; padding: .3rem 0; }
td, th { padding: .15rem 1.2rem .15rem 0; text-align: right; font-variant-numeric: tabular-nums; }
td:last-child, th:last-child { padding-right: 0; }
td:first-child, th:first-child { overflow-wrap: anywhere; text-align: left; }
@media (max-width: 40rem) { img { max-width: none; width: 56rem; } }
@media (max-width: 40rem) { table { font-size: .8rem; } td, th { padding-right: .7rem; } }
th { font-weight: normal; opacity: .65; }
"""
CAUTION = """<p>The libraries were timed one after the other, in this run alone. If other programs kept the machine busy
meanwhile, the ratio says little: measure with <code>make bench</code>, where contenders take turns.</p>"""


def write(result: Result, picture: Path, page: Path) -> None:
    """Write the page, with the picture inside."""
    ours, images = result.runs[0], result.digits
    encoded = base64.b64encode(picture.read_bytes()).decode()
    layers = [(layer.name, layer.output, f"{layer.parameters:,}") for layer in result.layers]
    total = f"{sum(layer.parameters for layer in result.layers):,}"
    runs = [
        (r.library, f"{r.seconds_per_epoch * 1e3:.1f} ms", str(len(r.losses)), f"{r.accuracies[-1]:.1%}")
        for r in result.runs
    ]
    page.write_text(
        f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>wengert: handwritten digits</title>
<style>{STYLE}</style>
<h1>Handwritten digits</h1>
<p>A convolutional network was trained on {len(images.images):,} images of 8×8 pixels: {len(ours.losses)} epochs of
{ours.seconds_per_epoch:.3f} seconds each. It reads {result.accuracy:.1%} of the {len(images.test_images)} test images
correctly; {result.mistakes} {"is" if result.mistakes == 1 else "are"} wrong.</p>
<div class="picture">
<img alt="Curves, time, model, sample predictions, mistakes and confusion matrix" src="data:image/png;base64,{encoded}">
</div>
<div class="tables">
{_table("Time", ("library", "per epoch", "epochs", "test accuracy"), runs)}
{_table("Model", ("layer", "output", "parameters"), [*layers, ("total", "", total)])}
</div>
{CAUTION if len(result.runs) > 1 else ""}
<h2>Next</h2>
<ul>
{"".join(f"<li><code>{escape(where)}</code>: {escape(why)}</li>" for why, where in NEXT)}
</ul>
</html>
""",
        encoding="utf-8",
    )


def _table(caption: str, header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption>\n<tr>{head}</tr>\n{body}\n</table>"
