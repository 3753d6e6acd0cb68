"""The generated type stubs name everything that is there at run time."""

import ast
from pathlib import Path

import wengert as wg
from tools import stubs
from wengert.functional import native_ops


def defined(body: list[ast.stmt]) -> set[str]:
    names = {s.name for s in body if isinstance(s, ast.FunctionDef | ast.ClassDef)}
    return names | {s.target.id for s in body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)}


def test_stubs_are_complete(tmp_path: Path) -> None:
    stubs.main(str(tmp_path))
    core = ast.parse((tmp_path / "_core.pyi").read_text(encoding="utf-8"))
    assert defined(core.body) >= {n for n in dir(wg._core) if not n.startswith("__")}
    tensor = next(s for s in core.body if isinstance(s, ast.ClassDef) and s.name == "Tensor")
    x = wg.zeros(())
    assert defined(tensor.body) >= {n for n in dir(wg.Tensor) if not n.startswith("_") and hasattr(x, n)}
    ops = ast.parse((tmp_path / "functional" / "native_ops.pyi").read_text(encoding="utf-8"))
    assert defined(ops.body) == set(native_ops.__all__)
