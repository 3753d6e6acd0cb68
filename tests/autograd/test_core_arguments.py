"""Functions of the core called with wrong arguments, in any order: exceptions, never a crash."""

from __future__ import annotations

import functools
import inspect
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import _core
from wengert.errors import ArgumentError
from wengert.program.lower import lower
from wengert.tensors.dual import dual

# They exchange what the whole process uses: hooks, classes of errors, kernels.
SETTERS = {"set_errors", "set_hooks", "set_dtypes", "set_kernel", "set_num_threads", "set_precision", "add_callback"}
NAMES = sorted(n for n in dir(_core) if callable(getattr(_core, n)) and n[0] != "_" and n not in SETTERS)

ROUNDS, CALLS = 2, 2000


class Values:
    """Random values of the kinds that the core takes, and of others."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        leaf = wg.tensor(np.ones((2, 3)), requires_grad=True)
        f = wg.compile(lambda x: wg.tanh(x) * 2 + x.sum())
        result = f(leaf)
        program = lower(f.traces[0].program)
        symbols = [_core.new_symbol(kind, kind, 3, 2) for kind in range(4)]
        empty = _core.Tensor.__new__(_core.Tensor)
        self.tensors = [
            wg.ones((2, 3)), wg.ones(()), wg.zeros((0, 4)), wg.tensor([1, 2]), wg.tensor(True), leaf, leaf * 2, result,
            dual(wg.ones((2,)), wg.ones((2,))), wg.ones((2, 3)).T, wg.asarray(np.ones(4)[::-1]), empty,
        ]  # fmt: skip
        self.numbers = [
            0, 1, -1, 2, 3, 11, 12, 255, 2**31, 2**63 - 1, -(2**63), 2**64, 0.5, float("nan"), 1e308, 3j, True, None,
            "", "mul", "sum", "matmul", "full", "concat", "slice", "map", "reduce", b"ab",
        ]  # fmt: skip
        self.objects = [
            program, f, f.traces[0].derive(1)[0], _core.node_of(result)[0], _core.ProgramBuilder(),
            _core.TapeRecord(), _core.make_guards([]), _core.make_sizes((1,)), *symbols, object(), len,
        ]  # fmt: skip

    def one(self, depth: int = 0) -> Any:
        kind = self.random.random()
        if kind < 0.35:
            return self.random.choice(self.numbers)
        if kind < 0.55:
            return self.random.choice(self.tensors)
        if kind < 0.65 or depth > 2:
            return self.random.choice(self.objects)
        items = [self.one(depth + 1) for _ in range(self.random.choice([0, 1, 2, 3, 5, 20]))]
        return items if kind < 0.82 else tuple(items)

    def function(self) -> Any:
        kind = self.random.random()
        if kind < 0.35:
            return self.random.choice(list(_core.ops.values()))
        if kind < 0.65:
            return getattr(_core, self.random.choice(NAMES))
        owner = self.random.choice([*self.tensors, *self.objects])
        return functools.partial(use_attribute, owner, self.random.choice(native_attributes(type(owner))))


def native_attributes(cls: type) -> list[str]:
    found = [n for n in dir(cls) if n[0] != "_" and not inspect.isfunction(inspect.getattr_static(cls, n))]
    return found or ["__repr__"]


def use_attribute(owner: Any, name: str, *arguments: Any) -> Any:
    found = getattr(owner, name)
    return found(*arguments) if callable(found) else found


def call_at_random(seed: int) -> None:
    values = Values(seed)
    for _ in range(CALLS):
        function = values.function()
        arguments = [values.one() for _ in range(values.random.choice([0, 1, 1, 2, 2, 3, 3, 4, 5, 6]))]
        try:
            function(*arguments)
        except Exception as e:
            assert not isinstance(e, SystemError), (function, arguments)
        _core.set_capturing(False)
        _core.set_grad_enabled(True)
        _core.set_autocast(None)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_calls(seed: int) -> None:
    """In a process of its own, which a crash would end."""
    code = f"from tests.autograd.test_core_arguments import call_at_random; call_at_random({seed})"
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", code], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]


def test_guards_are_closed_as_often_as_they_are_opened() -> None:
    with pytest.raises(ArgumentError, match="close_guards: no list of guards is open"):
        _core.close_guards()
    _core.open_guards()
    assert _core.close_guards() == []


def test_no_symbol_is_made_of_a_number() -> None:
    for n in (-(2**63), -(2**62) - 1):
        with pytest.raises(OverflowError, match="out of range"):
            wg.ones((2, 3)).reshape((n, 3))


F32 = wg.float32.code


@pytest.mark.parametrize(
    ("registers", "code", "message"),
    [
        ([(F32, False, 0, -1, (3,), None)], [("map", "neg", False, [0], 7)], "no register 7"),
        (
            [(F32, False, 0, -1, (3,), None), (F32, False, -1, 1, (3,), None)],
            [("map", "neg", False, [1], 1)],
            "nothing",
        ),
        ([(F32, True, 0, -1, (3,), None), (F32, False, -1, 1, (3,), None)], [("map", "neg", False, [0], 1)], "rows"),
        ([(F32, False, 0, -1, (3,), None), (99, False, -1, 1, (3,), None)], [("map", "neg", False, [0], 1)], "code 99"),
        (
            [(F32, False, 0, -1, (3,), None), (F32, False, -1, 1, (3,), None)],
            [("map", "add", False, [0], 1)],
            "2 operand",
        ),
        ([(F32, False, 0, -1, (3,), None), (0, False, -1, 1, (3,), None)], [("map", "neg", False, [0], 1)], "dtypes"),
        ([(F32, False, 0, -1, (3,), None)], [], "too few instructions"),
    ],
)
def test_groups_that_do_not_fit_together(registers: list[Any], code: list[Any], message: str) -> None:
    with pytest.raises(wg.WengertError, match=message):
        _core.ProgramBuilder().fused((3,), -1, 1, registers, code)


@pytest.mark.parametrize(
    ("steps", "n_slots", "outputs", "message"),
    [
        ([("neg", [1], [2])], 3, [2], "nothing fills"),
        ([("neg", [0], [0])], 1, [0], "slot that is taken"),
        ([("neg", [0], [1])], 2, [5], "nothing fills"),
        ([("add", [0], [1])], 2, [1], "number of operands"),
        ([("neg", [-1], [1])], 2, [1], "nothing fills"),
    ],
)
def test_programs_that_do_not_fit_together(steps: list[Any], n_slots: int, outputs: list[int], message: str) -> None:
    builder = _core.ProgramBuilder()
    for name, operands, results in steps:
        builder.call(name, (), operands, results)
    with pytest.raises(ArgumentError, match=message):
        builder.finish(1, n_slots, [], outputs)


def test_a_buffer_of_other_elements() -> None:
    with pytest.raises(wg.WengertError, match="elements of 1 bytes cannot be read as float64"):
        _core.from_buffer(bytearray(3), wg.float64.code, True)
