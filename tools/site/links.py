"""Links: between files of the repository as people read them there, and between pages of the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Files outside docs/ that are pages of the site: there, and where they are in it.
MOUNTED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing/adding-an-op.md",
    "core/README.md": "contributing/core.md",
    "CHANGELOG.md": "changelog.md",
    **{
        f"benchmarks/results/{path.name}": f"benchmarks/{path.name}"
        for path in sorted((ROOT / "benchmarks/results").glob("*.md"))
    },
}
_SOURCES = {page: source for source, page in MOUNTED.items()}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
# Blocks of code, and code in a line, in which brackets are not links.
CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|(`+)(?!`).+?(?<!`)\2(?!`)", re.DOTALL | re.MULTILINE)


def source_of(page: str) -> str:
    """The file of the repository behind a page of the site."""
    return _SOURCES.get(page, f"docs/{page}")


def page_of(source: str) -> str | None:
    """The page of the site for a file of the repository, or None.

    >>> page_of("docs/memory.md"), page_of("core/README.md"), page_of("examples/fit.py"), page_of("Makefile")
    ('memory.md', 'contributing/core.md', 'examples.md#fit', None)
    """
    source = source.removesuffix("/")
    if source in MOUNTED:
        return MOUNTED[source]
    if source == "docs/decisions":
        return "decisions/index.md"
    if source == "benchmarks/results":
        return "benchmarks/index.md"
    if source == "examples":
        return "examples.md"
    if source.startswith("examples/"):
        return f"examples.md#{Path(source).stem}"
    if source.startswith("docs/") and not source.endswith(".py"):
        return source.removeprefix("docs/")
    return None


def rewrite(markdown: str, page: str) -> str:
    """The links of a file of the repository as links of its page; what has no page stays as text."""
    source = source_of(page)

    def replace(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, fragment = target.partition("#")
        wanted = page_of(posixpath.normpath(posixpath.join(posixpath.dirname(source), path)))
        if wanted is None:
            return text
        wanted, _, own_fragment = wanted.partition("#")
        place = posixpath.relpath(wanted, posixpath.dirname(page) or ".")
        fragment = fragment or own_fragment
        return f"{picture}[{text}]({place}{'#' + fragment if fragment else ''})"

    return outside_code(markdown, lambda text: LINK.sub(replace, text))


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Markdown with everything changed that is neither a block of code nor code in a line.

    >>> outside_code("a `a` a", str.upper)
    'A `a` A'
    """
    kept: list[str] = []

    def hide(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    changed = change(CODE.sub(hide, markdown))
    return re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], changed)
