"""What mkdocs calls: pages that are generated, links as the site needs them, results of expressions in pages."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tools.site import gallery, links, navigation, notebooks, reference, shown
from tools.site.links import MOUNTED, ROOT
from tools.site.names import by_path

ALONE = ("index.md", "examples.md")  # in their tabs: there is nothing to navigate


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation is made of what there is."""
    config.nav = navigation.navigation()
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is no file of docs/."""
    for source, page in MOUNTED.items():
        if (ROOT / source).exists():
            _add(files, config, page, (ROOT / source).read_text(encoding="utf-8"))
    for name, content in reference.pages().items():
        _add(files, config, f"reference/{name}", content)
    for path in navigation.tutorial():
        notebook = notebooks.notebook(path.read_text(encoding="utf-8"))
        _add(files, config, f"tutorial/{path.stem}.ipynb", json.dumps(notebook, ensure_ascii=False, indent=1))
    _add(files, config, "examples.md", gallery.page())
    _add(files, config, "decisions/index.md", _list_of_decisions())
    _add(files, config, "benchmarks/index.md", _list_of_benchmarks())
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of the repository become links of the site; names of the library lead to the reference."""
    name = page.file.src_uri
    page.meta.setdefault("search", {})["boost"] = _rank(name)
    if name.startswith("reference/"):
        return markdown
    markdown = links.rewrite(markdown, name)
    if name in ALONE:
        page.meta["hide"] = ["navigation"]
    if name.startswith("tutorial/"):
        markdown = _notebook_link(markdown, name)
    if name.startswith("coming-from/"):
        markdown = _names_side_by_side(markdown)
    markdown = _include(shown.evaluate(markdown, name))
    return _link_names(markdown, name)


def _rank(name: str) -> float:
    """How much what is found on a page counts: a search is for how to do something, or for a name."""
    if name.startswith(("benchmarks/", "decisions/", "changelog", "contributing/", "layout")):
        return 0.2
    return 2.0 if name.startswith("reference/") else 1.0


def _notebook_link(markdown: str, name: str) -> str:
    """After the title."""
    title, _, rest = markdown.partition("\n")
    file = name.rpartition("/")[2].removesuffix(".md") + ".ipynb"
    return f"{title}\n\n[This page as a notebook]({file}){{ .wg-notebook }}\n{rest}"


def _names_side_by_side(markdown: str) -> str:
    """Tables of names get a class, so that a phone can put what differs below the two names."""
    table = re.compile(r"^\| \w[^\n]* \| wengert \|[^\n]*\n(?:\|[^\n]*\n?)+", re.MULTILINE)
    return table.sub(lambda match: f'<div class="wg-names" markdown>\n\n{match[0].rstrip()}\n\n</div>\n', markdown)


def _include(markdown: str) -> str:
    """`<!-- include: file.py -->` stands for the text of a file of docs/."""

    def source(match: re.Match[str]) -> str:
        return f"```python\n{(ROOT / 'docs' / match[1]).read_text(encoding='utf-8')}```"

    return re.sub(r"^<!-- include: (\S+\.py) -->$", source, markdown, flags=re.MULTILINE)


def _add(files: Files, config: MkDocsConfig, name: str, content: str | bytes) -> None:
    files.append(File.generated(config, name, content=content))


def _link_names(markdown: str, page: str) -> str:
    """`wg.grad` in the prose of a page leads to the reference; headings, links and blocks of code stay as they are."""
    up = "../" * page.count("/")
    pattern = re.compile(r"(?<![\[`\w])`(wg\.[\w.]+)(\([^`]*\))?`(?![`\w])")

    def replace(match: re.Match[str]) -> str:
        return f"[{match[0]}]({up}reference/{reference.anchor(match[1])})" if match[1] in by_path() else match[0]

    made, in_block = [], False
    for line in markdown.split("\n"):
        if line.startswith(("```", "~~~")):
            in_block = not in_block
        plain = in_block or line.startswith("#") or re.search(r"\[[^\]]*`wg\.", line)
        made.append(line if plain else pattern.sub(replace, line))
    return "\n".join(made)


def _list_of_decisions() -> str:
    lines = [f"- [{navigation.title(p)}]({p.name})" for p in navigation.decisions()]
    lead = "Decisions worth remembering: the situation, the choice, what was rejected, and what was measured."
    return "\n".join(["# Decisions", "", lead, "", *lines, ""])


def _list_of_benchmarks() -> str:
    pages: list[tuple[str, Any]] = [
        (navigation.title(ROOT / source), page.removeprefix("benchmarks/"))
        for source, page in MOUNTED.items()
        if page.startswith("benchmarks/")
    ]
    lead = "What was measured beside other libraries, with the machine and the date on each page."
    return "\n".join(["# Benchmarks", "", lead, "", *(f"- [{title}]({page})" for title, page in pages), ""])
