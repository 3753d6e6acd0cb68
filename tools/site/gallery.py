"""The gallery: every program of `examples/` with what it says of itself, its picture, its run time and its source."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from tools.site.links import ROOT

EXAMPLES = ROOT / "examples"
RUNS = ROOT / "docs" / "images" / "examples" / "runs.json"  # what each printed, and how long it took


def page() -> str:
    """The Markdown of the gallery."""
    lines = [
        "# Examples",
        "",
        "Each is one short file, made to be copied; `--help` lists its options. `make build` once, then "
        "`.venv/bin/python examples/fit.py`, or any of these:",
        "",
    ]
    runs = json.loads(RUNS.read_text(encoding="utf-8")) if RUNS.exists() else {}
    for path in programs():
        lines += [*_entry(path, runs.get(path.stem, {})), ""]
    return "\n".join(lines)


def programs() -> list[Path]:
    """The files, in the order in which people should read them: from the shortest to the longest."""
    return sorted(EXAMPLES.glob("*.py"), key=lambda path: len(path.read_text(encoding="utf-8").splitlines()))


def summary(path: Path) -> str:
    """The first paragraph of a program's docstring."""
    documentation = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return documentation.split("\n\n")[0].replace("\n", " ")


def _entry(path: Path, run: dict[str, str]) -> list[str]:
    source = path.read_text(encoding="utf-8").rstrip()
    made = [f"## {path.stem} {{ #{path.stem} }}", "", summary(path), ""]
    picture = next((p for p in RUNS.parent.glob(f"{path.stem}.*")), None)
    if picture is not None:
        made += [f"![What {path.stem} draws](images/examples/{picture.name})", ""]
    if run:
        made += [f"{run['seconds']} s on two cores. It prints", "", "```text", run["printed"].rstrip(), "```", ""]
    indented = "\n".join(f"    {line}" if line else "" for line in source.split("\n"))
    return [*made, f'??? example "examples/{path.name}, {len(source.splitlines())} lines"', "", "    ```python",
            indented, "    ```"]  # fmt: skip
