"""The pages of the tutorial as notebooks: the same text and the same blocks, made anew whenever the site is built."""

from __future__ import annotations

import re
from typing import Any

from tools.site.shown import PYTHON, SHOW

PRINTED = re.compile(r"\A\s*^```text\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def notebook(markdown: str) -> dict[str, Any]:
    """A notebook (format 4.5) of a page. What a block prints, by the text block after it, is its cell's output."""
    cells: list[dict[str, Any]] = []
    end = 0
    for match in sorted([*PYTHON.finditer(markdown), *SHOW.finditer(markdown)], key=lambda found: found.start()):
        _add_text(cells, markdown[end : match.start()])
        end = match.end()
        printed = PRINTED.match(markdown[end:])
        if match.re is PYTHON:
            _add_code(cells, match[1], printed[1] if printed else "")
        else:
            _add_code(cells, _shown(match[1]), "")
        if printed and match.re is PYTHON:
            end += printed.end()
    _add_text(cells, markdown[end:])
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


def _shown(expression: str) -> str:
    """An expression whose result a notebook displays; drawings are texts that it has to be told about."""
    if expression.startswith("wg.draw("):
        return f"from IPython.display import SVG\n\nSVG({expression})"
    return expression


def _add_text(cells: list[dict[str, Any]], text: str) -> None:
    if text.strip():
        cells.append({"cell_type": "markdown", "metadata": {}, "source": text.strip(), "id": f"cell-{len(cells)}"})


def _add_code(cells: list[dict[str, Any]], source: str, printed: str) -> None:
    outputs = [{"output_type": "stream", "name": "stdout", "text": printed}] if printed else []
    cells.append(
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": outputs,
            "source": source.rstrip(),
            "id": f"cell-{len(cells)}",
        }
    )
