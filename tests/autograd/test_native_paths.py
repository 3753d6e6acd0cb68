"""After the first time, ops in every mode reach their kernels without a Python frame of ours in between."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wengert as wg

ROOT = str(Path(wg.__file__).parent)

MASK = wg.asarray([True, False, True, True])
OPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mul": lambda x, w, b: x * w,
    "add, broadcast": lambda x, w, b: x + b,
    "number": lambda x, w, b: 2.0 * x - 1.0,
    "power": lambda x, w, b: x**2,
    "tanh": lambda x, w, b: wg.tanh(x),
    "where": lambda x, w, b: wg.where(MASK, x, w),
    "matmul": lambda x, w, b: x @ w,
    "sum": lambda x, w, b: x.sum(),
    "mean": lambda x, w, b: wg.mean(x, axis=0),
    "slice": lambda x, w, b: x[1:, None],
    "element": lambda x, w, b: x[0, -1],
    "reshape": lambda x, w, b: x.reshape(-1),
}


def _tensors(mode: str) -> tuple[Any, Any, Any]:
    x, w, b = wg.randn(4, 4), wg.randn(4, 4), wg.randn(4)
    if mode == "tracked":
        x, w, b = (t.requires_grad_() for t in (x, w, b))
    if mode.startswith("dual"):
        inner = wg.ForwardADContext()
        x, b = inner.dual(x, w), inner.dual(b, b)
        if mode == "dual of duals":
            x = wg.ForwardADContext().dual(x, inner.dual(w, w))
    return x, w, b


def _frames(f: Callable[[], Any]) -> list[str]:
    """Functions of wengert, written in Python, that run during f."""
    entered: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            entered.append(f"{Path(frame.f_code.co_filename).relative_to(ROOT)}:{frame.f_code.co_name}")

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # a collection may finalise what other tests left behind, in Python
    sys.setprofile(note)
    try:
        f()
    finally:
        sys.setprofile(before)
        gc.enable()
    return entered


@pytest.mark.parametrize("mode", ["plain", "tracked", "dual", "dual of duals"])
@pytest.mark.parametrize("name", OPS)
def test_ops(name: str, mode: str) -> None:
    tensors = _tensors(mode)
    OPS[name](*tensors)
    assert _frames(lambda: OPS[name](*tensors)) == []


def test_the_probe_sees_frames() -> None:
    assert any("creation.py" in f for f in _frames(lambda: wg.zeros((2,))))


def chain(x: Any, w: Any, b: Any) -> Any:
    return (wg.tanh(x @ w + b)[1:] ** 2).sum()


COMPILED: dict[str, Callable[..., Any]] = {
    "one result": wg.compile(lambda x, w, b: wg.tanh(x @ w + b)),
    "several results": wg.compile(lambda x, w, b: (wg.sin(x), w, (x * b).sum(axis=0))),
    "a number": (lambda f: lambda x, w, b: f(x, 2.5))(wg.compile(lambda x, n: x * n)),
    "containers": (lambda f: lambda x, w, b: f({"w": w, "b": b}, x))(wg.compile(lambda p, x: x @ p["w"] + p["b"])),
    "of the library": lambda x, w, b: wg.cross_entropy(x, CLASSES),
}
CLASSES = wg.asarray([0, 2, 1, 3])


@pytest.mark.parametrize("mode", ["plain", "tracked", "dual", "dual of duals"])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_functions(name: str, mode: str) -> None:
    tensors = _tensors(mode)
    plain = _tensors("plain")
    for _ in range(2):
        COMPILED[name](*plain)
        COMPILED[name](*tensors)
    found = _frames(lambda: COMPILED[name](*tensors))
    assert found == _frames(lambda: COMPILED[name](*plain))  # containers are taken apart in Python, in every mode
    if name in ("one result", "a number"):
        assert found == []


def test_backward_that_is_recorded() -> None:
    tensors = _tensors("tracked")

    def step() -> None:
        y = chain(*tensors)
        wg.grad_of(y, tensors, create_graph=True)

    step()
    assert {f.split(":")[0] for f in _frames(step)} == {"autograd/reverse.py"}  # grad_of itself


def test_higher_order_transformations() -> None:
    x, w, b = _tensors("plain")
    of_x = lambda x: chain(x, w, b)
    gradient, (y, push) = wg.grad(of_x), wg.linearize(of_x, x)
    steps: dict[str, Callable[[], Any]] = {
        "grad": lambda: gradient(x),
        "jvp": lambda: wg.jvp(of_x, (x,), (w,)),
        "hvp": lambda: wg.hvp(of_x, x, w),
        "push": lambda: push(w),
    }
    for name, step in steps.items():
        step()
        files = {f.split(":")[0] for f in _frames(step)}
        glue = {"transforms/functional.py", "transforms/naming.py", "transforms/pullback.py", "tree.py"}
        assert files <= glue, (name, files)
    assert y.shape == ()
