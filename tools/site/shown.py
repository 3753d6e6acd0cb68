"""Expressions in pages whose result is a picture: `<!-- show: wg.draw(loss) -->` after a block of Python.

The page's Python blocks before it are run, in one namespace, and the result of the expression stands in the place of the
comment: an SVG as it is, a figure of matplotlib as an SVG, other objects by what they show in notebooks.
"""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

SHOW = re.compile(r"^<!-- show: (.+?) -->$", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def evaluate(markdown: str, page: str) -> str:
    """The page with its expressions replaced by what they show."""
    if not SHOW.search(markdown):
        return markdown
    names: dict[str, Any] = {"__name__": "__main__"}
    parts, end = [], 0
    marks = sorted([*PYTHON.finditer(markdown), *SHOW.finditer(markdown)], key=lambda match: match.start())
    for match in marks:
        if match.re is PYTHON:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(match[1], page.rpartition("/")[2], "exec"), names)
            continue
        parts += [markdown[end : match.start()], html(eval(match[1], names))]
        end = match.end()
    return "".join([*parts, markdown[end:]])


def html(result: Any) -> str:
    """HTML of a result, in one block without empty lines, as Markdown needs it."""
    if hasattr(result, "savefig"):
        result = _svg_of_figure(result)
    elif hasattr(result, "_repr_html_"):
        result = result._repr_html_()
    text = re.sub(r"\n\s*\n", "\n", str(result).strip())
    return f'<div class="wg-shown">\n{text}\n</div>'


def _svg_of_figure(figure: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]
