"""HTML of tensors, gradient maps and modules for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from wengert._core import Tensor

MOST = 12  # rows and columns shown


def escaped(text: str) -> str:
    """Text as HTML.

    >>> escaped("<b>")
    '&lt;b&gt;'
    """
    import html  # only needed in notebooks, and slow to import

    return html.escape(text)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """A table; all text in it is escaped.

    >>> table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    top = "".join(f"<th>{escaped(str(h))}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escaped(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    title = f"<caption>{escaped(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def tensor_html(x: Tensor) -> str:
    """A matrix as a table, with its middle left out if it is large; other tensors as they print."""
    notes = f"{x.dtype.name}{tuple(x.shape)}" + (", requires_grad" if x.requires_grad else "")
    if not x._plain or x.ndim != 2 or not x.size:
        return f"<pre>{escaped(repr(x))}</pre><small>{escaped(notes)}</small>"
    rows, columns = _shown(x.shape[0]), _shown(x.shape[1])
    a = x.detach()
    cells = [
        ["⋮" if i is None else i, *("…" if None in (i, j) else _cell(a[i, j].item()) for j in columns)] for i in rows
    ]
    return table(["", *("…" if j is None else str(j) for j in columns)], cells, notes)


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (float, complex)) else str(value)


def _shown(n: int) -> list[int | None]:
    """The indices of an axis that are shown; None marks the gap."""
    if n <= MOST:
        return list(range(n))
    return [*range(MOST // 2), None, *range(n - MOST // 2, n)]
