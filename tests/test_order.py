"""What is above may use what is below: the order of the Python packages, and of the files of the core."""

from __future__ import annotations

import ast
import fnmatch
import functools
import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

# From the bottom to the top. A module or package uses those before it, and within a package no module uses one that uses
# it. `wengert` is the public namespace, `wengert/__init__.py`; what is above it is imported when it is first used.
ORDER = [
    "_core", "version", "errors", "dtypes", "modes", "recomputing", "foreign_names", "user_line", "tree", "threads",
    "registry", "program", "passes", "tensors", "ops", "compiling", "functional", "memory", "transforms", "autograd",
    "interop", "debug", "methods", "_hooks",
    "wengert",
    *(f"interop.numpy_functions.{name}" for name in ("elements", "linear", "reductions", "shapes", "table")),
    "linalg", "fft", "nn", "optim", "amp", "numerics", "optimize", "implicit", "ode", "stats", "random", "cuda", "graph",
    "data", "profiling",
    "cli", "__main__",
]  # fmt: skip

# Imports that stand inside functions, each with its reason. Where they point upwards, nothing else may.
INSIDE_FUNCTIONS = {
    ("program.ir", "debug.drawing"): "programs draw themselves in notebooks only",
    ("tensors.gpus", "cuda.cupy_kernels"): "what a GPU needs is loaded when the first one is opened",
    ("tensors.dual", "wengert"): "the methods of a ForwardADContext are the public functions, looked up when asked for",
    ("autograd.tape", "amp.autocast"): "mixed precision is loaded by tapes that ask for it",
    ("autograd.tape", "amp.config"): "mixed precision is loaded by tapes that ask for it",
    ("autograd.tape", "amp.tape_scaling"): "mixed precision is loaded by tapes that ask for it",
    ("autograd.tape", "autograd.recorded_jacobian"): "loaded by the first Jacobian of a tape",
    ("transforms.jacobian", "transforms.sparse"): "colourings are loaded by the first sparse derivative",
    ("interop.numpy_functions", "interop.numpy_functions.table"): "270 names, loaded by the first call of NumPy's",
    ("interop.sparse", "transforms.colouring"): "loaded by the first pattern through a sparse product",
    ("graph.graph", "graph.export"): "loaded by the first graph that is saved",
}


def _modules() -> dict[str, Path]:
    """Names below `wengert`, of Python modules."""
    source = ROOT / "src" / "wengert"
    found = {}
    for path in source.rglob("*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "wengert"] = path
    return found


MODULES = _modules()


def _level(module: str) -> int:
    """The place in the order of a module, or of the longest name in the order that it begins with."""
    parts = module.split(".")
    while parts:
        if ".".join(parts) in ORDER:
            return ORDER.index(".".join(parts))
        parts.pop()
    raise AssertionError(f"{module} has no place in the order of packages: add it to ORDER")


@functools.cache
def _imports(module: str) -> list[tuple[str, bool, int]]:
    """Modules of ours that this one imports, whether inside a function, and on which line; not those for types only."""
    found = []
    todo: list[tuple[ast.AST, bool]] = [(ast.parse(MODULES[module].read_text(encoding="utf-8")), False)]
    while todo:
        node, inside = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{a.name}" for a in node.names]
        else:
            names = []
        for name in names:
            if name == "wengert" or name.startswith("wengert."):
                found.append((_ours(name), inside, getattr(node, "lineno", 0)))
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        todo += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found


def _ours(name: str) -> str:
    """The module of an imported name: itself, or the one that it is from."""
    inner = name.removeprefix("wengert").lstrip(".")
    while inner and inner not in MODULES and inner != "_core":
        inner = inner.rpartition(".")[0]
    return inner or "wengert"


def test_packages_use_what_is_below() -> None:
    for module in MODULES:
        for used, inside, line in _imports(module):
            above = ORDER[_level(used)] != ORDER[_level(module)] and _level(used) > _level(module)
            assert not above or (inside and (module, used) in INSIDE_FUNCTIONS), (
                f"{module}, line {line}, imports {used}, which is above it"
            )


def test_imports_inside_functions_have_a_reason() -> None:
    for module in MODULES:
        if module.split(".")[0] == "cli":  # a command loads what it runs
            continue
        for used, inside, line in _imports(module):
            assert not inside or (module, used) in INSIDE_FUNCTIONS, (
                f"{module}, line {line}, imports {used} inside a function; move the import to the top of the file, or what "
                "is used to a lower package; or give the reason in INSIDE_FUNCTIONS"
            )


def test_reasons_are_of_imports_that_are_there() -> None:
    there = {(m, used) for m in MODULES for used, inside, _ in _imports(m) if inside}
    assert set(INSIDE_FUNCTIONS) <= there


def test_modules_import_each_other_without_cycles() -> None:
    uses = {m: {u for u, inside, _ in _imports(m) if not inside and u in MODULES} for m in MODULES}
    done: set[str] = set()
    while ready := {m for m, used in uses.items() if m not in done and used - {m} <= done | _parents(m)}:
        done |= ready
    assert done == set(MODULES), f"these use each other: {sorted(set(MODULES) - done)}"


def _parents(module: str) -> set[str]:
    """The packages that a module is in, which are there when it is imported."""
    parts = module.split(".")
    return {"wengert", *(".".join(parts[:k]) for k in range(1, len(parts)))}


def test_the_map_has_every_package_in_this_order() -> None:
    text = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
    table = text[text.index("## The Python packages") : text.index("## The rest")]
    named = [
        n.rstrip("/")
        for row in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
        for n in re.findall(r"`([^`]+)`", row)
    ]
    packages = {m.split(".")[0] for m in MODULES} - {"wengert", "_hooks", "__main__"} | {"__init__"}
    assert set(named) == packages
    levels = [
        _level("wengert" if n == "__init__" else n)
        for n in named
        if "/" in table and MODULES.get(n, ROOT).stem == "__init__"
    ]
    assert levels == sorted(levels)


# ------------------------------------------------------------------------------------------------ the core

CORE = ROOT / "core"
FILES = {p.relative_to(CORE).as_posix(): p for p in CORE.rglob("*") if p.suffix in (".h", ".cpp", ".def", ".inc")}
MADE_BY_THE_BUILD = {"device_headers.inc"}


def _rows() -> list[tuple[int, str]]:
    """The names and patterns in the first columns of the tables of core/README.md, each with the number of its section."""
    found, section = [], 0
    for line in (CORE / "README.md").read_text(encoding="utf-8").splitlines():
        if line == "### Who runs what":
            break
        section += line.startswith("### ")
        if line.startswith("| `"):
            folder = ""
            for name in re.findall(r"`([^`]+)`", line.split("|")[1]):
                if "/" in name:
                    folder, name = name.rsplit("/", 1)
                found.append((section, f"{folder}/{name}" if folder else name))
    return found


@functools.cache
def _section(file: str) -> int:
    """The section of core/README.md that has a file: by its name, or by the longest pattern or folder."""
    stem = file.rsplit(".", 1)[0]
    best = (0, 0)
    for section, name in _rows():
        if name in (file, stem):
            best = max(best, (1000 + len(name), section))
        elif fnmatch.fnmatch(file, name + "*" if name.endswith("/") else name) or fnmatch.fnmatch(stem, name):
            best = max(best, (len(name), section))
    assert best[1], f"core/{file} has no row in core/README.md"
    return best[1]


@functools.cache
def _includes(file: str) -> list[str]:
    """Files of the core that this one includes."""
    found = []
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', FILES[file].read_text(encoding="utf-8"), re.MULTILINE):
        places = (os.path.normpath(os.path.join(os.path.dirname(file), name)), name, f"kernels/{name}")
        ours = next((p for p in places if p in FILES), None)
        assert ours or name in MADE_BY_THE_BUILD, f"core/{file} includes {name}, which is nowhere"
        found += [ours] if ours else []
    return found


def test_files_of_the_core_use_sections_above_them() -> None:
    for file in sorted(FILES):
        for used in _includes(file):
            assert _section(used) <= _section(file), (
                f"core/{file} includes {used}, whose section of core/README.md is below its own"
            )


def test_headers_do_not_include_each_other() -> None:
    uses = {f: set(_includes(f)) for f in FILES}
    done: set[str] = set()
    while ready := {f for f, used in uses.items() if f not in done and used <= done}:
        done |= ready
    assert done == set(FILES), f"these include each other: {sorted(set(FILES) - done)}"


def test_rows_of_the_map_are_of_files() -> None:
    files = [*FILES, *(f.rsplit(".", 1)[0] for f in FILES)]
    for _, name in _rows():
        assert fnmatch.filter(files, name + "*" if name.endswith("/") else name), f"core/README.md: there is no {name}"
