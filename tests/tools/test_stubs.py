"""The generated type stubs name everything that is there at run time."""

import ast
from pathlib import Path

import wengert as wg
from tools import stubs


def defined(body: list[ast.stmt]) -> set[str]:
    names = {s.name for s in body if isinstance(s, ast.FunctionDef | ast.ClassDef)}
    return names | {s.target.id for s in body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)}


def test_stubs_are_complete(tmp_path: Path) -> None:
    stubs.main(str(tmp_path))
    core = ast.parse((tmp_path / "_core.pyi").read_text(encoding="utf-8"))
    assert defined(core.body) >= {n for n in dir(wg._core) if not n.startswith("__")}
    tensor = next(s for s in core.body if isinstance(s, ast.ClassDef) and s.name == "Tensor")
    x = wg.zeros((1, 1))
    assert defined(tensor.body) >= {n for n in dir(wg.Tensor) if not n.startswith("_") and hasattr(x, n)}
    for package, path in ((wg, "__init__.pyi"), (wg.functional, "functional/__init__.pyi")):
        body = ast.parse((tmp_path / path).read_text(encoding="utf-8")).body
        imported = {a.asname for s in body if isinstance(s, ast.ImportFrom) for a in s.names}
        assert defined(body) | imported >= set(package.__all__)
        if package is wg:
            names = {"e", "inf", "nan", "pi", "newaxis", "bool", "__array_api_version__", "__array_namespace_info__"}
            assert defined(body) | imported >= names
