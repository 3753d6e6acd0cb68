"""Passes and tools read what they need to know of an op from the fields of its record: none decides by names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from wengert.registry.record import OPS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "wengert"
# Folders that make programs of programs, run, describe or keep them. Elsewhere are functions, which call ops by name, and
# tables of names of other libraries.
FOLDERS = [
    "registry", "program", "passes", "tensors", "compiling", "memory", "transforms", "autograd", "debug", "graph",
    "profiling", "numerics",
]  # fmt: skip
DECIDING = {"startswith", "endswith", "partition", "rpartition", "split", "removeprefix", "removesuffix"}

ALLOWED = {
    ("registry/record.py", "takes the name of an op apart"): "`Op.label` does it so that others need not",
    ("transforms/replay.py", "is a table of names of ops"): "of names of Python's",
}


def is_name_of_op(node: ast.expr) -> bool:
    """`op.name`, `i.op.name` and the like."""
    if not isinstance(node, ast.Attribute) or node.attr != "name":
        return False
    owner = node.value
    return (isinstance(owner, ast.Attribute) and owner.attr == "op") or (
        isinstance(owner, ast.Name) and owner.id == "op"
    )


def decisions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines that ask for the name of an op, and how."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(map(is_name_of_op, [node.left, *node.comparators])):
            yield node.lineno, "compares the name of an op"
        elif isinstance(node, ast.Subscript) and is_name_of_op(node.slice):
            yield node.lineno, "looks something up by the name of an op"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("get", "pop") and any(map(is_name_of_op, node.args)):
                yield node.lineno, "looks something up by the name of an op"
            if node.func.attr in DECIDING and is_name_of_op(node.func.value):
                yield node.lineno, "takes the name of an op apart"
        elif isinstance(node, ast.Set | ast.Dict):
            keys = node.elts if isinstance(node, ast.Set) else node.keys
            texts = [k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
            if len([t for t in texts if t in OPS]) > 2:
                yield node.lineno, "is a table of names of ops"


@pytest.mark.parametrize("folder", FOLDERS)
def test_python_decides_by_fields(folder: str) -> None:
    files = sorted((SOURCE / folder).rglob("*.py"))
    assert files
    found = [
        f"{file.relative_to(ROOT)}:{line} {what}; make it a field of the record"
        for file in files
        for line, what in decisions(ast.parse(file.read_text(encoding="utf-8")))
        if (file.relative_to(SOURCE).as_posix(), what) not in ALLOWED
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        'x = i.op.name == "matmul"',
        "x = op.name in _TABLE",
        "x = _RULES.get(i.op.name)",
        "x = _RULES[op.name]",
        'x = op.name.startswith("sort")',
        '_MOVING = frozenset({"cast", "concat", "slice"})',
    ],
)
def test_what_is_a_decision(text: str) -> None:
    assert len(list(decisions(ast.parse(text)))) == 1


def test_messages_may_name_ops() -> None:
    assert not list(decisions(ast.parse("raise TraceError(f'{i.op.name}: no rule'); key = (op.name, attrs)")))


def test_the_core_decides_by_fields() -> None:
    """Only a family itself, and the functions that bind an op to a shortcut, know names."""
    asks = re.compile(r"\bop\)?(?:\.|->)name\)?\s*(?:==|!=|\.starts_with|\.find\b|\.compare\b)")
    core = ROOT / "core"
    files = [
        p for p in sorted(core.rglob("*")) if p.suffix in (".h", ".cpp") and p.parent.name not in ("ops", "kernels")
    ]
    assert len(files) > 100
    found = [
        f"{file.relative_to(ROOT)}:{k} decides by the name of an op"
        for file in files
        for k, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if asks.search(line)
    ]
    assert not found, "\n".join(found)
