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
from wengert.registry.record import OPS

PACKAGES = [
    "wengert", "wengert.functional", "wengert.autograd", "wengert.nn", "wengert.nn.init", "wengert.nn.lora", "wengert.optim",
    "wengert.optim.schedules", "wengert.optim.transforms", "wengert.data", "wengert.linalg", "wengert.fft", "wengert.tree",
    "wengert.interop.scipy", "wengert.random", "wengert.stats", "wengert.stats.transforms",
    "wengert.ode", "wengert.optimize",
]  # fmt: skip


def _public() -> Iterator[Any]:
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            yield pytest.param(getattr(module, name), id=f"{package}.{name}")


def _is_call(value: Any) -> bool:
    """A function, or a class that users make objects of."""
    made_by_others = (BaseException, wg.Tensor)
    return callable(value) and not (isinstance(value, type) and issubclass(value, made_by_others))


CALLS = [p for p in _public() if _is_call(p.values[0]) and not isinstance(p.values[0], types.GenericAlias)]
CALLS = [p for p in CALLS if not p.id.endswith(".Schedule")]  # a type


@pytest.mark.parametrize("call", CALLS)
def test_signatures_and_documentation(call: Any) -> None:
    assert inspect.signature(call) is not None
    doc = inspect.getdoc(call)
    assert doc and len(doc) > 20
    if not isinstance(call, type):
        assert ">>> " in doc, "an example that runs belongs to it"


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
