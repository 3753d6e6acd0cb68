"""Every public name can be inspected and has documentation with an example; `dir` lists nothing else."""

from __future__ import annotations

import doctest
import importlib
import inspect
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wengert as wg
from tools.site.names import public_names
from wengert.registry.record import OPS

PACKAGES = [
    "wengert", "wengert.functional", "wengert.autograd", "wengert.nn", "wengert.nn.init", "wengert.nn.lora", "wengert.optim",
    "wengert.optim.schedules", "wengert.optim.transforms", "wengert.data", "wengert.linalg", "wengert.fft", "wengert.tree",
    "wengert.interop.scipy", "wengert.random", "wengert.stats", "wengert.stats.transforms",
    "wengert.ode", "wengert.optimize",
]  # fmt: skip


def _calls() -> Iterator[Any]:
    """Functions, and classes that users make objects of."""
    for name in public_names():
        if isinstance(name.value, types.GenericAlias) or name.path.endswith(".Schedule"):  # a type
            continue
        if callable(name.value) and not (isinstance(name.value, type) and issubclass(name.value, BaseException)):
            yield pytest.param(name.value, id=name.path)


CALLS = list(_calls())


@pytest.mark.parametrize("call", CALLS)
def test_signatures_documentation_and_examples(call: Any) -> None:
    if not (isinstance(call, type) and issubclass(call, wg.Tensor)):  # functions make those
        signature = inspect.signature(call)
        if not isinstance(call, type) and type(call).__name__ != "Op":
            assert not [p.name for p in signature.parameters.values() if p.annotation is p.empty], "types are missing"
    doc = inspect.getdoc(call)
    assert doc and len(doc) > 20
    assert ">>> " in doc, "an example that runs belongs to it"


@pytest.mark.parametrize("cls", [p for p in CALLS if isinstance(p.values[0], type)])
def test_methods_of_classes_are_documented(cls: Any) -> None:
    methods = [n for n, m in vars(cls).items() if not n.startswith("_") and callable(m)]
    assert not [n for n in methods if not (inspect.getdoc(getattr(cls, n)) or "").strip()]


def test_the_example_of_tensors() -> None:
    """The core has its documentation, where the tests of docstrings do not look."""
    runner = doctest.DocTestRunner()
    runner.run(doctest.DocTestParser().get_doctest(wg.Tensor.__doc__ or "", {}, "Tensor", None, 0))
    assert runner.tries >= 3 and runner.failures == 0


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.elementwise and getattr(wg, n, None) is op.function])
def test_examples_of_ops(name: str) -> None:
    runner = doctest.DocTestRunner()
    doc = getattr(wg, name).__doc__
    runner.run(doctest.DocTestParser().get_doctest(doc, {}, name, None, 0))
    assert runner.tries >= 2 and runner.failures == 0


def test_methods_of_tensors() -> None:
    for name in dir(wg.ones((2, 2))):
        member = getattr(wg.Tensor, name)
        if name.startswith("_") or not callable(member):
            continue
        assert "self" in inspect.signature(member).parameters or inspect.signature(member).parameters, name
        assert inspect.getdoc(member), name
    assert str(inspect.signature(wg.ones((2,)).mul)) == "(b, /, *, out=None)"


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_list_their_public_names_alone(package: str) -> None:
    module = importlib.import_module(package)
    standard = {"bool", "e", "inf", "nan", "newaxis", "pi"} if package == "wengert" else set()
    assert {n for n in dir(module) if not n.startswith("_")} == {*module.__all__, *standard}
    for name in dir(module):
        getattr(module, name)


@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (2, 3, 4)])
def test_tensors_list_nothing_that_raises(shape: tuple[int, ...]) -> None:
    x = wg.ones(shape)
    tensors = [x, x.requires_grad_(), x * 2, wg.Parameter(x), wg.dual(x.detach(), x.detach())]
    tensors += [wg.ones(shape, dtype=d) for d in (wg.int64, wg.bool_, wg.complex64)]
    for t in tensors:
        for name in dir(t):
            getattr(t, name)
    net = wg.nn.Linear(2, 2)
    for name in dir(net):
        getattr(net, name)


def test_the_version_is_said_once() -> None:
    root = Path(__file__).parents[2]
    assert tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"] == wg.__version__
    assert wg.__version__ in (root / "CHANGELOG.md").read_text(encoding="utf-8")
