"""The order of the pages. How-tos that are in no group here come last, by their titles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tools.site.links import MOUNTED, ROOT
from tools.site.names import GROUPS, PAGES, public_names

DOCS = ROOT / "docs"
HOW_TOS = {
    "Training": ("networks", "data", "optimizers", "saving"),
    "Derivatives": ("derivatives", "batching", "sparsity", "custom-operations", "trees"),
    "Speed and memory": ("performance", "compile", "control-flow", "graphs", "memory", "precision", "cuda"),
    "Instruments": ("debugging", "profiling", "determinism"),
    "Solvers and statistics": ("optimize", "ode", "stats"),
    "Beside other libraries": ("interop",),
}
# Pages of folders in the order of reading; others follow by file name.
FIRST_IN_FOLDERS = (
    "index", "pytorch", "jax", "tensorflow", "autograd",
    "the-tape", "rules", "levels", "what-is-kept", "determinism",
    "writing-rules", "call-tree", "reading-benchmarks", "releasing",
)  # fmt: skip
ELSEWHERE = {"install", "glossary", "layout", "examples", "in_200_lines", "kinks", "special"}


def navigation() -> list[Any]:
    """What mkdocs takes as `nav`."""
    return [
        {"Start": "index.md"},  # alone, so that the menu of a phone begins with all that there is
        {"Tutorial": [*_pages("install.md"), *_folder("tutorial")]},
        {"How to": _how_tos()},
        {"Coming from": _folder("coming-from")},
        {
            "Explanations": [
                *_folder("explanations"),
                *_pages("in_200_lines.md", "kinks.md", "special.md", "glossary.md"),
            ]
        },
        {"Examples": ["examples.md"]},
        {"Reference": ["reference/index.md", *_reference()]},
        {
            "Project": [
                *_pages("layout.md"),
                *(MOUNTED[source] for source in ("core/README.md", "CONTRIBUTING.md")),
                *_folder("contributing"),
                *([MOUNTED["CHANGELOG.md"]] if (ROOT / "CHANGELOG.md").exists() else []),
                {"Benchmarks": ["benchmarks/index.md", *(p for p in MOUNTED.values() if p.startswith("benchmarks/"))]},
                {"Decisions": ["decisions/index.md", *(f"decisions/{p.name}" for p in decisions())]},
            ]
        },
    ]


def decisions() -> list[Path]:
    """The files of the decisions, in their order."""
    return sorted((DOCS / "decisions").glob("[0-9]*.md"))


def tutorial() -> list[Path]:
    """The pages of the tutorial, in their order."""
    return sorted((DOCS / "tutorial").glob("[0-9]*.md"))


def title(path: Path) -> str:
    """The first heading of a Markdown file."""
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else path.stem


def _pages(*names: str) -> list[str]:
    return [name for name in names if (DOCS / name).exists()]


def _folder(name: str) -> list[str]:
    """The pages of a folder in the order of reading."""
    place = {stem: k for k, stem in enumerate(FIRST_IN_FOLDERS)}
    found = sorted((DOCS / name).glob("*.md"), key=lambda p: (place.get(p.stem, len(place)), p.name))
    return [f"{name}/{p.name}" for p in found]


def _how_tos() -> list[dict[str, list[str]]]:
    """The pages by their groups; those of no group come last, by their titles."""
    found = {p.stem: p for p in DOCS.glob("*.md") if p.stem not in ELSEWHERE}
    groups = {group: [name for name in names if name in found] for group, names in HOW_TOS.items()}
    others = found.keys() - {name for names in groups.values() for name in names}
    groups["More"] = sorted(others, key=lambda name: title(found[name]).lower())
    return [{group: [f"{name}.md" for name in names]} for group, names in groups.items() if names]


def _reference() -> list[dict[str, list[dict[str, str]]]]:
    """The pages of the reference that have names, in their groups."""
    used = {name.page for name in public_names()}
    groups: list[dict[str, list[dict[str, str]]]] = []
    for page, heading, _ in PAGES:
        if page in GROUPS:
            groups.append({GROUPS[page]: []})
        if page in used:
            next(iter(groups[-1].values())).append({heading: f"reference/{page}.md"})
    return [group for group in groups if any(group.values())]
