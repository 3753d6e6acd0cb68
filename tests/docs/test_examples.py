"""Examples run: docstrings of every module; the op of CONTRIBUTING fits the code."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert

ROOT = Path(__file__).parents[2]
MODULES = [
    "wengert",
    *(m.name for m in pkgutil.walk_packages(wengert.__path__, "wengert.") if m.name != "wengert._core"),
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    tests = [t for t in finder.find(module, name) if t.examples]
    tests += [_of_compiled(finder, module, f) for f in vars(module).values() if _is_compiled_here(f, module)]
    for test in tests:
        if test is not None:
            runner.run(test)
    assert runner.failures == 0, f"{runner.failures} examples of {name} failed; the report is above"


def _is_compiled_here(f: object, module: object) -> bool:
    return type(f).__name__ == "Compiled" and getattr(f, "__module__", "") == getattr(module, "__name__", None)


def _of_compiled(finder: doctest.DocTestFinder, module: object, f: object) -> doctest.DocTest | None:
    found = finder.find(f.__wrapped__, f.__name__, module=module)  # type: ignore[attr-defined]
    return next((t for t in found if t.examples), None)


def test_the_op_of_contributing_fits_the_code() -> None:
    """Its lines of context stand in the files that it names, and the Python half is a rule that differentiates."""
    diff = re.search(r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert diff
    added: dict[str, list[str]] = {}
    for line in diff[1].splitlines():
        if line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/")
            present, added[path] = (ROOT / path).read_text().splitlines(), []
        elif line.startswith("+"):
            added[path].append(line[1:])
        elif line.startswith(" "):
            assert line[1:] in present, f"{path} has no line {line[1:]!r}"
    from wengert.ops import arithmetic

    made: dict[str, Any] = {}
    exec(
        "\n".join(added["src/wengert/ops/arithmetic.py"]),
        vars(arithmetic) | {"define": lambda _, **k: made | k},
        made,
    )
    op, x = made["softsign"], wengert.tensor([-2.0, 0.5, 3.0], dtype=wengert.float64)
    assert set(op) <= set(inspect.signature(arithmetic.define).parameters)
    slope = op["jvp"](wengert.ones_like(x), op["reference"](x.numpy()), x)
    np.testing.assert_allclose(slope.numpy(), wengert.grad(lambda x: wengert.softsign(x).sum())(x).numpy(), rtol=1e-12)


def test_every_public_name_is_documented() -> None:
    missing = [n for n in wengert.__all__ if not (getattr(wengert, n).__doc__ or "").strip()]
    assert not missing
