"""A short run of the random programs of `tests.programs.fuzz`, always the same; and that it finds what is wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.programs import fuzz
from tests.programs.generate import Program, Statement, generate
from wengert import _core, tree

CASES = 40


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_agree_with_the_oracle(seed: int) -> None:
    judged = 0
    for index in range(CASES):
        case = fuzz.draw(seed, index)
        if any(bug(case) for bug in fuzz.KNOWN.values()):
            continue
        try:
            failure = fuzz.run(case)
        except fuzz.NoAnswer:
            continue
        judged += 1
        assert failure is None, f"{failure}\n\n{fuzz.script(case, fuzz.answer(case))}"
    assert judged > CASES / 2


def test_random_programs_on_a_poisoned_heap() -> None:
    """Nothing is read before it is written, or after it was freed: malloc fills both with huge numbers."""
    poisoned = {**os.environ, "MALLOC_PERTURB_": "128", "WENGERT_POOL_BYTES": "0"}
    command = [sys.executable, "-m", "tests.programs.fuzz", "--seed", "100", "--end", "80"]
    done = subprocess.run(command, env=poisoned, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cases 0 to 79" in done.stdout


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler on this machine")
def test_random_programs_in_generated_code() -> None:
    generated = {**os.environ, "WENGERT_TIER": "generated"}
    command = [sys.executable, "-m", "tests.programs.fuzz", "--seed", "200", "--end", "12", "--minutes", "4"]
    done = subprocess.run(command, env=generated, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'passed'" in done.stdout and "'failed': 0" in done.stdout


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler on this machine")
@pytest.mark.parametrize("seed", range(8))
def test_generated_code_has_the_bits_of_the_executor(seed: int) -> None:
    """Values, gradients and Hessian-vector products of random programs with branches and loops, as one function."""
    rng = np.random.default_rng([400, seed])
    program = next(p for p in iter(lambda: generate(rng), None) if not p.writes_arguments)
    scope: dict[str, Any] = {"wg": wg}
    exec(program.text(), scope)
    xs = [wg.tensor(rng.uniform(-1.5, 1.5, shape), dtype=wg.float32) for shape in ((3, 4), (3, 4), (4,), ())]

    def loss(xs: Any) -> Any:
        results = scope["f"](*xs, 0.3, 2)
        return sum((y * y).sum() for y in results) + sum(x.sum() for x in xs) * 0.1

    @wg.compile
    def everything(*xs: Any) -> Any:
        return scope["f"](*xs, 0.3, 2), wg.grad(loss)(xs), wg.hvp(loss, xs, tuple(wg.cos(x) for x in xs))

    before, found = _core.set_tier("executor"), []
    try:
        for tier in ("executor", "generated"):
            _core.set_tier(tier)
            found.append([x.numpy() for x in tree.flatten(everything(*xs))[0]])
    finally:
        _core.set_tier(before)
    for executed, generated in zip(*found):
        np.testing.assert_array_equal(executed, generated, err_msg=program.text())


@pytest.mark.parametrize("mode", fuzz.MODES)
@pytest.mark.parametrize("wrapping", ["plain", "compiled"])
def test_every_mode_agrees_with_the_oracle(mode: str, wrapping: str) -> None:
    program = Program(
        (
            Statement("a0 = wg.sin(x) * wg.tanh(s)", "a0"),
            Statement("a1 = a0.sum(axis=1)", "a1"),
            Statement("a2 = a0 * k + r * j", "a2"),
        ),
        ("a1", "a2"),
    )
    case = fuzz.Case(program, mode, wrapping, "shared", (3, 4), ("0.3", "2"), (), "float64", 5)
    if any(bug(case) for bug in fuzz.KNOWN.values()):
        case = fuzz.replace(case, layout="copied")
    assert fuzz.run(case) is None


def test_wrong_derivatives_are_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    sine = wg.sin
    monkeypatch.setattr(wg, "sin", lambda x: sine(x.detach()) + (x - x.detach()) * 0.5)  # a right value alone
    program = Program(
        (
            Statement("a0 = wg.tanh(x) + y", "a0"),
            Statement("a1 = wg.sin(a0) * 0.5", "a1"),
            Statement("a2 = a1 - r", "a2"),
        ),
        ("a2",),
    )
    case = fuzz.Case(program, "vjp", "compiled", "shared", (3, 4), ("0.3", "2"), (), "float64", 5)
    assert fuzz.run(fuzz.replace(case, mode="value")) is None
    failure = fuzz.run(case)
    assert failure is not None and failure.startswith("AssertionError")
    shrunk, _ = fuzz.shrink(case, failure)
    assert [s.text for s in shrunk.program.statements] == ["a1 = wg.sin(x) * 0.5"]
    assert shrunk.wrapping == "plain" and shrunk.sizes == (1, 1)
