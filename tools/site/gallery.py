"""The gallery: every program of `examples/` with what it says of itself, its picture, its run time and its source.

`python -m tools.site.gallery [names]` runs them, and writes what they print and draw to docs/images/examples/.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.site import pictures
from tools.site.links import ROOT

EXAMPLES = ROOT / "examples"
GROUPS = {
    "First steps": ("fit", "digits_mlp", "digits_cnn"),
    "Networks that make something": ("char_transformer", "vae", "diffusion_lora"),
    "Physics and differential equations": (
        "physics_informed", "pde_newton", "ode_parameters", "ode_sensitivities", "pendulum",
    ),
    "Geometry": ("bundle_adjustment", "hand_model"),
    "Statistics": ("kmeans", "gaussian_mixture", "gaussian_process", "laplace", "uncertainty"),
    "Gradients of gradients": ("gradient_penalty", "meta_learning", "bilevel"),
}  # fmt: skip
RUNS = ROOT / "docs" / "images" / "examples" / "runs.json"  # what each printed, and how long it took
MOST_LINES = 14  # of what a program prints, the last ones


def page() -> str:
    """The Markdown of the gallery."""
    lines = [
        "# Examples",
        "",
        "Each example is one short file, meant to be copied; `--help` lists its options. Run `make build` once, then "
        "`.venv/bin/python examples/fit.py` or any other. Times are processor time, with the start of Python.",
        "",
    ]
    runs = json.loads(RUNS.read_text(encoding="utf-8")) if RUNS.exists() else {}
    for group, paths in programs().items():
        lines += [f"## {group}", ""]
        for path in paths:
            lines += [*_entry(path, runs.get(path.stem, {})), ""]
    return "\n".join(lines)


def programs() -> dict[str, list[Path]]:
    """The files by subject; those of no group come last."""
    found = {path.stem: path for path in sorted(EXAMPLES.glob("*.py"))}
    groups = {group: [found.pop(name) for name in names if name in found] for group, names in GROUPS.items()}
    return {**groups, **({"More": list(found.values())} if found else {})}


def summary(path: Path) -> str:
    """What a program says of itself: its docstring."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _entry(path: Path, run: dict[str, str]) -> list[str]:
    source = path.read_text(encoding="utf-8").rstrip()
    made = [f"### {path.stem} {{ #{path.stem} }}", "", summary(path), ""]
    picture = next((p for p in RUNS.parent.glob(f"{path.stem}.*")), None)
    if picture is not None and picture.suffix == ".svg":
        made += [picture.read_text(encoding="utf-8").strip(), ""]
    elif picture is not None:
        made += [f"![What {path.stem} draws](images/examples/{picture.name})", ""]
    if run:
        made += [f"Takes {run['seconds']} s, and prints:", "", "```text", run["printed"], "```", ""]
    indented = "\n".join(f"    {line}" if line else "" for line in source.split("\n"))
    return [*made, f'??? example "examples/{path.name}, {len(source.splitlines())} lines"', "", "    ```python",
            indented, "    ```"]  # fmt: skip


def run_all(chosen: list[str]) -> None:
    """Run programs, and keep what they print and draw. Times are of the processor, so that a busy machine counts little."""
    runs = json.loads(RUNS.read_text(encoding="utf-8")) if RUNS.exists() else {}
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    for path in sorted(EXAMPLES.glob("*.py")):
        if chosen and path.stem not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                [sys.executable, str(path)], cwd=folder, capture_output=True, encoding="utf-8", check=True,
                env={**os.environ, "COLUMNS": "100"},
            )  # fmt: skip
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            for picture in Path(folder).rglob("*.png"):
                shutil.copyfile(picture, RUNS.parent / f"{path.stem}.png")
        if path.stem in pictures.MADE:
            (RUNS.parent / f"{path.stem}.svg").write_text(pictures.MADE[path.stem]() + "\n", encoding="utf-8")
        lines = (line.rstrip() for line in done.stdout.splitlines())
        printed = [line for line in lines if line and "━" not in line][-MOST_LINES:]  # without progress bars
        runs[path.stem] = {
            "seconds": f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}",
            "printed": "\n".join(printed),
        }
        RUNS.write_text(json.dumps(runs, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
        print(f"{path.stem}: {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    run_all(sys.argv[1:])
