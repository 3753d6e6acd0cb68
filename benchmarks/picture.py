"""Draw the README's picture, how many times faster than each peer, from the last results: `python -m benchmarks.picture`."""

from __future__ import annotations

import argparse
import json
import os
from math import log10
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

RESULTS = Path(__file__).parent / "results" / "eager.json"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "eager.svg"
COLOURS = {"PyTorch": "#d9583b", "JAX": "#4477aa"}
LEFT, BAR, ROW, WIDTH = 430, 15, 24, 980


def bars(results: dict[str, Any]) -> list[tuple[str, str, float]]:
    """(row, peer, ratio) for every row that was timed beside a peer."""
    return [
        (row["name"], peer, ratio)
        for row in results["rows"]
        for peer, ratio in (row.get("ratios") or {}).items()
        if ratio
    ]


def draw(entries: list[tuple[str, str, float]]) -> str:
    """An SVG of horizontal bars on a logarithmic scale from 0.5."""
    most = max(r for *_, r in entries)
    scale = (WIDTH - LEFT - 170) / log10(most / 0.5)

    def x(ratio: float) -> float:
        return LEFT + scale * log10(max(ratio, 0.5) / 0.5)

    parts = [f'<text x="{LEFT}" y="20" font-weight="bold">times faster than the peer (logarithmic)</text>']
    y = 34
    for k, (name, peer, ratio) in enumerate(entries):
        if k == 0 or entries[k - 1][0] != name:
            parts.append(f'<text x="{LEFT - 10}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        colour = next((c for label, c in COLOURS.items() if label.lower() in peer.lower()), "#888888")
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{x(ratio) - LEFT:.1f}" height="{BAR}" fill="{colour}" rx="2"/>')
        parts.append(f'<text x="{x(ratio) + 6:.1f}" y="{y + 12}">{ratio:.1f}× {escape(peer)}</text>')
        y += ROW
    one = f'<line x1="{x(1):.1f}" x2="{x(1):.1f}" y1="28" y2="{y}" stroke="#555555" stroke-dasharray="3 3"/>'
    style = 'font-family="system-ui, sans-serif" font-size="12"'
    box = f'viewBox="0 0 {WIDTH} {y + 6}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} {style}>\n<rect width="100%" height="100%" fill="white"/>\n'
        + ("\n".join([*parts, one]) + "\n</svg>\n")
    )


def main() -> None:
    """Read the options, write the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.picture", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="what `python -m benchmarks.eager` has written")
    parser.add_argument("--out", type=Path, default=PICTURE, help="the SVG to write (default: docs/images/eager.svg)")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(draw(bars(json.loads(options.results.read_text(encoding="utf-8")))), encoding="utf-8")
    print(f"wrote {os.path.relpath(options.out)}")


if __name__ == "__main__":
    main()
